"""Rows of the result that stay, whatever the tables say: those of events that `retention` has removed.

A table knows a row if it has it, and its stage has told of it: no stage has told of a row that had expired when it
landed. What the result has of a row that its table does not know stays:

    a row of the result that goes stays    where a table does not know one of its rows
    a row alone is not written             where the result has a pair of it with a row that its table does not know
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from fk_pipeline.blocks.refresh.differing import DECIDED, UNMATCHED
from fk_pipeline.blocks.select.block import ROW
from fk_pipeline.identity import ADDED, REMOVED, SIDES, WRITTEN, Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.kind import WindowStage
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store import schemas as s

_GOES = f"{DECIDED} IN ('{REMOVED}', '{UNMATCHED}{REMOVED}')"
_UNMATCHED_WRITTEN = f"{DECIDED} IN ('{UNMATCHED}{ADDED}', '{UNMATCHED}{WRITTEN}')"


def but_forgotten(read: Reader, rows: RowSet) -> RowSet:
    """Returns those of the rows to be written (`differing.differing`) that really are."""
    if not rows.at_most:
        return rows
    written, goes = rows.frame, rows.frame.where(_GOES)
    for side in SIDES:
        written = written.join(_unknown(read, goes, side).select(ROW), ROW, "left_anti")
    for side in k.unmatched_on(read.spec):
        of_side = f"{_UNMATCHED_WRITTEN} AND {quote(k.parts(read.spec, side)[0])} IS NOT NULL"
        paired = _paired(read, rows.frame.where(of_side), side)
        unmatched = written.where(of_side).join(paired, paired.columns, "left_anti")
        written = written.where(f"NOT ({of_side})").unionByName(unmatched)
    return read.frames.cached(written.select(*map(quote, rows.frame.columns)), rows.at_most)


def _unknown(read: Reader, rows: DataFrame, side: Side) -> DataFrame:
    """Returns the rows with a key of a side that its table does not know."""
    spec, names = read.spec, k.parts(read.spec, side)
    rows = rows.where(f"{quote(names[0])} IS NOT NULL")
    keys = read.frames.cached(rows.select(*map(quote, names)).distinct(), None)
    own = dict(zip((c.name for c in spec.side(side).key_columns), names, strict=True))
    stored = read.with_keys(k.table_of(spec, side), keys, own, needed=[s.APPLIED_IN])
    known = stored.where(f"{s.APPLIED_IN} IS NOT NULL").selectExpr(*k.own_key(spec, side))
    return rows.join(known, names, "left_anti")


def _paired(read: Reader, rows: DataFrame, side: Side) -> DataFrame:
    """Returns the keys of rows of a side of which the result has a pair with a row that its table does not know."""
    names, other = k.parts(read.spec, side), k.other(side)
    keys = read.frames.cached(rows.select(*map(quote, names)).distinct(), None)
    same = {name: name for name in names}
    stored = read.with_keys(WindowStage.RESOLVED_JOIN, keys, same, needed=k.parts(read.spec, *SIDES))
    pairs = stored.select(*map(quote, k.parts(read.spec, *SIDES))).join(keys.frame, names, "left_semi")
    return _unknown(read, pairs, other).select(*map(quote, names)).distinct()
