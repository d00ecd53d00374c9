"""Whether two values of a query are equal if, and only if, they are so by the type of each. No Spark."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from fk_pipeline.spec.sql import DIALECT

_EXACT_NUMBERS = {
    exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.DECIMAL,
}  # fmt: skip
"""Types of which two values that differ differ as those of another of them, too."""

_TEXTS = {exp.DType.TEXT, exp.DType.VARCHAR}
"""Types of texts, which differ alike, as sqlglot calls those of columns and of functions."""


def are_alike(one: exp.Expr, other: exp.Expr) -> bool:
    """Returns whether two values are known to be equal if, and only if, they are so by the type of each.

    Spark compares values of two types as those of a third: the texts '1' and '01' are two, and both equal the number 1.
    """
    kinds = [_kind_of(value) for value in (one, other)]
    if exp.DType.UNKNOWN in kinds:
        return False
    return kinds[0] == kinds[1] or any(all(kind in one for kind in kinds) for one in (_EXACT_NUMBERS, _TEXTS))


def _kind_of(value: exp.Expr) -> exp.DType:
    """Returns the type of an expression, without its size; of functions by what sqlglot knows of them."""
    if value.type is not None and value.type.this != exp.DType.UNKNOWN:
        return exp.DType(value.type.this)
    known = sqlglot.parse_one(value.sql(DIALECT), dialect=DIALECT)
    types = {(one.table, one.name): one.type for one in value.find_all(exp.Column)}

    def typed(node: exp.Expr) -> exp.Expr:
        of = types.get((node.table, node.name)) if isinstance(node, exp.Column) else None
        return node if of is None or of.this == exp.DType.UNKNOWN else exp.cast(exp.null(), of)

    found = annotate_types(known.transform(typed), dialect=DIALECT).type
    return exp.DType.UNKNOWN if found is None else exp.DType(found.this)


def type_of(query: exp.Query, number: int) -> exp.DataType | None:
    """Returns the type of a column of a query; None if it is not known, or the parts of a UNION have others."""
    if isinstance(query, exp.Subquery):
        return type_of(query.this, number)
    if isinstance(query, exp.SetOperation):
        left, right = (type_of(one, number) for one in (query.this, query.expression))
        return left if left == right else None
    return query.selects[number].unalias().type if number < len(query.selects) else None
