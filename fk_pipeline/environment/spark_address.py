"""The address of a Spark outside this process: whether a server responds there, and with which version.

Spark's own clients try for minutes. Here a check takes some seconds and raises one error.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fk_pipeline.environment.spark_token import is_this_machine, with_token
from fk_pipeline.errors import EnvironmentNotFit

SECONDS = 4.0
"""Seconds to wait for a response."""

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_OR_UNSET = "or unset {}: Spark runs in this process then"
_NONE = "none"


@dataclass(frozen=True)
class Probe:
    """What a Spark Connect server says of itself.

    Attributes:
        version: the version of its Spark.
        modifiable: those of the settings that a session can set for itself.
    """

    version: str
    modifiable: frozenset[str] = frozenset()


def remote_of(environment: Mapping[str, str]) -> str | None:
    """Returns the address of a Spark Connect server that FK_SPARK_REMOTE names; None if it is not set, or `none`."""
    remote = environment.get("FK_SPARK_REMOTE", "")
    return None if remote.lower() in ("", _NONE) else remote


def probe_remote(remote: str, settings: Collection[str], seconds: float) -> Probe:
    """Returns what the Spark Connect server at an address says of itself.

    Args:
        remote: the address.
        settings: names of settings.
        seconds: the time that it has for each of two responses.

    Raises:
        EnvironmentNotFit: it does not respond in time, or refuses this client.
    """
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    try:
        return _probe(DefaultChannelBuilder(with_token(remote)), settings, seconds)
    except Exception as error:  # gRPC raises many kinds of errors for an unexpected peer
        raise EnvironmentNotFit(f"it does not respond as it should: {_sentence(error)}", where=remote) from error


def check_remote(remote: str) -> str:
    """Returns the version of the Spark Connect server at an address.

    Args:
        remote: the value of FK_SPARK_REMOTE, `sc://HOST:PORT` with parameters.

    Raises:
        EnvironmentNotFit: it is no such address, no server responds there, or the server has another version than this
            client. The message does not contain the parameters of the address, which may be secrets.
    """
    shown = remote.split(";", maxsplit=1)[0]
    or_unset = _OR_UNSET.format("FK_SPARK_REMOTE")
    try:
        from pyspark.sql.connect.client.core import DefaultChannelBuilder

        builder = DefaultChannelBuilder(with_token(remote))
        host, port = urlsplit(f"//{builder.endpoint}").hostname or "", urlsplit(f"//{builder.endpoint}").port or 0
    except (ValueError, ImportError) as error:
        cluster = "a cluster's address is said by SPARK_MASTER, " if remote.startswith(("spark:", "local")) else ""
        raise EnvironmentNotFit(
            f"FK_SPARK_REMOTE is no address of a Spark Connect server: {_sentence(error)}",
            where=shown,
            fix=f"write sc://HOST:PORT, such as sc://localhost:15002; {cluster}{or_unset}",
        ) from error
    wrong = None if any(os.environ.get(name) for name in PROXIES) else _silence(host, port)
    try:
        version = None if wrong else _probe(builder, (), SECONDS).version
    except Exception as error:  # noqa: BLE001 - gRPC raises many kinds of errors for an unexpected peer
        version, wrong = None, _sentence(error)
        if "UNAUTHENTICATED" in str(error):
            raise EnvironmentNotFit(
                f"the Spark Connect server refuses this client: {wrong}",
                where=shown,
                why="a server of 'fk-pipeline up' takes the commands of its user only, by a token in a file",
                fix="if it is yours, 'fk-pipeline down' and 'up', or 'spark stop' and 'start', make a new token; else "
                f"add ';token=...' to FK_SPARK_REMOTE, or start a server of your own at another port, {or_unset}",
            ) from None
    if version is None:
        raise EnvironmentNotFit(
            f"no Spark Connect server answers: {wrong}",
            where=shown,
            why="whatever needs Spark stops here",
            fix=f"start the server{_starts(host, port)}, correct FK_SPARK_REMOTE, {or_unset}",
        )
    client = importlib.metadata.version("pyspark")
    if _series(version) != _series(client):
        raise EnvironmentNotFit(
            f"the Spark Connect server is Spark {version}, and this client is PySpark {client}",
            where=shown,
            why="servers and clients of different versions do not understand each other in all they say",
            fix=f"let a server of Spark {_series(client)} listen there, {or_unset}",
        )
    return version


def _starts(host: str, port: int) -> str:
    """Returns the words about the command that starts a server at an address of this machine."""
    return f" ('fk-pipeline spark start --spark-port {port}' starts one)" if is_this_machine(host) else ""


def check_master(master: str) -> None:
    """Raises an error unless Spark knows the form of a cluster's address and a standalone cluster's master responds.

    Args:
        master: the value of SPARK_MASTER or `spark.master`.

    Raises:
        EnvironmentNotFit: it is no such address, or no master responds there.
    """
    or_unset = _OR_UNSET.format("SPARK_MASTER")
    if not re.match(r"(local(\[.*\]|-cluster\[.*\])?|yarn)$|spark://.|k8s://.", master):
        connect = "the address of a Spark Connect server is said by FK_SPARK_REMOTE, " if "sc://" in master else ""
        raise EnvironmentNotFit(
            "this is no address of a Spark cluster",
            where=f"SPARK_MASTER {master}",
            fix=f"write spark://HOST:7077, yarn, k8s://... or local[*]; {connect}{or_unset}",
        )
    if not master.startswith("spark://"):
        return
    silences = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        silence = _silence(host, int(port)) if port.isdigit() else f"{place} is not HOST:PORT"
        if silence is None:
            return
        silences.append(silence)
    raise EnvironmentNotFit(
        f"no master of a Spark cluster answers: {'; '.join(silences)}",
        where=master,
        why="whatever needs Spark stops here",
        fix=f"start the cluster, correct SPARK_MASTER, {or_unset}",
    )


def _silence(host: str, port: int) -> str | None:
    """Returns the reason why no connection to a port is possible; None if a program listens there."""
    try:
        with socket.create_connection((host.strip("[]"), port), timeout=SECONDS):
            return None
    except (OSError, ValueError, OverflowError) as error:
        return f"{host}:{port}: {_sentence(error)}"


def _probe(builder: Any, settings: Collection[str], seconds: float) -> Probe:
    import grpc
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

    client = SparkConnectClient(builder, retry_policy={"max_retries": 0})

    def of_session(request: Any) -> Any:
        request.session_id = client._session_id  # noqa: SLF001
        request.user_context.user_id = client._user_id or ""  # noqa: SLF001
        return request

    try:
        grpc.channel_ready_future(client._channel).result(timeout=seconds)  # noqa: SLF001 - a deadline, and no retries
        stub: Any = base_pb2_grpc.SparkConnectServiceStub(client._channel)  # type: ignore[no-untyped-call]  # noqa: SLF001
        limits = {"metadata": builder.metadata(), "timeout": seconds}
        request = of_session(base_pb2.AnalyzePlanRequest())
        request.spark_version.SetInParent()
        version = str(stub.AnalyzePlan(request, **limits).spark_version.version)
        modifiable = frozenset[str]()
        if settings:
            of_settings = of_session(base_pb2.ConfigRequest())
            of_settings.operation.is_modifiable.keys.extend(settings)
            pairs = stub.Config(of_settings, **limits).pairs
            modifiable = frozenset(pair.key for pair in pairs if pair.value == "true")
        stub.ReleaseSession(of_session(base_pb2.ReleaseSessionRequest()), **limits)
        return Probe(version, modifiable)
    except grpc.FutureTimeoutError:
        raise TimeoutError(f"what listens there does not speak gRPC within {seconds:.0f} s") from None
    finally:
        client.close()


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _sentence(error: BaseException) -> str:
    """Returns the message of an error of a socket, of gRPC or of PySpark, in one line."""
    details = getattr(error, "details", None)
    text = str(details() if callable(details) else getattr(error, "strerror", None) or error)
    text = re.sub(r"^\[\w+\] (Invalid URL for Spark Connect: )?", "", text.strip().splitlines()[0] if text else "")
    return text.split(" Please update")[0].rstrip(".") or type(error).__name__
