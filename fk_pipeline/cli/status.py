"""The command `status`: how pipelines stand, read from their ledgers alone, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fk_pipeline.cli import completion
from fk_pipeline.cli.options import Debug, FormatOption, Pipelines, project_of_command
from fk_pipeline.cli.several import each, end, print_values
from fk_pipeline.console import OutputFormat, say


def status(
    context: typer.Context,
    pipelines: Pipelines,
    sizes: Annotated[bool, typer.Option("--sizes", help="also files and bytes of every table")] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            metavar="WORDS",
            help="status 1 if one of due,quarantine,red,failed holds",
            autocompletion=completion.alarms,
        ),
    ] = None,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """What the result has, and what is done, due or failed. Starts no Spark."""
    from fk_pipeline.cli.alarm import alarms, words_of
    from fk_pipeline.cli.status_text import print_status
    from fk_pipeline.pipeline import load

    words = words_of(fail_on)
    values: dict[Path, Any] = {}
    failing: list[str] = []

    def work(file: Path, _: tuple[str, ...]) -> int:
        values[file] = {**load(file).status(sizes=sizes)}
        if format_ is OutputFormat.TEXT:
            print_status(values[file], file)
        if words:
            values[file]["failing"] = alarms(values[file], file, words)
            reasons = [f"{word}: {text}" for word, text in values[file]["failing"].items()]
            failing.extend([f"{values[file]['pipeline']}: {'; '.join(reasons)}"] if reasons else [])
        return 0

    outcomes = each(project_of_command(pipelines), work, context, waits=False, named=False)
    print_values(format_, outcomes, values)
    for line in failing:
        say(line)
    end(outcomes)
    if failing:
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Example: fk-pipeline status pipeline.yaml --fail-on red,failed",
        short_help="What the result has; what is done, due or failed.",
    )(status)
