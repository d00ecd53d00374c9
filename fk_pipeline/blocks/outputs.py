"""The selected columns of a result, computed from the rows of both sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.spec import quote
from fk_pipeline.spec.join import JoinSpec
from fk_pipeline.store import schemas as s

FAILED, PAIR_AS_JSON = "_fk_failed", "_fk_pair"
"""Columns of rows of a result: the reason why one cannot be computed as it is; the rows of both sides as JSON."""


def select_outputs(joined: DataFrame, spec: JoinSpec, keep: Sequence[str] = ()) -> DataFrame:
    """Returns the result columns of joined rows, after the columns `keep`.

    Args:
        joined: `left` and `right`, the rows of both sides as structs (null where there is none), and `keep`.
        spec: the pipeline; its `select` may use `left.x`, `right.x` and names that only one side has.
        keep: columns to keep in front.
    """
    frame = with_names(joined, spec, keep)
    return frame.select(*map(quote, keep), *[F.expr(o.sql).alias(o.name) for o in spec.outputs])


def with_names(joined: DataFrame, spec: JoinSpec, keep: Sequence[str]) -> DataFrame:
    """Returns joined rows with the columns that only one side has, under their own names."""
    names = [c.name.lower() for side in SIDES for c in spec.columns_of(side)]
    flat = [
        F.col(side)[c.name].alias(c.name)
        for side in SIDES
        for c in spec.columns_of(side)
        if names.count(c.name.lower()) == 1
    ]
    return joined.select(*map(quote, keep), "left", "right", *flat)


def quarantined_pairs(rows: DataFrame) -> DataFrame:
    """Returns the rows with `_fk_failed`, `_fk_pair` and `_fk_batch` that fail, with the columns of the quarantine."""
    return rows.where(F.col(FAILED).isNotNull()).select(
        s.BATCH,
        F.lit(None).cast("string").alias(s.FILE),
        F.lit(None).cast("bigint").alias(s.LINE),
        F.col(FAILED).alias(s.REASON),
        F.col(PAIR_AS_JSON).alias(s.RAW),
    )


def keys_of_pairs(spec: JoinSpec, names: Mapping[Side, Callable[[str], str]]) -> list[Column]:
    """Returns the keys of a pair of rows in the quarantine, null without the row.

    Args:
        spec: the pipeline.
        names: per side, the function from a key column to its name in the outcome.
    """
    keys = {side: ", ".join(f"{c.quoted}: {c.type}" for c in spec.side(side).key_columns) for side in SIDES}
    pair = F.from_json(s.RAW, ", ".join(f"`{side}` STRUCT<{columns}>" for side, columns in keys.items()))
    return [pair[side][c.name].alias(name(c.name)) for side, name in names.items() for c in spec.side(side).key_columns]
