"""Reads conditions in Spark's SQL as conditions on rows in Arrow, as far as their answer is certainly that of Spark.

A condition may compare columns with constants (`=`, `<`, `BETWEEN`, `IN`, `LIKE`, `IS NULL` ...) and combine them by
AND, OR and NOT. Everything else is left to Spark: no function and no conversion is imitated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from fk_pipeline.conditions import (
    AllTests,
    AnyTest,
    ConstantTest,
    NotTest,
    NullTest,
    PatternTest,
    RowTest,
    fits,
    integer,
    scalar,
)
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.spec.sql import DIALECT

_MOST_LISTED = 1_000
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(Z?))?", re.ASCII)
_DAY = 86_400_000_000

_OPERATORS: dict[type[exp.Expression], str] = {
    exp.EQ: "equal", exp.NEQ: "not_equal", exp.LT: "less", exp.LTE: "less_equal", exp.GT: "greater",
    exp.GTE: "greater_equal",
}  # fmt: skip
_TWO = ({"this", "expression"},)
_PARTS: dict[type[exp.Expression], tuple[set[str], ...]] = {
    **dict.fromkeys([*_OPERATORS, exp.And, exp.Or, exp.Is, exp.Like], _TWO),
    **dict.fromkeys([exp.Paren, exp.Not, exp.Column], ({"this"},)),
    exp.Between: ({"this", "low", "high"},),
    exp.In: ({"this", "expressions"},),
}
"""Per class of nodes, the parts that it may have; with any others it means something else."""

_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


def parsed(text: str, dtypes: Mapping[str, pa.DataType]) -> RowTest:
    """Returns a condition in Spark's SQL.

    Args:
        text: the condition.
        dtypes: the types of the columns.

    Raises:
        LeftToSpark: the condition has anything that Spark may understand in another way.
    """
    if any(mark in text for mark in ("\\", "${", "--", "/*", ";")):
        raise LeftToSpark("the condition has characters that only Spark reads")
    try:
        tree: Any = sqlglot.parse_one(text, dialect=DIALECT)
    except SqlglotError:
        raise LeftToSpark("the condition cannot be read here") from None
    return _Reader(dtypes).condition(tree)


def is_value(column: str, text: str, dtype: pa.DataType) -> ConstantTest:
    """Returns the condition that a column has a value, given as the text that Spark casts to the type of the column.

    Raises:
        LeftToSpark: it is not certain which value Spark makes of the text.
    """
    value, bound = _of_text(text, dtype, exp.Literal.string(text))
    return ConstantTest(column, "equal", value, bound)


@dataclass(frozen=True)
class _Reader:
    """Makes conditions of the nodes of a parsed condition."""

    dtypes: Mapping[str, pa.DataType]

    def condition(self, node: exp.Expression) -> RowTest:
        given = {*_given(node)}
        if "negate" in given:
            return NotTest(self._positive(node, given - {"negate"}))
        return self._positive(node, given)

    def _positive(self, node: exp.Expression, given: set[str]) -> RowTest:
        if given not in _PARTS.get(type(node), ()):
            raise _unknown(node)
        if isinstance(node, exp.Paren):
            return self.condition(node.this)
        if isinstance(node, (exp.And, exp.Or)):
            parts = (self.condition(node.this), self.condition(node.expression))
            return AllTests(parts) if isinstance(node, exp.And) else AnyTest(parts)
        if isinstance(node, exp.Not):
            return NotTest(self.condition(node.this))
        if isinstance(node, exp.Column):
            return self.true(node)
        return self._comparison(node)

    def _comparison(self, node: Any) -> RowTest:
        if isinstance(node, exp.Is):
            if not isinstance(node.expression, exp.Null):
                raise _unknown(node)
            return NullTest(self.column(node.this))
        if isinstance(node, exp.Between):
            low = self.compared(node.this, "greater_equal", node.args["low"])
            return AllTests((low, self.compared(node.this, "less_equal", node.args["high"])))
        if isinstance(node, exp.In):
            if len(node.expressions) > _MOST_LISTED:
                raise _unknown(node)
            return AnyTest(tuple(self.compared(node.this, "equal", value) for value in node.expressions))
        if isinstance(node, exp.Like):
            return self.alike(node)
        name = _OPERATORS[type(node)]
        if isinstance(node.this, exp.Column):
            return self.compared(node.this, name, node.expression)
        if isinstance(node.expression, exp.Column):
            return self.compared(node.expression, _MIRRORED.get(name, name), node.this)
        raise _unknown(node)

    def true(self, node: exp.Expression) -> RowTest:
        column = self.column(node)
        if not pa.types.is_boolean(self.dtypes[column]):
            raise _unknown(node)
        return ConstantTest(column, "equal", pa.scalar(True))

    def column(self, node: exp.Expression) -> str:
        """Returns the column that a node names; Spark does not distinguish case."""
        if not isinstance(node, exp.Column) or {*_given(node)} != {"this"} or not isinstance(node.this, exp.Identifier):
            raise _unknown(node)
        names = [name for name in self.dtypes if name.lower() == node.name.lower()]
        if len(names) != 1:
            raise _unknown(node)
        return names[0]

    def alike(self, node: exp.Expression) -> RowTest:
        column, pattern = self.column(node.this), node.expression
        text = isinstance(pattern, exp.Literal) and pattern.is_string
        if not (text and pa.types.is_string(self.dtypes[column])):
            raise _unknown(node)
        return PatternTest(column, pattern.this)

    def compared(self, column: exp.Expression, name: str, constant: exp.Expression) -> RowTest:
        place = self.column(column)
        value, bound = _constant(constant, self.dtypes[place])
        return ConstantTest(place, name, value, bound)


def _given(node: exp.Expression) -> list[str]:
    return [name for name, value in node.args.items() if value is not None and value is not False and value != []]


def _unknown(node: exp.Expression) -> LeftToSpark:
    return LeftToSpark(f"'{node.sql(DIALECT)}' is evaluated by Spark only")


def _constant(node: exp.Expression, dtype: pa.DataType) -> tuple[pa.Scalar, Any]:
    """Returns a constant in the type of the column that it is compared with, and as `EndsOf` has it."""
    sign = ""
    inner = node
    if isinstance(node, exp.Neg):
        sign, inner = "-", node.this
    if isinstance(inner, exp.Boolean) and not sign and pa.types.is_boolean(dtype):
        return pa.scalar(bool(inner.this)), None
    typed = _typed_text(inner)
    if typed is not None and not sign:
        return _moment(typed[1], dtype, node, typed[0])
    if not isinstance(inner, exp.Literal):
        raise _unknown(node)
    text = sign + inner.this
    if inner.is_string:
        if sign:
            raise _unknown(node)
        return _of_text(text, dtype, node)
    return _of_number(text, dtype, node)


def _typed_text(node: exp.Expression) -> tuple[str, str] | None:
    """Returns type and text of a literal such as DATE '2026-01-01'."""
    if type(node) is not exp.Cast or not isinstance(node.this, exp.Literal) or not node.this.is_string:
        return None
    dtype = node.to.sql(DIALECT).upper()
    return (dtype, node.this.this) if dtype in ("DATE", "TIMESTAMP") else None


def _of_text(text: str, dtype: pa.DataType, node: exp.Expression) -> tuple[pa.Scalar, Any]:
    if pa.types.is_string(dtype):
        return scalar(text), text
    if pa.types.is_integer(dtype) and _INTEGER.fullmatch(text):
        return _of_number(text, dtype, node)
    return _moment(text, dtype, node, "")


def _of_number(text: str, dtype: pa.DataType, node: exp.Expression) -> tuple[pa.Scalar, Any]:
    if pa.types.is_integer(dtype) and _INTEGER.fullmatch(text):
        number = int(text)
        if fits(number, dtype):
            return integer(number, dtype), number
    elif pa.types.is_float64(dtype) and _DECIMAL.fullmatch(text):
        return pa.scalar(float(text), dtype), None
    elif pa.types.is_decimal(dtype) and _DECIMAL.fullmatch(text):
        value = Decimal(text)
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        if -exponent <= dtype.scale and value.adjusted() < dtype.precision - dtype.scale:
            return pa.scalar(value, dtype), None
    raise _unknown(node)


def _moment(text: str, dtype: pa.DataType, node: exp.Expression, declared: str) -> tuple[pa.Scalar, Any]:
    """Returns a date or time; `declared` is the type that the constant has of itself."""
    try:
        if pa.types.is_date32(dtype) and declared in ("", "DATE") and _DATE.fullmatch(text):
            return pa.scalar(date.fromisoformat(text), dtype), None
        match = _TIME.fullmatch(text)
        zoned = pa.types.is_timestamp(dtype) and dtype.tz is not None
        if match and zoned and declared in ("", "TIMESTAMP"):
            return _micros(match, dtype)
        if match and pa.types.is_timestamp(dtype) and not zoned and declared == "" and not match[6]:
            return _micros(match, dtype)
    except ValueError:
        pass
    raise _unknown(node)


def _micros(match: re.Match[str], dtype: pa.DataType) -> tuple[pa.Scalar, int]:
    hour, minute, second = (int(match[i] or 0) for i in (2, 3, 4))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(match[0])
    days = date.fromisoformat(match[1]).toordinal() - date(1970, 1, 1).toordinal()
    micros = days * _DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((match[5] or "").ljust(6, "0") or 0)
    return integer(micros, dtype), micros
