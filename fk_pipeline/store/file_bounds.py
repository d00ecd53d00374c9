"""The bounds of a new file, by which readers skip it, as the Delta protocol has them ("Per-file Statistics")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

TEXT = 32
"""The most characters of a text in a bound. Delta takes as many."""

LAST_CHARACTER = "\U0010ffff"

DIGITS, AFTER_POINT = 15, 4
"""The most digits of a decimal, and of those after its point, with which a number of JSON is the decimal itself."""

FIRST_TIME, LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_000
"""The times that bounds may have, in microseconds since 1970: from the year 1 to the year 9999."""

_DAY = 24 * 3600 * 1_000_000
"""Microseconds."""


def bounds(rows: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    """Returns the statistics of a file with some rows.

    Integers, texts, dates, timestamps and short decimals get bounds, and floating-point numbers without NaN and
    infinities: NaN is the greatest number for Spark, and the smallest or none for others.

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


def is_short(dtype: pa.DataType) -> bool:
    """Returns whether a type is that of decimals whose bounds can be numbers of JSON."""
    return bool(pa.types.is_decimal(dtype) and dtype.precision <= DIGITS and 0 <= dtype.scale <= AFTER_POINT)


def _ends(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Returns the bounds of a column; None if it gets none."""
    dtype = values.type
    if values.null_count == len(values):
        return None
    if pa.types.is_timestamp(dtype):
        return _times(values) if dtype.tz is not None else None
    if pa.types.is_floating(dtype):
        return _floats(values)
    if pa.types.is_date32(dtype):
        days = days_of(values)
        return None if days is None else (_iso_day(days[0]), _iso_day(days[1]))
    if is_short(dtype):
        low, high = _least_and_greatest(values)
        return float(low), float(high)
    if pa.types.is_integer(dtype):
        return _least_and_greatest(values)
    return _texts(values) if pa.types.is_string(dtype) else None


def days_of(values: pa.ChunkedArray) -> tuple[int, int] | None:
    """Returns the first and the last of some dates, in days since 1970; None if one is not of the years 1 to 9999.

    At least one of them is not null.
    """
    low, high = _least_and_greatest(values.cast(pa.int32()).cast(pa.int64()))
    return (low, high) if low * _DAY >= FIRST_TIME and high * _DAY <= LAST_TIME else None


def _least_and_greatest(values: pa.ChunkedArray) -> tuple[Any, Any]:
    ends = pc.min_max(values).as_py()
    return ends["min"], ends["max"]


def _times(values: pa.ChunkedArray) -> tuple[str, str] | None:
    """Returns the bounds of timestamps: Delta has milliseconds."""
    low, high = _least_and_greatest(values.cast(pa.int64()))
    known = low >= FIRST_TIME and high <= LAST_TIME
    return (_iso(low // 1000), _iso(-(-high // 1000))) if known else None


def _floats(values: pa.ChunkedArray) -> tuple[float, float] | None:
    """Returns the bounds of floating-point numbers; a zero is -0.0 as the lower one, for those who tell them apart."""
    if pc.any(pc.is_nan(values)).as_py():
        return None
    low, high = _least_and_greatest(values)
    return (low or -0.0, high or 0.0) if math.isfinite(low) and math.isfinite(high) else None


def _texts(values: pa.ChunkedArray) -> tuple[str, str] | None:
    try:
        low, high = _least_and_greatest(values)
    except UnicodeDecodeError:  # Spark writes texts that are none
        return None
    if len(high) > TEXT and high[TEXT] == LAST_CHARACTER:  # no text of so many characters is greater
        return None
    return low[:TEXT], high if len(high) <= TEXT else high[:TEXT] + LAST_CHARACTER


def _iso(millis: int) -> str:
    time = pa.scalar(millis, pa.timestamp("ms"))
    return f"{pc.strftime(time, format='%Y-%m-%dT%H:%M:%S').as_py()}Z"


def _iso_day(days: int) -> str:
    return (date(1970, 1, 1) + timedelta(days)).isoformat()
