"""Sail as the engine: a Spark Connect server in Rust, in this process, for one machine and without a JVM.

`FK_SPARK_REMOTE=sail` chooses it. Who needs to know asks `is_sail`; what is different is in `cdc.sail` and
`tables.sail`, and what Sail cannot do in `docs/how-to/sail.md`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fk_pipeline.errors import EnvironmentNotFit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "sail"
"""What `FK_SPARK_REMOTE` says."""

SETTINGS = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "1000"}
"""Up to so many files of a table are read as Parquet: Sail reads these quicker than by the log."""

_server: tuple[int, Any] | None = None
"""The process that started it, and the server."""
_sessions: set[str] = set()


def is_chosen(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether `start_session` would return a session on Sail."""
    return environment.get("FK_SPARK_REMOTE") == NAME


def installed() -> str | None:
    """The version of Sail that is installed; None when it is not."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pysail")
    except PackageNotFoundError:
        return None


def start() -> SparkSession:
    """A session of a Sail server in this process, on a free port of 127.0.0.1. The server ends with the process.

    Raises:
        EnvironmentNotFit: Sail is not installed.
    """
    global _server  # noqa: PLW0603 - one server per process
    os.environ.setdefault("RUST_LOG", "error")  # it says that it does not cache, once per frame
    try:
        from pysail.spark import SparkConnectServer
    except ImportError:
        raise EnvironmentNotFit(
            "FK_SPARK_REMOTE is 'sail', and Sail is not installed",
            fix="pip install 'fk-pipeline[sail]', or unset FK_SPARK_REMOTE to run on Spark",
        ) from None
    from pyspark.sql import SparkSession

    if _server is None or _server[0] != os.getpid():  # its threads do not come along into a copy of a process
        started = SparkConnectServer("127.0.0.1", 0)
        started.start(background=True)
        _server = os.getpid(), started
    host, port = _server[1].listening_address
    builder: Any = SparkSession.builder
    session: SparkSession = builder.remote(f"sc://{host}:{port}").getOrCreate()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    _sessions.add(session.session_id)  # type: ignore[attr-defined]
    return session


def is_sail(session: SparkSession) -> bool:
    """Whether a session is one that `start` made."""
    return getattr(session, "session_id", None) in _sessions
