"""The order that Spark gives to rows, in this process: null before all values, NaN after all others, texts by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fk_pipeline.errors import LeftToSpark


def ordered(rows: pa.Table, order: Sequence[tuple[str, bool]]) -> pa.Table:
    """Returns rows in Spark's order: null before all values, NaN after all others, texts by their bytes.

    Args:
        rows: the rows.
        order: columns, each with whether it descends.

    Raises:
        LeftToSpark: a column has no order here.
    """
    return rows.take(places_in_order(rows, order)) if order and len(rows) else rows


def places_in_order(rows: pa.Table, order: Sequence[tuple[str, bool]]) -> pa.Array:
    """Returns the places of rows in the order of `ordered`; equal rows keep their order.

    Raises:
        LeftToSpark: a column has no order here.
    """
    keys: dict[str, Any] = {}
    for column, _ in order:
        values = rows[column]
        if pa.types.is_nested(values.type):
            raise LeftToSpark(f"{column} is ordered by Spark only")
        keys[f"{len(keys)}"] = pc.is_valid(values).cast(pa.int8())
        if pa.types.is_floating(values.type):
            nan = pc.is_nan(values)
            keys[f"{len(keys)}"] = nan.cast(pa.int8())
            values = pc.if_else(nan, 0.0, pc.add(values, pa.scalar(0.0, values.type)))  # no -0.0
        elif pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        keys[f"{len(keys)}"] = values
    table, directions = pa.table(keys), []
    for column, descends in order:
        directions += ["descending" if descends else "ascending"] * (
            3 if pa.types.is_floating(rows[column].type) else 2
        )
    return pc.sort_indices(table, sort_keys=[*zip(table.column_names, directions, strict=True)])
