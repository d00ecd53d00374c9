"""Fills values that a change did not send from stored rows and from the batches of the run (architecture, rule 9)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import hashed
from fk_pipeline.blocks.holes import AT, changed, filled, filled_within, marked, stored_at, unpacked
from fk_pipeline.blocks.state import is_truncated
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.effects import Effect, Reopen
from fk_pipeline.engine.stage_reader import StageReader
from fk_pipeline.identity import Side
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import ONCE_FILLED
from fk_pipeline.spec.sql import text
from fk_pipeline.stage_input import Counts
from fk_pipeline.store import schemas as s


@dataclass(frozen=True)
class Filled:
    """The rows of a changelog with their unavailable values filled.

    Attributes:
        rows: the rows.
        unresolved: per batch, the number of rows with a value that stays unknown.
        failing: per batch, the number of rows on which `where` fails with the values that were filled in.
        failed: of these rows, batch, key and `_fk_failed`, the reason for the quarantine.
    """

    rows: DataFrame
    unresolved: dict[int, int]
    failing: dict[int, int]
    failed: DataFrame


def filled_rows(
    read: StageReader, side: Side, log: DataFrame, records: DataFrame, counts: Counts, retained: Collection[int]
) -> Filled:
    """Fills the unavailable values of the rows of a changelog, and evaluates `where` on the rows that were filled.

    A row on which it fails is marked. It stays, to be filled again when an older row changes, and does not pass.

    Args:
        read: reads the changelog.
        side: the side of the changelog.
        log: the rows that the batches have.
        records: all records of the batches.
        counts: of the batches; `holes` is the number of rows with unavailable values.
        retained: batches whose stored rows stay.
    """
    declared, whole = read.spec.side(side), log.where(f"{s.HOLES} IS NULL")
    number = sum(c.get("holes", 0) for c in counts.values())
    holed = read.frames.cached(log.where(f"{s.HOLES} IS NOT NULL"), number)
    within = read.frames.cached(
        filled_within(holed.frame, records, declared, partial(read.frames.cached, at_most=None)), number
    )
    known = _searched(read, side, within.frame, retained, whole.unionByName(within.frame))
    rows = hashed(known, read.spec, side)
    unresolved = F.expr(f"EXISTS({s.HOLES}, _hole -> _hole.batch IS NULL)")
    has_row, where = f"NOT {s.DELETED}", declared.where or "TRUE"
    passes = read.evaluator.value(where, has_row)  # computed here, so that a failure stops this stage, and no later one
    why = f"CONCAT({read.evaluator.reason([(has_row, where, 'where')])}, {text(f', {ONCE_FILLED}')})"
    marks = {"_fk_unresolved": unresolved, "_fk_passes": F.expr(passes), "_fk_failed": F.expr(why)}
    done = read.frames.cached(rows.withColumns(marks), number)
    by_batch = done.counts(s.BATCH, "_fk_unresolved", "_fk_failed")
    return Filled(
        whole.unionByName(marked(done.frame, "_fk_failed IS NOT NULL").select(*map(quote, log.columns))),
        {batch: sum(n for (lacks, _), n in groups.items() if lacks) for batch, groups in by_batch.items()},
        {batch: sum(n for (_, reason), n in groups.items() if reason) for batch, groups in by_batch.items()},
        done.frame.where("_fk_failed IS NOT NULL").select(s.BATCH, *map(quote, declared.stored_key), "_fk_failed"),
    )


def reopened(read: StageReader, side: Side, retained: Collection[int]) -> list[Effect]:
    """Makes the stage due for other batches whose unavailable values are filled from another version now.

    If the batches may have run before, their earlier rows are no longer known: then, and if there may be truncates, the
    unavailable values of all other batches are checked, otherwise only those of the keys of these batches.

    Args:
        read: reads the changelog as it is after the batches were written.
        side: the side of the changelog.
        retained: batches whose stored rows stayed.
    """
    declared, history = read.spec.side(side), read.history
    if not format_of(declared).has_holes:
        return []
    others = [
        int(batch)
        for batch in history.ledger.batches
        if (batch not in read.history.known or int(batch) in retained)
        and history.ledger.state(history.stage, batch).totals.get("holes")
    ]
    if not others:
        return []
    name, keys = read.spec.definition.input(side).log, [c.name for c in declared.key_columns]
    log = read.read(name)
    holed = unpacked(log.where(F.col(s.BATCH).isin(others) & F.col(s.HOLES).isNotNull()), declared)
    if history.first_time and not is_truncated(read, history.stage, name, keys[0]):
        key = F.struct(*map(quote, keys))
        own_keys = log.where(read.batches.predicate(s.BATCH)).select(key.alias("_fk_key"))
        same = [
            holed.join(own_keys, column == own_keys["_fk_key"], "left_semi")
            for column in (key, F.col(s.OLD_KEY)["key"])
        ]
        holed = same[0].unionByName(same[1]).dropDuplicates([s.BATCH, *declared.stored_key])
    rows = read.frames.cached(holed, None)
    if rows.frame.isEmpty():
        return []
    again = changed(rows.frame, _searched(read, side, rows.frame, retained), declared)
    return [Reopen(sorted(int(row[0]) for row in again.collect()))]


def _searched(
    read: StageReader, side: Side, holed: DataFrame, retained: Collection[int], incoming: DataFrame | None = None
) -> DataFrame:
    """Fills unavailable values from stored rows, and from the rows that replace the stored ones of the batches."""
    declared, name = read.spec.side(side), read.spec.definition.input(side).log
    columns = {c.name: c.name for c in declared.key_columns}
    first = declared.key_columns[0]
    truncated = is_truncated(read, read.history.stage, name, first.name)

    def log(candidates: DataFrame) -> DataFrame:
        keys = read.frames.cached(candidates.select(*map(quote, columns)).distinct(), None)
        stored = read.with_keys(name, keys, columns)
        if truncated:
            stored = stored.unionByName(read.read(name).where(f"{first.quoted} IS NULL"))
        if incoming is None:
            return unpacked(stored, declared)
        replaced = F.expr(read.batches.predicate(s.BATCH)) & ~F.col(s.BATCH).isin(list(retained))
        placed = incoming.withColumn(AT, F.expr(stored_at(declared)))
        return unpacked(stored.where(~replaced), declared).unionByName(placed)

    return filled(holed, log, declared, partial(read.frames.cached, at_most=None))
