"""The command `quarantine`: lists bad records, exports them for correction, and replays them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fk_pipeline.cli.options import Debug, FormatOption, PipelineFile
from fk_pipeline.console import OutputFormat, print_due, print_json, print_table, say_by_spark, tell
from fk_pipeline.errors import UsageError, or_by_spark
from fk_pipeline.words import counted

if TYPE_CHECKING:
    from fk_pipeline.pipeline import Pipeline

Listing = tuple[list[dict[str, Any]], list[dict[str, Any]], int]
"""The first records, the most frequent reasons, and the number of all records."""

RAW_SHOWN = 80
"""The number of characters of a record that people are shown; the JSON and files have all."""


def quarantine(
    pipeline: PipelineFile,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="with --replay: an exported file with raw corrected")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(metavar="BATCHES", help="only of these batches, for example 7 or 3,9..12")
    ] = None,
    side: Annotated[
        str | None, typer.Option(metavar="SIDE", help="only of this input; join: pairs that select fails on")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="list at most so many records, and so many reasons")
    ] = 20,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write all records to a file that ends in .csv or .jsonl")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="read them again: as they are now in the landing files, or as in FILE")
    ] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Lists the records that could not be used, exports them for correction, and has them read again."""
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
        _list(loaded, batch, side, limit, as_json)


def _list(pipeline: Pipeline, batches: str | None, side: str | None, limit: int, as_json: bool) -> None:
    rows, reasons, number = records_of(pipeline, batches, side, limit)
    if as_json:
        print_json({"records": number, "reasons": reasons, "rows": rows})
    elif not rows:
        tell("Nothing is in the quarantine.")
    else:
        columns = ["side", "batch", "file", "line", "reason", "raw"]
        print_table(
            columns, [[_shortened(row[name]) if name == "raw" else row[name] for name in columns] for row in rows]
        )
        print_table(["records", "side", "reason"], [[f"{r['records']:,}", r["side"], r["reason"]] for r in reasons])
        tell(counted(number, "record") + (f", {len(rows):,} of them shown" if number > len(rows) else ""))


def records_of(pipeline: Pipeline, batches: str | None, side: str | None, limit: int) -> Listing:
    """Returns the first records, the most frequent reasons, and the number of all records."""
    from fk_pipeline.quarantine_in_process import reasons_of

    def local() -> Listing:
        records = pipeline.quarantined_in_process(batches, side)
        return records.slice(0, limit).to_pylist(), reasons_of(records)[:limit], len(records)

    def by_spark() -> Listing:
        records = pipeline.quarantined(batches, side)
        rows = [row.asDict() for row in records.limit(limit).collect()]
        totals = records.groupBy("side", "reason").count().withColumnRenamed("count", "records")
        ordered = totals.orderBy("records", "side", "reason", ascending=[False, True, True])
        return rows, [row.asDict() for row in ordered.limit(limit).collect()], records.count()

    return or_by_spark(local, by_spark, say_by_spark)


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
