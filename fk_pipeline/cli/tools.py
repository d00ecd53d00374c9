"""The commands that need no pipeline: `doctor`, `trace`, `demo`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fk_pipeline.cli import completion
from fk_pipeline.cli.options import Debug, FormatOption, only_one
from fk_pipeline.console import OutputFormat, print_json, print_table
from fk_pipeline.errors import UsageError


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(
        epilog="Example: fk-pipeline doctor", short_help="Checks this machine; every failed line carries its fix."
    )(doctor)
    app.command(
        epilog="Example: fk-pipeline trace case.json --engine spark", short_help="Runs recorded cases event by event."
    )(trace)
    app.command(
        epilog="Example: fk-pipeline demo my-demo", short_help="Real flights joined to real planes, end to end."
    )(demo)


def doctor(
    pipeline: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PIPELINE.yaml]",
            help="also check its warehouse and landing zone",
            autocompletion=completion.completed_files,
            callback=only_one,
        ),
    ] = None,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Checks Python, Java, Spark, JARs, versions, access, space, memory; a failed line has its fix."""
    from fk_pipeline.cli.doctor import check_pipeline
    from fk_pipeline.environment.doctor import check_environment
    from fk_pipeline.spec import load_spec
    from fk_pipeline.spec.places import landing_path
    from fk_pipeline.spec.project import with_inline

    if pipeline is None:
        checks = check_environment()
    else:
        spec = load_spec(pipeline)
        specs = with_inline([spec])
        landing = [landing_path(member, side) for member in specs for side in member.sides if side not in member.clocks]
        checks = check_environment(pipeline.parent, spec.home, landing, spec.settings.spark)
        checks += [check for member in specs for check in check_pipeline(member)]
    if format_ is OutputFormat.JSON:
        print_json(
            [{"name": c.name, "ok": c.ok, "found": c.actual, "wanted": c.expected, "fix": c.fix} for c in checks]
        )
    else:
        print_table(
            ["", "check", "found", "wanted", "fix"],
            [[c.verdict, c.name, c.actual, c.expected, c.fix] for c in checks],
        )
    if not all(c.ok for c in checks):
        raise typer.Exit(3)


class Engine(StrEnum):
    """The values of `trace --engine`."""

    REFERENCE = "reference"
    SPARK = "spark"


class RuleSet(StrEnum):
    """The values of `trace --rules`."""

    KAFKA = "kafka"
    ENGINE = "engine"


def trace(
    cases: Annotated[list[Path], typer.Argument(metavar="CASE...", help="case files, or folders of them")],
    engine: Annotated[Engine, typer.Option(help="the protocol event by event, or the stages")] = Engine.REFERENCE,
    rules: Annotated[RuleSet | None, typer.Option(help="of the reference; default: kafka")] = None,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Runs recorded cases event by event."""
    from fk_pipeline.cli.trace import by_reference, by_stages, print_workflow
    from fk_pipeline.trace.cases import load_cases

    if engine is Engine.SPARK and rules is not None:
        raise UsageError("--rules is about the reference; the stages have their own", fix="leave out one of the two")
    loaded = load_cases(cases)
    for case, computed in by_stages(loaded) if engine is Engine.SPARK else by_reference(loaded, rules or RuleSet.KAFKA):
        if format_ is OutputFormat.JSON:
            print_json({"name": case.name, "computed": computed}, one_line=True)
        else:
            print_workflow(case, computed)


def demo(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="the folder")] = Path("fk-pipeline-demo"),
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Joins real flights to real planes, and verifies the result."""
    from fk_pipeline.demo.tour import run_demo

    result = run_demo(directory, quiet=format_ is OutputFormat.JSON)
    if format_ is OutputFormat.JSON:
        print_json(result)
    if not result["ok"]:
        raise typer.Exit(1)
