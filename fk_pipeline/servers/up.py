"""`fk-pipeline up`, `down` and `spark`: the webserver, the daemon and a warm Spark Connect server, for one machine."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from fk_pipeline.environment.process import Life
from fk_pipeline.environment.spark_address import remote_of
from fk_pipeline.environment.spark_token import PORT, TOKEN, dagster_home, forget_token, token_at
from fk_pipeline.environment.warm_spark import forget_warm, warm_sparks
from fk_pipeline.environment.whole_files import write_whole
from fk_pipeline.errors import UsageError
from fk_pipeline.servers.processes import Server, Servers, answers, wait_for
from fk_pipeline.servers.recover import ActiveRun, end_workers, recover
from fk_pipeline.session import comparable_conf
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.spec.project import merged, pipeline_files, refuse_same_name, refuse_same_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagster import DagsterInstance

HOST = "127.0.0.1"
SPARK, WEB, DAEMON = "spark", "webserver", "daemon"
READY_SECONDS = 180.0
MODULE = "fk_pipeline.definitions"


@dataclass(frozen=True)
class Ports:
    """The ports of the servers, which listen on this machine only."""

    web: int = 3000
    spark: int = PORT


def home_of(folder: Path | None) -> Path:
    """Returns the Dagster home: the folder, else DAGSTER_HOME, else `.dagster` in the working directory; absolute."""
    return folder.absolute() if folder is not None else dagster_home()


@contextmanager
def instance_of(home: Path) -> Iterator[DagsterInstance]:
    """Yields the Dagster instance of a home.

    Raises:
        UsageError: the home has no dagster.yaml: no server was ever started there.
    """
    from dagster import DagsterInstance

    if not (home / "dagster.yaml").exists():
        raise UsageError(
            f"{home} is no Dagster home: it has no dagster.yaml", fix="fk-pipeline up PIPELINE.yaml makes one"
        )
    with DagsterInstance.from_config(str(home)) as instance:
        yield instance


def _configure(home: Path, beside: Path) -> None:
    """Writes the settings of a home: those next to the pipeline file, else those that it has, else the default ones."""
    config = home / "dagster.yaml"
    if beside.exists():
        if not config.exists() or not config.samefile(beside):
            write_whole(config, beside.read_bytes())
    elif not config.exists():
        write_whole(config, (files(__package__) / "dagster.yaml").read_bytes())


def _complete(instance: DagsterInstance) -> None:
    """Makes the tables that Dagster's storage in files lacks, because a process died while it made them.

    Dagster makes tables in a new file only, and otherwise asks for 'dagster instance migrate'.
    """
    from dagster import DagsterInvalidInvocationError

    try:
        instance.get_dynamic_partitions("any")  # their table is the last one
    except DagsterInvalidInvocationError:
        if "sqlite" not in type(instance.event_log_storage).__name__.lower():
            raise
        with redirect_stdout(sys.stderr):
            instance.upgrade()


def up(
    pipelines: Sequence[Path],
    home: Path,
    ports: Ports,
    *,
    spark: bool = True,
    sensors: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Server]:
    """Starts the servers that do not run yet; before that, fails the runs whose worker died with the machine.

    Args:
        pipelines: pipeline files, or folders of them.
        home: the Dagster home; it is created if it does not exist.
        ports: the ports of the servers.
        spark: starts also a Spark Connect server, which all runs use; otherwise every run starts a Spark of its own.
        sensors: has the sensors and schedules of all pipelines on, except those that somebody has switched off; it
            stays so until `down`.
        tell: called with a sentence about each step.

    Returns:
        The servers, all of which are ready.

    Raises:
        PipelineFileError: a pipeline file is wrong, or two have one name; nothing was started.
        StateError: the result of another pipeline that one of them reads cannot be opened; nothing was started.
        UsageError: there is no pipeline, the servers serve others or run without `sensors`, or another program listens
            at one of the ports.
        EnvironmentNotFit: a server did not start.
    """
    specs = served(pipelines)
    if not specs:
        raise UsageError(
            "no pipelines to serve",
            fix="fk-pipeline up PIPELINE.yaml ..., or set FK_PIPELINES; 'fk-pipeline demo' makes one to begin with",
        )
    _prepare(home, specs[0].file.parent / "dagster.yaml", tell)
    remote = remote_of(os.environ)
    environment = _environment(home, specs)
    servers = Servers(home)
    _automate(environment, servers, sensors=sensors)
    started: list[Server] = []
    if spark and not remote:
        started.append(start_spark(specs, home, ports.spark, tell))
        remote = started[0].url
        environment.pop(TOKEN, None)
    environment["FK_SPARK_REMOTE"] = remote or "none"  # without a warm Spark, each run starts its own
    return [*started, *_start_dagster(servers, ports.web, environment, tell)]


def _prepare(home: Path, beside: Path, tell: Callable[[str], None]) -> None:
    """Makes a home with its settings and tables, and fails the runs in it whose worker died with the machine."""
    home.mkdir(parents=True, exist_ok=True)
    _configure(home, beside)
    with instance_of(home) as instance:
        _complete(instance)
        for run in recover(instance):
            tell(sentence(run))


def _start_dagster(
    servers: Servers, port: int, environment: Mapping[str, str], tell: Callable[[str], None]
) -> list[Server]:
    """Returns the webserver and the daemon when they are ready; starts those that do not run.

    Raises:
        UsageError: one of them serves other pipelines, or another program listens at the port.
        EnvironmentNotFit: one of them did not start.
    """

    def start(name: str, command: Sequence[str], ready: Callable[[Server], bool], url: str = "") -> Server:
        """Returns a server when it is ready; starts it unless it runs."""
        server = servers.known().get(name)
        if server is not None and server.alive and server.serves != environment["FK_PIPELINES"]:
            raise UsageError(
                f"{name} serves {server.serves} already", fix=f"run 'fk-pipeline down --home {servers.home}' first"
            )
        if server is None or not server.alive:
            server = _begin(servers, name, command, environment, url, tell)
        wait_for(server, lambda: ready(server), READY_SECONDS)
        return server

    tool = [sys.executable, "-m"]
    web = [*tool, "dagster_webserver", "-h", HOST, "-p", str(port), "-m", MODULE]
    daemon = [*tool, "fk_pipeline.servers.daemon", "run", "-m", MODULE]
    return [
        start(WEB, web, lambda server: _responds(f"{server.url}/server_info"), f"http://{HOST}:{port}"),
        start(DAEMON, daemon, lambda server: _is_heard_of(server, servers.home)),
    ]


def _automate(environment: dict[str, str], servers: Servers, *, sensors: bool) -> None:
    """Says in the environment of servers that sensors are on, if that is wanted or was when the others were started.

    Raises:
        UsageError: it is wanted now, and one of the others runs without.
    """
    recorded = [server for name, server in servers.known().items() if name in (WEB, DAEMON)]
    without = [server.name for server in recorded if server.alive and server.automation != "on"]
    if sensors and without:
        raise UsageError(
            f"{' and '.join(without)} run without --sensors already",
            fix=f"run 'fk-pipeline down --home {servers.home}' first, or switch the sensors on in the pages",
        )
    if sensors or any(server.automation == "on" for server in recorded):
        environment["FK_AUTOMATION"] = "on"


def served(pipelines: Sequence[Path]) -> list[PipelineSpec]:
    """Returns the pipelines in files and folders.

    Raises:
        PipelineFileError: a pipeline file is wrong, two have one name, or one beside them has the tables of one.
    """
    specs = [load_spec(file) for file in pipeline_files(pipelines)]
    refuse_same_name(specs)
    refuse_same_tables(spec.file for spec in specs)
    return specs


def start_spark(
    specs: Sequence[PipelineSpec], home: Path, port: int, tell: Callable[[str], None] = lambda _: None
) -> Server:
    """Returns the warm Spark of a home when it is ready; starts it unless it runs.

    Args:
        specs: the pipelines with whose Spark settings it starts; one that runs already may serve others with the same.
        home: the Dagster home; it is created if it does not exist.
        port: the port at which it starts.
        tell: called with a sentence about each step.

    Raises:
        UsageError: it runs with other settings, or another program listens at the port.
        EnvironmentNotFit: it did not start.
    """
    environment = _environment(home, specs)
    environment.pop(TOKEN, None)  # the server makes its own
    expected = comparable_conf(merged(specs))  # fetches what is missing, or reports it: the server would only log it
    servers = Servers(home)
    server = servers.known().get(SPARK)
    if server is not None and server.alive and token_at(_port(server), home) is None:
        tell(f"the token of {SPARK} is not there any more: ending it")
        _stop(servers, server)
    if server is not None and server.alive and server.serves != environment["FK_PIPELINES"]:
        _refuse_other_settings(server, expected, home)
    if server is None or not server.alive:
        home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "fk_pipeline.servers.spark", "--host", HOST, "--port", str(port)]
        server = _begin(servers, SPARK, command, environment, f"sc://{HOST}:{port}", tell)
    running = server
    wait_for(running, lambda: answers(HOST, _port(running)), READY_SECONDS)
    return running


def stop_spark(home: Path, tell: Callable[[str], None] = lambda _: None) -> Server | None:
    """Ends the warm Spark of a home and returns it; None if there is none.

    Raises:
        UsageError: there is none, but the user has one of another home.
    """
    servers = Servers(home)
    known = servers.known()
    server = known.get(SPARK)
    if server is None:
        other = next((warm for warm in warm_sparks() if warm.process.life() is Life.ALIVE), None)
        if other is not None:
            raise UsageError(
                f"the warm Spark at {other.address} is not one of {home}",
                fix=f"fk-pipeline spark stop --home {other.home}",
            )
        return None
    if DAEMON in known and known[DAEMON].alive:
        tell("runs of Dagster fail until 'fk-pipeline up' starts it again")
    tell(f"ending {server.name}")
    _stop(servers, server)
    return server


def _refuse_other_settings(server: Server, expected: Mapping[str, str], home: Path) -> None:
    """Raises an error unless the Spark server started with all the settings, whichever pipelines it serves.

    Raises:
        UsageError: a setting differs.
    """
    recorded = next((warm for warm in warm_sparks() if warm.process == server.process), None)
    others = ["all settings"] if recorded is None else recorded.other_settings(expected)
    if others:
        raise UsageError(
            f"{SPARK} serves {server.serves or 'no pipeline'} already, with other values of {', '.join(others)}",
            fix=f"run 'fk-pipeline spark stop --home {home}' first",
        )


def _begin(
    servers: Servers, name: str, command: Sequence[str], environment: Mapping[str, str], url: str,
    tell: Callable[[str], None],
) -> Server:  # fmt: skip
    """Starts a server and returns it.

    Raises:
        UsageError: another program listens at its port.
    """
    port = urllib.parse.urlsplit(url).port
    if port is not None and answers(HOST, port):
        warm = next((server for server in warm_sparks() if server.port == port and server.listens), None)
        ends = "end it" if warm is None else f"'fk-pipeline spark stop --home {warm.home}' ends it, a warm Spark"
        raise UsageError(f"another program listens at port {port}", fix=f"{ends}, or choose a port for {name}")
    tell(f"starting {name}")
    return servers.start(name, command, environment, url)


def _stop(servers: Servers, server: Server) -> None:
    """Ends a server, and removes what clients find it by."""
    servers.stop(server)
    if server.name == SPARK:
        forget_token(_port(server), servers.home)
        forget_warm(server.process)


def _environment(home: Path, specs: Sequence[PipelineSpec]) -> dict[str, str]:
    return os.environ | {
        "DAGSTER_HOME": str(home),
        "FK_PIPELINES": os.pathsep.join(str(spec.file.absolute()) for spec in specs),
    }


def _port(server: Server) -> int:
    return urllib.parse.urlsplit(server.url).port or 0


def _is_heard_of(daemon: Server, home: Path) -> bool:
    """Returns whether all parts of the daemon have sent a heartbeat since it was started."""
    from dagster._daemon.controller import get_daemon_statuses  # else only GraphQL tells it, through a web server

    with instance_of(home) as instance:
        parts = get_daemon_statuses(instance, instance.get_required_daemon_types())
        beats = [status.last_heartbeat for status in parts.values()]
    return daemon.alive and all(beat is not None and beat.timestamp >= daemon.process.started for beat in beats)


def down(home: Path, tell: Callable[[str], None] = lambda _: None) -> list[ActiveRun]:
    """Ends the servers, last started first, and the active runs; the daemon retries these after the next start.

    Returns:
        The runs that were active, with their state now.
    """
    servers = Servers(home)
    for server in reversed(servers.known().values()):
        tell(f"ending {server.name}")
        _stop(servers, server)
    if not (home / "dagster.yaml").exists():
        return []
    with instance_of(home) as instance:
        end_workers(instance)
        return recover(instance)


def sentence(run: ActiveRun) -> str:
    """Returns the state of a run as a sentence for people."""
    if run.failed:
        return f"run {run.run_id} ({run.job}): {run.why}; it is reported as failed"
    return f"run {run.run_id} ({run.job}): {run.why}; left as it is"


def _responds(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - a server that `up` has started
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False
