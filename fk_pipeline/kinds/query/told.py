"""What `plan` tells of a query: its blocks as a tree, how each is kept up to date, and its SQL. No Spark."""

from __future__ import annotations

from collections.abc import Iterator

from fk_pipeline.contract import Topology
from fk_pipeline.kinds.query.blocks import Block, Unit
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.kinds.query.sums import sums_of

_MOST_SHOWN = 100
"""The most characters of a condition that a line shows."""


def topology(spec: QuerySpec) -> Topology:
    """Returns the blocks as a tree, from the result to the inputs, and the SQL of each over all rows."""
    query = spec.blocks
    lines = tuple(_tree({block.name: block for block in query.blocks}, query.blocks[-1].name, ""))
    names = {block.name: block.of({one.name: one.relation for one in block.aliases}) for block in query.blocks}
    return Topology((), lines, lines, names)


def _tree(blocks: dict[str, Block], name: str, margin: str) -> Iterator[str]:
    block = blocks[name]
    yield f"{margin}{name}: {how(block)}"
    for one in block.aliases:
        join = "anchor" if one is block.anchor else f"{'left ' if one.how else ''}joined on {' AND '.join(one.path)}"
        yield f"{margin}  {one.relation} as {one.name}, {_cut(join)}{_way(block, one.name)}"
        if one.relation in blocks:
            yield from _tree(blocks, one.relation, f"{margin}    ")


def _way(block: Block, alias: str) -> str:
    """Returns the tables over which a change is traced to the anchor, if there are any between."""
    steps = [one.name for one in block.steps(next(one for one in block.aliases if one.name == alias))]
    return f"; traced by {', '.join(steps[1:])}" if len(steps) > 2 else ""


def how(block: Block) -> str:
    """Returns how a block is kept up to date, and why in this way."""
    if block.unit is Unit.ROW:
        return "by anchor: the joined rows of changed anchors are computed again"
    values = _cut(", ".join(block.values) or "nothing")
    if block.unit is Unit.PARTITION:
        return f"by partition of {values}: all rows of a touched partition are ranked again"
    if sums_of(block) is not None:
        return f"by arithmetic in groups of {values}: counts and sums; by group if a sum is of DOUBLE or FLOAT"
    return f"by group of {values}: a touched group is computed again from its rows ({_why_no_sums(block)})"


def _why_no_sums(block: Block) -> str:
    if block.having():
        return "HAVING"
    if block.keep is not None and block.keep.where:
        return f"the condition {_cut(block.keep.where)}"
    return "an aggregate other than COUNT, SUM and AVG"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
