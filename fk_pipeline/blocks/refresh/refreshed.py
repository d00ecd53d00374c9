"""What a refresh must know of a pipeline, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from fk_pipeline.blocks.select.block import Block
from fk_pipeline.blocks.select.query import Query
from fk_pipeline.contract import loaded
from fk_pipeline.spec import SideSpec
from fk_pipeline.store.schemas import Table


class Refreshed(Protocol):
    """A pipeline with tables that are blocks of a query. A block reads inputs, earlier blocks, and its other tables."""

    @property
    def blocks(self) -> Query:
        """The blocks that a block may read, each with the name of its stage and table."""
        ...

    def block_of(self, stage: str, table_of: Callable[[str], Table]) -> Block:
        """Returns the block of a stage; `table_of` returns the declaration of a table of the pipeline."""
        ...

    @property
    def inputs(self) -> Mapping[str, SideSpec]:
        """The inputs that blocks read where they lie, by name; a relation with another name is a table of its own."""
        ...

    @property
    def clocks(self) -> Collection[str]:
        """The names of the inputs that are clocks."""
        ...

    @property
    def refresh(self) -> Literal["auto", "incremental", "full"]:
        """How a refresh computes: what changed or the whole; only what changed; always the whole."""
        ...

    @property
    def file(self) -> Path:
        """The pipeline file, for errors."""
        ...


class OverTables:
    """What a refresh must know (`Refreshed`) of a pipeline whose result is its only block, over tables of its own."""

    @property
    def inputs(self) -> Mapping[str, SideSpec]:
        """None that a block reads where it lies: the result reads tables of the pipeline."""
        return {}

    @property
    def blocks(self) -> Query:
        """None that another block reads."""
        return Query((), ())

    @property
    def refresh(self: Any) -> Literal["auto", "full"]:
        """How the result is brought to the newest versions of the tables: by `settings.strategy`."""
        return "full" if self.settings.strategy_of(self.definition.result_stage) == "full" else "auto"


def declared_blocks(spec: Any) -> tuple[dict[str, Table], tuple[Block, ...]]:
    """Returns the tables of a pipeline by name, and its blocks in running order, as far as the file alone tells."""
    tables = {table.name: table for table in loaded(spec.definition.declared_layout)(spec).tables}
    names = [block.name for block in spec.blocks.blocks] or [spec.definition.result_stage]
    return tables, tuple(spec.block_of(name, tables.__getitem__) for name in names)
