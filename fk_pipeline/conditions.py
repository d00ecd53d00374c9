"""Conditions on rows in Arrow that have the same answer in Spark: tests of columns, and what AND, OR and NOT make.

`conditions_of_sql` makes them of Spark's SQL.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

EndsOf = Callable[[str], tuple[Any, Any] | None]
"""A function from a column to its least and greatest value in some rows, timestamps in microseconds; None: unknown."""


class RowTest(Protocol):
    """A condition on rows."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        ...

    def mask(self, rows: pa.Table) -> Any:
        """Returns whether each row meets it; null where SQL does not know."""
        ...

    def may_meet(self, ends: EndsOf) -> bool:
        """Returns whether a row between some ends may meet it."""
        ...


@dataclass(frozen=True)
class _OfColumn:
    """A condition on one column, which rows between any ends may meet."""

    column: str

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def may_meet(self, _: EndsOf) -> bool:
        return True


@dataclass(frozen=True)
class ConstantTest(_OfColumn):
    """A column compared with a constant; `name` is the function of Arrow, `bound` the constant as `EndsOf` has it."""

    name: str
    value: pa.Scalar
    bound: Any = None

    def mask(self, rows: pa.Table) -> Any:
        """Returns the comparison; a floating-point NaN is greater than every number, as Spark has it."""
        values = rows[self.column]
        mask = pc.call_function(self.name, [values, self.value])
        if pa.types.is_floating(values.type) and self.name.startswith("greater"):
            mask = pc.or_(mask, pc.is_nan(values))
        return mask

    def may_meet(self, ends: EndsOf) -> bool:
        limits = None if self.bound is None else ends(self.column)
        if limits is None:
            return True
        low, high = limits
        met = {
            "equal": low <= self.bound <= high,
            "less": low < self.bound,
            "less_equal": low <= self.bound,
            "greater": high > self.bound,
            "greater_equal": high >= self.bound,
        }.get(self.name, True)
        return bool(met)


@dataclass(frozen=True)
class PatternTest(_OfColumn):
    """A text that has the form of a pattern of LIKE."""

    pattern: str

    def mask(self, rows: pa.Table) -> Any:
        rows[self.column].validate(full=True)  # raises an error of Arrow for a text that is not UTF-8
        return pc.match_like(rows[self.column], self.pattern)


@dataclass(frozen=True)
class ListTest(_OfColumn):
    """A column has one of some values; they are no floating-point numbers."""

    values: pa.Array

    def mask(self, rows: pa.Table) -> Any:
        return pc.is_in(rows[self.column], self.values)

    def may_meet(self, ends: EndsOf) -> bool:
        limits = ends(self.column)
        if limits is None or not (pa.types.is_integer(self.values.type) or pa.types.is_string(self.values.type)):
            return True
        return any(limits[0] <= value <= limits[1] for value in self.values.to_pylist())


@dataclass(frozen=True)
class NullTest(_OfColumn):
    """A column is null."""

    def mask(self, rows: pa.Table) -> Any:
        return pc.is_null(rows[self.column])


@dataclass(frozen=True)
class NotTest:
    """A condition does not hold."""

    part: RowTest

    @property
    def columns(self) -> frozenset[str]:
        return self.part.columns

    def mask(self, rows: pa.Table) -> Any:
        return pc.invert(self.part.mask(rows))

    def may_meet(self, _: EndsOf) -> bool:
        return True


@dataclass(frozen=True)
class _OfParts:
    """A condition that other conditions make."""

    parts: tuple[RowTest, ...]

    @property
    def columns(self) -> frozenset[str]:
        return frozenset().union(*(part.columns for part in self.parts))


class AllTests(_OfParts):
    """Conditions that all hold."""

    def mask(self, rows: pa.Table) -> Any:
        return reduce(pc.and_kleene, (part.mask(rows) for part in self.parts))

    def may_meet(self, ends: EndsOf) -> bool:
        return all(part.may_meet(ends) for part in self.parts)


class AnyTest(_OfParts):
    """Conditions of which one holds."""

    def mask(self, rows: pa.Table) -> Any:
        return reduce(pc.or_kleene, (part.mask(rows) for part in self.parts))

    def may_meet(self, ends: EndsOf) -> bool:
        return any(part.may_meet(ends) for part in self.parts)


def fits(number: int, dtype: pa.DataType) -> bool:
    """Returns whether a type of integers has a number."""
    most = 1 << (dtype.bit_width - 1)
    return bool(-most <= number < most)


def integer(number: int, dtype: pa.DataType | None = None) -> pa.Scalar:
    """Returns an integer in Arrow; `pa.scalar` would import pandas, which takes a third of the time of a command."""
    array = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("<q", number))])
    return (array if dtype is None else array.cast(dtype))[0]


def _text(text: str) -> pa.Scalar:
    data = text.encode()
    ends = pa.py_buffer(struct.pack("<ii", 0, len(data)))
    return pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(data)])[0]


def scalar(value: Any) -> pa.Scalar:
    """Returns a value in Arrow, an integer or a text without pandas."""
    if type(value) is int:
        return integer(value)
    return _text(value) if isinstance(value, str) else pa.scalar(value)


def equals(column: str, number: int, dtype: pa.DataType) -> RowTest:
    """Returns the condition that a column with integers has a value."""
    if not fits(number, dtype):
        return ListTest(column, pa.nulls(0, dtype))
    return ConstantTest(column, "equal", integer(number, dtype), number)


def between(column: str, low: int, high: int, dtype: pa.DataType) -> RowTest:
    """Returns the condition that a column with integers is between two values, or is one of them."""
    ends = (("greater_equal", low), ("less_equal", high))
    return AllTests(tuple(ConstantTest(column, name, integer(number, dtype), number) for name, number in ends))
