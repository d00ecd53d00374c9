"""The stages and tables of a query, which follow from its blocks. No Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fk_pipeline.blocks.select.block import Block, Unit
from fk_pipeline.blocks.select.generators import shown_call
from fk_pipeline.blocks.select.query import Query
from fk_pipeline.contract import Input, Kind, Role, StageDef, TableDef
from fk_pipeline.identity import ADDED, REMOVED, WRITTEN, Side
from fk_pipeline.kinds.query.kind import PACKAGE, QUERY, REFRESH, RESULT
from fk_pipeline.spec.sql import quote

_RESULT = "The rows of the query.\n"

_UNIT = {
    Unit.ROW: "The joined rows of a changed anchor replace those that it had.",
    Unit.GROUP: "The groups in which the joined rows of changed anchors stood and stand are computed again.",
    Unit.UNION: "The joined rows of a changed anchor of a part replace those that it had.",
    Unit.PARTITION: "The partitions in which the joined rows of changed anchors stood and stand are computed again.",
}
"""Per unit of a block, what a refresh computes."""


def kind_of(query: Query, inputs: Iterable[str]) -> Kind:
    """Returns the kind with the inputs, tables and stages of a query."""
    names = [block.name for block in query.blocks]
    stages = tuple(_stage(block, names) for block in query.blocks)
    first = {name: next((stage.name for stage in stages if name in stage.inputs), RESULT) for name in inputs}
    return replace(
        QUERY,
        inputs=tuple(Input(Side(name), first[name], "") for name in inputs),
        tables=tuple(TableDef(name, Role.RESULT if name == RESULT else Role.BLOCK, name) for name in names),
        stages=stages,
        rebuilt_by={"query": tuple(names)},
    )


def _stage(block: Block, blocks: Iterable[str]) -> StageDef:
    read = tuple(relation for relation in block.relations if relation in blocks)
    return StageDef(
        block.name,
        description=described(block),
        upstream=read,
        reads=(*read, block.name),
        inputs=tuple(Side(relation) for relation in block.relations if relation not in read),
        counts={"changed": (ADDED, WRITTEN, REMOVED)},
        full_share=0.3,
        run=f"{REFRESH}.stages:block",
        views=f"{PACKAGE}.rules:block_views",
    )


def _from(block: Block) -> str:
    joined = [
        f"{'left ' if alias.how else ''}joined to {quote(alias.relation)} as {alias.name}"
        for alias in block.aliases[1:]
    ]
    made = [f"each with the rows that {shown_call(lateral)} makes of it" for lateral in block.laterals]
    return ", ".join([f"{quote(block.anchor.relation)} as {block.anchor.name} (the anchor)", *joined, *made])


def described(block: Block) -> str:
    """Returns what a block is, in Markdown."""
    from_ = "; and of ".join(map(_from, block.parts))
    by = ", ".join(block.values)
    unit = {
        Unit.ROW: "",
        Unit.UNION: ", one after the other (UNION ALL)",
        Unit.GROUP: f" grouped by {by or 'nothing'}",
        Unit.PARTITION: f" in partitions by {by or 'nothing'}",
    }
    what = _RESULT if block.name == RESULT else "A block of the query.\n"
    return f"{what}\nRows of {from_}{unit[block.unit]}. {_UNIT[block.unit]}\n"
