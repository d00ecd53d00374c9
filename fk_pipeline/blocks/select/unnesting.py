"""Takes the subqueries out of a SELECT whose names are resolved, and its outer joins apart. No Spark.

What is left are SELECTs of inner and left joins over tables and subqueries in FROM, and UNION ALL of such:

    EXISTS, IN              a join with the values that the inner rows have, each once
    NOT EXISTS, OR, CASE    the same by LEFT JOIN: there is a partner
    NOT IN                  besides, whether there are rows, and one without a value: SQL's unknown
    a value, correlated     LEFT JOIN with a group per value that it is looked up by; COUNT is 0 where there is none
    a value, by itself      a table of one row, joined without a condition
    RIGHT JOIN, FULL JOIN   sides swapped; the rows of the left join, and right rows without a partner

A condition between inner and outer rows that is no equality is tested on each outer row, over the set of inner values
that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from fk_pipeline.blocks.select.above_groups import is_above_groups, split_groups
from fk_pipeline.blocks.select.generators import made_above_subqueries, split_laterals, typed
from fk_pipeline.blocks.select.outer_joins import without_outer_join
from fk_pipeline.blocks.select.refusals import not_taken
from fk_pipeline.blocks.select.replacing import Keys, replace_subquery
from fk_pipeline.blocks.select.resolving import schema_of
from fk_pipeline.blocks.select.trees import conjuncts, external, is_grouped, names_in, query_of, sources_of, subqueries
from fk_pipeline.spec.sql import Column

_NAMED = (exp.Table, exp.Subquery, exp.CTE, exp.Lateral)
"""What has a name in a FROM."""


def unnested(whole: exp.Select, keys: Keys, inputs: Mapping[str, Sequence[Column]]) -> exp.Select:
    """Returns a resolved query without subqueries as values or conditions, RIGHT and FULL JOIN.

    Args:
        whole: the query.
        keys: per input, the columns that identify a row, as far as they are known.
        inputs: per input its columns.

    Raises:
        SqlTextError: one of them cannot be taken out; the message names it, its line, and what to write.
    """
    tree = typed(whole.copy(), schema_of(inputs))
    taken = {table.alias_or_name.lower() for table in tree.find_all(*_NAMED)} | {*keys}
    _Unnesting(keys, taken).query(tree)
    return tree


class _Unnesting:
    """Rewrites SELECTs, the inner ones first, and gives names to the tables that it makes."""

    def __init__(self, keys: Keys, taken: set[str]) -> None:
        self.keys, self.taken = keys, taken

    def query(self, tree: exp.Query) -> exp.Query:
        """Rewrites a query in place; returns it."""
        with_ = tree.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            cte.set("this", self.query(cte.this))
        if isinstance(tree, exp.SetOperation):
            for side in ("this", "expression"):
                part = tree.args[side]
                place, inner = (part, part.this) if isinstance(part, exp.Subquery) else (tree, part)
                place.set("this" if place is part else side, self.query(inner))
            return tree
        assert isinstance(tree, exp.Select)
        return self._select(tree)

    def _select(self, select: exp.Select) -> exp.Select:
        for node in subqueries(select):
            if node.find_ancestor(exp.Group, exp.Select) is not select:
                not_taken(node, "a subquery in GROUP BY; compute it in a subquery in FROM, and group by its column")
        if is_grouped(select) and any(is_above_groups(node) for node in subqueries(select)):
            split_groups(select, self._name("groups"))
        if made_above_subqueries(select):
            split_laterals(select, self._name("rows"))
        self._sources(select)
        _subqueries_of_on(select)
        while without_outer_join(select, self._name):
            self._sources(select)
        for node in [*subqueries(select)]:
            self._taken_out(select, node)
        _leave_out_true(select)
        return select

    def _sources(self, select: exp.Select) -> None:
        for source in sources_of(select):
            if isinstance(source, exp.Subquery):
                source.set("this", self.query(source.this))

    def _name(self, what: str) -> str:
        number = 1
        while f"{what}_{number}" in self.taken:
            number += 1
        self.taken.add(f"{what}_{number}")
        return f"{what}_{number}"

    def _taken_out(self, select: exp.Select, node: exp.Expr) -> None:
        """Replaces one subquery of a SELECT by columns of tables that are joined."""
        inner = query_of(node)
        for column in external(inner):
            if column.table not in names_in(select):
                not_taken(node, f"a subquery reads {column.sql('spark')} of a query two levels out; join it in FROM")
        replace_subquery(select, node, self.query(inner), self.keys, self._name)


def _subqueries_of_on(select: exp.Select) -> None:
    """Moves conditions with subqueries from ON of inner joins to WHERE."""
    joins = select.args.get("joins") or ()
    outer = any((join.side or "").upper() in ("RIGHT", "FULL") for join in joins)
    for join in joins:
        on = join.args.get("on")
        if on is None or on.find(exp.Query) is None:
            continue
        if join.side or outer:
            not_taken(on, f"a subquery in ON of a {join.side or 'RIGHT or FULL'} JOIN; join it in FROM")
        parts = [*conjuncts(on)]
        moved = [condition for condition in parts if condition.find(exp.Query) is not None]
        remaining = [condition.copy() for condition in parts if condition not in moved]
        select.where(*(condition.copy() for condition in moved), copy=False)
        join.set("on", exp.and_(*remaining) if remaining else None)


def _leave_out_true(select: exp.Select) -> None:
    """Leaves out of WHERE what has become a join."""
    where = select.args.get("where")
    if where is not None:
        remaining = [condition.copy() for condition in conjuncts(where.this) if condition != exp.true()]
        select.set("where", exp.Where(this=exp.and_(*remaining)) if remaining else None)
