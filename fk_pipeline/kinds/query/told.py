"""What `plan` tells of a query: its blocks as a tree, how each is kept up to date, and its SQL. No Spark."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from fk_pipeline.blocks.refresh.advice import plain
from fk_pipeline.blocks.refresh.sums import ROWS, Sums, sums_of
from fk_pipeline.blocks.select.block import Alias, Block, Unit
from fk_pipeline.blocks.select.generators import shown_call
from fk_pipeline.contract import Topology
from fk_pipeline.kinds.query.advice import advice
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.kinds.query.tables import declared_layout

_MOST_SHOWN = 100
"""The most characters of a condition that a line shows."""


def topology(spec: QuerySpec) -> Topology:
    """Returns the blocks as a tree, from the result to the inputs, the SQL of each over all rows, and notes."""
    query = spec.blocks
    lines = tuple(_tree(spec, {block.name: block for block in query.blocks}, query.blocks[-1].name, ""))
    names = {block.name: block.of({one.name: one.relation for one in block.aliases}) for block in query.blocks}
    return Topology((), lines, lines, names, advice(spec), "Blocks, each with the tables that it reads")


def _tree(spec: QuerySpec, blocks: dict[str, Block], name: str, margin: str) -> Iterator[str]:
    block = blocks[name]
    yield f"{margin}{name}: {how(spec, block)}"
    for one in block.aliases:
        named = one.relation if one.name == one.relation else f"{one.relation} as {one.name}"
        yield f"{margin}  {named}: {_joined(block, one)}"
        if one.relation in blocks:
            yield from _tree(spec, blocks, one.relation, f"{margin}    ")
    for part in block.parts:
        for lateral in part.laterals:
            made = _cut(plain(shown_call(lateral)))
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
    *between, anchor = [one.name for one in block.steps(alias)[1:]]
    over = f"over {', '.join(between)} " if between else ""
    without = f", and where it is joined to rows that have none of {alias.parent} the whole is computed"
    traced = f"a change of it is traced {over}to {anchor}{without if alias.may_match_none else ''}"
    return f"{'left ' if alias.how else ''}joined on {on}; {traced}"


def how(spec: QuerySpec, block: Block) -> str:
    """Returns how a block is kept up to date, and why in this way."""
    if spec.refresh == "full":
        return "whole: all rows are computed with every change, as refresh is full"
    if block.unit is Unit.ROW:
        if len(block.aliases) == 1:
            return f"by row: a changed row of {block.anchor.name} is computed again, and no other"
        return f"by row: of {block.anchor.name} the rows that a change is joined to are joined again, and no others"
    if block.unit is Unit.UNION:
        return "by row: of each part of the UNION the rows that a change is joined to are joined again, and no others"
    values = _cut(plain(", ".join(block.values)))
    if block.unit is Unit.PARTITION:
        if not values:
            return f"whole: {_why_one(block)}, so all rows are one partition, and ranked again with every change"
        return (
            f"by partition of {values}: where a row of a partition changed, all its rows are computed again, as a "
            "window function looks at all of them"
        )
    sums = sums_of(block)
    if sums is not None and ROWS in declared_layout(spec)[block.name].names:
        of = f"groups of {values}" if values else "one group of all rows"
        also = "" if _is_surely_exact(spec, sums, block) else "; by group if a sum turns out to be of DOUBLE or FLOAT"
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


def _why_one(block: Block) -> str:
    limited = block.anchor.name == "_rows"
    return "LIMIT chooses among all rows" if limited else "there is no PARTITION BY that all window functions have"


def _is_surely_exact(spec: QuerySpec, sums: Sums, block: Block) -> bool:
    """Returns whether summed values are whole numbers or decimals, as far as the pipeline file tells the types."""
    relation = {one.name: one.relation for one in block.aliases}
    columns = [one for number in sums.summed for one in block.read_by(sums.arguments[number])]
    return all(relation.get(one.table) in spec.inputs for one in columns) and not any(
        "/" in sums.arguments[number] for number in sums.summed
    )


def _why_no_sums(block: Block) -> str:
    """Returns the part of a block for which counts and sums are not enough."""
    if block.having():
        return "HAVING, which chooses among groups"
    if block.keep is not None and block.keep.where:
        return f"the condition {_cut(plain(block.keep.where))}, which chooses among groups"
    calls = [one for one in block.tree.find_all(exp.AggFunc) if not _adds(one)]
    if calls:
        return _cut(plain(", ".join(dict.fromkeys(one.sql("spark") for one in calls))))
    if sums_of(block) is not None:
        return "a sum of DOUBLE or FLOAT, which depends on the order of its rows"
    return "an expression over more than groups, counts and sums"


def _adds(call: exp.Expr) -> bool:
    """Returns whether an aggregate is one that is kept by adding."""
    special = isinstance(call.this, exp.Distinct) or isinstance(call.parent, exp.Filter)
    return isinstance(call, exp.Count | exp.Sum | exp.Avg) and not special


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
