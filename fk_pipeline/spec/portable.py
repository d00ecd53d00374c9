"""Which SQL expressions another engine computes as Spark does.

Sail wraps integers that overflow where Spark stops, gives decimals other digits after an operation, and prints floating
point numbers otherwise. So an expression may only use what was compared (`tests/sail/test_alike.py`).
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from fk_pipeline.spec.sql import DIALECT

ALIKE: tuple[type[exp.Expr], ...] = (
    exp.Alias, exp.And, exp.Between, exp.Boolean, exp.Case, exp.Coalesce, exp.Column, exp.Concat, exp.Distinct, exp.Dot,
    exp.DPipe, exp.EQ, exp.GT, exp.GTE, exp.Identifier, exp.If, exp.In, exp.Is, exp.LT, exp.LTE, exp.Literal, exp.Lower,
    exp.NEQ, exp.Not, exp.Null, exp.NullSafeEQ, exp.Nullif, exp.Or, exp.Paren, exp.Substring, exp.Trim, exp.Upper,
)  # fmt: skip
"""What an expression may consist of."""


def not_alike(text: str) -> str | None:
    """The first part of an expression that another engine may compute otherwise; None when there is none."""
    tree = sqlglot.parse_one(f"SELECT\n{text}", dialect=DIALECT).expressions[0]
    found = next((node for node in tree.walk() if not isinstance(node, ALIKE)), None)
    return None if found is None else found.sql(dialect=DIALECT)
