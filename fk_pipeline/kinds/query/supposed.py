"""A block over changes of its inputs that are only supposed: its tables with them, and its rows then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.landed_versions import version_read
from fk_pipeline.blocks.refresh.changes import Changes, of_versions
from fk_pipeline.blocks.refresh.expected import Expected
from fk_pipeline.blocks.refresh.facts import VERSIONS
from fk_pipeline.blocks.refresh.refresh import Refresh
from fk_pipeline.blocks.refresh.relations import Snapshot, TableRead
from fk_pipeline.blocks.select.block import Alias, Block
from fk_pipeline.blocks.select.lineage import columns_in
from fk_pipeline.cdc.table_versions import Seen
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store.history import RunHistory
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.tables import StoredTables

_NONE = ("FALSE",)
"""The conditions of a table that is joined by columns which are not known."""


class ReadAsRefreshed(TableReader):
    """Reads the tables of a pipeline as the stage of a block does, at the versions that the block stands for."""

    def __init__(
        self, warehouse: StoredTables, tables: Mapping[str, Table], spec: QuerySpec, ledger: Ledger, stage: str
    ) -> None:
        super().__init__(warehouse, tables.values())
        self.spec, self.history = spec, RunHistory(ledger, stage, ())

    def seen(self, name: str) -> Seen | None:
        """Returns the version of a table that the block was made of; the newest if that is not known."""
        now = version_read(self, self.spec, self.history.ledger, name)
        of, version = (self.about(self.history.stage).metadata.get(VERSIONS) or {}).get(name, ("", 0))
        return replace(now, version=int(version)) if now is not None and of == now.id else now


class Supposed(Snapshot):
    """The relations of a block with changes that are only supposed."""

    def __init__(self, at: Snapshot, changed: Mapping[str, Changes]) -> None:
        """Takes the relations as they are, and per relation what would change."""
        super().__init__(at.session, at.relations, at.places, at.versions, at.reader.limits.sizes)
        self.changed = changed

    def rows(self, name: str) -> DataFrame:
        """Returns the rows of a relation."""
        rows = super().rows(name)
        if name not in self.changed:
            return rows
        old, new = (version.frame for version in self.changed[name].both)
        keys = [*self.relations[name].keys]
        remaining = rows.join(F.broadcast(old.select(*map(quote, keys))), keys, "left_anti")
        return remaining.unionByName(new.select(*map(quote, rows.columns)))

    def with_keys(self, name: str, keys: RowSet, columns: Mapping[str, str]) -> RowSet:
        """Returns the rows of a relation with some keys, and no others."""
        if name not in self.changed:
            return super().with_keys(name, keys, columns)
        requested = keys.frame.selectExpr(*(f"{quote(of)} AS {quote(own)}" for own, of in columns.items()))
        return self.reader.frames.cached(self.rows(name).join(requested, [*columns], "left_semi"), None)


class SupposedBlock:
    """What a block would be after supposed changes.

    Attributes:
        refresh: the block, and what it reads as it is.
        expected: its rows with the changes.
        unknown: the tables of its FROM that a new row, of which only the key is known, may be joined to anywhere.
    """

    def __init__(self, read: Reader, changed: Mapping[str, RowSet], new: str = "") -> None:
        """Takes the changes; `new` is an input with a new row of which only the key is known."""
        self.refresh = Refresh(read)
        block, relations = self.refresh.block, self.refresh.relations
        changes = {
            name: of_versions(read, relations[name], rows) for name, rows in changed.items() if name in block.relations
        }
        self.unknown: tuple[str, ...] = ()
        if new in block.relations:
            block, self.unknown = _by_keys(block, relations[new])
        snapshot = Supposed(self.refresh.snapshot, changes)
        read.frames.on_release(snapshot.reader.release)
        self.expected = Expected(self.refresh, block, snapshot, changes)


def _by_keys(block: Block, relation: TableRead) -> tuple[Block, tuple[str, ...]]:
    """Returns a block that joins a table by its key alone, and the aliases of it that are not joined by that."""
    aliases = tuple(_by_key(alias, block, relation) for alias in block.aliases)
    unknown = tuple(
        alias.name for alias, was in zip(aliases, block.aliases, strict=True) if alias.path == _NONE != was.path
    )
    by_name = {alias.name: alias for alias in aliases}
    branches = tuple(
        replace(branch, aliases=tuple(by_name[alias.name] for alias in branch.aliases)) for branch in block.branches
    )
    return replace(block, aliases=aliases, branches=branches), unknown


def _by_key(alias: Alias, block: Block, relation: TableRead) -> Alias:
    """Returns a table of a FROM that is joined by the conditions which read no column of it but its key."""
    if alias.relation != relation.table.name or not alias.parent:
        return alias
    keys = {key.lower() for key in relation.keys}
    known = tuple(
        sql
        for sql in alias.path
        if {column.name.lower() for column in columns_in(block, sql) if column.table == alias.name} <= keys
    )
    return replace(alias, path=known or _NONE)
