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
        return next(block for block in self.blocks if block.name == name)

    def inputs_of(self, column: str, block: str = "") -> set[Read]:
        """Returns (input, column) of what a column of a block is made of; default: of the result."""
        inputs: set[Read] = set()
        blocks = {own.name for own in self.blocks}
        for relation, read in reads_of(self.block(block or self.blocks[-1].name), column):
            inputs |= self.inputs_of(read, relation) if relation in blocks else {(relation, read)}
        return inputs

    def is_plain(self, column: str, block: str = "") -> bool:
        """Returns whether a column of a block is one of an input as it is; default: of the result."""
        read = plain_read(self.block(block or self.blocks[-1].name), column)
        return read is not None and (read[0] in self.inputs or self.is_plain(read[1], read[0]))

    @property
    def inputs(self) -> dict[str, set[str]]:
        """Per input, the columns that the query reads, in lower case."""
        blocks, columns = {block.name for block in self.blocks}, dict[str, set[str]]()
        for block in self.blocks:
            for alias in block.aliases:
                if alias.relation not in blocks:
                    columns.setdefault(alias.relation, set()).update(columns_of(block, alias.name))
        return columns
