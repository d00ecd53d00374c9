"""What the columns of a block are made of: columns of the tables that it reads, and SQL over them. No Spark."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from fk_pipeline.blocks.select.block import Block, Keep
from fk_pipeline.blocks.select.trees import names_in
from fk_pipeline.blocks.select.written import expression_over
from fk_pipeline.spec.sql import DIALECT

Read = tuple[str, str]
"""A relation that a block reads, and a column of it."""


def columns_of(block: Block, alias: str) -> set[str]:
    """Returns the columns that a block reads of one of its tables, in lower case."""
    return {
        column.name.lower()
        for part in block.parts
        for column in part.tree.find_all(exp.Column)
        if column.table == alias
    }


def columns_in(block: Block, sql: str) -> list[exp.Column]:
    """Returns the columns that an expression over the aliases of a block reads."""
    return [*expression_over(sql, names_in(block.tree)).find_all(exp.Column)]


def reads_of(block: Block, column: str) -> set[Read]:
    """Returns what a column of a block is made of."""
    if block.branches:
        return {read for branch in block.branches for read in reads_of(branch, column)}
    return {read for part in behind(block, column) for read in reads_in(block, part)}


def reads_of_sql(block: Block, sql: str) -> set[Read]:
    """Returns what an expression over the aliases of a block reads."""
    return reads_in(block, expression_over(sql, names_in(block.tree)))


def reads_in(block: Block, part: exp.Expr) -> set[Read]:
    """Returns what a part of the SELECT of a block reads."""
    relation = {alias.name: alias.relation for alias in block.aliases}
    return {(relation[column.table], column.name) for column in _of_tables(block, part)}


def _of_tables(block: Block, part: exp.Expr) -> Iterator[exp.Column]:
    """Yields the columns of tables that an expression reads; of a generated column, those that it is made of."""
    made = {lateral.alias: lateral for lateral in block.laterals}
    for column in part.find_all(exp.Column):
        if column.table in made:
            yield from _of_tables(block, made[column.table].this)
        else:
            yield column


def plain_read(block: Block, column: str) -> Read | None:
    """Returns the column that a column of a block is as it is; None if it is computed."""
    made = None if block.branches else expression_of(block, column)
    if not isinstance(made, exp.Column):
        return None
    relation = next((alias.relation for alias in block.aliases if alias.name == made.table), None)
    return None if relation is None else (relation, made.name)


def sql_of(block: Block, column: str) -> str:
    """Returns the SQL that computes a column of a block, over its tables or over the rows that `keep` is of."""
    if block.branches:
        return "; ".join(sql_of(branch, column) for branch in block.branches)
    number = block.columns.index(column)
    return block.tree.selects[number].unalias().sql(DIALECT) if block.keep is None else block.keep.columns[number]


def sql_of_joined(block: Block, column: str) -> str | None:
    """Returns a column of a block as SQL over the aliases; None if it is an aggregate, or of a window."""
    made = None if block.branches else expression_of(block, column)
    return None if made is None or made.find(exp.AggFunc, exp.Window) is not None else made.sql(DIALECT)


def behind(block: Block, column: str) -> list[exp.Expr]:
    """Returns what of the SELECT of a block a column is made of; the block is no UNION ALL."""
    number = block.columns.index(column)
    if block.keep is None:
        return [block.tree.selects[number]]
    read = {node.name.lower() for node in _chosen(block.keep, number).find_all(exp.Column)}
    return [output for output in block.tree.selects if output.alias_or_name.lower() in read]


def expression_of(block: Block, column: str) -> exp.Expr | None:
    """Returns what a column of a block is over its tables; None if it is computed of the rows of `keep`."""
    number = block.columns.index(column)
    if block.keep is None:
        return block.tree.selects[number].unalias()
    is_chosen = isinstance(_chosen(block.keep, number), exp.Column)
    return next((output.unalias() for output in behind(block, column)), None) if is_chosen else None


def _chosen(keep: Keep, number: int) -> exp.Expr:
    return expression_over(keep.columns[number], {keep.alias})
