"""Conditions that leave files and pages of a table unread: a range of batches, or a handful of keys.

A condition is a superset: every row that is wanted meets it, others may. Joins decide about single rows.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import Any, Protocol
from zlib import crc32

import pyarrow as pa
import pyarrow.types as pt

from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import text
from fk_pipeline.store.sizes import Sizes

_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


class Bounds(Protocol):
    """What the log of a table knows about a file: the least and greatest value of a column; None where it does not."""

    def __call__(self, column: str) -> tuple[Any, Any] | None: ...


class Condition(Protocol):
    """Something that all wanted rows meet."""

    def sql(self, table: str = "") -> str:
        """As SQL on a table; `table` is its alias with a dot."""
        ...

    def may_meet(self, bounds: Bounds) -> bool:
        """Whether a file with these bounds may hold a wanted row."""
        ...


@dataclass(frozen=True)
class Within:
    """A column that holds batch numbers lies in a range."""

    column: str
    batches: BatchRange

    def sql(self, table: str = "") -> str:
        """As SQL."""
        return self.batches.predicate(f"{table}{self.column}")

    def may_meet(self, bounds: Bounds) -> bool:
        """The bounds overlap the range."""
        known = bounds(self.column)
        return known is None or (known[0] <= int(self.batches.last) and known[1] >= int(self.batches.first))


@dataclass(frozen=True)
class Among:
    """A key column has one of some values: single ones, and intervals where they lie close together.

    Attributes:
        column: the column.
        values: every value, ascending.
        singles: the values that stand alone.
        intervals: least and greatest value of every cluster.
    """

    column: str
    values: tuple[Any, ...]
    singles: tuple[Any, ...]
    intervals: tuple[tuple[Any, Any], ...]

    @classmethod
    def of(cls, column: str, values: Sequence[Any], sizes: Sizes, width: int = 0) -> Among:
        """The condition that a column has one of some values, none of them null.

        Args:
            column: the column.
            values: the values.
            sizes: how many of them a condition names.
            width: values no further apart are in one page: naming each of them leaves nothing more unread.
        """
        ordered = sorted(set(values))
        gaps = _widest_gaps(ordered, width)
        found: list[tuple[Any, Any]] = []
        intervals: tuple[tuple[Any, Any], ...] = ()
        clusters = min(sizes.listed_keys, len(gaps) + 1)
        while True:
            edges = [0, *sorted(gaps[: clusters - 1]), len(ordered)]
            found = [(ordered[low], ordered[high - 1]) for low, high in pairwise(edges)] if ordered else []
            intervals = tuple((low, high) for low, high in found if low != high)
            if len(intervals) <= sizes.intervals:
                break
            clusters -= max(1, clusters // 10)
        singles = tuple(low for low, high in found if low == high)
        covered = _span(intervals) if intervals else 0
        if len(ordered) <= sizes.listed_keys and covered > 2 * width * len(ordered):
            singles, intervals = tuple(ordered), ()  # at most a page for each of them, and here there are many more
        elif len(intervals) > 1 and covered > _span([(ordered[0], ordered[-1])]) / 2:
            singles, intervals = (), ((ordered[0], ordered[-1]),)  # to compare with many costs more than it leaves out
        return cls(column, tuple(ordered), singles, intervals)

    def sql(self, table: str = "") -> str:
        """As SQL; no row meets an empty list."""
        name = f"{table}{quote(self.column)}"
        parts = [f"{name} IN ({', '.join(map(_literal, self.singles))})"] if self.singles else []
        parts += [f"{name} BETWEEN {_literal(low)} AND {_literal(high)}" for low, high in self.intervals]
        return f"({' OR '.join(parts)})" if parts else "FALSE"

    def may_meet(self, bounds: Bounds) -> bool:
        """One of the values lies between the bounds."""
        known = bounds(self.column)
        if known is None:
            return True
        at = bisect_left(self.values, known[0])
        return at < len(self.values) and self.values[at] <= known[1]


def among(keys: pa.Table, columns: Mapping[str, str], widths: Mapping[str, int], sizes: Sizes) -> list[Condition]:
    """Conditions for the rows with some keys.

    Args:
        keys: the keys; those with a null are wanted nowhere.
        columns: by column of the table that is read, the column of `keys`. Integers and strings become
            conditions; a key of another type does not restrict anything.
        widths: by column of the table, how far apart the values of neighbouring pages are, where that is known.
        sizes: how many keys a condition names.
    """
    found: list[Condition] = []
    for column, name in columns.items():
        kind = keys.schema.field(name).type
        if _has_conditions(kind):
            found.append(Among.of(column, keys[name].drop_null().unique().to_pylist(), sizes, widths.get(column, 0)))
    return found


def exactly(keys: pa.Table, column: str, sizes: Sizes) -> str | None:
    """SQL that holds for the rows with some keys and for no others; None where that cannot be said in short.

    Args:
        keys: rows with the keys.
        column: the key column.
        sizes: how many keys a list has, and how long the text may be.
    """
    kind, values = keys.schema.field(column).type, keys[column]
    if values.null_count or not _has_conditions(kind) or len(values.unique()) < len(values):
        return None
    try:
        listed = values.to_pylist()
    except UnicodeDecodeError:
        return None
    # Typed as the column: Delta leaves no file unread for values that are cast to its type.
    suffix = "L" if pt.is_int64(kind) else ""
    few = len(listed) <= sizes.listed_keys
    said = _in_list(column, listed, suffix) if few else _in_buckets(column, listed, sizes.keys_per_bucket, suffix)
    kept = json.dumps(json.dumps([said], ensure_ascii=False), ensure_ascii=False)  # as Delta has it in its log
    return said if len(kept.encode()) <= sizes.named_bytes else None


def nameable(
    keys: Sequence[tuple[str, str]], sensitive: Collection[str], sizes: Sizes, span: tuple[int, int] | None = None
) -> int:
    """How many keys of a table a commit may name by `exactly`: of one column, integers or strings, not sensitive.

    Args:
        keys: its key columns with their types.
        sensitive: names of sensitive columns.
        sizes: how many keys a commit names.
        span: its least and greatest key, where these are known integers.
    """
    if len(keys) != 1 or keys[0][0] in sensitive:
        return 0
    widest = max(map(len, map(str, span))) if span else 0
    kind = keys[0][1].upper()
    most = sizes.named_numbers if kind in _NUMBERS else sizes.named_texts if kind == "STRING" else 0
    return min(most, sizes.named_bytes // (widest + 2))


def _in_list(column: str, values: Sequence[Any], suffix: str) -> str:
    return f"{quote(column)} IN ({', '.join(_literal(value) + suffix for value in values)})"


def _in_buckets(column: str, values: Sequence[Any], per_bucket: int, suffix: str = "") -> str:
    """The values as one literal, an array of buckets, of which a row is compared with its own.

    Spark plans with every literal of a list, again and again: for 100,000 it takes three times as long as to read ten
    million keys and mark those. JSON is the only text that it makes an array of while it plans. The least and the
    greatest value are for Delta, which compares them with the bounds of files.
    """
    name, numbers = quote(column), isinstance(values[0], int)
    buckets: list[list[Any]] = [[] for _ in range(_prime(len(values) // per_bucket))]
    for value in values:
        buckets[(value if numbers else crc32(value.encode())) % len(buckets)].append(value)
    key, kind = (f"CAST({name} AS BIGINT)", "BIGINT") if numbers else (name, "STRING")
    place = f"CAST(PMOD({key if numbers else f'CRC32(CAST({name} AS BINARY))'}, {len(buckets)}L) AS INT) + 1"
    # An array that cannot be read would be no array, and the condition hold for no row.
    array = text(json.dumps(buckets, ensure_ascii=False, separators=(",", ":")))
    whole = f"FROM_JSON({array}, 'ARRAY<ARRAY<{kind}>>', MAP('mode', 'FAILFAST'))"
    ends = f"{name} BETWEEN {_literal(min(values))}{suffix} AND {_literal(max(values))}{suffix}"
    return f"{ends} AND ARRAY_CONTAINS(ELEMENT_AT({whole}, {place}), {key})"


def _prime(at_least: int) -> int:
    """A prime: keys that are some number apart fall into all buckets."""
    number = max(2, at_least)
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number += 1
    return number


def _has_conditions(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_string(kind) or pt.is_large_string(kind))


def _widest_gaps(ordered: Sequence[Any], width: int) -> list[int]:
    """Where the gaps between ascending values are, the widest first: the index of the value after each."""
    numbers = _numbers(ordered) if ordered else []
    wide = [i for i in range(1, len(ordered)) if numbers[i] - numbers[i - 1] > width]
    return sorted(wide, key=lambda i: numbers[i - 1] - numbers[i])


def _span(intervals: Sequence[tuple[Any, Any]]) -> int:
    numbers = _numbers([value for interval in intervals for value in interval])
    return sum(high - low for low, high in zip(numbers[::2], numbers[1::2], strict=True))


def _numbers(ordered: Sequence[Any]) -> list[int]:
    """Integers in the same order, to measure gaps with; of a string its first bytes after what all have in common."""
    if isinstance(ordered[0], int):
        return list(ordered)
    first, last = ordered[0].encode(), ordered[-1].encode()
    common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return [int.from_bytes(value.encode()[common : common + 8].ljust(8, b"\0"), "big") for value in ordered]


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else text(value)
