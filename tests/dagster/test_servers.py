"""`up` and `down` with servers that cost nothing: what runs stays, what died is started, what is wrong is said."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from fk_pipeline.demo.files import prepare_demo
from fk_pipeline.errors import EnvironmentNotFit, UsageError
from fk_pipeline.servers import up as servers
from fk_pipeline.servers.processes import Servers
from fk_pipeline.servers.up import Ports, down, up
from tests.dagster.graphql import wait
from tests.dagster.servers import free_port

pytestmark = [  # `up` returns and leaves its servers running
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

STAND_IN = """#!{python}
import http.server, os, subprocess, sys, time

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

if sys.argv[2] == os.environ.get("DIES"):
    sys.exit("something is wrong with it")
subprocess.Popen(["sleep", "60"])
port = next((int(v) for name, v in zip(sys.argv, sys.argv[1:]) if name in ("-p", "--port")), None)
if port is None:
    time.sleep(60)
http.server.HTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dict[str, int]]]:
    """Starts the stand-ins of the servers over the demo; process ids by server."""
    stand_in = tmp_path / "python"
    stand_in.write_text(STAND_IN.format(python=sys.executable))
    stand_in.chmod(0o755)
    monkeypatch.setattr(servers.sys, "executable", str(stand_in))
    monkeypatch.setattr(servers, "_is_heard_of", lambda daemon, _: daemon.alive)
    monkeypatch.delenv("FK_SPARK_REMOTE", raising=False)
    file, home, ports = prepare_demo(tmp_path / "demo"), tmp_path / "home", Ports(free_port(), free_port())

    def begin(pipeline: Path = file) -> dict[str, int]:
        return {server.name: server.process.pid for server in up([pipeline], home, ports)}

    yield begin
    down(home)


def family_of(pids: dict[str, int]) -> list[psutil.Process]:
    """The servers and what they have started."""
    leaders = [psutil.Process(pid) for pid in pids.values()]
    return [*leaders, *(child for one in leaders for child in one.children(recursive=True))]


@pytest.mark.slow
def test_what_runs_stays_and_what_died_is_started(start: Callable[..., dict[str, int]], tmp_path: Path) -> None:
    first = start()
    assert list(first) == ["spark", "webserver", "daemon"]
    assert start() == first
    os.kill(first["daemon"], signal.SIGKILL)
    wait(lambda: not Servers(tmp_path / "home").known()["daemon"].alive, 10)
    second = start()
    assert {name for name in first if first[name] != second[name]} == {"daemon"}
    wait(lambda: len(family_of(second)) == 6, 10)
    family = family_of(second)
    down(tmp_path / "home")
    assert not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert Servers(tmp_path / "home").known() == {}


def test_a_server_that_ends_is_told_with_its_words_and_what_runs_can_be_ended(
    start: Callable[..., dict[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIES", "dagster_webserver")
    with pytest.raises(EnvironmentNotFit, match="webserver ended: something is wrong with it"):
        start()
    known = Servers(tmp_path / "home").known()
    assert {name for name, one in known.items() if one.alive} == {"spark"}
    monkeypatch.delenv("DIES")
    assert start()["spark"] == known["spark"].process.pid


@pytest.mark.slow
def test_a_port_of_somebody_else_and_other_pipelines_are_refused(
    start: Callable[..., dict[str, int]], tmp_path: Path
) -> None:
    running = start()
    other = prepare_demo(tmp_path / "other")
    with pytest.raises(UsageError, match=r"serves .*demo.* already") as refused:
        start(other)
    assert "down" in str(refused.value.fix)
    assert start() == running
    down(tmp_path / "home")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = Ports(free_port(), taken.getsockname()[1])
        with pytest.raises(UsageError, match=f"another program listens at port {ports.spark}"):
            up([other], tmp_path / "home", ports)
    with pytest.raises(UsageError, match="no pipelines"):
        up([], tmp_path / "home", ports)
