"""The kinds of Spark session for the tests. FK_TEST_SPARK names one; the default is `classic`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.servers.processes import answers
from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings
from fk_pipeline.store.settings import INTERPRETED

READY_SECONDS = 180
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Options of Java: only its first compiler, because the second one does not pay off in tests. The default code cache of
48 MB is full after some minutes; from then on, Java compiles again the code that it has just discarded."""

NO_PYTHON = "/no/python/on/executors"
"""The Python that executors would start for a Python function. It does not exist, because no stage has one."""


@contextmanager
def classic(_: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """Yields a session whose Java process belongs to this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", QUICK)
        patch.setenv("PYSPARK_PYTHON", NO_PYTHON)
        session = start_session(Settings(shuffle_partitions=2, spark={"spark.master": "local[2]", **more}), {})
    yield session
    session.stop()


@contextmanager
def interpreted(folder: Path) -> Iterator[SparkSession]:
    """Yields such a session that compiles a plan only where our code asks for it: a seventh less work for few rows."""
    with classic(folder, INTERPRETED) as session:
        yield session


@contextmanager
def connect(folder: Path) -> Iterator[SparkSession]:
    """Yields a session of a Spark Connect server that is started and stopped for it; commands do not find it."""
    environment = {
        "SPARK_MASTER": "local[2]",
        "JDK_JAVA_OPTIONS": QUICK,
        "PYSPARK_PYTHON": NO_PYTHON,
        "FK_PIPELINES": "",
    }
    with connect_server(folder, environment) as remote, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FK_SPARK_REMOTE", "none")
        session = start_session(Settings(), {"FK_SPARK_REMOTE": remote})
        session.conf.set("spark.sql.shuffle.partitions", "2")
        yield session
        session.stop()


@contextmanager
def connect_server(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Starts our Spark Connect server on a free port, with a log in a folder; yields its URL, then stops it."""
    port, log = free_port(), folder / "connect.log"
    command = [sys.executable, "-m", "fk_pipeline.servers.spark", "--port", str(port)]
    with log.open("wb") as said:
        server = subprocess.Popen(command, env=os.environ | environment, stdout=said, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + READY_SECONDS
        while not answers("127.0.0.1", port):
            assert server.poll() is None, f"the Connect server ended: {log.read_text()}"
            assert time.monotonic() < until, f"the Connect server is not ready: {log.read_text()}"
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        end(server)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stops a process that a test has started."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


SESSIONS: dict[str, Callable[[Path], AbstractContextManager[SparkSession]]] = {
    "classic": classic,
    "interpreted": interpreted,
    "connect": connect,
}
