"""Stage `responses`: the rows that a batch changed, and the pairs of these rows, without payload.

KIP-213's subscription send and foreign-table join, where a row subscribes to a span of time and any number of rows may
respond.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import SIDES, BatchRange, Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.kind import BUCKET, TIME, on_columns
from fk_pipeline.kinds.window.spans import Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

PAIR = "pair"
"""The cause of a message about two rows that match."""

_CHANGED = {Side.LEFT: "_fk_left_changed_in", Side.RIGHT: "_fk_right_changed_in"}
_TIME = {Side.LEFT: "_fk_left_time", Side.RIGHT: "_fk_right_time"}


def needed(spec: WindowSpec) -> list[str]:
    """Returns the columns of a state, besides its key, that messages are made of."""
    return [*on_columns(spec), TIME, s.HASH, s.APPLIED_IN]


def responses(lefts: DataFrame, rights: DataFrame, spec: WindowSpec, batches: BatchRange, spans: Spans) -> DataFrame:
    """Returns the messages due to the batches: see `tables.responses`.

    Args:
        lefts: the left state, or at least its rows that the batches changed, and those that match changed right rows.
        rights: the same of the right state.
        spec: the pipeline.
        batches: the batches whose messages are due.
        spans: the window.
    """
    rows = {Side.LEFT: lefts, Side.RIGHT: rights}
    found = pairs(lefts, rights, spec, batches, spans)
    for side in SIDES:
        found = found.unionByName(_changed(rows[side], side, spec, batches))
    return found


def _changed(rows: DataFrame, side: Side, spec: WindowSpec, batches: BatchRange) -> DataFrame:
    """Returns one message per row of a side that the batches changed."""
    return rows.where(batches.predicate(s.APPLIED_IN)).selectExpr(
        f"{s.APPLIED_IN} AS {s.BATCH}",
        *k.own_key(spec, side),
        *k.no_row(spec, k.other(side)),
        f"'{side}' AS {s.CAUSE}",
        f"{s.HASH} AS {k.HASH_OF[side]}",
    )


def pairs(lefts: DataFrame, rights: DataFrame, spec: WindowSpec, batches: BatchRange, spans: Spans) -> DataFrame:
    """Returns one message per pair of rows of which the batches changed one or both."""
    left = spans.spread(lefts, Side.LEFT, spec).selectExpr(*_sided(Side.LEFT, spec))
    right = spans.placed(rights, spec).selectExpr(*_sided(Side.RIGHT, spec))
    ticks = {side: spans.ticks(name) for side, name in _TIME.items()}
    changed = {side: f"IF({batches.predicate(name)}, {name}, NULL)" for side, name in _CHANGED.items()}
    together = left.join(right, [*on_columns(spec), BUCKET]).where(spans.matches(ticks[Side.LEFT], ticks[Side.RIGHT]))
    batch = f"GREATEST({changed[Side.LEFT]}, {changed[Side.RIGHT]})"  # it skips nulls
    return (
        together.withColumn(s.BATCH, F.expr(batch))
        .where(f"{s.BATCH} IS NOT NULL")
        .select(
            s.BATCH,
            *map(quote, k.parts(spec, *SIDES)),
            F.lit(PAIR).alias(s.CAUSE),
            s.LEFT_HASH,
            s.RIGHT_HASH,
        )
    )


def _sided(side: Side, spec: WindowSpec) -> list[str]:
    """SQL: the columns of a row of a side in a join with rows of the other one."""
    return [
        *map(quote, on_columns(spec)),
        BUCKET,
        *k.own_key(spec, side),
        f"{TIME} AS {_TIME[side]}",
        f"{s.HASH} AS {k.HASH_OF[side]}",
        f"{s.APPLIED_IN} AS {_CHANGED[side]}",
    ]
