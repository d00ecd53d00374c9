"""The tables that a block reads, inputs and tables of the pipeline itself, at a version each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.blocks.refresh.clocks import clock_in_process, row_of_clock
from fk_pipeline.blocks.refresh.refreshed import Refreshed
from fk_pipeline.blocks.refresh.tables import anchor_columns, is_compared_as_stored
from fk_pipeline.blocks.select.block import ANCHOR, BRANCH, GROUP_VALUE, KEY_PART, ROW, Block, Unit
from fk_pipeline.blocks.select.lineage import columns_of
from fk_pipeline.cdc.delta import of_result
from fk_pipeline.frames import empty
from fk_pipeline.spec import quote
from fk_pipeline.spec.inputs import CLOCK
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.local import distinct, having, lacking, renamed
from fk_pipeline.store.reader import ABSENT, TableReader, keys_as
from fk_pipeline.store.schemas import Table, typed_columns
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.tables import StoredTables


@dataclass(frozen=True)
class TableRead:
    """An input or a table of the pipeline itself: its rows as a query sees them.

    Attributes:
        table: its stored columns that are read, and its key, of which no column is ever null.
        view: function from stored rows to the rows that a query sees, with the key.
        stored: whether `view` changes nothing, so that rows can be found by keys in the stored ones.
        declared: whether only the pipeline file says that its key is unique and never null (`keys`).
        is_clock: whether it is a clock, of which nothing is stored.
        is_state: whether a deleted row stays, without a hash: one that is there no more was removed as too old, which
            is no change.
    """

    table: Table
    view: Callable[[DataFrame], DataFrame]
    stored: bool
    declared: bool = False
    is_clock: bool = False
    is_state: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its key columns."""
        return self.table.keys

    @property
    def is_comparable(self) -> bool:
        """Whether two keys are equal if, and only if, they are stored alike."""
        dtypes = dict(self.table.columns)
        return all(is_compared_as_stored(dtypes[key].upper()) for key in self.keys)


def relations(spec: Refreshed, own: Mapping[str, Table], block: Block) -> dict[str, TableRead]:
    """Returns what a block reads, by name; `own` are the tables of the pipeline among it, such as earlier blocks."""
    by_name = {}
    for name in block.relations:
        if name in own:
            table = own[name]
            names = {*table.keys, *(column for column in table.names if column.lower() in _read(block, name))}
            columns = tuple(column for column in table.columns if column[0] in names)
            read = Table(name, columns, skip_by=table.skip_by, keys=table.keys, sensitive=table.sensitive)
            by_name[name] = TableRead(read, _same, True, is_state=s.OWNER in table.names)
        elif name in spec.clocks:
            names = {CLOCK, *_read(block, name)}
            columns = typed_columns([column for column in spec.inputs[name].columns if column.name in names])
            by_name[name] = TableRead(Table(name, columns, keys=(CLOCK,)), _same, False, is_clock=True)
        else:
            by_name[name] = _input(spec, name)
    return by_name


def _read(block: Block, relation: str) -> set[str]:
    return {column for alias in block.aliases if alias.relation == relation for column in columns_of(block, alias.name)}


def _same(rows: DataFrame) -> DataFrame:
    return rows


def _input(spec: Refreshed, name: str) -> TableRead:
    side = spec.inputs[name]
    keys = tuple(key.name for key in side.key_columns)
    table = Table(name, typed_columns(side.columns), keys=keys, sensitive=frozenset(side.sensitive))
    if not (side.told_apart or side.key_of_result or side.where):
        return TableRead(table, _same, True, declared=side.pipeline is None)

    def view(rows: DataFrame) -> DataFrame:
        seen = of_result(rows, side) if side.told_apart or side.key_of_result else rows
        return seen.where(side.where) if side.where else seen

    return TableRead(table, view, False, declared=side.pipeline is None)


class Snapshot:
    """The relations of a block at one version each."""

    def __init__(
        self,
        session: SparkSession,
        relations: Mapping[str, TableRead],
        places: Mapping[str, str],
        versions: Mapping[str, int],
        sizes: Sizes,
    ) -> None:
        """Opens them.

        Args:
            session: the Spark session.
            relations: the relations by name.
            places: the path or URI of the table of each.
            versions: the version of each; `ABSENT` of one that has no table.
            sizes: the sizes at which rows are found in another way.
        """
        stored = StoredTables(session, "", places, sizes)
        self.relations, self.session, self.places, self.versions = relations, session, places, versions
        self.reader = TableReader(stored, [relation.table for relation in relations.values()])
        self.reader.versions |= versions
        self._known: dict[str, tuple[pa.Table, pa.Table]] = {}

    def rows(self, name: str) -> DataFrame:
        """Returns the rows of a relation."""
        relation, version = self.relations[name], self.versions[name]
        if version == ABSENT:
            return empty(self.session, relation.table.columns)
        if relation.is_clock:
            row = row_of_clock(self.session, self.places[name], version)
            return row.select(*map(quote, relation.table.names))
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
        relation = self.relations[name]
        if relation.is_clock and keys.local is not None:
            return self.held(name, having(self.shown(name, self.versions[name]), renamed(keys.local, columns)))
        if not relation.stored or self.versions[name] == ABSENT:
            return self.reader.frames.cached(
                self.rows(name).join(keys_as(keys.frame, columns), [*columns], "left_semi"), None
            )
        rows = self._known_with_keys(name, keys, columns) or self.reader.exactly(name, keys, columns)
        if rows.local is not None:
            self.knows(name, rows.local, rows.local)
        return rows

    def shown(self, name: str, version: int) -> pa.Table:
        """Returns what a clock shows at a version: one row; none if it was not there."""
        return clock_in_process(self.places.get(name, ""), version, self.relations[name].table.names)

    def knows(self, name: str, rows: pa.Table, others: pa.Table) -> None:
        """Takes rows of a relation, to look them up no more; of the keys of both there are no other rows."""
        relation = self.relations[name]
        if not relation.stored or not relation.is_comparable:
            return
        by, rows = [*relation.keys], rows.select(relation.table.names)
        known, keys = self._known.get(name, (rows.slice(0, 0), rows.select(by).slice(0, 0)))
        known = pa.concat_tables([known, lacking(rows, known.select(by)).cast(known.schema)]).combine_chunks()
        keys = pa.concat_tables([keys, *(table.select(by).cast(keys.schema) for table in (rows, others))])
        self._known[name] = known, distinct([keys], by)

    def _known_with_keys(self, name: str, keys: RowSet, columns: Mapping[str, str]) -> RowSet | None:
        """Returns what `with_keys` does, and looks up only keys that are not known; None if no key is known."""
        relation = self.relations[name]
        if name not in self._known or keys.local is None or {*columns} != {*relation.keys}:
            return None
        (known, known_keys), dtypes = self._known[name], dict(relation.table.columns)
        requested = renamed(keys.local, columns)
        rest, parts = lacking(requested, known_keys), [having(known, requested)]
        if len(rest):
            held = self.reader.frames.held(rest, [(key, dtypes[key]) for key in columns])
            rows = self.reader.exactly(name, held, {key: key for key in columns})
            if rows.local is None:  # many, and found by Spark: the known ones are added
                known_rows = self.held(name, parts[0]).frame
                return self.reader.frames.cached(
                    known_rows.unionByName(rows.frame.select(*map(quote, known_rows.columns))), None
                )
            parts.append(rows.local.select(known.column_names).cast(known.schema))
        return self.held(name, pa.concat_tables(parts).combine_chunks())

    def held(self, name: str, rows: pa.Table, *more: tuple[str, str]) -> RowSet:
        """Returns rows in the driver with the columns of a relation, and more (name and type)."""
        return self.reader.frames.held(rows, (*self.relations[name].table.columns, *more))

    def number(self, name: str) -> int:
        """Returns the number of stored rows of a relation; of a clock 1."""
        if self.relations[name].is_clock:
            return 1
        return 0 if self.versions[name] == ABSENT else self.reader.about(name).rows

    def is_looked_up(self, name: str) -> bool:
        """Returns whether it is worth to look up rows of a relation by few keys, rather than to read it."""
        in_driver = self.reader.warehouse.reads_in_the_driver
        return self.relations[name].stored and (in_driver or self.number(name) > self.reader.limits.in_driver)


def more_columns(
    spec: Refreshed, tables: Mapping[str, Table], block: Block, relations: Mapping[str, TableRead]
) -> dict[str, str]:
    """Returns the columns by which rows of a block are told apart, and found again: name and SQL over joined rows."""
    if block.branches:
        return {}
    values = {GROUP_VALUE.format(number): sql for number, sql in enumerate(block.values)}
    if block.unit is Unit.GROUP:
        return values
    anchors = anchor_columns(spec, tables, block)
    keys = {name: f"{quote(block.anchor.name)}.{quote(key)}" for name, key in anchors.items()}
    hashed = ROW in tables[block.name].names
    others = [alias for alias in block.aliases[1:] if not alias.is_single and alias.how != "ANTI"]
    parts = [(alias.name, key) for alias in others for key in relations[alias.relation].keys] if hashed else []
    apart = [*(f"{quote(of)}.{quote(key)}" for of, key in parts), *block.positions]
    keys |= {KEY_PART.format(number): sql for number, sql in enumerate(apart)}
    return keys if block.unit is Unit.ROW else keys | values


def row_key(rows: DataFrame, block: Block) -> list[str]:
    """Returns the columns, of rows with `more_columns`, whose hash tells the rows of a block apart."""
    own = (GROUP_VALUE,) if block.unit is Unit.GROUP else (BRANCH, ANCHOR, KEY_PART)
    return [name for name in rows.columns if name.startswith(tuple(prefix.format("") for prefix in own))]


def columns_of_part(
    spec: Refreshed, tables: Mapping[str, Table], block: Block, place: int, relations: Mapping[str, TableRead]
) -> dict[str, str]:
    """Returns `more_columns` of a part of a block, by its place, from 0; of a branch of a UNION ALL its number, too."""
    number = {BRANCH: str(place)} if block.branches else {}
    return number | more_columns(spec, tables, block.parts[place], relations)
