"""What the metadata of a Parquet file says of its columns: their places, and their bounds in a row group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def places_of(metadata: pq.FileMetaData, columns: Sequence[str]) -> dict[str, int]:
    """Returns the places of columns in the metadata of a file; not of one with the path of a field of a struct."""
    paths = [metadata.schema.column(i).path for i in range(len(metadata.schema))]
    return {name: paths.index(name) for name in columns if paths.count(name) == 1}


def ends_of(statistics: pq.Statistics | None, dtype: pa.DataType) -> tuple[Any, Any] | None:
    """Returns the bounds of a column in a row group, as `numbered` has its values; None if they are not known.

    The bounds of texts may be shortened: the lower one is then less, the upper one greater.
    """
    if statistics is None or not statistics.has_min_max:
        return None
    if pa.types.is_timestamp(dtype):
        is_micros = '"microseconds"' in statistics.logical_type.to_json()
        return (statistics.min_raw, statistics.max_raw) if is_micros else None
    if pa.types.is_integer(dtype) or pa.types.is_string(dtype):
        low, high = statistics.min, statistics.max
        return (low, high) if type(low) is (str if pa.types.is_string(dtype) else int) else None
    return None


def has_nulls(statistics: pq.Statistics) -> bool:
    """Returns whether a column may be null in a row of a row group."""
    return not statistics.has_null_count or statistics.null_count > 0


def numbered(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns values as bounds have them, in the same order: of timestamps their microseconds since 1970.

    Python has timestamps of only 9,999 years.
    """
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
