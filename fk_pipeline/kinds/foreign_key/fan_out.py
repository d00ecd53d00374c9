"""Fan-out: the number of left rows that refer to changed right rows, and its limit (`max_fan_out`).

A changed right row causes a response to every subscriber (KIP-213's foreign-key join), so one line of a dimension may
touch the whole result. The limit stops a batch before its right rows are committed, until it is approved.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.versions import COUNTED_IN, OUTCOME
from fk_pipeline.identity import APPLIED, INSERTED, MAX_BATCH, BatchRange
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.rights import PROPAGATED, USUAL, Ends, concerned
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.keys import shown
from fk_pipeline.store import schemas as s

SUBSCRIBER_COUNT = "_fk_subscribers"

EVERY_BATCH = BatchRange.of(0, MAX_BATCH)

MOST = 5
"""The largest number of right keys that are reported when batches exceed the limit."""


@dataclass(frozen=True)
class FanOut:
    """The fan-out of batches that exceed the limit.

    Attributes:
        rows: per batch, the number of left rows that refer to right rows which the batch changes.
        keys: the right keys with the most left rows, each with their number, largest first; empty where keys must not
            be reported.
    """

    rows: dict[int, int]
    keys: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        batches = " and ".join(f"batch {batch} would touch {rows:,} rows" for batch, rows in sorted(self.rows.items()))
        keys = ", ".join(f"{key}: {rows:,}" for key, rows in self.keys)
        return f"{batches} of the result{f' (most by {keys})' if keys else ''}"


def referring(subscriptions: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Returns the rows of the subscription store that are not deleted and have a foreign key."""
    first = quote(k.fk_columns(spec)[0][0])
    return subscriptions.where(f"{s.HASH} IS NOT NULL AND {first} IS NOT NULL")


def beyond(
    rows: DataFrame,
    subscriptions: DataFrame,
    spec: ForeignKeySpec,
    budget: int,
    agreed: Collection[int],
    versions: DataFrame | None = None,
    ends: Ends = USUAL,
) -> FanOut | None:
    """Returns the fan-out of the batches that exceed the limit; None if none does.

    Args:
        rows: the right rows after the batches, as `versions.apply_versions` returns them.
        subscriptions: the subscription store as it is, or its rows that refer to keys of `rows`.
        spec: the pipeline.
        budget: the largest number of left rows per batch.
        agreed: the approved batches.
        versions: with `as_of` all versions of the keys of `rows`, as they are after the batches.
        ends: with `as_of`, what may have ended versions.
    """
    keys = [c.name for c in spec.right.key_columns]
    fks = [k.fk(key) for key in keys]
    propagated = (
        rows.where(F.col(OUTCOME).isin(INSERTED, APPLIED)).where(PROPAGATED).where(~F.col(COUNTED_IN).isin(*agreed))
    )
    changed = propagated.select(COUNTED_IN, *[F.col(quote(key)).alias(k.fk(key)) for key in keys])
    if versions is None:
        hearing = referring(subscriptions, spec).select(*map(quote, fks)).join(changed, fks)
    else:
        known = replace(ends, changed=[batch for batch in ends.changed if batch not in agreed])
        hearing = _of_the_time(referring(subscriptions, spec), propagated, versions, spec, known)
    counts = hearing.groupBy(COUNTED_IN, *map(quote, fks)).agg(F.count("*").alias(SUBSCRIBER_COUNT)).persist()
    try:
        totals = counts.groupBy(COUNTED_IN).agg(F.sum(SUBSCRIBER_COUNT).alias("_fk_total"))
        over = {r[0]: r[1] for r in totals.where(F.col("_fk_total") > budget).collect()}
        if not over:
            return None
        most = counts.where(F.col(COUNTED_IN).isin(*over)).orderBy(F.col(SUBSCRIBER_COUNT).desc(), *map(quote, fks))
        listed = [] if spec.has_sensitive else most.limit(MOST).collect()
    finally:
        counts.unpersist()
    named = [(shown({key: _text(row[k.fk(key)]) for key in keys}), row[SUBSCRIBER_COUNT]) for row in listed]
    return FanOut(over, tuple(named))


def _of_the_time(
    subscriptions: DataFrame, propagated: DataFrame, versions: DataFrame, spec: ForeignKeySpec, ends: Ends
) -> DataFrame:
    """Returns the subscriptions whose time changed versions of right rows concern: `_fk_counted_in` and `_fk_fk_*`."""
    keys = list(k.keys_of(spec, k.RIGHT_TABLE).keys)
    changed = propagated.select(*map(quote, keys), COUNTED_IN)
    versions = (
        versions.drop(COUNTED_IN, s.APPLIED_IN).join(changed, keys, "left").withColumnRenamed(COUNTED_IN, s.APPLIED_IN)
    )
    columns = [*k.pk_names(spec), *k.subscribed(spec)]
    rows = concerned(subscriptions.select(*map(quote, columns)), versions, spec, EVERY_BATCH, ends)
    return rows.dropDuplicates([*columns, s.BATCH]).withColumnRenamed(s.BATCH, COUNTED_IN)


def _text(value: Any) -> str:
    return value.hex().upper() if isinstance(value, (bytes, bytearray)) else str(value)
