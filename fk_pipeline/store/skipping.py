"""Conditions by which files and pages of a table are skipped: a batch filter or a key filter.

Every wanted row meets a condition, but other rows may meet it too. Joins select the single rows.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.types as pt

from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import INTEGERS
from fk_pipeline.store.key_literals import KeyColumn, literal, structs
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import Sizes


class Bounds(Protocol):
    """Returns the least and greatest value of a column in a file, from the log of the table.

    It returns an empty tuple if the column is null in every row, and None if the bounds are not known.
    """

    def __call__(self, column: str) -> tuple[Any, ...] | None: ...


class Condition(Protocol):
    """A condition that all wanted rows meet."""

    def sql(self, table: str = "") -> str:
        """SQL (BOOLEAN): the condition on a table; `table` is its alias with a dot."""
        ...

    def may_meet(self, bounds: Bounds) -> bool:
        """Returns whether a file with these bounds may have a wanted row."""
        ...


class InRange(Condition, Protocol):
    """The condition that the values of a column are in one of some ranges: integers, or timestamps in microseconds."""

    @property
    def column(self) -> str:
        """The column."""
        ...

    @property
    def ranges(self) -> Sequence[tuple[int | None, int | None]]:
        """Per range, its least value and the least value above it; None: any."""
        ...


@dataclass(frozen=True)
class Within:
    """A batch filter: the condition that a column with batch numbers has one of some batches."""

    column: str
    batches: BatchRange

    def sql(self, table: str = "") -> str:
        """SQL (BOOLEAN): the condition."""
        return self.batches.predicate(f"{table}{self.column}")

    def may_meet(self, bounds: Bounds) -> bool:
        """Returns whether the bounds overlap the batches, or are unknown."""
        known = bounds(self.column)
        if not known:
            return known is None
        return any(known[0] <= part.last and known[1] >= part.first for part in self.batches.parts)

    @property
    def ranges(self) -> Sequence[tuple[int, int]]:
        """Per range of batches, the first batch and the number after the last one."""
        return [(int(part.first), int(part.last) + 1) for part in self.batches.parts]


TIMESTAMP_SLACK = 1000
"""Microseconds by which the bounds of a timestamp in a log may be less exact than its values: Spark cuts them off."""


@dataclass(frozen=True)
class Between:
    """The condition that a column with integers or timestamps is in a range.

    Attributes:
        column: the column.
        low: the least value, of timestamps in microseconds since 1970; None: any.
        high: the least value above the range; None: any.
        timestamps: whether the column has timestamps.
    """

    column: str
    low: int | None
    high: int | None
    timestamps: bool

    @classmethod
    def of(cls, table: Table, column: str, low: int | None, high: int | None) -> Between:
        """Returns the condition on a column of a table, with the type that the table declares."""
        return cls(column, low, high, dict(table.columns)[column].upper() == "TIMESTAMP")

    def sql(self, table: str = "") -> str:
        """SQL (BOOLEAN): the condition."""
        name = f"{table}{quote(self.column)}"
        value = "TIMESTAMP_MICROS({})" if self.timestamps else "{}"
        parts = [
            f"{name} {than} {value.format(end)}"
            for than, end in ((">=", self.low), ("<", self.high))
            if end is not None
        ]
        return f"({' AND '.join([*parts, f'{name} IS NOT NULL'])})"

    @property
    def ranges(self) -> Sequence[tuple[int | None, int | None]]:
        """The only range: its least value and the least value above it."""
        return [(self.low, self.high)]

    def may_meet(self, bounds: Bounds) -> bool:
        """Returns whether the bounds overlap the range, or are unknown."""
        known = bounds(self.column)
        if not known:
            return known is None
        slack = TIMESTAMP_SLACK if self.timestamps else 0
        first, last = known[0] - slack, known[1] + slack
        return (self.high is None or first < self.high) and (self.low is None or last >= self.low)


@dataclass(frozen=True)
class Among:
    """A key filter: the condition that a key column has one of some values, given singly or, if close, as intervals.

    Attributes:
        column: the column.
        values: every value, ascending.
        singles: the values outside all intervals.
        intervals: the least and greatest value of every cluster of values.
    """

    column: str
    values: tuple[Any, ...]
    singles: tuple[Any, ...]
    intervals: tuple[tuple[Any, Any], ...]

    @classmethod
    def of(cls, column: str, values: Sequence[Any], sizes: Sizes, width: int = 0) -> Among:
        """Returns the condition that a column has one of some values, none of them null.

        Args:
            column: the column.
            values: the values.
            sizes: the limit for values in a condition.
            width: the largest distance of values in one page: naming each of them would not skip more pages.
        """
        ordered = sorted(set(values))
        gaps = _widest_gaps(ordered, width)
        spans: list[tuple[Any, Any]] = []
        intervals: tuple[tuple[Any, Any], ...] = ()
        clusters = min(sizes.listed_keys, len(gaps) + 1)
        while True:
            edges = [0, *sorted(gaps[: clusters - 1]), len(ordered)]
            spans = [(ordered[low], ordered[high - 1]) for low, high in pairwise(edges)] if ordered else []
            intervals = tuple((low, high) for low, high in spans if low != high)
            if len(intervals) <= sizes.intervals:
                break
            clusters -= max(1, clusters // 10)
        singles = tuple(low for low, high in spans if low == high)
        covered = _span(intervals) if intervals else 0
        if len(ordered) <= sizes.listed_keys and covered > 2 * width * len(ordered):
            singles, intervals = tuple(ordered), ()  # they need at most one page each; the intervals cover many more
        elif len(intervals) > 1 and covered > _span([(ordered[0], ordered[-1])]) / 2:
            singles, intervals = (), ((ordered[0], ordered[-1]),)  # comparing with many costs more than it saves
        return cls(column, tuple(ordered), singles, intervals)

    def sql(self, table: str = "") -> str:
        """SQL (BOOLEAN): the condition; FALSE if there are no values."""
        name = f"{table}{quote(self.column)}"
        parts = [f"{name} IN ({', '.join(map(literal, self.singles))})"] if self.singles else []
        parts += [f"{name} BETWEEN {literal(low)} AND {literal(high)}" for low, high in self.intervals]
        return f"({' OR '.join(parts)})" if parts else "FALSE"

    def may_meet(self, bounds: Bounds) -> bool:
        """Returns whether one of the values is between the bounds, or these are unknown."""
        known = bounds(self.column)
        if not known:
            return known is None
        at = bisect_left(self.values, known[0])
        return at < len(self.values) and self.values[at] <= known[1]


@dataclass(frozen=True)
class Either:
    """The condition that one of two or more lists of conditions is met in full."""

    parts: tuple[tuple[Condition, ...], ...]

    def sql(self, table: str = "") -> str:
        """SQL (BOOLEAN): the condition; a part without conditions is met by every row."""
        parts = [" AND ".join(condition.sql(table) for condition in part) or "TRUE" for part in self.parts]
        return f"({' OR '.join(f'({part})' for part in parts)})"

    def may_meet(self, bounds: Bounds) -> bool:
        """Returns whether a file with these bounds may have a row that meets all conditions of a part."""
        return any(all(condition.may_meet(bounds) for condition in part) for part in self.parts)


def among(keys: pa.Table, columns: Mapping[str, str], widths: Mapping[str, int], sizes: Sizes) -> list[Condition]:
    """Returns conditions that all rows with some keys meet.

    Args:
        keys: the keys; keys with a null match no row.
        columns: per column of the table that is read, the column of `keys`. Integers and strings become
            conditions; a key of another type does not restrict anything.
        widths: per column of the table, the distance of values in neighbouring pages, where that is known.
        sizes: the limit for keys in a condition.
    """
    conditions: list[Condition] = []
    for column, name in columns.items():
        dtype = keys.schema.field(name).type
        if _has_conditions(dtype):
            conditions.append(
                Among.of(column, keys[name].drop_null().unique().to_pylist(), sizes, widths.get(column, 0))
            )
    return conditions


def exactly(keys: pa.Table, table: Table, sizes: Sizes) -> str | None:
    """SQL (BOOLEAN): true for the rows with some keys and for no others; None if it would be too long or is impossible.

    Args:
        keys: rows with the keys.
        table: the table.
        sizes: the limits for the keys in a list and for the length of the text.
    """
    if not table.either:
        return _exactly_by(table.keys, keys, sizes)
    import pyarrow.compute as pc  # a plan and a shell completion need none of it

    of_parts = [(part, keys.filter(pc.is_valid(keys[part[0]]))) for part in table.either]
    parts = [_exactly_by(part, some, sizes) for part, some in of_parts if len(some)]
    return None if None in parts else f"({' OR '.join(f'({part})' for part in parts)})"


def _exactly_by(columns: Sequence[str], keys: pa.Table, sizes: Sizes) -> str | None:
    """SQL (BOOLEAN): `exactly` for a part of the key."""
    return _exactly(keys, columns[0], sizes) if len(columns) == 1 else _exactly_together(keys.select(columns), sizes)


def _exactly(keys: pa.Table, name: str, sizes: Sizes) -> str | None:
    """SQL (BOOLEAN): `exactly` for one key column."""
    dtype, values = keys.schema.field(name).type, keys[name]
    if values.null_count or not _has_conditions(dtype) or len(values.unique()) < len(values):
        return None
    try:
        listed = values.to_pylist()
    except UnicodeDecodeError:
        return None
    column = KeyColumn.of(name, dtype)
    sql = column.among(listed, sizes)
    if len(listed) > sizes.listed_keys:  # Delta compares the least and the greatest value with the bounds of files
        sql += f" AND {column.in_buckets(listed, sizes.keys_per_bucket)}"
    return _if_short(sql, sizes)


def _exactly_together(keys: pa.Table, sizes: Sizes) -> str | None:
    """SQL (BOOLEAN): `exactly` for several key columns, of which some may be null, and of which some may be times.

    The keys with the same null columns are named together: each of the other columns by its values, by which Delta
    skips files, and the combinations of values as structs.
    """
    dtypes = [field.type for field in keys.schema]
    try:
        listed = list(zip(*[_plain(column).to_pylist() for column in keys.columns], strict=True))
    except UnicodeDecodeError:
        return None
    if len({*listed}) < len(listed) or not all(_has_conditions(dtype) or pt.is_timestamp(dtype) for dtype in dtypes):
        return None
    columns = [KeyColumn.of(name, dtype) for name, dtype in zip(keys.column_names, dtypes, strict=True)]
    by_nulls: dict[tuple[bool, ...], list[tuple[Any, ...]]] = {}
    for key in listed:
        by_nulls.setdefault(tuple(value is None for value in key), []).append(key)
    parts = []
    for nulls, some in by_nulls.items():
        terms = [f"{quote(column.name)} IS NULL" for column, is_null in zip(columns, nulls, strict=True) if is_null]
        filled = [column for column, is_null in zip(columns, nulls, strict=True) if not is_null]
        values = [tuple(value for value in key if value is not None) for key in some]
        try:
            for column, own in zip(filled, zip(*values, strict=True), strict=False):
                terms.append(column.among([*dict.fromkeys(own)], sizes))
        except OverflowError:  # a time that has no text
            return None
        if len(filled) > 1:
            terms.append(structs(filled, values, sizes))
        parts.append(f"({' AND '.join(terms)})")
    return _if_short(f"({' OR '.join(parts)})", sizes)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns a column with its times as microseconds since 1970."""
    return column.cast(pa.timestamp("us")).cast(pa.int64()) if pt.is_timestamp(column.type) else column


def _if_short(sql: str, sizes: Sizes) -> str | None:
    """Returns a condition if the log of a table may have it."""
    logged = json.dumps(json.dumps([sql], ensure_ascii=False), ensure_ascii=False)  # as Delta writes it into its log
    return sql if len(logged.encode()) <= sizes.named_bytes else None


def nameable(table: Table, sizes: Sizes, span: Callable[[str], tuple[int, int] | None]) -> int:
    """Returns the most keys of a table that a commit may name by `exactly`; 0 if it may name none.

    The key columns must have integers or strings, of several columns also timestamps, and must not be sensitive. If
    the key has parts, that holds for each.

    Args:
        table: the table.
        sizes: the limits for keys in a commit.
        span: function of a column that returns its least and greatest value, if these are known integers.
    """
    return min(_nameable(table, part, sizes, span) for part in table.either or (table.keys,))


def _nameable(table: Table, keys: Sequence[str], sizes: Sizes, span: Callable[[str], tuple[int, int] | None]) -> int:
    """Returns `nameable` for a part of the key."""
    dtypes, length, limits = dict(table.columns), 0, []
    for key in keys:
        ends, dtype = span(key), dtypes[key].upper()
        length += max(map(len, map(str, ends))) + 2 if ends else 2
        number = dtype in INTEGERS or (dtype == "TIMESTAMP" and len(keys) > 1)
        limits.append(sizes.named_numbers if number else sizes.named_texts if dtype == "STRING" else 0)
    if not keys or table.sensitive.intersection(keys):
        return 0
    if len(keys) > 1:
        limits.append(sizes.named_texts)
        length += 8 * len(keys)  # the names of the parts
    return min(*limits, sizes.named_bytes // length)


def _has_conditions(dtype: pa.DataType) -> bool:
    return bool(pt.is_integer(dtype) or pt.is_string(dtype) or pt.is_large_string(dtype))


def _widest_gaps(ordered: Sequence[Any], width: int) -> list[int]:
    """Returns the gaps wider than `width` between ascending values, widest first: the index of the value after each."""
    numbers = _numbers(ordered) if ordered else []
    wide = [i for i in range(1, len(ordered)) if numbers[i] - numbers[i - 1] > width]
    return sorted(wide, key=lambda i: numbers[i - 1] - numbers[i])


def _span(intervals: Sequence[tuple[Any, Any]]) -> int:
    numbers = _numbers([value for interval in intervals for value in interval])
    return sum(high - low for low, high in zip(numbers[::2], numbers[1::2], strict=True))


def _numbers(ordered: Sequence[Any]) -> list[int]:
    """Returns integers in the same order, to measure gaps; for strings from the first bytes after the common prefix."""
    if isinstance(ordered[0], int):
        return list(ordered)
    first, last = ordered[0].encode(), ordered[-1].encode()
    common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return [int.from_bytes(value.encode()[common : common + 8].ljust(8, b"\0"), "big") for value in ordered]
