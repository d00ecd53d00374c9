"""The commands `explain` and `impact`: the reasons for a row, and the rows that a change of the right side touches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fk_pipeline.cli.options import Debug, FormatOption, PipelineFile
from fk_pipeline.console import OutputFormat, print_json, print_lines, print_table, say_by_spark, tell

if TYPE_CHECKING:
    from fk_pipeline.blocks.story import PlaceOf, Story


KEY_HELP = "17, or a=1,b=2; of an outer join also right.17; of a query: columns of the result, a=1,b=null"


def explain(
    pipeline: PipelineFile,
    key: Annotated[str, typer.Option(metavar="K", help=KEY_HELP)],
    protocol: Annotated[
        bool,
        typer.Option("--protocol", help="also messages and verdicts, as in KIP-213"),
    ] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """The story of one key: its row, since when, why, and from which landed lines."""
    from fk_pipeline.pipeline import load

    opened = load(pipeline)
    story = opened.explain(key, say_by_spark)
    if format_ is OutputFormat.JSON:
        print_json(story.as_json())
    else:
        from fk_pipeline.verify.inputs.places import LandedPlaces

        _print_story(story, LandedPlaces(opened.spec, opened.ledger()), protocol=protocol)
    if not story.as_expected and not story.due:
        raise typer.Exit(1)


def impact(
    pipeline: PipelineFile,
    right_key: Annotated[
        str | None,
        typer.Option(
            "--right-key",
            "--key",
            metavar="K",
            help="of a right row, or of an input of a query: 17, or a=1,b=2",
        ),
    ] = None,
    side: Annotated[
        str | None,
        typer.Option("--input", metavar="NAME", help="the query's input that changes, if it has several"),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="T", help="as_of: since when the changed version holds")
    ] = None,
    changes: Annotated[Path | None, typer.Option(metavar="FILE", help="a file as it would land there")] = None,
    limit: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="list so many right keys, most rows first; or rows"),
    ] = 20,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """How many result rows a change would touch. Changes nothing."""
    from fk_pipeline.pipeline import load

    report = load(pipeline).impact(right_key, changes, limit, since, say_by_spark, side)
    if format_ is OutputFormat.JSON:
        print_json(report.as_json())
    else:
        header, *rows = report.table()
        print_table(header, rows)
        print_lines(report.sentences())


def _print_story(story: Story, place: PlaceOf, *, protocol: bool) -> None:
    """Prints a story for people: the present state in sentences, then a table of the events."""
    print_lines([story.heading, *story.sentences(place)])
    if rows := story.events() if protocol else story.came:
        tell()
        print_table(["batch", "what", "what it says", "file"], rows)
        print_lines([story.note] if story.note else [])
    if protocol and story.protocol:
        print_lines(["", *story.protocol])


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(
        epilog="Example: fk-pipeline explain pipeline.yaml --key 1107",
        short_help="The story of one key: why its row is as it is.",
    )(explain)
    app.command(
        epilog="Example: fk-pipeline impact pipeline.yaml --right-key N14228",
        short_help="How many result rows a change of an input would touch.",
    )(impact)
