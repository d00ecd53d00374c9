"""The commands `explain` and `impact`: why a row is as it is, and what a change of the right side would touch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fk_pipeline.cli.options import Debug, Format, PipelineFile
from fk_pipeline.console import OutputFormat, print_json, print_lines, print_table
from fk_pipeline.errors import UsageError

if TYPE_CHECKING:
    from fk_pipeline.explain import Answer, Story, Version
    from fk_pipeline.impact import Impact

HASH_SHOWN = 8
"""Digits of a hash that people are shown; the JSON has all."""


def explain(
    pipeline: PipelineFile,
    key: Annotated[str, typer.Option(metavar="K", help="of the left row: 17, or a=1,b=2 where it has several columns")],
    format_: Format = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """The story of one left key: what came, what was asked and answered, and why its row is (not) in the result."""
    from fk_pipeline.pipeline import load

    story = load(pipeline).explain(key)
    if format_ is OutputFormat.JSON:
        print_json(story.as_json())
    else:
        _print(story)
    if not story.as_expected and not story.due:
        raise typer.Exit(1)


def _print(story: Story) -> None:
    from fk_pipeline.spec.keys import shown

    print_lines([f"Left row {shown(story.key)}", ""])
    batches = sorted({*(v.batch for v in (*story.left, *story.right)), *(a.batch for a in story.answers)})
    rows = [
        [
            batch,
            "\n".join(_version(v) for v in story.left if v.batch == batch),
            "\n".join(_version(v) for v in story.right if v.batch == batch),
            "\n".join(_asked(a) for a in story.answers if a.batch == batch),
            "\n".join(f"{a.verdict or 'due'}: {a.why}" for a in story.answers if a.batch == batch),
        ]
        for batch in batches
    ]
    if rows:
        print_table(["batch", "left row", "right row", "answer to", "verdict"], rows)
        print_lines(["* the version that counts; # the first digits of a row's hash", ""])
    if story.result is not None:
        print_lines(["Result: " + _values(story.result)])
    if not story.as_expected:
        print_lines(["The join computed now: " + ("no row" if story.expected is None else _values(story.expected))])
    if story.due:
        due = "; ".join(f"{stage} {', '.join(map(str, batches))}" for stage, batches in story.due.items())
        print_lines([f"Due: {due}"])
    print_lines([story.conclusion])


def _version(version: Version) -> str:
    from fk_pipeline.spec.keys import shown

    mark = "* " if version.current else "  "
    if version.key is None:
        return f"{mark}truncate"
    if version.row is None:
        return f"{mark}{shown(version.key)} deleted"
    refers = f" -> {shown(version.refers_to)}" if version.refers_to is not None else ""
    return f"{mark}{_values(version.row)}{refers} {_hash(version.hash)}"


def _asked(answer: Answer) -> str:
    from fk_pipeline.spec.keys import shown

    asked = answer.instruction or "the right row changed"
    left, right = _hash(answer.left_hash), _hash(answer.right_hash)
    return f"{asked}\n  {left} and {shown(answer.refers_to)} {right}"


def _hash(value: str | None) -> str:
    return "#-" if value is None else f"#{value[:HASH_SHOWN].lower()}"


def _values(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in row.items())


def impact(
    pipeline: PipelineFile,
    right_key: Annotated[str | None, typer.Option(metavar="K", help="of a right row: N14228, or a=1,b=2")] = None,
    changes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="a file as it would land on the right side")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="list at most so many right keys, those with most rows first")
    ] = 20,
    format_: Format = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """How many result rows a change of the right side would touch, before it is made. Changes nothing."""
    from fk_pipeline.pipeline import load

    if (right_key is None) == (changes is None):
        raise UsageError(
            "impact needs a right key, or a file of changes", fix="--right-key KEY, or --changes FILE; not both"
        )
    found = load(pipeline).impact(right_key, changes, limit)
    if format_ is OutputFormat.JSON:
        print_json(found.as_json())
    else:
        _print_impact(found)


def _print_impact(found: Impact) -> None:
    rows = [[row["key"], f"{row['subscribers']:,}", row["effect"]] for row in found.keys]
    print_table(["right key", "left rows that refer to it", "what it would do"], rows)
    print_lines([f"{number:,} right row(s) {what}" for what, number in found.right_rows.items()])
    if found.quarantined:
        print_lines([f"{found.quarantined:,} record(s) of the file cannot be used"])
    print_lines([f"{found.fan_out:,} rows of the result would be written or taken out."])


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(
        epilog="Example: fk-pipeline explain pipeline.yaml --key 1107",
        short_help="The story of one left key: why its row is as it is.",
    )(explain)
    app.command(
        epilog="Example: fk-pipeline impact pipeline.yaml --right-key N14228",
        short_help="How many rows a change of the right side would touch.",
    )(impact)
