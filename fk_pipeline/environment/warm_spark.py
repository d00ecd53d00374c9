"""The warm Spark of a user: a Spark Connect server on this machine that commands find without being told.

A server that we start records itself in the folder of the user that also has its token (`spark_token`): its address,
its process, and the settings that it starts with. A command uses it if Spark in its own process would get the same
settings, or others that a session can set for itself. Settings are recorded as digests: some are secrets.

Nobody has to remove a record: one whose process has ended is removed by the first command that meets it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from fk_pipeline.environment.process import Life, ProcessIdentity
from fk_pipeline.environment.spark_address import PROXIES, Probe, probe_remote
from fk_pipeline.environment.spark_token import folder_of_user, read_private, token_at, write_private
from fk_pipeline.environment.whole_files import whole
from fk_pipeline.errors import EnvironmentNotFit

PROBE_SECONDS = 2.0
"""Seconds that a warm Spark has to respond, before a command starts its own."""

_RECORDS = "warm-*.json"
_BY_PROXY = "gRPC would ask a proxy for it (http_proxy): add 127.0.0.1 to no_proxy"
_START = "'fk-pipeline spark start' starts it again"


@dataclass(frozen=True)
class WarmSpark:
    """A Spark Connect server as it recorded itself.

    Attributes:
        address: its address, `sc://HOST:PORT`.
        process: its process.
        home: the Dagster home in which `up` or `spark start` has started it.
        version: the version of its PySpark.
        settings: a digest of each setting that it started with, by name.
    """

    address: str
    process: ProcessIdentity
    home: str
    version: str
    settings: Mapping[str, str]

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return urlsplit(self.address).port or 0

    @property
    def listens(self) -> bool:
        """Whether its own process listens at the port; another program could be given our token."""
        with suppress(psutil.Error, OSError):
            connections = psutil.Process(self.process.pid).net_connections("tcp")
            return any(
                connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.port
                for connection in connections
            )
        return False

    def other_settings(self, expected: Mapping[str, str]) -> list[str]:
        """Returns the names of the settings that differ from those which it started with; it may have more."""
        return sorted(name for name, digest in _digests(expected).items() if self.settings.get(name) != digest)


@dataclass(frozen=True)
class ChosenSpark:
    """The Spark that a command uses.

    Attributes:
        address: that of the warm Spark; None for another one.
        settings: what its session sets for itself.
        notice: the line that says so; empty if there was nothing to choose.
    """

    address: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    notice: str = ""


def record_warm(address: str, home: Path, settings: Mapping[str, str]) -> None:
    """Records this process, which is about to become a server, for the commands of its user.

    Without a folder of the user it is not recorded: commands then have to be given its address.
    """
    fields = {
        "address": address,
        "process": ProcessIdentity.of().as_json(),
        "home": str(home),
        "version": version("pyspark"),
        "settings": _digests(settings),
    }
    with suppress(OSError, RuntimeError):
        write_private(folder_of_user() / _RECORDS.replace("*", secrets.token_hex(8)), json.dumps(fields))


def warm_sparks() -> list[WarmSpark]:
    """Returns the recorded servers, also those that have ended, the latest first; not those of other machines."""
    sparks = [warm for _, warm in _records() if warm.process.life() is not Life.UNKNOWN]
    return sorted(sparks, key=lambda warm: warm.process.started, reverse=True)


def forget_warm(process: ProcessIdentity) -> None:
    """Removes the record of a server that has ended."""
    for file, warm in _records():
        if warm.process == process:
            with suppress(OSError):
                file.unlink()


def usable(environment: Mapping[str, str]) -> list[WarmSpark]:
    """Returns the servers that a command may use if their settings fit: none if the environment names another Spark."""
    return [] if _is_decided(environment) else [warm for warm in warm_sparks() if warm.process.life() is Life.ALIVE]


def choose(
    environment: Mapping[str, str],
    expected: Mapping[str, str],
    candidates: Sequence[WarmSpark],
    probe: Callable[[str, Collection[str]], Probe] = lambda address, names: probe_remote(address, names, PROBE_SECONDS),
) -> ChosenSpark:
    """Returns the Spark that a command uses: the latest warm one that fits, else one of its own and why.

    Args:
        environment: the environment variables; SPARK_MASTER and FK_SPARK_REMOTE have decided already.
        expected: the settings with which Spark in this process would start.
        candidates: the recorded servers, in order.
        probe: asks the server at an address for its version, and which of some settings a session can set.
    """
    if _is_decided(environment):
        return ChosenSpark()
    reasons = []
    for warm in candidates:
        choice, reason = (None, _BY_PROXY) if goes_to_proxy(environment) else _of(warm, expected, probe)
        if choice is not None:
            return choice
        reasons.append(f"the warm one at {warm.address} is not used: {reason}")
    return ChosenSpark(notice=f"Spark starts in this process; {reasons[0]}." if reasons else "")


def goes_to_proxy(environment: Mapping[str, str]) -> bool:
    """Returns whether gRPC would ask a proxy for an address of this machine: it exempts none by itself."""
    exempt = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    return any(environment.get(name) for name in PROXIES) and "127.0.0.1" not in exempt.replace(" ", "").split(",")


def _is_decided(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("FK_SPARK_REMOTE") or environment.get("SPARK_MASTER"))


def _of(
    warm: WarmSpark, expected: Mapping[str, str], probe: Callable[[str, Collection[str]], Probe]
) -> tuple[ChosenSpark | None, str]:
    """Returns the choice of a warm Spark; None with the reason if it does not fit."""
    if warm.process.life() is not Life.ALIVE:
        forget_warm(warm.process)
        return None, f"it has ended, {_START}"
    client = version("pyspark")
    if warm.version != client:
        return None, f"it is Spark {warm.version}, and this is PySpark {client}"
    if not warm.listens:
        return None, "it is still starting"
    if token_at(warm.port) is None:
        return None, f"its token is not there any more, 'fk-pipeline spark stop' ends it, and {_START}"
    others = warm.other_settings(expected)
    try:
        probed = probe(warm.address, others)
    except EnvironmentNotFit as error:
        return None, error.what
    if probed.version != client:
        return None, f"it is Spark {probed.version}, and this is PySpark {client}"
    lacking = [name for name in others if name not in probed.modifiable]
    if lacking:
        return None, f"it was started with other values of {', '.join(lacking)}"
    settings = {name: expected[name] for name in others}
    return ChosenSpark(warm.address, settings, f"Spark is the warm one at {warm.address}."), ""


def _digests(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: hashlib.sha256(f"{name}={value}".encode()).hexdigest()[:32] for name, value in settings.items()}


def _records() -> list[tuple[Path, WarmSpark]]:
    """Returns the records of this user that are whole, with their files."""
    try:
        files = sorted(folder_of_user().glob(_RECORDS))
    except (OSError, RuntimeError):
        return []
    read = ((file, read_private(file)) for file in files)
    records = ((file, whole(line[1].encode(), _warm)) for file, line in read if line is not None)
    return [(file, record) for file, record in records if record is not None]


def _warm(fields: dict[str, Any]) -> WarmSpark:
    if not isinstance(fields["settings"], dict):
        raise TypeError("no settings")
    return WarmSpark(**fields | {"process": ProcessIdentity.from_json(fields["process"])})
