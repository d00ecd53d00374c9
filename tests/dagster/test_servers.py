"""`up` and `down` with servers that cost nothing: what runs stays, what died is started, what is wrong is said."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.demo.files import prepare_demo
from fk_pipeline.environment.spark_address import Probe
from fk_pipeline.environment.spark_token import token_at
from fk_pipeline.environment.warm_spark import choose, warm_sparks
from fk_pipeline.errors import EnvironmentNotFit, UsageError
from fk_pipeline.servers import up as servers
from fk_pipeline.servers.processes import Servers
from fk_pipeline.servers.up import Ports, down, up
from fk_pipeline.session import comparable_conf
from tests.dagster.graphql import wait
from tests.dagster.servers import JOB, SENSOR, Served, free_port
from tests.fixes import Met, follow

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
if sys.argv[2] == "fk_pipeline.servers.spark":
    from fk_pipeline.environment.spark_token import dagster_home, new_token
    from fk_pipeline.environment.warm_spark import record_warm
    from fk_pipeline.session import comparable_conf
    from fk_pipeline.spec.load import load_spec
    from fk_pipeline.spec.project import merged, named_pipelines
    new_token(int(sys.argv[-1]))
    settings = comparable_conf(merged([load_spec(file) for file in named_pipelines()]))
    record_warm("sc://127.0.0.1:" + sys.argv[-1], dagster_home(), settings)
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

    def begin(pipeline: Path = file, spark: bool = True, sensors: bool = False) -> dict[str, int]:
        begun = up([pipeline], home, ports, spark=spark, sensors=sensors)
        return {server.name: server.process.pid for server in begun}

    yield begin
    down(home)


def environment_of(pid: int) -> dict[str, str]:
    """The environment of a server; while its process becomes another program it has none."""
    found: dict[str, str] = {}

    def is_there() -> bool:
        found.update(psutil.Process(pid).environ())
        return "FK_PIPELINES" in found

    wait(is_there, 10)
    return found


def family_of(pids: dict[str, int]) -> list[psutil.Process]:
    """The servers and what they have started."""
    leaders = [psutil.Process(pid) for pid in pids.values()]
    return [*leaders, *(child for one in leaders for child in one.children(recursive=True))]


def test_a_spark_server_whose_token_is_lost_is_started_anew_and_down_leaves_no_token(
    start: Callable[..., dict[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", "of another server")
    first = start()
    url = Servers(home).known()["spark"].url
    port = int(url.rpartition(":")[2])
    token = token_at(port, home)
    assert token is not None
    environments = {name: environment_of(pid) for name, pid in first.items()}
    assert {one["FK_SPARK_REMOTE"] for name, one in environments.items() if name != "spark"} == {url}
    assert not [one for one in environments.values() if "SPARK_CONNECT_AUTHENTICATE_TOKEN" in one]
    files = [*home.rglob("*.token"), *Path(os.environ["XDG_STATE_HOME"]).rglob(f"*-{port}.token")]
    assert len(files) == 2
    for file in files:
        file.write_text(token[:10])
    second = start()
    assert {name for name in first if first[name] != second[name]} == {"spark"}
    other = token_at(port, home)
    assert other is not None
    assert other not in (home / "servers.json").read_text() + token
    down(home)
    assert not [file for file in files if file.exists()]


def called(*args: Any) -> Any:
    """What a command says as JSON, or the error that it ends with."""
    ended = CliRunner().invoke(app, [*map(str, args), "--format", "json"])
    return ended.exception if ended.exit_code else json.loads(ended.stdout)


def test_a_warm_spark_alone_is_found_by_up_and_by_every_command_of_the_user(
    start: Callable[..., dict[str, int]], tmp_path: Path
) -> None:
    home, other, port = tmp_path / "home", tmp_path / "other", free_port()
    [spark] = called("spark", "start", "--home", home, "--spark-port", port)
    url = f"sc://127.0.0.1:{port}"
    assert (spark["name"], spark["url"]) == ("spark", url)
    assert called("spark", "start", "--home", home, "--spark-port", port) == [spark]
    assert called("spark", "status") == [{"url": url, "pid": spark["pid"], "home": str(home), "life": "alive"}]
    [found] = warm_sparks()
    assert found.listens
    assert choose({}, comparable_conf(), [found], lambda *_: Probe(found.version)).address == url

    taken = called("spark", "start", "--home", other, "--spark-port", port)
    assert f"'fk-pipeline spark stop --home {home}' ends it" in taken.fix
    assert called("spark", "stop", "--home", other).fix == f"fk-pipeline spark stop --home {home}"
    assert called("spark", "stop", "demo.yaml").exit_code == 2
    demo = tmp_path / "demo" / "flight_planes.yaml"
    text = demo.read_text()
    demo.write_text(f"{text.rstrip()}\nsettings: {{driver_memory: 2g}}\n")
    refused = called("spark", "start", demo, "--home", home, "--spark-port", port)
    assert refused.what == "spark serves no pipeline already, with other values of spark.driver.memory"
    assert refused.fix == f"run 'fk-pipeline spark stop --home {home}' first"
    demo.write_text(text)

    servers_of_up = start()
    assert servers_of_up["spark"] == spark["pid"]
    assert environment_of(servers_of_up["daemon"])["FK_SPARK_REMOTE"] == url
    assert [one["pid"] for one in called("spark", "stop", "--home", home)] == [spark["pid"]]
    assert (called("spark", "status"), called("spark", "stop", "--home", home)) == ([], [])
    assert start()["spark"] != spark["pid"]
    assert len(called("spark", "status")) == 1
    down(home)
    assert called("spark", "status") == []


@pytest.mark.slow
def test_what_an_error_of_the_servers_says_helps(
    start: Callable[..., dict[str, int]], tmp_path: Path, command: Any
) -> None:
    home, other, port = tmp_path / "home", tmp_path / "other", free_port()
    demo = tmp_path / "demo" / "flight_planes.yaml"
    ports = "--port", free_port(), "--spark-port", port

    assert Met(command("recover", "--home", home).err).fix == "fk-pipeline up PIPELINE.yaml makes one\n"
    assert command("spark", "start", "--home", other, "--spark-port", port).status == 0
    assert follow(command, "spark", "stop", "--home", home, again=False) == [f"spark stop --home {other}"]
    assert command("spark", "start", "--home", other, "--spark-port", port).status == 0
    assert follow(command, "up", demo, "--home", home, *ports) == [f"spark stop --home {other}"]
    assert command("recover", "--home", home).status == 0

    more = prepare_demo(tmp_path / "more").rename(tmp_path / "more" / "more.yaml")
    more.write_text(more.read_text().replace("name: flight_planes", "name: more") + "settings: {driver_memory: 2g}\n")
    assert follow(command, "spark", "start", more, "--home", home) == [f"spark stop --home {home}"]
    assert follow(command, "up", more, "--home", home, *ports) == [f"down --home {home}"]
    assert {one["home"] for one in called("spark", "status")} == {str(home)}


def test_without_a_warm_spark_runs_of_dagster_find_none_either(tmp_path: Path, start: Callable[..., Any]) -> None:
    for name, pid in start(spark=False).items():
        assert environment_of(pid)["FK_SPARK_REMOTE"] == "none", name


def test_sensors_are_on_until_down_and_servers_that_run_without_are_not_changed(
    start: Callable[..., dict[str, int]], tmp_path: Path
) -> None:
    def automation(servers: dict[str, int]) -> dict[str, str]:
        return {name: environment_of(pid).get("FK_AUTOMATION", "off") for name, pid in servers.items()}

    home = tmp_path / "home"
    off = start(spark=False)
    assert automation(off) == {"webserver": "off", "daemon": "off"}
    with pytest.raises(UsageError, match="webserver and daemon run without --sensors already") as refused:
        start(spark=False, sensors=True)
    assert refused.value.fix == f"run 'fk-pipeline down --home {home}' first, or switch the sensors on in the pages"
    assert start(spark=False) == off
    down(home)
    first = start(spark=False, sensors=True)
    assert automation(first) == {"webserver": "on", "daemon": "on"}
    os.kill(first["daemon"], signal.SIGKILL)
    wait(lambda: not Servers(home).known()["daemon"].alive, 10)
    again = start(spark=False)
    assert again["webserver"] == first["webserver"]
    assert automation(again) == {"webserver": "on", "daemon": "on"}


@pytest.mark.slow
def test_up_with_sensors_has_them_running_and_who_switches_one_off_has_it_off_after_the_next_start(
    tmp_path: Path,
) -> None:
    served = Served(tmp_path)
    everything = {SENSOR, "fk_nightly_full_checks", "fk_weekly_maintenance"}
    try:
        served.up("--no-spark", "--sensors")
        assert served.dagster.switches() == dict.fromkeys(everything, "RUNNING")
        served.land(0)
        wait(
            lambda: [one["jobName"] for one in served.dagster.runs()] == [JOB], 90
        )  # nobody but the sensor asked for it
        served.dagster.sensor(SENSOR, running=False)
        served.down()
        served.up("--no-spark", "--sensors")
        assert served.dagster.switches() == dict.fromkeys(everything, "RUNNING") | {SENSOR: "STOPPED"}
    finally:
        served.down()


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
    storage = tmp_path / "home" / "history" / "runs" / "index.db"
    storage.parent.mkdir(parents=True)
    storage.touch()  # as an earlier start left it that died
    monkeypatch.setenv("DIES", "dagster_webserver")
    with pytest.raises(EnvironmentNotFit, match="webserver ended: something is wrong with it"):
        start()
    known = Servers(tmp_path / "home").known()
    assert {name for name, one in known.items() if one.alive} == {"spark"}
    monkeypatch.delenv("DIES")
    assert start()["spark"] == known["spark"].process.pid
    with servers.instance_of(tmp_path / "home") as instance:
        assert instance.get_dynamic_partitions("batches") == []


def test_a_record_that_is_cut_anywhere_or_of_processes_that_are_others_now_keeps_no_server_from_its_start(
    tmp_path: Path,
) -> None:
    home = Servers(tmp_path)
    first = home.start("web", ["sleep", "60"], {"FK_PIPELINES": "p.yaml"})
    assert first.alive
    content = home.file.read_bytes()
    home.stop(first)
    for length in range(len(content) - 1):
        home.file.write_bytes(content[:length])
        assert home.known() == {}
    again = json.loads(content)
    again["web"]["process"] |= {"pid": os.getppid()}
    elsewhere = json.loads(content)
    elsewhere["web"]["process"] |= {"host": "another", "pid": os.getppid()}
    for said in ({}, again, elsewhere):
        home.file.write_text(json.dumps(said))
        assert [one.alive for one in home.known().values()] == [False] * len(said)
        for one in home.known().values():
            home.stop(one)
        server = home.start("web", ["sleep", "60"], {"FK_PIPELINES": "p.yaml"})
        assert home.known()["web"].alive
        home.stop(server)
    assert psutil.pid_exists(os.getppid())


def test_a_command_that_dies_before_it_has_recorded_a_server_leaves_none(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys; from fk_pipeline.servers.processes import Servers\n"
        "home = Servers(pathlib.Path(sys.argv[1])); home._remember = lambda servers: (\n"
        "    print(*(one.process.pid for one in servers.values()), flush=True), os.kill(os.getpid(), 9))\n"
        "home.start('web', ['touch', 'began'], os.environ | {'FK_PIPELINES': 'p.yaml'})\n"
    )
    died = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False)
    assert died.returncode == -signal.SIGKILL
    wait(lambda: not psutil.pid_exists(int(died.stdout)), 10)
    assert not (tmp_path / "began").exists()


def test_a_storage_of_dagster_whose_tables_were_not_all_made_is_completed(tmp_path: Path) -> None:
    servers._configure(tmp_path, tmp_path / "none")
    with servers.instance_of(tmp_path) as instance:
        instance.add_dynamic_partitions("batches", ["1"])
    database = tmp_path / "history" / "runs" / "index.db"
    with closing(sqlite3.connect(database)) as half:
        half.execute("DROP TABLE dynamic_partitions")
        half.execute("DROP TABLE alembic_version")
        half.commit()
    for content in (database.read_bytes(), b""):
        database.write_bytes(content)
        with servers.instance_of(tmp_path) as instance:
            servers._complete(instance)
            instance.add_dynamic_partitions("batches", ["2"])
            assert instance.get_dynamic_partitions("batches") == ["2"]


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
