"""Whether two values of a query are equal if, and only if, they are so by the type of each. No Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from fk_pipeline.blocks.select.trees import split_fields
from fk_pipeline.spec.sql import DIALECT

EXACT_NUMBERS = {
    exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.DECIMAL,
}  # fmt: skip
"""Types of which two values that differ differ as those of another of them, too, and whose sums are exact."""

_TEXTS = {exp.DType.TEXT, exp.DType.VARCHAR}
"""Types of texts, which differ alike, as sqlglot calls those of columns and of functions."""


def are_alike(left: exp.Expr, right: exp.Expr) -> bool:
    """Returns whether two values are known to be equal if, and only if, they are so by the type of each.

    Spark compares values of two types as those of a third: the texts '1' and '01' are two, and both equal the number 1.
    """
    dtypes = [_dtype_of(value) for value in (left, right)]
    if exp.DType.UNKNOWN in dtypes:
        return False
    return dtypes[0] == dtypes[1] or any(all(dtype in types for dtype in dtypes) for types in (EXACT_NUMBERS, _TEXTS))


def _dtype_of(value: exp.Expr) -> exp.DType:
    """Returns the type of an expression, without its size; of functions by what sqlglot knows of them."""
    if value.type is not None and value.type.this != exp.DType.UNKNOWN:
        return exp.DType(value.type.this)
    types = {
        (column.table, column.name.lower()): column.type
        for column in value.find_all(exp.Column)
        if column.type is not None
    }
    return exp.DType(known_type(value.sql(DIALECT), types).this)


def known_type(sql: str, types: Mapping[tuple[str, str], exp.DataType]) -> exp.DataType:
    """Returns the type of an expression as far as the types of its columns tell; of functions by what sqlglot knows.

    A decimal that is neither a column nor a cast has no size: sqlglot does not know Spark's rules for it.

    Args:
        sql: the expression.
        types: per table and column, in lower case, its type; those that are not known may be left out.
    """

    def typed(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Literal) and not node.is_string and re.fullmatch(r"\d*\.\d*", node.name):
            return exp.cast(node.copy(), exp.DType.DECIMAL)
        if isinstance(node, exp.DataType):
            return _unsized(node)
        of = types.get((node.table, node.name.lower())) if isinstance(node, exp.Column) else None
        return node if of is None or of.this == exp.DType.UNKNOWN else exp.cast(exp.null(), _unsized(of))

    root = exp.Paren(this=sqlglot.parse_one(sql, dialect=DIALECT))
    split_fields(root, {table for table, _ in types})
    if isinstance(root.this, exp.Column):
        return types.get((root.this.table, root.this.name.lower())) or exp.DataType(this=exp.DType.UNKNOWN)
    if isinstance(root.this, exp.Cast):
        return root.this.to
    for node in [*root.find_all(exp.Round)]:  # sqlglot knows only that of a DOUBLE, and of the next, too
        node.replace(exp.Paren(this=node.this))
    for division in [*root.find_all(exp.SafeDivide)]:
        division.replace(exp.Div(this=division.this, expression=division.expression))
    dtype = annotate_types(root.transform(typed), dialect=DIALECT).type
    return exp.DataType(this=exp.DType.UNKNOWN if dtype is None else dtype.this)


def _unsized(dtype: exp.DataType) -> exp.DataType:
    """Returns a type; a decimal without its size, which sqlglot would take for that of all that is made of it."""
    return exp.DataType(this=dtype.this) if dtype.this == exp.DType.DECIMAL else dtype


def type_of(query: exp.Query, number: int) -> exp.DataType | None:
    """Returns the type of a column of a query; None if it is not known, or the parts of a UNION have others."""
    if isinstance(query, exp.Subquery):
        return type_of(query.this, number)
    if isinstance(query, exp.SetOperation):
        left, right = (type_of(part, number) for part in (query.this, query.expression))
        return left if left == right else None
    return query.selects[number].unalias().type if number < len(query.selects) else None
