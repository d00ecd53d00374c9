"""A subquery that reads the row around it, and the conditions by which it does. No Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from fk_pipeline.blocks.select.likeness import are_alike
from fk_pipeline.blocks.select.refusals import not_taken
from fk_pipeline.blocks.select.trees import (
    aliased,
    call,
    column_of,
    conditions_in,
    external,
    is_grouped,
    is_in,
    named,
    names_in,
    own,
)

_SET, _ROW = "rows", "_row"
"""Of a group, the set of values that a further condition reads, and one of them."""

_LEAST, _GREATEST = "least", "greatest"
"""Of a group, the ends of the values that a comparison reads."""

_ENDS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.LT: (_LEAST,),
    exp.LTE: (_LEAST,),
    exp.GT: (_GREATEST,),
    exp.GTE: (_GREATEST,),
    exp.NEQ: (_LEAST, _GREATEST),
}
"""Per comparison, the ends of the values on its left that tell whether it holds for one of them."""

_OTHER_END = {_LEAST: _GREATEST, _GREATEST: _LEAST}


@dataclass
class Tied:
    """A subquery without the conditions that tie it to the query around it, and these.

    Attributes:
        inner: the SELECT without these conditions.
        pairs: (an expression of the subquery, the one around that it is equal to, whether null equals null).
        rest: further conditions between both.
        outer: conditions that read only the query around.
    """

    inner: exp.Select
    pairs: list[tuple[exp.Expr, exp.Expr, bool]]
    rest: list[exp.Expr]
    outer: list[exp.Expr]


def tied_by(node: exp.Expr, inner: exp.Select) -> Tied:
    """Takes out of a subquery the conditions of WHERE that read columns around it."""
    tied = Tied(inner.copy(), [], [], [])
    around, remaining = {column.table for column in external(inner)}, list[exp.Expr]()
    for condition in conditions_in(tied.inner):
        sides = {column.table in around for column in condition.find_all(exp.Column)}
        if True not in sides:
            remaining.append(condition.copy())
        elif False not in sides:
            tied.outer.append(condition.copy())
        elif (pair := _pair(condition, around)) is not None:
            tied.pairs.append(pair)
        else:
            tied.rest.append(condition.copy())
    tied.inner.set("where", exp.Where(this=exp.and_(*remaining)) if remaining else None)
    rest = external(tied.inner)
    if isinstance(node, exp.Exists):
        rest = [column for column in rest if not _is_in_selects(column, tied.inner)]
    if rest:
        not_taken(node, f"{rest[0].sql('spark')} of the query around is read elsewhere than in WHERE")
    if around and any(tied.inner.args.get(clause) is not None for clause in ("limit", "offset", "qualify", "with_")):
        not_taken(node, "LIMIT, QUALIFY or WITH in a subquery that reads a column around it; join one in FROM")
    if around and own(tied.inner, exp.Window):
        not_taken(node, "a window function in a subquery that reads a column around it; join one in FROM")
    if tied.rest and is_grouped(tied.inner) and not isinstance(node, exp.Subquery):
        not_taken(node, "GROUP BY in a subquery beside a condition that is no equality with the row around")
    return tied


def ties_of(tied: Tied) -> tuple[list[tuple[exp.Expr, bool]], list[exp.Expr]]:
    """Returns the outer sides of equalities, each with whether null equals null, and the inner sides."""
    return [(outer, safe) for _, outer, safe in tied.pairs], [inner for inner, _, _ in tied.pairs]


def _pair(condition: exp.Expr, around: set[str]) -> tuple[exp.Expr, exp.Expr, bool] | None:
    """Returns the sides of an equality between a subquery and the query around it; None of another condition."""
    if not isinstance(condition, (exp.EQ, exp.NullSafeEQ)):
        return None
    left, right = condition.left.unnest(), condition.right.unnest()
    of = [{column.table in around for column in side.find_all(exp.Column)} for side in (left, right)]
    safe = isinstance(condition, exp.NullSafeEQ)
    if of == [{False}, {True}]:
        return left.copy(), right.copy(), safe
    return (right.copy(), left.copy(), safe) if of == [{True}, {False}] else None


def outer_columns(tied: Tied) -> list[exp.Column]:
    """Returns the columns around a subquery that it reads."""
    own = names_in(tied.inner)
    parts = [*(outer for _, outer, _ in tied.pairs), *tied.rest, *tied.outer]
    return [column for part in parts for column in part.find_all(exp.Column) if column.table not in own]


def tested(tied: Tied) -> tuple[list[exp.Expr], Callable[[str], exp.Expr]]:
    """Returns what a group keeps of its rows for conditions with a row around that are no equalities.

    It is the least and the greatest value, if there is one condition, which compares; otherwise the set of values that
    are read. With it comes a function from the name of the groups to SQL of whether a row of the group meets the
    conditions.
    """
    [first, *more], own_tables = tied.rest, names_in(tied.inner)
    if not more and isinstance(first, exp.Binary) and type(first) in _ENDS and are_alike(first.left, first.right):
        inner = [{c.table in own_tables for c in side.find_all(exp.Column)} for side in (first.left, first.right)]
        if inner in ([{True}, {False}], [{False}, {True}]):
            return _compared_with_ends(first, inner[0] == {True})
    read = [
        *dict.fromkeys(
            c.copy() for condition in tied.rest for c in condition.find_all(exp.Column) if c.table in own_tables
        )
    ]
    place = {column: exp.Dot(this=exp.to_identifier(_ROW), expression=named(f"c{n}")) for n, column in enumerate(read)}
    fields = [part for n, column in enumerate(read) for part in (exp.Literal.string(f"c{n}"), column.copy())]
    values = exp.AnonymousAggFunc(this="COLLECT_SET", expressions=[call("NAMED_STRUCT", *fields)])
    tests = [condition.transform(lambda node: place[node].copy() if node in place else node) for condition in tied.rest]
    of = exp.Lambda(this=exp.and_(*tests), expressions=[exp.to_identifier(_ROW)])
    return [aliased(call("ARRAY_SORT", values), _SET)], lambda name: call("EXISTS", column_of(name, _SET), of.copy())


def _compared_with_ends(condition: exp.Binary, is_left: bool) -> tuple[list[exp.Expr], Callable[[str], exp.Expr]]:
    """Returns the same of a comparison, whose left or right side is of the inner rows."""
    value, other = (condition.left, condition.right) if is_left else (condition.right, condition.left)
    ends = _ENDS[type(condition)] if is_left else tuple(_OTHER_END[end] for end in _ENDS[type(condition)])
    outputs: list[exp.Expr] = [
        aliased(exp.Min(this=value.copy()) if end == _LEAST else exp.Max(this=value.copy()), end) for end in ends
    ]

    def test(name: str) -> exp.Expr:
        sides = [(column_of(name, end), other.copy()) for end in ends]
        tests = [type(condition)(this=a if is_left else b, expression=b if is_left else a) for a, b in sides]
        return exp.or_(*tests)

    return outputs, test


def _is_in_selects(node: exp.Expr, select: exp.Select) -> bool:
    return any(is_in(node, output) for output in select.selects)
