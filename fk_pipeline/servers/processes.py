"""Long-lived processes: started in sessions of their own, recorded in a file, ended with all processes they started.

A server begins only after it was recorded: a command that dies while it starts one leaves none that nobody knows.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fk_pipeline.environment.process import Life, ProcessIdentity
from fk_pipeline.environment.whole_files import read_whole, write_whole
from fk_pipeline.errors import EnvironmentNotFit

END_SECONDS = 15.0
"""Seconds that a process has to end before it is killed."""

_WAITING = ("/bin/sh", "-c", 'read -r line && exec "$@" < /dev/null', "sh")
"""Begins the command that follows, in the same process, when it has read a line; ends if there comes none."""


@dataclass(frozen=True)
class Server:
    """A server that was started.

    Attributes:
        name: the name of the server.
        url: the URL of the server; empty if it has none.
        log: the file with its output.
        process: its process.
        serves: the pipeline files, separated like PATH.
        automation: `on` if it has the sensors and schedules of all of these on from the start.
    """

    name: str
    url: str
    log: Path
    process: ProcessIdentity
    serves: str
    automation: str = "off"

    @property
    def alive(self) -> bool:
        """Whether the server runs on this machine."""
        return self.process.life() is Life.ALIVE

    def as_json(self) -> dict[str, Any]:
        """Returns what a command prints of the server."""
        return {"name": self.name, "url": self.url, "pid": self.process.pid, "log": str(self.log)}


class Servers:
    """The servers of a Dagster home, recorded in its file `servers.json`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file = home / "servers.json"

    def known(self) -> dict[str, Server]:
        """Returns the servers that were started and not ended, also those that have died, by name."""
        return read_whole(self.file, _servers) or {}

    def _remember(self, servers: Mapping[str, Server]) -> None:
        entries = {
            name: vars(server) | {"log": str(server.log), "process": server.process.as_json()}
            for name, server in servers.items()
        }
        write_whole(self.file, f"{json.dumps(entries, indent=2)}\n".encode())

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str], url: str = "") -> Server:
        """Starts a server in the home and records it; `stop` also ends its children."""
        log = self.home / "servers" / f"{name}.log"  # Dagster moves files out of `logs`
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*_WAITING, *command], cwd=self.home, env=dict(environment), stdin=subprocess.PIPE, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as pipe:  # the end of this process without a line ends the server
            own = ProcessIdentity.of(process.pid)
            automation = environment.get("FK_AUTOMATION", "off")
            server = Server(name, url, log, own, environment["FK_PIPELINES"], automation)
            self._remember(self.known() | {name: server})
            pipe.write(b"begin\n")
        return server

    def stop(self, server: Server) -> None:
        """Ends a server and all processes that it started, and removes it from the record."""
        if server.alive:
            with suppress(psutil.NoSuchProcess):
                _end(psutil.Process(server.process.pid))
        self._remember({name: other for name, other in self.known().items() if name != server.name})


def _servers(entries: dict[str, Any]) -> dict[str, Server]:
    return {
        name: Server(**entry | {"log": Path(entry["log"]), "process": ProcessIdentity.from_json(entry["process"])})
        for name, entry in entries.items()
    }


def _end(leader: psutil.Process) -> None:
    """Ends the leader of a session, and then the processes that it started."""
    children = leader.children(recursive=True)
    leader.terminate()
    _, left = psutil.wait_procs([leader], timeout=END_SECONDS)
    _, left = psutil.wait_procs([*left, *children], timeout=1)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    with suppress(ProcessLookupError, PermissionError):  # processes that it started after its children were listed
        os.killpg(leader.pid, signal.SIGKILL)
    psutil.wait_procs(left, timeout=5)


def wait_for(server: Server, ready: Callable[[], bool], seconds: float) -> None:
    """Waits until a server is ready.

    Raises:
        EnvironmentNotFit: the server ended, or was not ready in time; with the end of its log.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if not server.alive or time.monotonic() > deadline:
            lines = server.log.read_text(errors="replace").strip().splitlines()[-5:]
            how = "did not answer" if server.alive else "ended"
            raise EnvironmentNotFit(
                f"{server.name} {how}: {' | '.join(lines) or 'it printed nothing'}",
                where=str(server.log),
                fix="mend what it says, and run the command again",
            )
        time.sleep(0.2)


def answers(host: str, port: int) -> bool:
    """Returns whether a program listens at a port."""
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
