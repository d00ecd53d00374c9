"""A Spark that is not there: one line, status 3, within seconds; `doctor` says the same. No Spark is started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

from fk_pipeline.environment.spark_address import check_master, check_remote
from fk_pipeline.errors import EnvironmentNotFit
from tests.sessions import free_port

SECONDS = 10.0


@pytest.fixture
def closed() -> int:
    """A port at which nobody listens."""
    return free_port()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port at which somebody listens who says nothing."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.listen(8)
        yield int(made.getsockname()[1])


class Server(base_pb2_grpc.SparkConnectServiceServicer):  # type: ignore[misc]
    """As much of a Spark Connect server as tells a version."""

    def __init__(self, version: str) -> None:
        self.version, self.released = version, threading.Event()

    def AnalyzePlan(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the protocol
        if not self.version:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")
        said = base_pb2.AnalyzePlanResponse(session_id=request.session_id)
        said.spark_version.version = self.version
        return said

    def ReleaseSession(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        self.released.set()
        return base_pb2.ReleaseSessionResponse(session_id=request.session_id)


@pytest.fixture
def server() -> Iterator[Any]:
    """Starts servers of any version; returns their addresses."""
    started = []

    def start(version: str) -> tuple[str, Server]:
        made = grpc.server(futures.ThreadPoolExecutor(2))
        service = Server(version)
        base_pb2_grpc.add_SparkConnectServiceServicer_to_server(service, made)
        port = made.add_insecure_port("127.0.0.1:0")
        made.start()
        started.append(made)
        return f"sc://127.0.0.1:{port}", service

    yield start
    for one in started:
        one.stop(None)


def command(*args: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fk_pipeline.cli.main", *map(str, args)],
        env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_where_no_spark_is_an_error_says_why_within_seconds(closed: int, silent: int, server: Any) -> None:
    cases = [
        (check_remote, f"sc://127.0.0.1:{silent}/;token=s3cr3t", "no Spark Connect server answers", "not speak gRPC"),
        (check_remote, f"sc://127.0.0.1:{closed}", "no Spark Connect server", f"spark start --spark-port {closed}'"),
        (check_remote, "sc://no.such.host.invalid", "no Spark Connect server answers", "no.such.host.invalid:15002"),
        (check_remote, "spark://127.0.0.1:7077", "is no address of a Spark Connect server", "SPARK_MASTER"),
        (check_remote, "nonsense", "is no address of a Spark Connect server", "sc://HOST:PORT"),
        (check_remote, "sc://127.0.0.1:port", "is no address of a Spark Connect server", "sc://HOST:PORT"),
        (check_remote, "sc://127.0.0.1:99999", "is no address of a Spark Connect server", "sc://HOST:PORT"),
        (check_remote, server("")[0], "the Spark Connect server refuses this client: no token", "FK_SPARK_REMOTE"),
        (
            check_master,
            f"spark://127.0.0.1:{closed},localhost:{closed}",
            "no master of a Spark cluster",
            "; localhost:",
        ),
        (check_master, "spark://nowhere", "no master of a Spark cluster answers", "nowhere is not HOST:PORT"),
        (check_master, f"sc://127.0.0.1:{closed}", "this is no address of a Spark cluster", "FK_SPARK_REMOTE"),
        (check_master, "nonsense", "this is no address of a Spark cluster", "spark://HOST:7077"),
    ]
    for check, address, what, more in cases:
        began = time.monotonic()
        with pytest.raises(EnvironmentNotFit) as found:
            check(address)
        assert time.monotonic() - began < SECONDS, address
        assert what in found.value.what, address
        assert more in str(found.value), address
        assert address.split(";")[0] in found.value.where
        assert "s3cr3t" not in str(found.value)
    for master in ("local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn", "k8s://https://host:443"):
        check_master(master)
    check_master(f"spark://127.0.0.1:{closed},127.0.0.1:{silent}")


@pytest.mark.slow
def test_run_and_doctor_say_so_in_one_error_with_status_3(file: Path, closed: int, server: Any) -> None:
    cases = [
        ("FK_SPARK_REMOTE", f"sc://127.0.0.1:{closed}", "no Spark Connect server answers: 127.0.0.1:"),
        ("FK_SPARK_REMOTE", server("3.5.1")[0], "the Spark Connect server is Spark 3.5.1, and this client is PySpark "),
        ("SPARK_MASTER", f"spark://127.0.0.1:{closed}", "no master of a Spark cluster answers: 127.0.0.1:"),
    ]
    plain = {"FK_SPARK_REMOTE": "", "SPARK_MASTER": "local[*]"}
    for name, address, what in cases:
        began = time.monotonic()
        done = command("run", file, **plain | {name: address})
        assert time.monotonic() - began < 2 * SECONDS, "the command itself takes some seconds to start"
        assert (done.returncode, done.stdout) == (3, ""), done.stderr
        told = [line for line in done.stderr.strip().splitlines() if not line.startswith("note: ")]
        first, *why, fix = told
        assert first.startswith(f"EnvironmentNotFit: {address}: {what}"), done.stderr
        assert len(why) == 1
        assert fix.startswith("  Fix: "), done.stderr
    for name, address, what in cases[1:]:
        looked = command("doctor", file, "--format", "json", **plain | {name: address})
        assert looked.returncode == 3, looked.stderr
        [engine] = [one for one in json.loads(looked.stdout) if one["name"] == "Engine"]
        assert engine["found"].startswith(f"{address}: {what}")
        assert not engine["ok"]
        assert engine["fix"]


def test_a_server_of_our_version_is_asked_once_and_left_without_a_session(server: Any) -> None:
    remote, service = server("4.2.7")
    assert check_remote(remote) == "4.2.7"
    assert service.released.wait(5)
    with pytest.raises(EnvironmentNotFit, match=r"is Spark 4\.3\.0"):
        check_remote(server("4.3.0")[0])
