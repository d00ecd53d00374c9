"""The tables that a block reads, inputs and earlier blocks, at a version each; and what changed between two."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.cdc.delta import changes_between, of_result
from fk_pipeline.cdc.table_versions import Seen, are_kept
from fk_pipeline.effects import RowSet
from fk_pipeline.frames import empty
from fk_pipeline.kinds.query.blocks import GROUP_VALUE, KEY_PART, ROW, Block, Unit
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.kinds.query.tables import anchor_columns, relation_keys
from fk_pipeline.spec import quote
from fk_pipeline.store.reader import ABSENT, TableReader, keys_as
from fk_pipeline.store.schemas import Table, typed_columns
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.tables import StoredTables

CHANGE, VERSION = "_change_type", "_commit_version"
"""Columns of Delta's change feed."""


@dataclass(frozen=True)
class TableRead:
    """An input or an earlier block: its rows as a query sees them.

    Attributes:
        table: its stored columns that are read, and its key, of which no column is ever null.
        view: function from stored rows to the rows that a query sees, with the key.
        stored: whether `view` changes nothing, so that rows can be found by keys in the stored ones.
    """

    table: Table
    view: Callable[[DataFrame], DataFrame]
    stored: bool

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its key columns."""
        return self.table.keys


def relations(spec: QuerySpec, blocks: Mapping[str, Table], block: Block) -> dict[str, TableRead]:
    """Returns what a block reads, by name; `blocks` are the tables of earlier blocks."""
    found = {}
    for name in block.relations:
        if name in blocks:
            own = blocks[name]
            wanted = {*own.keys, *(column for column in own.names if column.lower() in _read(block, name))}
            columns = tuple(one for one in own.columns if one[0] in wanted)
            found[name] = TableRead(Table(name, columns, skip_by=own.skip_by, keys=own.keys), _same, True)
        else:
            found[name] = _input(spec, blocks, name)
    return found


def _read(block: Block, relation: str) -> set[str]:
    return {column for one in block.aliases if one.relation == relation for column in block.columns_of(one.name)}


def _same(rows: DataFrame) -> DataFrame:
    return rows


def _input(spec: QuerySpec, blocks: Mapping[str, Table], name: str) -> TableRead:
    side = spec.inputs[name]
    keys = tuple(key for key, _ in relation_keys(spec, blocks, name))
    table = Table(name, typed_columns(side.columns), keys=keys)
    if not (side.told_apart or side.key_of_result or side.where):
        return TableRead(table, _same, True)

    def view(rows: DataFrame) -> DataFrame:
        seen = of_result(rows, side) if side.told_apart or side.key_of_result else rows
        return seen.where(side.where) if side.where else seen

    return TableRead(table, view, False)


class Snapshot:
    """The relations of a block at one version each."""

    def __init__(
        self,
        session: SparkSession,
        found: Mapping[str, TableRead],
        places: Mapping[str, str],
        versions: Mapping[str, int],
        sizes: Sizes,
    ) -> None:
        """Opens them.

        Args:
            session: the Spark session.
            found: the relations by name.
            places: the path or URI of the table of each.
            versions: the version of each; `ABSENT` of one that has no table.
            sizes: the sizes at which rows are found in another way.
        """
        stored = StoredTables(session, "", places, sizes)
        self.relations, self.session, self.places, self.versions = found, session, places, versions
        self.reader = TableReader(stored, [one.table for one in found.values()])
        self.reader.versions |= versions

    def rows(self, name: str) -> DataFrame:
        """Returns the rows of a relation."""
        relation, version = self.relations[name], self.versions[name]
        if version == ABSENT:
            return empty(self.session, relation.table.columns)
        if relation.stored:
            return self.reader.read(name)
        whole = self.session.read.format("delta").option("versionAsOf", version).load(self.places[name])
        return relation.view(whole)

    def with_keys(self, name: str, keys: RowSet, columns: Mapping[str, str]) -> RowSet:
        """Returns the rows of a relation with some keys, and no others.

        Args:
            name: the relation.
            keys: the keys.
            columns: per column of the relation, its name in `keys`.
        """
        if self.relations[name].stored and self.versions[name] != ABSENT:
            return self.reader.exactly(name, keys, columns)
        return self.reader.cached(self.rows(name).join(keys_as(keys.frame, columns), [*columns], "left_semi"), None)

    def number(self, name: str) -> int:
        """Returns the number of stored rows of a relation."""
        return 0 if self.versions[name] == ABSENT else self.reader.rows(name)

    def is_large(self, name: str) -> bool:
        """Returns whether it is worth to look up rows of a relation by keys, rather than to read it."""
        return self.relations[name].stored and self.number(name) > self.reader.few


class Earlier:
    """The relations as they were: the rows of a snapshot with the old versions of changed rows in place of new ones."""

    def __init__(self, now: Snapshot, changed: Mapping[str, RowSet]) -> None:
        """Takes a snapshot, and per relation the outcome of `changes` up to it."""
        self.now, self.changed = now, changed

    def rows(self, name: str) -> DataFrame:
        """Returns the rows of a relation."""
        rows = self.now.rows(name)
        return rows if name not in self.changed else self._as_before(name, rows, self._old(name, rows.columns))

    def with_keys(self, name: str, rows: RowSet, keys: RowSet, columns: Mapping[str, str]) -> DataFrame:
        """Returns the rows of a relation with some keys, given those that it has now (`Snapshot.with_keys`)."""
        if name not in self.changed:
            return rows.frame
        old = self._old(name, rows.frame.columns)
        return self._as_before(name, rows.frame, old.join(keys_as(keys.frame, columns), [*columns], "left_semi"))

    def _old(self, name: str, columns: list[str]) -> DataFrame:
        """Returns the old versions of changed rows."""
        old = self.changed[name].frame.where("_fk_old IS NOT NULL").select("_fk_old.*")
        return old.select(*map(quote, columns))

    def _as_before(self, name: str, rows: DataFrame, old: DataFrame) -> DataFrame:
        keys = [*self.now.relations[name].keys]
        new = self.changed[name].frame.where("_fk_new IS NOT NULL").select("_fk_new.*").select(*map(quote, keys))
        return rows.join(F.broadcast(new), keys, "left_anti").unionByName(old)


def changes(session: SparkSession, relation: TableRead, before: Seen, after: Seen) -> DataFrame | None:
    """Returns the old and new version of every row that differs between two versions of a table; None if it is lost.

    Returns:
        `_fk_old` and `_fk_new`: structs of the columns of the relation; null where there is no such row. One row per
        key, and per changed row.
    """
    path = f"{after.location}@{before.version + 1}..{after.version}"
    if not are_kept(path):
        return None
    feed = changes_between(session, path)
    rows = _with(feed, relation.table) if relation.stored else relation.view(feed)
    row = ", ".join(quote(name) for name in rows.columns if name not in (CHANGE, VERSION))
    was = f"{CHANGE} IN ('delete', 'update_preimage')"
    ends = rows.selectExpr(
        *map(quote, relation.keys),
        f"STRUCT({was} AS was, STRUCT({row}) AS row) AS _fk_one",
        f"STRUCT({VERSION} AS version, NOT ({was}) AS is_new) AS _fk_order",
    )
    first, last = (F.expr(f"{function}(_fk_one, _fk_order)") for function in ("MIN_BY", "MAX_BY"))
    both = ends.groupBy(*map(quote, relation.keys)).agg(first.alias("_fk_first"), last.alias("_fk_last"))
    versions = both.selectExpr(
        "IF(_fk_first.was, _fk_first.row, NULL) AS _fk_old", "IF(_fk_last.was, NULL, _fk_last.row) AS _fk_new"
    )
    has_maps = "map<" in versions.schema.simpleString()  # which Spark does not compare
    return versions if has_maps else versions.where("NOT (_fk_old <=> _fk_new)")


def _with(rows: DataFrame, table: Table) -> DataFrame:
    """Returns rows of a feed with the columns of a table; one that it has got since is null."""
    there = {name.lower() for name in rows.columns}
    own = [
        quote(name) if name.lower() in there else f"CAST(NULL AS {kind}) AS {quote(name)}"
        for name, kind in table.columns
    ]
    return rows.selectExpr(*own, CHANGE, VERSION)


def more_columns(
    spec: QuerySpec, tables: Mapping[str, Table], block: Block, found: Mapping[str, TableRead]
) -> dict[str, str]:
    """Returns the columns by which rows of a block are told apart, and found again: name and SQL over joined rows."""
    values = {GROUP_VALUE.format(number): sql for number, sql in enumerate(block.values)}
    if block.unit is Unit.GROUP:
        return values
    anchors = anchor_columns(spec, tables, block)
    keys = {name: f"{quote(block.anchor.name)}.{quote(key)}" for name, key in anchors.items()}
    hashed = ROW in tables[block.name].names
    parts = [(one.name, key) for one in block.aliases[1:] for key in found[one.relation].keys] if hashed else []
    keys |= {KEY_PART.format(number): f"{quote(of)}.{quote(key)}" for number, (of, key) in enumerate(parts)}
    return keys if block.unit is Unit.ROW else keys | values


def sql_over(frames: Mapping[str, DataFrame], text: Callable[[Mapping[str, str]], str]) -> DataFrame:
    """Returns the rows of SQL over frames; `text` is a function from the names that they get to the SQL."""
    session = next(iter(frames.values())).sparkSession
    tables = {name: f"fk_{uuid.uuid4().hex}" for name in frames}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(tables[name])
    try:
        return session.sql(text(tables))
    finally:
        for view in tables.values():
            session.catalog.dropTempView(view)
