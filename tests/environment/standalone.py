"""A standalone Spark cluster on this machine, of the JARs that come with pyspark: a master and two workers."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyspark

from tests.sessions import NO_PYTHON, QUICK, end, free_port

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
READY_SECONDS = 120


class Cluster:
    """A master and its workers, a core and 1 GB each, as processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port, self.web = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master", "deploy.master.Master", "--port", str(port), "--webui-port", str(self.web))
        self._wait("the master answers", lambda: bool(self.state()))
        for work in self.works:
            options = ["--cores", "1", "--memory", "1G", "--work-dir", str(work), "--webui-port", str(free_port())]
            self._start(work.name, "deploy.worker.Worker", *options, self.url)
        self._wait("the workers are known", lambda: self.state().get("aliveworkers") == WORKERS)

    @property
    def works(self) -> list[Path]:
        """Per worker the folder in which it lets executors work: `APPLICATION/EXECUTOR`, with what was sent to it."""
        return [self.folder / f"worker{number}" for number in range(WORKERS)]

    def executors(self, application: str) -> list[list[str]]:
        """Per worker the numbers of the executors that it started for an application."""
        return [sorted(one.name for one in (work / application).glob("[0-9]*")) for work in self.works]

    def sent(self, application: str) -> set[str]:
        """The names of the JARs that executors got from the driver of an application."""
        return {jar.name for work in self.works for jar in (work / application).glob("*/*.jar")}

    def state(self) -> dict[str, Any]:
        """What the master says of itself; empty while it does not answer."""
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.web}/json/", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
        return {}

    def end(self) -> None:
        """Ends the workers, what they have started, and the master."""
        started = [child for one in self._processes for child in _children(one.pid)]
        for process in reversed(self._processes):
            end(process)
        for child in started:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(started, timeout=20)

    def _start(self, name: str, role: str, *arguments: str) -> None:
        environment = os.environ | {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "JDK_JAVA_OPTIONS": QUICK,
            "PYSPARK_PYTHON": NO_PYTHON,
        }
        command = [
            str(SPARK_HOME / "bin" / "spark-class"),
            f"org.apache.spark.{role}",
            "--host",
            "127.0.0.1",
            *arguments,
        ]
        with (self.folder / f"{name}.log").open("wb") as said:
            self._processes.append(subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT))

    def _wait(self, what: str, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + READY_SECONDS
        while not reached():
            ended = [process.args for process in self._processes if process.poll() is not None]
            if ended or time.monotonic() > until:
                logs = "\n".join(log.read_text() for log in sorted(self.folder.glob("*.log")))
                self.end()
                raise AssertionError(f"{what}: not after {READY_SECONDS} s, or ended: {ended}\n{logs}")
            time.sleep(0.3)


def _children(number: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(psutil.Process(number).children(recursive=True))
    return []


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster whose processes have ended when this does, also if a test fails."""
    made = Cluster(folder)
    try:
        yield made
    finally:
        made.end()
