"""`fk-pipeline` for the shell of a test, run by the test's own process, whose Spark is warm.

A process of its own per command would start a Java machine each time: a quarter of a minute, and nothing more shown.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fk_pipeline.cli.main import app_main
from tests.docs.blocks import ROOT

LONGEST_SECONDS = 600
"""A block that takes longer is ended."""

_CLIENT = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    asked = {{"args": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}}
    server.sendall(json.dumps(asked).encode() + b"\\n")
    with server.makefile("rb") as stream:
        answer = json.loads(stream.readline())
sys.stdout.write(answer["out"])
sys.stderr.write(answer["err"])
sys.exit(answer["status"])
"""


class Shell:
    """Runs scripts in which `fk-pipeline` is the command of this process, and `$CHECKOUT` this repository."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self._folder = folder
        self._address = str(tools / "command.sock")
        self._path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        command = tools / "fk-pipeline"
        command.write_text(_CLIENT.format(python=sys.executable, address=self._address))
        command.chmod(0o755)

    def run(self, script: str) -> tuple[int, str]:
        """Exit status and everything that was printed."""
        environment = os.environ | {"PATH": self._path, "CHECKOUT": str(ROOT)}
        output = self._folder.parent / "output"
        with socket.socket(socket.AF_UNIX) as server, output.open("wb") as said:
            Path(self._address).unlink(missing_ok=True)
            server.bind(self._address)
            server.listen()
            server.settimeout(0.1)
            with subprocess.Popen(
                ["bash", "-eu", "-c", script],
                cwd=self._folder,
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            ) as shell:
                until = time.monotonic() + LONGEST_SECONDS
                while shell.poll() is None:
                    if time.monotonic() > until:  # a server that stays, say
                        os.killpg(shell.pid, signal.SIGKILL)
                    with contextlib.suppress(TimeoutError):
                        connection, _ = server.accept()
                        _answer(connection)
        return shell.returncode, output.read_text(errors="replace")


def _answer(connection: socket.socket) -> None:
    """Runs one command as it was asked for."""
    connection.settimeout(None)
    with connection, connection.makefile("rwb") as stream:
        asked = json.loads(stream.readline())
        out, err = io.StringIO(), io.StringIO()
        with (
            _as(asked["args"], asked["cwd"], asked["env"]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                app_main()
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
        answer = {"out": out.getvalue(), "err": err.getvalue(), "status": status}
        stream.write(json.dumps(answer).encode() + b"\n")


@contextlib.contextmanager
def _as(args: list[str], folder: str, environment: dict[str, str]) -> Iterator[None]:
    """This process, for a while, as the one that asked."""
    before, argv = dict(os.environ), sys.argv
    with contextlib.chdir(folder):
        os.environ.update(environment)
        sys.argv = ["fk-pipeline", *args]
        try:
            yield
        finally:
            sys.argv = argv
            os.environ.clear()
            os.environ.update(before)
