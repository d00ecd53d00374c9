"""The tree of blocks that `plan` shows: how each is kept up to date, and over which tables. No Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlglot import exp

from fk_pipeline.answers import Blocks
from fk_pipeline.blocks.refresh.advice import plain
from fk_pipeline.blocks.refresh.refreshed import Refreshed, declared_blocks
from fk_pipeline.blocks.refresh.sums import ROWS, sums_of
from fk_pipeline.blocks.refresh.tables import declared_exact
from fk_pipeline.blocks.select.block import Alias, Block, Unit
from fk_pipeline.blocks.select.generators import shown_call
from fk_pipeline.spec.sql import DIALECT
from fk_pipeline.store.schemas import Table

_MOST_SHOWN = 100
"""The most characters of a condition that a line shows."""


def blocks(spec: Any) -> Blocks:
    """Returns the blocks of a pipeline as a tree, from the result to the tables that it is made of."""
    tables, declared = declared_blocks(spec)
    return Blocks(tuple(_tree(spec, tables, {block.name: block for block in declared}, declared[-1].name, "")))


def _tree(
    spec: Refreshed, tables: Mapping[str, Table], by_name: Mapping[str, Block], name: str, margin: str
) -> Iterator[str]:
    block = by_name[name]
    yield f"{margin}{name}: {how(spec, tables, block)}"
    for alias in block.aliases:
        named = alias.relation if alias.name == alias.relation else f"{alias.relation} as {alias.name}"
        yield f"{margin}  {named}: {_joined(block, alias)}"
        if alias.relation in by_name:
            yield from _tree(spec, tables, by_name, alias.relation, f"{margin}    ")
    for part in block.parts:
        for lateral in part.laterals:
            call = plain(shown_call(lateral))
            made = call if len(call) <= _MOST_SHOWN else f"{call.partition('(')[0]}(...)"
            yield f"{margin}  {lateral.alias}: rows that {made} makes of each joined row"


def _joined(block: Block, alias: Alias) -> str:
    """Returns how a table is joined, and which rows a changed row of it leads to."""
    if not alias.parent:
        return "the anchor: each joined row has exactly one row of it"
    if alias.is_single:
        compared = block.compared_with(alias)
        if compared is None:
            return "one row, joined to every row; a change of it touches all rows, and the whole is computed"
        conditions = " or ".join(_cut(plain(condition)) for _, condition in compared)
        return f"one row, joined to every row; a change of it touches those for which {conditions} changes"
    on = _cut(plain(" AND ".join(alias.path)))
    if alias.near is not None:
        equal = [f"{alias.name}.{own} = {alias.parent}.{of}" for own, of in alias.equal]
        on = f"{_cut(' AND '.join(equal))} and near numbers in {alias.near.column}"
    *between, anchor = [step.name for step in block.steps(alias)[1:]]
    over = f"over {', '.join(between)} " if between else ""
    without = f", and where it is joined to rows that have none of {alias.parent} the whole is computed"
    traced = f"a change of it is traced {over}to {anchor}{without if alias.may_match_none else ''}"
    if alias.how == "ANTI":
        return f"no row of it matches on {on}; {traced}"
    return f"{'left ' if alias.how else ''}joined on {on}; {traced}"


def how(spec: Refreshed, tables: Mapping[str, Table], block: Block) -> str:
    """Returns how a block is kept up to date, and why in this way; `tables` are those of the pipeline, as declared."""
    if spec.refresh == "full":
        return "whole: all rows are computed with every change, as refresh is full"
    if block.unit is Unit.ROW:
        if len(block.aliases) == 1:
            return f"by row: a changed row of {block.anchor.name} is computed again, and no other"
        return f"by row: of {block.anchor.name} the rows that a change is joined to are joined again, and no others"
    if block.unit is Unit.UNION:
        return _by_part(block)
    values = _cut(plain(", ".join(_shown(block, value) for value in block.by)))
    if block.unit is Unit.PARTITION:
        if not values:
            return f"whole: {_why_one(block)}, so all rows are one partition, and ranked again with every change"
        return (
            f"by partition of {values}: where a row of a partition changed, all its rows are computed again, as a "
            "window function looks at all of them"
        )
    sums = sums_of(block)
    if sums is not None and ROWS in tables[block.name].names:
        of = f"groups of {values}" if values else "one group of all rows"
        inexact = "a sum turns out to be of DOUBLE or FLOAT, or an average of too many digits"
        also = "" if declared_exact(spec, tables, block, sums) else f"; by group if {inexact}"
        return (
            f"by arithmetic, in {of}: what changed rows gave is taken off, what they give now is added, as COUNT, SUM "
            f"and AVG need no other row of the group{also}"
        )
    why = _why_no_sums(block)
    if not values:
        return f"whole: all rows are one group, which is computed from all of them with every change, because of {why}"
    return (
        f"by group of {values}: where a row of a group changed, the group is computed again from all its rows, because "
        f"of {why}"
    )


def _by_part(block: Block) -> str:
    """Returns how a UNION ALL is kept up to date."""
    parts, moving = len(block.branches), dict.fromkeys(branch.anchor.name for branch in block.branches if branch.moving)
    of = f"each of {parts} parts" if parts > 1 else block.anchor.name
    passed = f", and of {' and '.join(moving)} those that the clock passes" if moving else ""
    return f"by row: of {of} the rows that a change is joined to are joined again{passed}, and no others"


def _shown(block: Block, value: exp.Expr) -> str:
    """Returns a value of groups or partitions; a column of the pipeline's own by the name that it is selected under."""
    if not (isinstance(value, exp.Column) and value.name.startswith("_fk_")):
        return value.sql(DIALECT)
    of = (selected.alias for selected in block.tree.selects if {*selected.find_all(exp.Column)} == {value})
    return next((name for name in of if not name.startswith("_fk_")), value.name)


def _why_one(block: Block) -> str:
    limited = block.anchor.name == "_rows"
    return "LIMIT chooses among all rows" if limited else "there is no PARTITION BY that all window functions have"


def _why_no_sums(block: Block) -> str:
    """Returns the part of a block for which counts and sums are not enough."""
    if block.having():
        return "HAVING, which chooses among groups"
    if block.keep is not None and block.keep.where:
        return f"the condition {_cut(plain(block.keep.where))}, which chooses among groups"
    calls = [call for call in block.tree.find_all(exp.AggFunc) if not _adds(call)]
    if calls:
        return _cut(plain(", ".join(dict.fromkeys(call.sql("spark") for call in calls))))
    if sums_of(block) is not None:
        return "a sum of DOUBLE or FLOAT, which depends on the order of its rows, or an average of too many digits"
    return "an expression over more than groups, counts and sums"


def _adds(call: exp.Expr) -> bool:
    """Returns whether an aggregate is one that is kept by adding."""
    special = isinstance(call.this, exp.Distinct) or isinstance(call.parent, exp.Filter)
    return isinstance(call, exp.Count | exp.Sum | exp.Avg) and not special


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
