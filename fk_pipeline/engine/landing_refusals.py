"""Errors that refuse landing files, and notes about them for people; nothing here is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import functions as F

from fk_pipeline.cdc.records import BAD, OTHER_TABLE, TRUNCATE
from fk_pipeline.cdc.table_versions import are_kept
from fk_pipeline.cdc.unreadable import Unreadable
from fk_pipeline.engine.landed_counts import BY_ARRIVAL, ROUNDED, SNAPSHOT_ROWS
from fk_pipeline.engine.landed_rows import LandedRows
from fk_pipeline.engine.unseen_keys import unseen_keys
from fk_pipeline.errors import LandingError, UnreadableFileError, UnsupportedEventError
from fk_pipeline.failures import is_from_spark
from fk_pipeline.identity import LandedFile, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.stage_input import Counts

TOO_LONG_FIX = "write its rows on lines of their own, or raise settings.max_line_bytes in the pipeline file"


def refuse_gone_versions(
    spec: PipelineSpec, side: Side, files: Mapping[int, Sequence[LandedFile]], error: Exception
) -> None:
    """Refuses versions of a Delta table that are no longer kept, if these caused a Spark error.

    Raises:
        LandingError: such versions are gone.
    """
    if spec.side(side).format != "delta" or not is_from_spark(error):
        return
    gone = [f for group in files.values() for f in group if not are_kept(spec.location(f.path))]
    if not gone:
        return
    commands = ", then ".join(f"fk-pipeline remove-batch {spec.file} {f.batch}" for f in gone)
    stay = f"batch {gone[0].batch} stays" if len(gone) == 1 else "these batches stays"
    raise LandingError(
        f"versions {gone[0].path} are not kept any more, and were not read before",
        where=f"pipeline {spec.name}, batch {gone[0].batch}",
        why="a vacuum removed them, or the change feed was off; the batches stay due, and nothing was changed",
        fix=f"{commands}; the next run takes the whole table instead, and what else is in {stay}",
    ) from error


def unreadable_snapshot(unreadable: Unreadable, where: str) -> UnreadableFileError:
    """Returns the error for a snapshot that cannot be read to its end."""
    return UnreadableFileError(
        f"the snapshot is {unreadable.reason}"
        if unreadable.problem
        else f"the snapshot has a line {unreadable.reason}",
        where=where,
        why="rows that are not read would be deleted; nothing of the batch was applied",
        fix="replace the file by a whole one" if unreadable.problem else TOO_LONG_FIX,
    )


def refuse_cut_off(spec: PipelineSpec, side: Side, landed: LandedRows, counts: Counts) -> None:
    """Refuses a snapshot whose last record is bad: it may be cut off, and the rows not read would be deleted.

    Raises:
        UnreadableFileError: the last record of a snapshot is bad.
    """
    if not spec.side(side).is_snapshot or not any(c.get("quarantined") for c in counts.values()):
        return
    lines, place = landed.records.where(F.col("kind") != TRUNCATE), F.struct("block", "position")
    last = lines.groupBy("file").agg(*[F.max_by(name, place).alias(name) for name in ("kind", "reason")])
    record = last.where(F.col("kind") == BAD).first()
    if record is not None:
        raise UnreadableFileError(
            f"the last record of the snapshot is bad: {record['reason']}",
            where=record["file"],
            why="the file may be cut off, and rows that are not in it would be deleted; nothing of it was applied",
            fix="replace the file by a whole one, or take that record out of it",
        )


def refuse_truncates(spec: PipelineSpec, side: Side, landed: LandedRows, counts: Counts) -> None:
    """Refuses a truncate without a sequence if the side has `sequence_by`: its order among the rows is unknown.

    Raises:
        UnsupportedEventError: a truncate has no sequence.
    """
    if spec.side(side).sequence_by is None or not any(c.get("truncates") for c in counts.values()):
        return
    truncates = landed.records.where((F.col("kind") == TRUNCATE) & F.col("sequence.value").isNull())
    truncate = truncates.select("batch").first()
    if truncate is not None:
        raise UnsupportedEventError(
            f"the {side} source was truncated, and sequence_by is null on the truncate",
            where=f"pipeline {spec.name}, batch {truncate['batch']}",
            why="leaving the event out would keep rows that the source no longer has",
            fix="leave out sequence_by, so that the source's own order counts; or let the source send deletes",
        )


def about_other_tables(spec: PipelineSpec, side: Side, counts: Counts) -> list[str]:
    """Returns a note per batch in which no line has the table name of the side: the name is probably a mistake."""
    return [
        f"batch {batch}: no line is about table {spec.side(side).table}"
        for batch, numbers in counts.items()
        if numbers["read"] and numbers["read"] == numbers.get(f"ignored: {OTHER_TABLE}")
    ]


def about_rounded(spec: PipelineSpec, side: Side, counts: Counts) -> list[str]:
    """Returns a note per batch and column with values that were rounded to the type, and types that keep the digits."""
    types = {c.name: c.type for c in spec.side(side).columns}
    return [
        f"batch {batch}: {number} {side} value(s) of {column} are not exact as {types[column]}; "
        "another type (DECIMAL, STRING) keeps what was sent"
        for batch, numbers in counts.items()
        for name, number in numbers.items()
        if (column := name.removeprefix(f"{ROUNDED}: ")) != name
    ]


def about_second_snapshots(side: Side, known: Mapping[int, Mapping[str, int]], read: Counts) -> list[str]:
    """Returns a warning if a snapshot has come after changes, which win against it by the rules of the format.

    Args:
        side: the side.
        known: the counts of all batches.
        read: the counts of the batches that were read now.
    """
    others = (SNAPSHOT_ROWS, BY_ARRIVAL)
    changed = [
        b for b, numbers in known.items() if numbers.get("events", 0) > sum(numbers.get(name, 0) for name in others)
    ]
    warnings = []
    for batch, rows in sorted((b, numbers[SNAPSHOT_ROWS]) for b, numbers in known.items() if SNAPSHOT_ROWS in numbers):
        before = [earlier for earlier in changed if earlier < batch]
        if before and not read.keys().isdisjoint({batch, *before}):
            warnings.append(
                f"batch {batch}: {rows:,} {side} row(s) are of a snapshot, which counts as older than every change: "
                f"where changes before it wrote a row (batch {min(before)} and later), the row of the snapshot lost. "
                f"If the source was read anew after a gap, start with that snapshot: a new warehouse, and the files "
                f"of {side} from batch {batch} on"
            )
    return warnings


def about_keys_that_may_change(spec: PipelineSpec, side: Side, counts: Counts) -> list[str]:
    """Returns a note per batch with updates that may change the key of the side, unseen."""
    return [
        f"batch {batch}: {unseen.what}. {unseen.fix}"
        for batch, numbers in counts.items()
        for unseen in unseen_keys(spec, side, numbers)
    ]
