"""The difference between the rows that a case expects and the rows of the result, as people read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, TypeAlias

from fk_pipeline.testing.cases import ExpectedState, RowValues

_TOLERANCE, _NOTHING = 1e-9, 1e-12
"""By which share of the larger one, or at all, two floating-point numbers may differ: sums depend on the order of the
rows, and so may be not quite 0."""


class ValueType(StrEnum):
    """The types of columns whose values compare in another way than by their text in JSON."""

    DECIMAL = "decimal"
    FLOATING = "floating"
    TIME = "time"
    OTHER = "other"


ColumnType: TypeAlias = "ValueType | list[ColumnType] | Mapping[str, ColumnType]"
"""How the values of a column compare: those of an array or a map as the type in the list, of a struct by field."""


@dataclass(frozen=True)
class ResultRows:
    """The rows of a result.

    Attributes:
        rows: per row its values as `show --format json` writes them, but numbers with a point as `Decimal`.
        types: the type of each column, by name, in the order of the result.
    """

    rows: tuple[RowValues, ...]
    types: Mapping[str, ColumnType]


@dataclass(frozen=True)
class ChangedRow:
    """A row of the result that has other values than the expected one.

    Attributes:
        expected: the columns that the case names.
        stored: the row of the result.
        columns: those that differ.
    """

    expected: RowValues
    stored: RowValues
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """What is otherwise than a case expects; empty if nothing is.

    Attributes:
        missing: expected rows that the result does not have.
        unexpected: rows of the result that are not expected.
        changed: rows with other values.
        equal: the number of rows that are as expected.
        quarantined: the records in the quarantine, if their number is another than the expected one; else none.
        quarantined_expected: that number; None if it is right.
        unproved: the numbers of `verify`, by name, if the result is not that of the inputs; else none.
    """

    missing: tuple[RowValues, ...] = ()
    unexpected: tuple[RowValues, ...] = ()
    changed: tuple[ChangedRow, ...] = ()
    equal: int = 0
    quarantined: tuple[RowValues, ...] = ()
    quarantined_expected: int | None = None
    unproved: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything differs."""
        rows = self.missing or self.unexpected or self.changed
        return bool(rows or self.quarantined_expected is not None or self.unproved)

    def counts(self) -> str:
        """Returns in one line how many rows differ in which way."""
        shown = [
            (len(self.missing), "missing"),
            (len(self.unexpected), "unexpected"),
            (len(self.changed), "with other values"),
        ]
        differing = ", ".join(f"{number:,} {what}" for number, what in shown if number)
        return f"{differing}; {self.equal:,} as expected" if differing else ""


def difference_of_rows(expected: ExpectedState, result: ResultRows, key: Sequence[str]) -> Difference:
    """Returns the difference of the rows of a result from the expected ones.

    Rows that are equal in the columns that the case names are taken as pairs, as many as possible. Of the others, a row
    with the key of a row of the result is a changed one; where a case does not name the key, the row that most values
    are equal of, if at least half of them are.

    Args:
        expected: the rows of the case.
        result: the rows of the result.
        key: the columns that identify a row of the result; none if it has no key.
    """
    if expected.rows is None:
        return Difference()
    differing = [[_differing(row, stored, result.types) for stored in result.rows] for row in expected.rows]
    equal = _pairs([[not names for names in of_row] for of_row in differing])
    rest = [i for i in range(len(expected.rows)) if i not in equal]
    free = [j for j in range(len(result.rows)) if j not in equal.values()]
    changed, missing = [], []
    for i in rest:
        row = expected.rows[i]
        near = _nearest(row, {j: differing[i][j] for j in free}, key)
        if near is None:
            missing.append(row)
        else:
            free.remove(near)
            changed.append(ChangedRow(row, result.rows[near], differing[i][near]))
    unexpected = () if expected.only_some else tuple(result.rows[j] for j in free)
    return Difference(tuple(missing), unexpected, tuple(changed), len(equal))


def _nearest(row: RowValues, differing: Mapping[int, tuple[str, ...]], key: Sequence[str]) -> int | None:
    """Returns which of some rows of a result is the changed form of an expected row; None if none of them is.

    Args:
        row: the expected row.
        differing: per row of the result, the columns that differ.
        key: the columns that identify a row.
    """
    if key and all(name in row for name in key):
        return next((j for j, names in differing.items() if not {*names} & {*key}), None)
    near = min(differing, key=lambda j: len(differing[j]), default=None)
    return near if near is not None and 2 * len(differing[near]) <= len(row) else None


def _pairs(equal: Sequence[Sequence[bool]]) -> dict[int, int]:
    """Returns as many pairs as possible of a row and a column of a matrix where it is true, no row or column twice."""
    column_of: dict[int, int] = {}
    row_of: dict[int, int] = {}
    for start in range(len(equal)):
        came_from, column = _reached(equal, start, row_of)
        while column is not None:  # each row on the way gives its column to the row that it was reached from
            row = came_from[column]
            row_of[column] = row
            column_of[row], column = column, column_of.get(row)
    return column_of


def _reached(
    equal: Sequence[Sequence[bool]], start: int, row_of: Mapping[int, int]
) -> tuple[dict[int, int], int | None]:
    """Returns the columns that can be reached from a row, each with the row before it, up to a free one; and that."""
    came_from: dict[int, int] = {}
    rows = [start]
    for row in rows:  # it grows
        for column, is_equal in enumerate(equal[row]):
            if is_equal and column not in came_from:
                came_from[column] = row
                if column not in row_of:
                    return came_from, column
                rows.append(row_of[column])
    return came_from, None


def _differing(expected: RowValues, stored: RowValues, types: Mapping[str, ColumnType]) -> tuple[str, ...]:
    """Returns the columns of an expected row whose values a row of the result does not have."""
    return tuple(name for name, value in expected.items() if not is_same(value, stored[name], types[name]))


def is_same(expected: Any, stored: Any, dtype: ColumnType = ValueType.OTHER) -> bool:
    """Returns whether a value of the result is the one that a case expects.

    Args:
        expected: the value of the YAML file.
        stored: the value of the result, in JSON.
        dtype: the type of the column.

    >>> is_same("12.5", "12.50", ValueType.DECIMAL), is_same("7", "007")
    (True, False)
    """
    if expected is None or stored is None:
        return expected is None and stored is None
    if dtype is ValueType.DECIMAL:
        return _number(expected) == _number(stored) is not None
    if dtype is ValueType.FLOATING:
        return _nearly(expected, stored)
    if dtype is ValueType.TIME:
        return _time(expected) == _time(stored)
    if isinstance(stored, Mapping):
        given = {str(name): value for name, value in expected.items()} if isinstance(expected, Mapping) else None
        return (
            given is not None
            and given.keys() == stored.keys()
            and all(is_same(given[name], stored[name], _type_in(dtype, name)) for name in stored)
        )
    if isinstance(stored, list):
        inner = _type_in(dtype)
        return (
            isinstance(expected, list)
            and len(expected) == len(stored)
            and all(is_same(*values, inner) for values in zip(expected, stored, strict=True))
        )
    if isinstance(stored, (int, Decimal)) and not isinstance(stored, bool):
        return _number(expected) == stored
    return not isinstance(expected, (Mapping, list)) and _text(expected) == _text(stored)


def _type_in(dtype: ColumnType, field: str = "") -> ColumnType:
    """Returns the type of the elements of an array or a map, or of a field of a struct."""
    if isinstance(dtype, Mapping):
        return dtype.get(field, ValueType.OTHER)
    return dtype[0] if isinstance(dtype, list) else ValueType.OTHER


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: Any) -> Decimal | None:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _nearly(expected: Any, stored: Any) -> bool:
    try:
        first, second = float(str(expected)), float(str(stored))
    except ValueError:
        return False
    return str(first) == str(second) or math.isclose(first, second, rel_tol=_TOLERANCE, abs_tol=_NOTHING)


def _time(value: Any) -> datetime | str:
    """Returns a time, without an offset in UTC; what is none as its text."""
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError:
        return str(value)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
