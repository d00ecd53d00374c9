"""The quarantine for people: its records as rows of a file, and the edits of that file as corrections."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.cdc.reader import format_of, line_digest
from fk_pipeline.cdc.unreadable import TOO_LONG, UNREADABLE
from fk_pipeline.engine.runner import Runner
from fk_pipeline.engine.withdrawal import refuse_folded
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import OF_PAIRS, QUARANTINING, BatchId, BatchRange, LandedFile, Side
from fk_pipeline.quarantine_in_process import EDITED_ENDINGS, QuarantineListing
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.sql import text
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.corrections import Correction, digest_of

AGAIN = "its quarantined records are to be read again"


@dataclass(frozen=True)
class Replay:
    """Numbers of records in an edited file: new corrections, corrections in force already, and unedited records."""

    corrections: int
    known: int
    unchanged: int


def listing(records: DataFrame, limit: int) -> QuarantineListing:
    """Returns what `quarantine_in_process.listing` does, counted by Spark."""
    totals = records.groupBy("side", "reason").count().withColumnRenamed("count", "records")
    ordered = totals.orderBy("records", "side", "reason", ascending=[False, True, True])
    rows, reasons = ([row.asDict() for row in part.limit(limit).collect()] for part in (records, ordered))
    return QuarantineListing(records.count(), reasons, rows)


def quarantined_records(runner: Runner, batches: Sequence[BatchRange], side: str | None) -> DataFrame:
    """Returns records of the quarantine.

    Args:
        runner: the runner of the pipeline.
        batches: the batches whose records are returned; none: all.
        side: the origin whose records are returned; None: all.

    Returns:
        One row per record, in the order of their places: `batch`, `side`, `file` (where it was then), `line`, `reason`,
        `raw`, and `digest`, which identifies the record after `raw` was edited.
    """
    rows = runner.warehouse.read(runner.layout[s.QUARANTINE])
    if side is not None:
        rows = rows.where(F.col(s.SIDE) == side)
    if batches:
        rows = rows.where(" OR ".join(some.predicate(s.BATCH) for some in batches))
    folder = runner.spec.location("") + "/"
    below = f"IF(STARTSWITH({s.FILE}, {text(folder)}), SUBSTRING({s.FILE}, {len(folder) + 1}), {s.FILE}) AS file"
    return rows.select(
        F.col(s.BATCH).alias("batch"),
        F.col(s.SIDE).alias("side"),
        F.expr(below),
        F.col(s.LINE).alias("line"),
        F.col(s.REASON).alias("reason"),
        F.make_valid_utf8(s.RAW).alias("raw"),
        line_digest(F.col(s.RAW)).alias("digest"),
    ).orderBy("side", "batch", "file", "line", "raw")


def reopen_quarantined(
    ledger: Ledger, batches: Sequence[BatchRange], side: str | None, replay_id: str
) -> list[BatchId]:
    """Makes batches with records in the quarantine due for the stages that rejected the records; needs no Spark."""
    reopened: set[BatchId] = set()
    for origin, stage in ledger.kind.rejecting.items():
        if side is None or side == origin:
            requested = [b for b in ledger.batches if not batches or any(b in some for some in batches)]
            counts = {b: ledger.state(stage, b).counts for b in requested}
            quarantined = [b for b, those in counts.items() if any(those.get(name) for name in QUARANTINING)]
            ledger.runs.reopen(stage, quarantined, replay_id, AGAIN)
            reopened.update(quarantined)
    return sorted(reopened)


def correct(file: Path, spec: PipelineSpec, ledger: Ledger, gone: Collection[LandedFile], replay_id: str) -> Replay:
    """Records the corrections in an edited export file; needs no Spark.

    Args:
        file: the file.
        spec: the pipeline.
        ledger: its ledger.
        gone: landing files that are gone.
        replay_id: identifier that is recorded with every correction.

    Raises:
        UsageError: it is not such a file, a record of it cannot be corrected by its text, or its landing file is gone.
        StateError: the batch of a record was folded.
    """
    corrections, unchanged = _edited(file, spec, ledger)
    places = {(f.side, f.path) for f in gone}
    for correction in ledger.corrections.unknown(corrections):
        refuse_folded(ledger, spec, correction.batch)
        if (correction.side, correction.path) in places:
            raise UsageError(
                f"a record of {file} cannot be corrected: {correction.path} is gone from the landing folder",
                where=f"pipeline {spec.name}, batch {correction.batch}",
                why="the batch cannot be read again without it. Nothing was stored",
                fix="restore the file, or take its records out of this one",
            )
    new = ledger.corrections.record(corrections, replay_id)
    return Replay(new, len(corrections) - new, unchanged)


def _edited(file: Path, spec: PipelineSpec, ledger: Ledger) -> tuple[list[Correction], int]:
    """Returns the corrections in a file, and the number of its records that were not edited."""
    corrections: dict[tuple[Side, str, str], Correction] = {}
    unchanged = 0
    for where, record in _records(file):
        if not isinstance(record, dict) or not all(isinstance(record.get(name), str) for name in ("raw", "digest")):
            raise _unusable("a record has no text in raw or digest", where)
        if not _is_utf8(record["raw"]):
            raise _unusable("raw has half a character in it, which is not UTF-8", where)
        if digest_of(record["raw"]) == record["digest"]:
            unchanged += 1
            continue
        correction = _correction(record, where, spec, ledger)
        line = (correction.side, correction.path, correction.digest)
        if corrections.setdefault(line, correction).text != correction.text:
            raise UsageError(
                f"lines of {correction.path} with one text are corrected to different ones",
                where=where,
                why="lines of a file with one text are read alike. Nothing was stored",
                fix="correct them alike, or correct the landing file",
            )
    return list(corrections.values()), unchanged


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _correction(record: dict[str, Any], where: str, spec: PipelineSpec, ledger: Ledger) -> Correction:
    if record.get("side") == OF_PAIRS:
        raise UsageError(
            "a pair of rows cannot be corrected by its text",
            where=where,
            why="no line is wrong: an expression of select fails on the two rows. Nothing was stored",
            fix="let the source send one of the rows anew, or edit select",
        )
    side = next((name for name in spec.sides if name == record.get("side")), None)
    batch = str(record.get("batch"))
    file = str(record.get("file"))
    landed = ledger.files.called(file, int(batch), side) if side is not None and batch.isdecimal() else None
    if landed is None:
        raise _unusable(f"{record.get('file')!r} is no landing file of side {record.get('side')}", where)
    if str(record.get("reason")).startswith((UNREADABLE, TOO_LONG)):
        raise UsageError(
            f"what cannot be read of {landed.path} cannot be corrected by a text",
            where=where,
            why="more than this line may be missing. Nothing was stored",
            fix="replace the landing file by a whole one: the next run reads it again",
        )
    if not format_of(spec.side(landed.side)).is_text:
        raise UsageError(
            f"a row of a file in format {spec.side(landed.side).format} cannot be corrected by its text",
            where=where,
            why="the file has values, not lines. Nothing was stored",
            fix="write the landing file anew with the row corrected: the next run reads it again",
        )
    line = str(record.get("line"))
    number = int(line) if line.isdecimal() else None
    return Correction(landed.side, int(landed.batch), landed.path, number, record["digest"], record["raw"])


def _records(file: Path) -> Iterator[tuple[str, Any]]:
    """Yields the records of a file, each after its place."""
    if file.suffix not in EDITED_ENDINGS:
        raise _unusable(f"the file ends in neither {' nor '.join(EDITED_ENDINGS)}", str(file))
    place = str(file)
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            if file.suffix == ".csv":
                csv.field_size_limit(sys.maxsize)
                table = csv.DictReader(stream)
                for row in table:
                    yield f"{file}:{table.line_num}", row
                return
            for number, line in enumerate(stream, 1):
                place = f"{file}:{number}"
                if line.strip():
                    yield place, json.loads(line)
    except (OSError, ValueError, csv.Error) as error:
        raise _unusable(str(error), place) from None


def _unusable(what: str, where: str) -> UsageError:
    return UsageError(
        what,
        where=where,
        why="nothing was stored",
        fix="give a file that 'quarantine --export' wrote, with nothing but raw edited",
    )
