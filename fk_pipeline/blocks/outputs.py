"""The selected columns of a result, computed from the rows of both sides."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec, quote


def select_outputs(joined: DataFrame, spec: PipelineSpec, keep: Sequence[str] = ()) -> DataFrame:
    """Returns the result columns of joined rows, after the columns `keep`.

    Args:
        joined: `left` and `right`, the rows of both sides as structs (null where there is none), and `keep`.
        spec: the pipeline; its `select` may use `left.x`, `right.x` and names that only one side has.
        keep: columns to keep in front.
    """
    frame = with_names(joined, spec, keep)
    return frame.select(*map(quote, keep), *[F.expr(o.sql).alias(o.name) for o in spec.outputs])


def with_names(joined: DataFrame, spec: PipelineSpec, keep: Sequence[str]) -> DataFrame:
    """Returns joined rows with the columns that only one side has, under their own names."""
    names = [c.name.lower() for side in Side for c in spec.columns_of(side)]
    flat = [
        F.col(side.value)[c.name].alias(c.name)
        for side in Side
        for c in spec.columns_of(side)
        if names.count(c.name.lower()) == 1
    ]
    return joined.select(*map(quote, keep), "left", "right", *flat)
