"""The commands `up`, `down`, `spark`, `dagster` and `recover`: Dagster with a warm Spark on one machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fk_pipeline.cli import completion
from fk_pipeline.cli.options import Debug, FormatOption, Pipelines, project_of_command
from fk_pipeline.console import OutputFormat, print_json, print_lines, print_table, say
from fk_pipeline.errors import UsageError

if TYPE_CHECKING:
    from fk_pipeline.servers.processes import Server

Home = Annotated[Path | None, typer.Option(metavar="DIR", help="Dagster's home; default: DAGSTER_HOME, else .dagster")]


def up(
    pipelines: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PIPELINE.yaml]...",
            help="files or folders; default: FK_PIPELINES",
            autocompletion=completion.completed_files,
        ),
    ] = None,
    home: Home = None,
    port: Annotated[int, typer.Option(metavar="PORT", help="of the webserver")] = 3000,
    spark_port: Annotated[int, typer.Option(metavar="PORT", help="of the warm Spark")] = 15002,
    spark: Annotated[bool, typer.Option(help="one warm Spark for all runs, or one per run")] = True,
    sensors: Annotated[bool, typer.Option("--sensors", help="sensors and schedules are on by default")] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Starts Dagster's webserver and daemon and a warm Spark, and recovers dead runs."""
    from fk_pipeline.servers.up import Ports, home_of
    from fk_pipeline.servers.up import up as start
    from fk_pipeline.spec.project import named_pipelines

    given, ports = pipelines or named_pipelines(), Ports(port, spark_port)
    started = start(given, home_of(home), ports, spark=spark, sensors=sensors, tell=say)
    _print(["server", "at", "pid", "log"], [server.as_json() for server in started], format_)


def down(home: Home = None, format_: FormatOption = OutputFormat.TEXT, debug: Debug = False) -> None:
    """Ends what 'up' has started, active runs included: the next 'up' tries them again."""
    from fk_pipeline.servers.recover import as_json
    from fk_pipeline.servers.up import down as stop
    from fk_pipeline.servers.up import home_of, sentence

    ended = stop(home_of(home), say)
    if format_ is OutputFormat.JSON:
        print_json([as_json(run) for run in ended])
    else:
        print_lines(map(sentence, ended))


class SparkAction(StrEnum):
    """What `spark` does."""

    START = "start"
    STOP = "stop"
    STATUS = "status"


def spark(
    action: Annotated[SparkAction, typer.Argument(metavar="start|stop|status", help="what to do")],
    pipelines: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PIPELINE.yaml]...",
            help="start: files or folders with its settings; default: FK_PIPELINES, else none",
            autocompletion=completion.completed_files,
        ),
    ] = None,
    home: Home = None,
    spark_port: Annotated[int, typer.Option(metavar="PORT", help="start: its port")] = 15002,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Starts, ends or lists a warm Spark, which every command and 'up' find."""
    from fk_pipeline.environment.warm_spark import warm_sparks
    from fk_pipeline.servers.up import home_of, served, start_spark, stop_spark
    from fk_pipeline.spec.project import named_pipelines

    if action is not SparkAction.START and pipelines:
        raise UsageError(f"'spark {action}' takes no pipeline", fix=f"fk-pipeline spark {action}")
    if action is SparkAction.STATUS:
        warm = [
            {"url": server.address, "pid": server.process.pid, "home": server.home, "life": server.process.life()}
            for server in warm_sparks()
        ]
        _print(["at", "pid", "home", "life"], warm, format_)
        return
    if action is SparkAction.START:
        specs = served(pipelines or named_pipelines())
        server: Server | None = start_spark(specs, home_of(home), spark_port, say)
    else:
        server = stop_spark(home_of(home), say)
    _print(["server", "at", "pid", "log"], [server.as_json()] if server is not None else [], format_)


class DagsterAction(StrEnum):
    """What `dagster` does."""

    SYNC = "sync"


def dagster(
    action: Annotated[DagsterAction, typer.Argument(metavar="sync", help="what to do")],
    pipelines: Pipelines,
    home: Home = None,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Reports to Dagster what landed and what ledgers have, as sensors do. Runs nothing."""
    from fk_pipeline.assets.reports import sync
    from fk_pipeline.pipeline import load
    from fk_pipeline.resources.names import source_keys
    from fk_pipeline.servers.up import home_of, instance_of

    assert action is DagsterAction.SYNC
    rows, project = [], project_of_command(pipelines)
    with instance_of(home_of(home)) as instance:
        loaded = [load(file) for file in project.files]
        sources = source_keys(pipeline.spec for pipeline in loaded)
        for pipeline in loaded:
            done, name = sync(instance, pipeline, sources), pipeline.spec.name
            rows.append({"pipeline": name, "events": done.events, "complete": done.complete})
            if not done.complete:
                say(f"{name}: a run is active and tells of itself; start this again after it for the rest")
    _print(["pipeline", "events", "complete"], rows, format_)


def _print(columns: list[str], rows: list[dict[str, Any]], format_: OutputFormat) -> None:
    if format_ is OutputFormat.JSON:
        print_json(rows)
    else:
        print_table(columns, [list(row.values()) for row in rows])


def recover(
    dead: Annotated[
        list[str] | None, typer.Option("--dead", metavar="RUN_ID", help="a run that you know is dead; repeatable")
    ] = None,
    home: Home = None,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Fails runs whose worker is provably dead, so that Dagster tries them again."""
    from fk_pipeline.environment.process import Life
    from fk_pipeline.servers.recover import as_json
    from fk_pipeline.servers.recover import recover as fail_dead
    from fk_pipeline.servers.up import home_of, instance_of, sentence

    with instance_of(home_of(home)) as instance:
        runs = fail_dead(instance, dead or ())
    if format_ is OutputFormat.JSON:
        print_json([as_json(run) for run in runs])
    else:
        print_lines(map(sentence, runs) if runs else ["No run is active."])
    if any(run.life is Life.UNKNOWN and not run.failed for run in runs):
        say("where nothing can be proved from here, look yourself; then: fk-pipeline recover --dead RUN_ID")
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(
        epilog="Example: fk-pipeline up pipelines/ --port 3000", short_help="Starts Dagster's servers and a warm Spark."
    )(up)
    app.command(epilog="Example: fk-pipeline down", short_help="Ends what 'up' has started.")(down)
    app.command(
        epilog="Example: fk-pipeline spark start pipelines/",
        short_help="Starts or ends a warm Spark alone, which every command finds.",
    )(spark)
    app.command(
        epilog="Example: fk-pipeline dagster sync pipelines/",
        short_help="Shows Dagster what was done outside of it; sensors do the same.",
    )(dagster)
    app.command(
        epilog="Example: fk-pipeline recover", short_help="Fails runs that died with the machine: they are retried."
    )(recover)
