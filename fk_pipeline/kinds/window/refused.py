"""Pairs, and rows alone, on which an expression of `select` fails: they go to the quarantine."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.outputs import FAILED, PAIR_AS_JSON, keys_of_pairs, quarantined_pairs
from fk_pipeline.effects import Effect, Reject, Report
from fk_pipeline.identity import OF_PAIRS, QUARANTINED, SIDES
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store import schemas as s


class Refused:
    """The rows of one refresh that cannot be computed."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._rows: RowSet | None = None

    def left_out(self, rows: DataFrame) -> DataFrame:
        """Returns the expected rows that can be computed, and remembers the others.

        Not those that another batch has in the quarantine with the same values: a refresh looks at them again.
        """
        if FAILED not in rows.columns:
            return rows
        last = F.lit(int(self._read.history.known[-1])).alias(s.BATCH)
        every = self._read.frames.cached(rows, None).frame
        failing = every.where(f"{FAILED} IS NOT NULL").select(FAILED, PAIR_AS_JSON, last)
        known = self._read.read(s.QUARANTINE).where(F.col(s.SIDE) == OF_PAIRS)
        known = known.where(f"NOT ({self._read.batches.predicate(s.BATCH)})").select(s.RAW)
        new = quarantined_pairs(failing).join(known.distinct(), s.RAW, "left_anti")
        self._rows = self._read.frames.cached(new.select(s.BATCH, s.FILE, s.LINE, s.REASON, s.RAW), None)
        return every.where(f"{FAILED} IS NULL").drop(FAILED, PAIR_AS_JSON)

    def effects(self) -> list[Effect]:
        """Returns the effects that put the records of the batches in the quarantine, in place of older ones."""
        if self._rows is None:
            return [Reject(None, 0, OF_PAIRS)]
        counts = {batch: {QUARANTINED: numbers[()]} for batch, numbers in self._rows.counts(s.BATCH).items()}
        number = sum(of_batch[QUARANTINED] for of_batch in counts.values())
        return [Reject(self._rows.frame, number, OF_PAIRS), Report(counts)]


def refused_before(read: Reader) -> dict[str, RowSet]:
    """Returns, per side, the keys of rows that the batches refused before, and which are computed again."""
    spec = read.spec
    if not spec.computes or read.history.first_time:
        return {}
    records = read.of_batches(s.QUARANTINE, s.BATCH).where(read.batches.predicate(s.BATCH))
    names = {side: partial(k.part, side) for side in SIDES}
    pairs = read.frames.cached(records.where(F.col(s.SIDE) == OF_PAIRS).select(*keys_of_pairs(spec, names)), None)
    by_side = {}
    for side in SIDES:
        own = [(k.part(side, column.name), column.name) for column in spec.side(side).key_columns]
        keys = pairs.frame.where(f"{quote(own[0][0])} IS NOT NULL")
        keys = keys.selectExpr(*(f"{quote(part)} AS {quote(name)}" for part, name in own)).distinct()
        by_side[str(side)] = read.frames.cached(keys, None)
    return by_side
