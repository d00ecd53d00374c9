"""The bounds of a new file, by which readers skip it, as the Delta protocol has them ("Per-file Statistics")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

TEXT = 32
"""The most characters of a text in a bound. Delta takes as many."""

LAST_CHARACTER = "\U0010ffff"

FIRST_TIME, LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_000
"""The times that bounds may have, in microseconds since 1970: from the year 1 to the year 9999."""


def bounds(rows: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    """Returns the statistics of a file with some rows.

    Only integers, texts and timestamps get bounds: conditions of the engine are on columns of these types.

    Args:
        rows: the rows.
        columns: the columns that get statistics; none with a struct.
    """
    low, high = {}, {}
    for name in columns:
        ends = _ends(rows[name])
        if ends is not None:
            low[name], high[name] = ends
    nulls = {name: rows[name].null_count for name in columns}
    return {"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": nulls, "tightBounds": True}


def _ends(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Returns the bounds of a column; None if it gets none."""
    dtype = values.type
    is_time = pa.types.is_timestamp(dtype) and dtype.tz is not None
    if values.null_count == len(values) or not (pa.types.is_integer(dtype) or pa.types.is_string(dtype) or is_time):
        return None
    try:
        ends = pc.min_max(values.cast(pa.int64()) if is_time else values).as_py()
    except UnicodeDecodeError:  # Spark writes texts that are none
        return None
    low, high = ends["min"], ends["max"]
    if is_time:  # Delta has milliseconds
        known = low >= FIRST_TIME and high <= LAST_TIME
        return (_iso(low // 1000), _iso(-(-high // 1000))) if known else None
    if pa.types.is_string(dtype):
        if len(high) > TEXT and high[TEXT] == LAST_CHARACTER:  # no text of so many characters is greater
            return None
        return low[:TEXT], high if len(high) <= TEXT else high[:TEXT] + LAST_CHARACTER
    return low, high


def _iso(millis: int) -> str:
    time = pa.scalar(millis, pa.timestamp("ms"))
    return f"{pc.strftime(time, format='%Y-%m-%dT%H:%M:%S').as_py()}Z"
