"""SQL with the values of keys as literals: a list, or one literal with all keys in buckets (ADR 0020)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isqrt
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.types as pt

from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import text
from fk_pipeline.store.sizes import Sizes


@dataclass(frozen=True)
class KeyColumn:
    """A key column with integers, strings or timestamps; the values of timestamps are microseconds since 1970.

    Attributes:
        name: its name.
        compared: SQL of its values as they are compared with others: BIGINT or STRING.
        suffix: what ends its literals: Delta skips no file for values that are cast to the type of the column.
        is_number: whether its values are integers here.
        is_time: whether it has timestamps.
    """

    name: str
    compared: str
    suffix: str
    is_number: bool
    is_time: bool

    @classmethod
    def of(cls, name: str, dtype: pa.DataType) -> KeyColumn:
        """Returns a column of a type."""
        number, time, column = pt.is_integer(dtype), pt.is_timestamp(dtype), quote(name)
        compared = f"CAST({column} AS BIGINT)" if number else f"UNIX_MICROS({column})" if time else column
        return cls(name, compared, "L" if pt.is_int64(dtype) else "", number or time, time)

    def among(self, values: Sequence[Any], sizes: Sizes) -> str:
        """SQL (BOOLEAN): the column has one of some values; of many values, at least one between them.

        Raises:
            OverflowError: a time has no text.
        """
        if len(values) <= sizes.listed_keys:
            return f"{quote(self.name)} IN ({', '.join(map(self._literal, values))})"
        return f"{quote(self.name)} BETWEEN {self._literal(min(values))} AND {self._literal(max(values))}"

    def _literal(self, value: Any) -> str:
        return f"TIMESTAMP'{_time_text(value)}'" if self.is_time else literal(value) + self.suffix

    def in_buckets(self, values: Sequence[Any], per_bucket: int) -> str:
        """SQL (BOOLEAN): the column has one of the values, which are one literal."""
        return _in_buckets(self, values, values, ("BIGINT" if self.is_number else "STRING", self.compared), per_bucket)


def structs(columns: Sequence[KeyColumn], keys: Sequence[tuple[Any, ...]], sizes: Sizes) -> str:
    """SQL (BOOLEAN): several columns together have the values of one of some keys, each a literal; many are one."""
    if len(keys) > sizes.listed_keys:
        return _structs_in_buckets(columns, keys, sizes.keys_per_bucket)
    suffixes = ["L" if column.is_number else "" for column in columns]
    literals = (", ".join(literal(v) + suffix for v, suffix in zip(key, suffixes, strict=True)) for key in keys)
    compared = ", ".join(column.compared for column in columns)
    return f"STRUCT({compared}) IN ({', '.join(f'STRUCT({values})' for values in literals)})"


def _structs_in_buckets(columns: Sequence[KeyColumn], keys: Sequence[tuple[Any, ...]], per_bucket: int) -> str:
    """SQL (BOOLEAN): the same with all keys in one literal; the column with the most values decides the bucket."""
    by = max(range(len(columns)), key=lambda i: len({key[i] for key in keys}))
    fields = ", ".join(f"k{i}: {'BIGINT' if column.is_number else 'STRING'}" for i, column in enumerate(columns))
    key_sql = ", ".join(f"'k{i}', {column.compared}" for i, column in enumerate(columns))
    rows = [{f"k{i}": value for i, value in enumerate(key)} for key in keys]
    element = f"STRUCT<{fields}>", f"NAMED_STRUCT({key_sql})"
    return _in_buckets(columns[by], [key[by] for key in keys], rows, element, per_bucket)


def _in_buckets(
    column: KeyColumn, places: Sequence[Any], elements: Sequence[Any], element: tuple[str, str], per_bucket: int
) -> str:
    """SQL (BOOLEAN): a row has one of some elements, which are one literal: an array of buckets.

    A row is compared only with the elements of its own bucket. Spark processes every literal of a list repeatedly while
    it plans: for 100,000 values that takes three times as long as reading ten million keys and writing deletion vectors
    for the values. JSON is the only text that Spark turns into an array while it plans.

    Args:
        column: the column that decides the bucket.
        places: its values, one per element.
        elements: the elements as JSON has them.
        element: the type of an element, and SQL of that of a row.
        per_bucket: the number of elements per bucket.
    """
    buckets: list[list[Any]] = [[] for _ in range(_prime(len(elements) // per_bucket))]
    for place, value in zip(places, elements, strict=True):
        buckets[(place if column.is_number else crc32(place.encode())) % len(buckets)].append(value)
    dtype, of_row = element
    number = column.compared if column.is_number else f"CRC32(CAST({column.compared} AS BINARY))"
    bucket = f"CAST(PMOD({number}, {len(buckets)}L) AS INT) + 1"
    # Without FAILFAST an unreadable array would become null, and the condition would match no row.
    array = text(json.dumps(buckets, ensure_ascii=False, separators=(",", ":")))
    whole = f"FROM_JSON({array}, 'ARRAY<ARRAY<{dtype}>>', MAP('mode', 'FAILFAST'))"
    return f"ARRAY_CONTAINS(ELEMENT_AT({whole}, {bucket}), {of_row})"


def literal(value: Any) -> str:
    """Returns an integer or a string as SQL."""
    return str(value) if isinstance(value, int) else text(value)


def _time_text(micros: int) -> str:
    """Returns a time as SQL writes it, in UTC.

    Raises:
        OverflowError: it is before year 1, or after year 9999.
    """
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}Z".rjust(27, "0")


def _prime(at_least: int) -> int:
    """Returns the next prime from a number on: so keys with equal distances fall into all buckets."""
    number = max(2, at_least)
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number += 1
    return number
