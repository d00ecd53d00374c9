"""Makes of the SELECT of a subquery rows that can be joined: in groups, each once, or one row of all. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from fk_pipeline.blocks.select.likeness import type_of
from fk_pipeline.blocks.select.resolving import as_group
from fk_pipeline.blocks.select.trees import aliased, call, column_of, is_grouped, subquery_as

_OF_NOTHING = {
    **dict.fromkeys(("COUNT", "COUNT_IF", "APPROX_COUNT_DISTINCT", "REGR_COUNT"), "CAST(0 AS BIGINT)"),
    **dict.fromkeys(("COLLECT_LIST", "COLLECT_SET", "ARRAY_AGG"), "ARRAY()"),
}
"""Aggregates whose value is not null where there are no rows."""

_STRICT = (exp.Paren, exp.Mul, exp.Add, exp.Sub, exp.Div, exp.Neg, exp.Literal, exp.Filter, exp.WithinGroup)
"""What is null if an operand is."""

_SIMPLE = ("limit", "offset", "qualify", "having", "group", "distinct", "with_")
"""Clauses without which WHERE is the last to choose among the rows of a SELECT."""


def has_clauses(inner: exp.Select, *without: str) -> bool:
    """Returns whether a SELECT has clauses after WHERE (`_SIMPLE`), without some."""
    return any(inner.args.get(clause) is not None for clause in _SIMPLE if clause not in without)


def is_once(inner: exp.Select) -> bool:
    """Returns whether the columns of a grouped SELECT are its groups, so that no two rows are equal."""
    group = inner.args.get("group")
    if group is None or has_clauses(inner, "group", "having"):
        return False
    return {*group.expressions} <= {output.unalias() for output in inner.selects}


def more_rows_than(number: int) -> exp.Expr:
    """SQL: whether there are more rows than a number; an aggregate."""
    return exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(number))


def over(inner: exp.Query, name: str, keep: Sequence[str] = ()) -> exp.Select:
    """Returns a SELECT of all columns of a query, or the query itself if it has only clauses that may stay."""
    if isinstance(inner, exp.Select) and keep and not has_clauses(inner, *keep):
        return inner
    columns = [column_of(name, column) for column in inner.named_selects]
    for number, column in enumerate(columns):
        column.type = type_of(inner, number)
    return exp.select(*[aliased(column, column.name) for column in columns]).from_(subquery_as(inner, name))


def selecting(inner: exp.Select, outputs: Sequence[exp.Expr]) -> exp.Select:
    """Returns a SELECT with other columns, changed in place; without an order that chooses no rows."""
    inner.set("expressions", [*outputs])
    inner.set("order", None) if inner.args.get("limit") is None else None
    return inner


def in_groups(
    inner: exp.Select, by: Sequence[exp.Expr], more: Sequence[exp.Expr], name: Callable[[str], str]
) -> exp.Select:
    """Returns a SELECT of the groups of a subquery by some expressions, which it calls `k0`, `k1` and so on."""
    names = as_keys(by)
    if is_grouped(inner) and inner.args.get("group") is not None:
        groups = inner.args["group"].expressions
        if more or not all(value in groups for value in by) or len({*by}) < len(groups):  # finer: its groups, grouped
            for value in by:
                if value not in groups and not value.find(exp.AggFunc):
                    inner.args["group"].append("expressions", as_group(value))
            rows = over(selecting(inner, names), name("rows"))
            rows.set("distinct", exp.Distinct())
            return rows
        return selecting(inner, names)
    inner = selecting(inner, [*names, *more])
    inner.set("group", exp.Group(expressions=[as_group(value) for value in by]))
    return inner


def of_one_row(inner: exp.Select, outputs: Sequence[exp.Expr], name: str) -> None:
    """Makes of a subquery aggregates over all its rows."""
    if is_grouped(inner) or has_clauses(inner):
        rows = inner.copy()
        for key in [*inner.args]:
            inner.set(key, None)
        inner.set("from_", exp.From(this=subquery_as(rows, name)))
    inner.set("expressions", [*outputs])
    inner.set("order", None)


def at_most_one(inner: exp.Select, name: Callable[[str], str]) -> exp.Select:
    """Returns a SELECT of exactly one row: the only value of a subquery, null if it has none."""
    value = inner.selects[0].unalias()
    if is_grouped(inner) and inner.args.get("group") is None and not has_clauses(inner, "having"):
        having = inner.args.get("having")
        inner.set("having", None)
        if having is not None:
            value = call("IF", having.this.copy(), value.copy(), exp.null())
        return selecting(inner, [aliased(value.copy(), "value")])
    rows = over(inner, name("rows"))
    column = rows.selects[0].unalias().copy()
    error = call("RAISE_ERROR", exp.Literal.string("a subquery that is a value has more than one row"))
    checked = exp.Case().when(more_rows_than(1), error).else_(exp.Max(this=column))
    return selecting(rows, [aliased(checked, "value")])


def as_keys(by: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Returns the columns `k0`, `k1` and so on of a table that is joined."""
    return [aliased(value.copy(), f"k{number}") for number, value in enumerate(by)]


def of_nothing(value: exp.Expr) -> exp.Expr | None:
    """Returns what an expression of aggregates is without any rows; None if that is null."""
    root, is_null = exp.Paren(this=value.copy()), True
    for node in [*root.walk(prune=lambda part: isinstance(part, exp.AggFunc))]:
        if isinstance(node, exp.AggFunc):
            name = node.name if isinstance(node, exp.AnonymousAggFunc) else node.key
            nothing = _OF_NOTHING.get(name.upper())
            is_null = is_null and nothing is None
            whole: exp.Expr = node
            while isinstance(whole.parent, (exp.Filter, exp.WithinGroup)):
                whole = whole.parent
            whole.replace(exp.null() if nothing is None else exp.Var(this=nothing))
        elif not isinstance(node, _STRICT):
            is_null = False
    return None if is_null else root
