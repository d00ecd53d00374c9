"""Takes a grouped SELECT apart: a subquery in FROM with its groups, and what is computed of them. No Spark.

A subquery in HAVING, or among the columns, is joined to groups, not to the rows that they are made of:

    SELECT k, SUM(v) AS s FROM t GROUP BY k HAVING SUM(v) > (SELECT AVG(x) FROM u)
    SELECT g.g0 AS k, g.g1 AS s FROM (SELECT k AS g0, SUM(v) AS g1 FROM t GROUP BY k) g WHERE g.g1 > (SELECT ...)
"""

from __future__ import annotations

from sqlglot import exp

from fk_pipeline.blocks.select.trees import aliased, column_of, is_in, subquery_as

_OF_ROWS = ("from_", "joins", "laterals", "where", "group")
"""The clauses of a SELECT that come before its groups are made."""


def is_above_groups(node: exp.Expr) -> bool:
    """Returns whether a subquery of a grouped SELECT is computed of groups: in its columns, HAVING or ORDER BY."""
    above = node.parent
    while above is not None and not isinstance(above, exp.Select):
        if isinstance(above, (exp.AggFunc, exp.Where, exp.Join, exp.From, exp.Group)):
            return False
        above = above.parent
    return True


def split_groups(select: exp.Select, name: str) -> None:
    """Makes of a grouped SELECT, in place, one over a subquery of some name that has the groups."""
    group = select.args.get("group")
    by, made = [*group.expressions] if group is not None else [], list[exp.Expr]()
    for root in [*select.selects, *filter(None, (select.args.get("having"), select.args.get("order")))]:
        for node in [*root.walk()]:
            if node is not root and is_in(node, root) and _is_of_groups(node, root, select, by):
                node.replace(_column(node, made, name))
    inner = exp.Select()
    for clause in _OF_ROWS:
        inner.set(clause, select.args.get(clause))
        select.set(clause, None)
    inner.set("expressions", [aliased(expression, f"g{number}") for number, expression in enumerate(made)] or by)
    having = select.args.get("having")
    select.set("having", None)
    select.set("from_", exp.From(this=subquery_as(inner, name)))
    select.set("where", exp.Where(this=having.this) if having is not None else None)


def _is_of_groups(node: exp.Expr, root: exp.Expr, select: exp.Select, by: list[exp.Expr]) -> bool:
    """Returns whether an expression is a value of the groups, or an aggregate of their rows."""
    around = node.find_ancestor(exp.AggFunc)
    if around is not None and is_in(around, root):
        return False
    is_own = node.find_ancestor(exp.Select) is select
    if node in by:
        return is_own or isinstance(node, exp.Column)
    if isinstance(node, (exp.Filter, exp.WithinGroup)):
        return is_own and node.find(exp.AggFunc) is not None
    return is_own and isinstance(node, exp.AggFunc)


def _column(node: exp.Expr, made: list[exp.Expr], name: str) -> exp.Column:
    """Returns the column of the subquery that is an expression, which is taken among those that it makes."""
    if node not in made:
        made.append(node.copy())
    column = column_of(name, f"g{made.index(node)}")
    column.type = node.type
    return column
