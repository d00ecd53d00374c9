"""Simple conditions of the pipeline file over the values of a record, without Spark; `delete_when` mostly is one.

What is read: columns, `IS [NOT] NULL`, `=`, `<>` and `IN` with constants of the column's type, `NOT`, `AND`, `OR`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sqlglot import exp

from fk_pipeline.spec import Column, SideSpec
from fk_pipeline.spec.sql import INTEGERS, one_tree
from fk_pipeline.verify.inputs.doubts import ANY
from fk_pipeline.verify.inputs.typed import JsonText, base_of

RowCondition = Callable[[Callable[[Column], Any]], Any]
"""A function from the values of the columns of a record to True, False, None (null), or `ANY` if it is not known."""


class UnknownSqlError(Exception):
    """A part of a condition is not read here."""


def condition_of(side: SideSpec, sql: str) -> RowCondition | None:
    """Returns a condition over the columns of an input; None if it is not as simple as those that are read here."""
    try:
        return _condition(one_tree(sql), side)
    except UnknownSqlError:
        return None


def _condition(tree: Any, side: SideSpec) -> RowCondition:
    if isinstance(tree, exp.Paren):
        return _condition(tree.this, side)
    if isinstance(tree, exp.Boolean):
        constant = bool(tree.this)
        return lambda _: constant
    if isinstance(tree, exp.Not):
        inner = _condition(tree.this, side)
        return lambda row: _not(inner(row))
    if isinstance(tree, (exp.And, exp.Or)):
        left, right = _condition(tree.this, side), _condition(tree.expression, side)
        decides = isinstance(tree, exp.Or)
        return lambda row: _either(left(row), right(row), decides=decides)
    if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
        column = _column(tree.this, side)
        return lambda row: ANY if row(column) is ANY else row(column) is None
    if isinstance(tree, exp.Column) and base_of(_column(tree, side).type) == "BOOLEAN":
        column = _column(tree, side)
        return lambda row: row(column)
    if isinstance(tree, (exp.EQ, exp.NEQ)):
        column = _column(tree.this, side)
        equal = _among(column, [_constant(tree.expression, column)])
        return (lambda row: _not(equal(row))) if isinstance(tree, exp.NEQ) else equal
    if isinstance(tree, exp.In) and tree.expressions:
        column = _column(tree.this, side)
        return _among(column, [_constant(term, column) for term in tree.expressions])
    raise UnknownSqlError


def _column(tree: Any, side: SideSpec) -> Column:
    column = side.column(tree.name) if isinstance(tree, exp.Column) and len(tree.parts) == 1 else None
    if column is None:
        raise UnknownSqlError
    return column


def _constant(tree: Any, column: Column) -> Any:
    base = base_of(column.type)
    if isinstance(tree, exp.Boolean) and base == "BOOLEAN":
        return bool(tree.this)
    if isinstance(tree, exp.Literal) and tree.is_string == (base == "STRING"):
        if base == "STRING":
            return tree.name
        if base in (*INTEGERS, "DECIMAL"):
            return Decimal(tree.name)
    raise UnknownSqlError


def _among(column: Column, constants: list[Any]) -> RowCondition:
    def among(row: Callable[[Column], Any]) -> Any:
        value = row(column)
        if value is None or value is ANY:
            return value
        return ANY if isinstance(value, JsonText) else value in constants

    return among


def _not(value: Any) -> Any:
    return value if value is None or value is ANY else not value


def _either(left: Any, right: Any, *, decides: bool) -> Any:
    """Returns the value of OR, for which true decides; or of AND, for which false does."""
    if decides in (left, right):
        return decides
    return ANY if ANY in (left, right) else None if None in (left, right) else not decides
