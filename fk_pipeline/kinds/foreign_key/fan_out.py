"""Fan-out: how many rows of the left side refer to right rows that change, and the budget for it (`max_fan_out`).

A right row that changes is answered to every subscriber (KIP-213's foreign-key join): one line of a dimension may touch
the whole result. The budget stops a batch before its right rows are committed, until somebody agrees.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import APPLIED, INSERTED
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.responses import PROPAGATED
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.keys import shown
from fk_pipeline.stages.versions import COUNTED_IN, OUTCOME
from fk_pipeline.store import schemas as s

SUBSCRIBER_COUNT = "_fk_subscribers"

MOST = 5
"""Right keys that are told of a batch beyond the budget."""


@dataclass(frozen=True)
class FanOut:
    """Of batches beyond the budget: left rows that refer to right rows which they change, and where they are most."""

    rows: dict[int, int]
    keys: tuple[tuple[str, int], ...]
    """Right key and left rows, the most first; none where keys are not to be told."""

    def __str__(self) -> str:
        batches = " and ".join(f"batch {batch} would touch {rows:,} rows" for batch, rows in sorted(self.rows.items()))
        keys = ", ".join(f"{key}: {rows:,}" for key, rows in self.keys)
        return f"{batches} of the result{f' (most by {keys})' if keys else ''}"


def referring(subscriptions: DataFrame, spec: PipelineSpec) -> DataFrame:
    """The rows of the subscription store that refer to a right row: none that are deleted."""
    first = quote(k.fk_columns(spec)[0][0])
    return subscriptions.where(f"{s.HASH} IS NOT NULL AND {first} IS NOT NULL")


def beyond(
    rows: DataFrame, subscriptions: DataFrame, spec: PipelineSpec, budget: int, agreed: Collection[int]
) -> FanOut | None:
    """What batches beyond the budget would touch; None when there are none.

    Args:
        rows: what batches make of the right table (`versions.apply_versions`).
        subscriptions: the subscription store as it is, or its rows that refer to keys of `rows`.
        spec: the pipeline.
        budget: left rows per batch.
        agreed: batches with which somebody agreed.
    """
    keys = [c.name for c in spec.right.key_columns]
    told = rows.where(F.col(OUTCOME).isin(INSERTED, APPLIED)).where(PROPAGATED).where(~F.col(COUNTED_IN).isin(*agreed))
    changed = told.select(COUNTED_IN, *[F.col(quote(key)).alias(k.fk(key)) for key in keys])
    fks = [k.fk(key) for key in keys]
    hearing = referring(subscriptions, spec).select(*map(quote, fks)).join(changed, fks)
    found = hearing.groupBy(COUNTED_IN, *map(quote, fks)).agg(F.count("*").alias(SUBSCRIBER_COUNT)).persist()
    try:
        totals = found.groupBy(COUNTED_IN).agg(F.sum(SUBSCRIBER_COUNT).alias("_fk_total"))
        over = {r[0]: r[1] for r in totals.where(F.col("_fk_total") > budget).collect()}
        if not over:
            return None
        most = found.where(F.col(COUNTED_IN).isin(*over)).orderBy(F.col(SUBSCRIBER_COUNT).desc(), *map(quote, fks))
        listed = [] if spec.has_sensitive else most.limit(MOST).collect()
    finally:
        found.unpersist()
    named = [(shown({key: _text(row[k.fk(key)]) for key in keys}), row[SUBSCRIBER_COUNT]) for row in listed]
    return FanOut(over, tuple(named))


def _text(value: Any) -> str:
    return value.hex().upper() if isinstance(value, (bytes, bytearray)) else str(value)
