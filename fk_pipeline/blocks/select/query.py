"""A query as its blocks. No Spark."""

from __future__ import annotations

from dataclasses import dataclass

from fk_pipeline.blocks.select.block import Block
from fk_pipeline.blocks.select.lineage import Read, columns_of, plain_read, reads_of


@dataclass(frozen=True, eq=False)
class Query:
    """A query: its blocks, each after those that it reads, and the names of the columns of its result."""

    blocks: tuple[Block, ...]
    columns: tuple[str, ...]

    def block(self, name: str) -> Block:
        """Returns a block by its name."""
        return next(one for one in self.blocks if one.name == name)

    def inputs_of(self, column: str, block: str = "") -> set[Read]:
        """Returns (input, column) of what a column of a block is made of; default: of the result."""
        found: set[Read] = set()
        blocks = {one.name for one in self.blocks}
        for relation, read in reads_of(self.block(block or self.blocks[-1].name), column):
            found |= self.inputs_of(read, relation) if relation in blocks else {(relation, read)}
        return found

    def is_plain(self, column: str, block: str = "") -> bool:
        """Returns whether a column of a block is one of an input as it is; default: of the result."""
        found = plain_read(self.block(block or self.blocks[-1].name), column)
        return found is not None and (found[0] in self.inputs or self.is_plain(found[1], found[0]))

    @property
    def inputs(self) -> dict[str, set[str]]:
        """Per input, the columns that the query reads, in lower case."""
        blocks, found = {one.name for one in self.blocks}, dict[str, set[str]]()
        for block in self.blocks:
            for alias in block.aliases:
                if alias.relation not in blocks:
                    found.setdefault(alias.relation, set()).update(columns_of(block, alias.name))
        return found
