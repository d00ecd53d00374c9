"""The command `quarantine`: lists bad records, exports them for correction, and replays them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fk_pipeline.cli.options import Debug, FormatOption, PipelineFile
from fk_pipeline.console import OutputFormat, print_due, print_json, print_table, say_by_spark, tell
from fk_pipeline.errors import UsageError
from fk_pipeline.words import counted

if TYPE_CHECKING:
    from fk_pipeline.pipeline import Pipeline
    from fk_pipeline.quarantine_in_process import QuarantineListing

RAW_SHOWN = 80
"""The number of characters of a record that people are shown; the JSON and files have all."""


def quarantine(
    pipeline: PipelineFile,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="with --replay: an exported file, corrected")
    ] = None,
    batch: Annotated[str | None, typer.Option(metavar="BATCHES", help="only of these: 7, or 3,9..12")] = None,
    side: Annotated[str | None, typer.Option(metavar="SIDE", help="only of this input; `join`: pairs of rows")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="list so many records and reasons")] = 20,
    export: Annotated[Path | None, typer.Option(metavar="FILE", help="write all to this .csv or .jsonl")] = None,
    replay: Annotated[bool, typer.Option("--replay", help="read them again, from the landing files or FILE")] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Lists, exports and replays records that could not be used."""
    from fk_pipeline.pipeline import load

    if replay and export is not None:
        raise UsageError(
            "--export and --replay are two steps", fix="export, correct raw in the file, then --replay FILE"
        )
    if file is not None and (not replay or batch is not None or side is not None):
        raise UsageError(
            f"{file} stands for --replay {file}, and its records say themselves where they are from",
            fix=f"fk-pipeline quarantine {pipeline} --replay {file}",
        )
    loaded, as_json = load(pipeline), format_ is OutputFormat.JSON
    if file is not None:
        _correct(loaded, file, as_json)
    elif replay:
        _replay(loaded, batch, side, as_json)
    elif export is not None:
        rows = loaded.export_quarantine(export, batch, side, say_by_spark)
        if as_json:
            print_json({"rows": rows, "file": str(export)})
        else:
            tell(f"{counted(rows, 'record')} written to {export}")
    else:
        _list(loaded.quarantine(batch, side, limit, say_by_spark), as_json)


def _list(listing: QuarantineListing, as_json: bool) -> None:
    if as_json:
        print_json(asdict(listing))
    elif not listing.rows:
        tell("Nothing is in the quarantine.")
    else:
        columns = ["side", "batch", "file", "line", "reason", "raw"]
        rows = [[_shortened(row[name]) if name == "raw" else row[name] for name in columns] for row in listing.rows]
        print_table(columns, rows)
        reasons = [[f"{entry['records']:,}", entry["side"], entry["reason"]] for entry in listing.reasons]
        print_table(["records", "side", "reason"], reasons)
        shown = f", {len(rows):,} of them shown" if listing.records > len(rows) else ""
        tell(f"{counted(listing.records, 'record')}{shown}")


def _shortened(raw: str) -> str:
    return raw if len(raw) <= RAW_SHOWN else f"{raw[:RAW_SHOWN]}..."


def _replay(pipeline: Pipeline, batches: str | None, side: str | None, as_json: bool) -> None:
    again = [int(batch) for batch in pipeline.replay(batches, side)]
    if not as_json:
        tell(f"Batches to read again: {', '.join(map(str, again))}." if again else "Nothing is in the quarantine.")
    _print_done(pipeline, {"batches": again}, as_json)


def _correct(pipeline: Pipeline, file: Path, as_json: bool) -> None:
    done = pipeline.correct(file)
    if not as_json:
        tell(f"{done.corrections:,} corrections stored, {done.known:,} known already; {done.unchanged:,} not edited.")
    _print_done(pipeline, {"corrections": done.corrections, "known": done.known, "unchanged": done.unchanged}, as_json)


def _print_done(pipeline: Pipeline, what: dict[str, Any], as_json: bool) -> None:
    """Prints what was done (as JSON only) and the batches that are due now."""
    due = {stage: list(map(int, batches)) for stage, batches in pipeline.due().items()}
    if as_json:
        print_json(what | {"due": due})
    elif any(due.values()):
        tell(f"Due now ('fk-pipeline run {pipeline.spec.file}' does it):")
        print_due(due)


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Example: fk-pipeline quarantine pipeline.yaml --export bad.jsonl",
        short_help="Lists, exports and replays bad records.",
    )(quarantine)
