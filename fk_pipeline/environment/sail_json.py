"""Rows as JSON texts where Sail computes: its own `to_json` leaves nulls out."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def json_lines(rows: DataFrame) -> Iterator[str]:
    """Every row as a JSON object, nulls included, as `to_json` on Spark writes it."""
    return map(as_json, rows.toLocalIterator())


def as_json(value: Any) -> str:
    """A value as Spark's `to_json` writes it; a `Row` is an object."""
    if hasattr(value, "__fields__"):
        value = dict(zip(value.__fields__, value, strict=True))
    if isinstance(value, dict):
        return "{" + ",".join(f"{as_json(str(name))}:{as_json(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return as_json(value.isoformat(timespec="microseconds"))
    if isinstance(value, date):
        return as_json(value.isoformat())
    if isinstance(value, (bytes, bytearray)):
        return as_json(b64encode(value).decode())
    if isinstance(value, float) and not isfinite(value):
        return {inf: '"Infinity"', -inf: '"-Infinity"'}.get(value, '"NaN"')
    return json.dumps(value, ensure_ascii=False)
