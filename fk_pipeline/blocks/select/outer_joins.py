"""Writes RIGHT and FULL JOIN as LEFT JOIN and UNION ALL, in a SELECT whose names are resolved. No Spark.

a RIGHT JOIN b ON c    b LEFT JOIN a ON c
a FULL JOIN b ON c     a LEFT JOIN b ON c, and the rows of b for which NOT EXISTS (a with c)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from fk_pipeline.blocks.select.refusals import not_taken
from fk_pipeline.blocks.select.trees import (
    aliased,
    column_of,
    conjuncts,
    external,
    query_of,
    sources_of,
    subqueries,
    subquery_as,
)

_Columns = Mapping[tuple[str, str], str]
"""Per table and column, the name of the column of a subquery that stands for it."""


def without_outer_join(select: exp.Select, name: Callable[[str], str]) -> bool:
    """Writes the first RIGHT or FULL JOIN of a SELECT, in place, as a left join or a union; returns whether it has one.

    Args:
        select: the SELECT.
        name: function from a word to a new name for a table.

    Raises:
        SqlTextError: it has no equality.
    """
    joins = select.args.get("joins") or []
    place = next((n for n, join in enumerate(joins) if (join.side or "").upper() in ("RIGHT", "FULL")), None)
    if place is None:
        return False
    join, left, rest = joins[place], [select.args["from_"].this, *joins[:place]], joins[place + 1 :]
    side = join.side.upper()
    if not _is_equal_somewhere(join, left):
        not_taken(join, f"{side} JOIN needs an equality between a column of its left side and one of its right side")
    if side == "FULL":
        _full_join(select, left, join, name("joined"))
        select.set("joins", rest)
        return True
    source = left[0]
    if len(left) > 1:
        of, columns = name("joined"), _columns_of(select, left)
        source = subquery_as(_from(exp.select(*_renamed(columns)), left), of)
        _put(select, columns, of)
    select.set("from_", exp.From(this=join.this))
    select.set("joins", [exp.Join(this=source, side="LEFT", on=join.args["on"]), *rest])
    return True


def _is_equal_somewhere(join: exp.Join, left: Sequence[exp.Expr]) -> bool:
    """Returns whether a condition of a join is an equality between its two sides."""
    names, on = {_name_of(source) for source in left}, join.args.get("on")
    for condition in conjuncts(on) if on is not None else ():
        if isinstance(condition, (exp.EQ, exp.NullSafeEQ)):
            sides = [
                {column.table in names for column in side.find_all(exp.Column)}
                for side in (condition.left, condition.right)
            ]
            if sides in ([{True}, {False}], [{False}, {True}]):
                return True
    return False


def _full_join(select: exp.Select, left: Sequence[exp.Expr], join: exp.Join, name: str) -> None:
    """Puts the union of a left join, and of the right rows without a partner, in place of the tables of a FULL JOIN."""
    on, right = join.args["on"], join.this
    columns, of_left = _columns_of(select, [*left, join]), {_name_of(source) for source in left}
    both = _from(exp.select(*_renamed(columns)), [*left, exp.Join(this=right.copy(), side="LEFT", on=on.copy())])
    outputs = [
        aliased(exp.null() if of in of_left else column_of(of, column), as_) for (of, column), as_ in columns.items()
    ]
    partners = _from(exp.select(exp.Literal.number(1)), left).where(on.copy())
    unmatched = _from(exp.select(*outputs), [right]).where(exp.not_(exp.Exists(this=partners)))
    _put(select, columns, name)
    union = exp.Union(this=both, expression=unmatched, distinct=False)
    select.set("from_", exp.From(this=subquery_as(union, name)))


def _columns_of(select: exp.Select, sources: Sequence[exp.Expr]) -> dict[tuple[str, str], str]:
    """Returns the columns of some tables that a SELECT reads, each with a name for it that no other has.

    Those that only the conditions between these tables read are left out, unless there are no others.
    """
    names = {_name_of(source) for source in sources}
    read = [column for column in outward(select) if column.table in names]
    within = {id(column) for join in sources if isinstance(join, exp.Join) for column in join.find_all(exp.Column)}
    new_names: dict[tuple[str, str], str] = {}
    for column in [column for column in read if id(column) not in within] or read:
        if (column.table, column.name) not in new_names:
            name = f"{column.table}_{column.name}"
            while name in new_names.values():
                name = f"{name}_"
            new_names[column.table, column.name] = name
    return new_names


def _name_of(source: exp.Expr) -> str:
    """Returns what a table of FROM, or of a join, is called."""
    return (source.this if isinstance(source, exp.Join) else source).alias_or_name


def _renamed(columns: _Columns) -> list[exp.Expr]:
    return [aliased(column_of(of, column), name) for (of, column), name in columns.items()]


def _put(select: exp.Select, columns: _Columns, name: str) -> None:
    """Reads columns of some tables as columns of the table that they have become."""
    for column in outward(select):
        of = columns.get((column.table, column.name))
        if of is not None:
            made = column_of(name, of)
            made.type = column.type
            column.replace(made)


def outward(select: exp.Select) -> list[exp.Column]:
    """Returns the columns of the tables of a SELECT that are read in it, in its subqueries too."""
    inside = {id(column) for source in sources_of(select) for column in source.find_all(exp.Column)}
    with_ = select.args.get("with_")
    inside |= {id(column) for column in with_.find_all(exp.Column)} if with_ is not None else set()
    inside |= {id(column) for node in subqueries(select) for column in _inside(query_of(node))}
    return [column for column in select.find_all(exp.Column) if id(column) not in inside]


def _inside(query: exp.Query) -> list[exp.Column]:
    """Returns the columns in a query that are of its own tables, or of those in its subqueries."""
    around = {id(column) for column in external(query)}
    return [column for column in query.find_all(exp.Column) if id(column) not in around]


def _from(select: exp.Select, sources: Sequence[exp.Expr]) -> exp.Select:
    """Returns a SELECT with copies of the tables and joins of another."""
    first, *joins = sources
    select.set("from_", exp.From(this=first.copy()))
    select.set("joins", [join.copy() for join in joins])
    return select
