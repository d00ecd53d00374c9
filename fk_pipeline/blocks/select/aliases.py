"""The tables of a FROM: which earlier one each is joined to, and by what. No Spark."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from sqlglot import exp

from fk_pipeline.blocks.select.block import Alias
from fk_pipeline.blocks.select.refusals import JOINS, not_taken
from fk_pipeline.blocks.select.trees import conditions_in, conjuncts, laterals_of, named, sources_of, table_as
from fk_pipeline.spec.sql import DIALECT


def put_behind(tree: exp.Select, single: Collection[str]) -> None:
    """Puts tables of one row, which no row of another is an anchor for, behind the next, and their ON into WHERE."""
    joins, from_ = tree.args.get("joins") or [], tree.args["from_"]
    inner = list(itertools.takewhile(lambda join: not JOINS[(join.side or join.kind or "").upper()], joins))
    first = next((join for join in inner if join.this.alias_or_name not in single), None)
    if from_.this.alias_or_name in single and first is not None:
        table, other = from_.this.copy(), first.this.copy()
        from_.set("this", other)
        first.set("this", table)
    for join in joins:
        on = join.args.get("on")
        if join.this.alias_or_name in single and on is not None and not JOINS[(join.side or join.kind or "").upper()]:
            join.set("on", None)
            join.set("kind", "CROSS")
            tree.where(on, copy=False)


def rename_table(tree: exp.Select, old: str, new: str) -> None:
    """Gives a table of a FROM another name, where it is read, too."""
    for source in sources_of(tree):
        if source.alias_or_name == old:
            source.replace(table_as(new, new))
    for lateral in laterals_of(tree):
        if lateral.alias == old:
            lateral.args["alias"].set("this", named(new))
    for column in tree.find_all(exp.Column):
        if column.table == old:
            column.set("table", named(new))


def aliases_of(tree: exp.Select, relations: Mapping[str, str], single: Collection[str]) -> tuple[Alias, ...]:
    """Returns the tables of a FROM in order, each with the earlier one that it is joined to, and by what.

    `single` are those that always have one row: they need not be joined by anything.
    """
    names = [*relations]
    of_where = conditions_in(tree)
    aliases, nullable = [Alias(names[0], relations[names[0]])], set[str]()
    for number, join in enumerate(tree.args.get("joins") or (), start=1):
        alias, how = names[number], JOINS[(join.side or join.kind or "").upper()]
        on = join.args.get("on")
        conditions = [*conjuncts(on)] if on is not None else []
        conditions += of_where if not how else []
        parent = _parent(alias, names[:number], conditions)
        if parent is None and alias in single and on is None:
            aliases.append(Alias(alias, relations[alias], how, names[0], is_single=True))
            continue
        if parent is None and _parent(alias, [lateral.alias for lateral in laterals_of(tree)], conditions) is not None:
            not_taken(join, f"{alias} is joined by what LATERAL VIEW makes; make the rows in a subquery, and join that")
        if parent is None:
            write = f"write ON {names[0]}.column = {alias}.column"
            not_taken(join, f"{alias} is joined without an equality with one earlier table; {write}")
        path = [
            condition
            for condition in conditions
            if alias in _tables_in(condition) and _tables_in(condition) <= {alias, parent}
        ]
        equal = tuple(pair for condition in path if (pair := _equal(condition, alias)) is not None)
        nullable |= {alias} if how or parent in nullable else set()
        none = parent in nullable and not equal  # where a column of the parent is null, `=` does not hold
        sql = tuple(condition.sql(DIALECT) for condition in path)
        aliases.append(Alias(alias, relations[alias], how, parent, sql, equal, none))
    return tuple(aliases)


def _equal(condition: exp.Expr, alias: str) -> tuple[str, str] | None:
    """Returns the column of a table, and that of another to which a condition says it is equal; None otherwise."""
    if not isinstance(condition, exp.EQ):
        return None
    left, right = condition.left, condition.right
    if isinstance(left, exp.Column) and isinstance(right, exp.Column) and left.table != right.table:
        return (left.name, right.name) if left.table == alias else (right.name, left.name)
    return None


def _tables_in(node: exp.Expr) -> set[str]:
    return {column.table for column in node.find_all(exp.Column)}


def _parent(alias: str, earlier: Sequence[str], conditions: Sequence[exp.Expr]) -> str | None:
    """Returns the earliest table that an equality joins to another; None if there is none."""
    for name in earlier:
        for condition in conditions:
            if isinstance(condition, (exp.EQ, exp.NullSafeEQ)):
                sides = [_tables_in(condition.left), _tables_in(condition.right)]
                if {name} in sides and {alias} in sides:
                    return name
    return None
