"""What differs between the rows that a block must have and those that are stored: few in the driver, many by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.refresh.expected import ExpectedRows
from fk_pipeline.blocks.refresh.refresh import Refresh
from fk_pipeline.blocks.select.block import ROW, Unit
from fk_pipeline.identity import ADDED, REMOVED, WRITTEN
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.local import plain
from fk_pipeline.store.sizes import UNKNOWN

DECIDED = "_fk_decision"
"""The column of rows to be written with what becomes of them: `ADDED`, `WRITTEN` or `REMOVED`."""

UNMATCHED = "unmatched, "
"""The beginning of what becomes of a row with a null in one of some columns (`Own.of_removed`)."""

_BEFORE, _REMOVED = "_fk_before", "_fk_removed"


def all_as_new(refresh: Refresh, rows: DataFrame) -> RowSet:
    """Returns rows of a block of which none is stored, to be written as they are computed."""
    decided = f"CONCAT({unmatched(refresh)}, '{ADDED}') AS {DECIDED}"
    new = rows.selectExpr("*", decided, f"FALSE AS {s.DELETED}", *_marks(refresh))
    return refresh.read.frames.planned(new, UNKNOWN)


def differing(refresh: Refresh, expected: ExpectedRows) -> RowSet:
    """Returns the rows that differ from what is stored, and the keys of those that are gone, which are `s.DELETED`."""
    is_one = expected.keys is None and refresh.block.unit is Unit.GROUP and not refresh.block.by
    if expected.keys is None and not is_one:
        return refresh.read.frames.cached(
            _by_spark(refresh, expected.rows, refresh.read.read(refresh.table.name)), None
        )
    cached = refresh.read.frames.cached(expected.rows, None)
    keys, columns = expected.keys, expected.columns
    if keys is None and cached.at_most == 1:  # it stands in place of the only row
        keys, columns = cached, (ROW,)
    if keys is None:
        return refresh.read.frames.cached(_by_spark(refresh, cached.frame, refresh.read.read(refresh.table.name)), None)
    same = {column: column for column in columns}
    needed = [*refresh.table.keys, s.HASH, *refresh.hidden, *refresh.own.of_removed]
    is_some = keys.at_most and refresh.read.about(refresh.table.name).rows
    stored = refresh.read.exactly(refresh.table.name, keys, same, needed) if is_some else None
    if cached.local is None or (stored is not None and stored.local is None):
        before = refresh.read.read(refresh.table.name).limit(0) if stored is None else stored.frame
        return refresh.read.frames.cached(_by_spark(refresh, cached.frame, before), None)
    rows = _in_driver(refresh, cached.local, None if stored is None else stored.local)
    dtypes = dict(refresh.table.columns) | {DECIDED: "STRING", s.DELETED: "BOOLEAN"}
    return refresh.read.frames.held(rows, [(name, dtypes[name]) for name in rows.column_names])


def _marks(refresh: Refresh) -> tuple[str, str]:
    """SQL: the batch that a commit is of, and the time."""
    return f"{int(refresh.read.history.known[-1])} AS {s.BATCH}", f"CURRENT_TIMESTAMP() AS {s.CHANGED_AT}"


def unmatched(refresh: Refresh) -> str:
    """SQL (STRING): `UNMATCHED` for a row with a null in one of `Own.of_removed`; otherwise empty."""
    nulls = " OR ".join(f"{quote(name)} IS NULL" for name in refresh.own.of_removed)
    return f"IF({nulls}, '{UNMATCHED}', '')" if nulls else "''"


def _by_spark(refresh: Refresh, expected: DataFrame, stored: DataFrame) -> DataFrame:
    """Returns the rows of `differing`, where these are many."""
    keys, compared = [*refresh.table.keys], f"STRUCT({', '.join((s.HASH, *refresh.hidden))})"
    names = [*map(quote, refresh.own.of_removed)]
    of_stored = [f"STRUCT({', '.join(names)}) AS {_REMOVED}"] if names else []
    before = stored.selectExpr(*map(quote, keys), f"{compared} AS {_BEFORE}", *of_stored)
    both = expected.join(before, keys, "full")
    for name in refresh.own.of_removed:
        both = both.withColumn(name, F.expr(f"IF({s.HASH} IS NULL, {_REMOVED}.{quote(name)}, {quote(name)})"))
    differs = f"IF({s.HASH} IS NULL, {_BEFORE} IS NOT NULL, NOT ({compared} <=> {_BEFORE}))"
    decided = f"CASE WHEN {s.HASH} IS NULL THEN '{REMOVED}' WHEN {_BEFORE} IS NULL THEN '{ADDED}' ELSE '{WRITTEN}' END"
    made = (f"CONCAT({unmatched(refresh)}, {decided}) AS {DECIDED}", f"{s.HASH} IS NULL AS {s.DELETED}")
    return both.where(differs).selectExpr("*", *made, *_marks(refresh)).drop(_BEFORE, _REMOVED)


def _in_driver(refresh: Refresh, expected: pa.Table, stored: pa.Table | None) -> pa.Table:
    """Returns the rows of `differing`, which are few; `stored`: None if there are none."""
    keys, compared = [*refresh.table.keys], [s.HASH, *refresh.hidden]
    stored = expected.slice(0, 0) if stored is None else stored
    places, decisions = list[int](), list[str]()
    before = dict(zip(_values(stored, keys), enumerate(_values(stored, compared)), strict=True))
    for place, (key, values) in enumerate(zip(_values(expected, keys), _values(expected, compared), strict=True)):
        _, was = before.pop(key, (0, None))
        if values != was:
            places.append(place)
            decisions.append(ADDED if was is None else WRITTEN)
    named = [*refresh.own.of_removed]
    gone = stored.select([*keys, *named]).take(pa.array([place for place, _ in before.values()], pa.int64()))
    rows = pa.concat_tables([expected.take(pa.array(places, pa.int64())), gone], promote_options="permissive")
    rows = rows.cast(pa.schema([field.with_nullable(True) for field in expected.schema]))
    nulls = [None in values for values in _values(rows, named)] or [False] * len(rows)
    decisions = [
        f"{UNMATCHED if has_null else ''}{decision}"
        for has_null, decision in zip(nulls, [*decisions, *[REMOVED] * len(gone)], strict=True)
    ]
    made = {
        DECIDED: pa.array(decisions, pa.string()),
        s.DELETED: pa.array([False] * len(places) + [True] * len(gone), pa.bool_()),
        s.BATCH: pa.repeat(pa.scalar(int(refresh.read.history.known[-1]), pa.int32()), len(rows)),
        s.CHANGED_AT: pa.repeat(pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC")), len(rows)),
    }
    for name, column in made.items():
        rows = rows.append_column(name, column)
    return rows.combine_chunks()


def _values(rows: pa.Table, names: Sequence[str]) -> list[tuple[object, ...]]:
    """Returns the values of some columns, a tuple per row."""
    return [*zip(*(plain(rows[name]) for name in names), strict=True)] if len(rows) else []
