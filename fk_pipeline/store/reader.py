"""Reads tables at fixed versions: whole, by batches or by keys; it hides the physical ways to find rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.frames import empty
from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store.ledger.commits import row_metadata
from fk_pipeline.store.limits import Limits, sendable
from fk_pipeline.store.local import having, renamed
from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.row_sets import RowSets
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import UNKNOWN
from fk_pipeline.store.skipping import Between, Condition, InRange, Within, among
from fk_pipeline.store.tables import StoredTables

ABSENT = -1
"""The version that stands for a table that does not exist."""


class TableReader:
    """Reads the tables of a pipeline, and writes nothing.

    Every read of a table returns the same version, so a commit in the meantime is not seen. A `with` block releases it.

    Attributes:
        warehouse: the tables.
        batches: the batches that the reader is for; None: all.
        versions: per table, the Delta version that is read; `ABSENT` where the table is read as not existing.
    """

    def __init__(self, warehouse: StoredTables, tables: Iterable[Table], batches: BatchRange | None = None) -> None:
        self.warehouse, self.batches = warehouse, batches
        self.versions: dict[str, int] = {}
        self._tables = {table.name: table for table in tables}
        self.limits = Limits(warehouse, self._tables, self.versions, batches)
        self.frames = RowSets(warehouse.session, lambda: self.limits.in_driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Frees the row sets."""
        self.frames.release()

    def table_of(self, name: str) -> Table:
        """Returns the declaration of a table: its columns and keys."""
        return self._tables[name]

    def about(self, name: str) -> PinnedTable:
        """Returns what is known about a table without reading its rows."""
        return PinnedTable(self, name)

    def rows(self, *names: str) -> int:
        """Returns the current number of rows of some tables together."""
        return self.warehouse.rows(self._tables[name] for name in names)

    def pin(self, name: str) -> None:
        """Fixes the version of a table, if the table exists."""
        if name not in self.versions and (version := self.warehouse.version(name)) is not None:
            self.versions[name] = version

    def read(self, name: str, where: Sequence[Condition] = ()) -> DataFrame:
        """Returns the rows of a table that meet some conditions; none if the table does not exist."""
        self.pin(name)
        version, table = self.versions.get(name), self._tables[name]
        if version == ABSENT:
            return empty(self.warehouse.session, table.columns)
        return self.warehouse.read(table, version, where)

    def of_batches(self, name: str, column: str) -> DataFrame:
        """Returns the rows of a table with a batch column in the batches; all rows if the reader is for all batches."""
        where = self.within(column)
        rows = self._in_driver(name, where, {}) if where else None
        if rows is None:
            return self.read(name, where)
        table = self._tables[name]
        return self.frames.in_hand(rows, table, table.names, broadcast=False)

    def _in_driver(self, name: str, where: Sequence[InRange], keys: Mapping[str, pa.ChunkedArray]) -> pa.Table | None:
        """Returns the rows of a table that meet some conditions, if they are few and the driver may read them."""
        self.pin(name)
        version, table = self.versions.get(name, ABSENT), self._tables[name]
        if version == ABSENT:
            return None
        at_most = replace(self.warehouse.sizes, found_bytes=self.warehouse.sizes.driver_bytes)
        rows = self.warehouse.look_up(table, version, keys, table.names, where, at_most)
        return rows if rows is not None and len(rows) <= self.limits.in_driver else None

    def in_range(
        self,
        name: str,
        column: str,
        low: int | None,
        high: int | None,
        keys: Mapping[str, pa.ChunkedArray] | None = None,
    ) -> DataFrame:
        """Returns the rows of a table whose value in a column is at least `low` and less than `high`; null is not.

        Args:
            name: the table.
            column: a column with BIGINT, or with TIMESTAMP, which counts in microseconds since 1970.
            low: the least value; None: any.
            high: the least value above the range; None: any.
            keys: per key column, values; a row with another value may be left out.
        """
        table = self._tables[name]
        where = [Between.of(table, column, low, high)]
        rows = self._in_driver(name, where, keys or {})
        return self.read(name, where) if rows is None else self.frames.in_hand(rows, table, table.names)

    def greatest(self, name: str, column: str) -> int | None:
        """Returns the greatest value of such a column; None if it has none. Reads only files that may have it."""
        self.pin(name)
        version = self.versions.get(name, ABSENT)
        if version == ABSENT:
            return None
        values = self.warehouse.greatest(self._tables[name], version, column)
        if values is not None:
            return max(values, default=None)
        floor = self.warehouse.logs.floor(self.warehouse.path(name), version, column)
        rows = self.in_range(name, column, floor, None)
        dtype = dict(self._tables[name].columns)[column].upper()
        value = f"UNIX_MICROS({quote(column)})" if dtype == "TIMESTAMP" else quote(column)
        row = rows.selectExpr(f"{value} AS value").agg(F.max("value")).first()
        return None if row is None or row[0] is None else int(row[0])

    def within(self, column: str) -> list[Within]:
        """Returns the condition that a column is in the batches, as a list; empty if the reader is for all batches."""
        return [] if self.batches is None else [Within(column, self.batches)]

    def with_keys(
        self,
        name: str,
        keys: RowSet,
        columns: Mapping[str, str],
        within: str = "",
        needed: Sequence[str] = (),
    ) -> DataFrame:
        """Returns the rows of a table with some keys; all rows if there are too many keys to send to it.

        Args:
            name: the table.
            keys: rows with the keys.
            columns: per key column of the table, its name in `keys`.
            within: a batch column; if given, only rows with a value in the batches are returned.
            needed: the columns to return besides the key columns; all columns if empty.
        """
        table, where = self._tables[name], self.within(within) if within else []
        names = [*dict.fromkeys([*columns, *needed])] if needed else table.names
        rows = self._looked_up(table, keys, columns, where, names)
        if rows is None:
            return self._scan(table, keys, columns, where).select(*map(quote, names))
        small = len(rows) <= self.limits.in_driver
        return self.frames.in_hand(rows, table, names) if small else self.frames.frame_of(rows, table, names)

    def through_index(
        self,
        index: str,
        name: str,
        keys: RowSet,
        columns: Mapping[str, str],
        needed: Sequence[str],
        narrow: Callable[[DataFrame], DataFrame] | None = None,
    ) -> tuple[DataFrame, int]:
        """Returns rows of an indexed state that refer to keys of another table, or more, and a bound of their number.

        Args:
            index: the index table; its rows map keys of the other table to the keys of the state that refer to them.
            name: the state; the index has its key columns.
            keys: rows with the keys that are referred to.
            columns: per column of the index, its name in `keys`.
            needed: the columns to return besides the keys of the state.
            narrow: function that returns those rows of the index that count, of its rows with the keys or more.
        """
        entries = self.with_keys(index, keys, columns)
        pairs = self.frames.cached(entries if narrow is None else narrow(entries), None)
        if pairs.local is None:
            names = [*dict.fromkeys([*self._tables[name].keys, *needed])]
            if not {*columns} <= {*self._tables[name].names}:  # only the index has them
                return self.read(name).select(*map(quote, names)), UNKNOWN
            return self.with_keys(name, keys, columns, needed=needed), UNKNOWN
        own = {key: key for key in self._tables[name].keys}
        return self.with_keys(name, pairs, own, needed=needed), len(pairs.local)

    def key_filter(self, table: Table, keys: pa.Table, columns: Mapping[str, str]) -> list[Condition]:
        """Returns conditions that rows of a table with some keys meet; none names values of a sensitive column."""
        named = {column: name for column, name in columns.items() if column not in table.sensitive}
        return among(keys, named, self.warehouse.widths(table, named), self.warehouse.sizes)

    def _scan(self, table: Table, keys: RowSet, columns: Mapping[str, str], where: Sequence[Within]) -> DataFrame:
        """Returns the rows of `with_keys`, found by Spark."""
        if keys.at_most > sendable(table, columns, self.warehouse.sizes):
            return self.read(table.name, where)
        key_rows = F.broadcast(keys_as(keys.frame, columns))
        if keys.local is None:
            return self.read(table.name, where).join(key_rows, list(columns), "left_semi")
        rows = self.read(table.name, [*where, *self.key_filter(table, keys.local, columns)])
        return F.broadcast(rows.join(key_rows, list(columns), "left_semi"))

    def exactly(self, name: str, keys: RowSet, columns: Mapping[str, str], needed: Sequence[str] = ()) -> Materialised:
        """Returns the rows of a table with some keys, and no others, computed once.

        Args:
            name: the table.
            keys: rows with the keys.
            columns: per key column of the table, its name in `keys`.
            needed: the columns to return besides the key columns; all columns if empty.
        """
        table = self._tables[name]
        names = [*dict.fromkeys([*columns, *needed])] if needed else table.names
        rows = self._looked_up(table, keys, columns, (), names)
        if rows is not None and len(rows) <= self.limits.in_driver:
            values = keys.values([*dict.fromkeys(columns.values())])
            assert values is not None
            rows = having(rows, renamed(values, columns))
            return Materialised(lambda: self.frames.frame_of(rows, table, names), local=rows)
        candidates = (
            self.with_keys(name, keys, columns, needed=needed)
            if rows is None
            else self.frames.frame_of(rows, table, names)
        )
        joined = candidates.join(keys_as(keys.frame, columns), [*columns], "left_semi")  # puts what it joins by first
        return self.frames.cached(joined.select(*map(quote, names)), None)

    def _looked_up(
        self,
        table: Table,
        keys: RowSet,
        columns: Mapping[str, str],
        where: Sequence[Within],
        names: Sequence[str],
    ) -> pa.Table | None:
        """Returns the rows of `with_keys` in the driver; None if Spark must find them."""
        self.pin(table.name)
        version = self.versions.get(table.name)
        local = self.warehouse.reads_in_the_driver
        if version is None or version == ABSENT or keys.at_most > self.warehouse.sizes.driver_keys or not local:
            return None
        values = keys.values([*dict.fromkeys(columns.values())])
        if values is None:
            return None
        named = renamed(values, columns)
        rows = self.warehouse.look_up(table, version, {name: named[name] for name in columns}, names, where)
        return having(rows, named) if rows is not None and len(columns) > 1 else rows


class PinnedTable:
    """What is known about a table that a reader reads at one version; see `fk_pipeline.stage_input.TableFacts`."""

    def __init__(self, read: TableReader, name: str) -> None:
        self._read, self._name = read, name

    @property
    def declared(self) -> Table:
        """Its columns and keys."""
        return self._read.table_of(self._name)

    def fix(self) -> None:
        """Fixes the version that is read, if there is a table."""
        self._read.pin(self._name)

    @property
    def version(self) -> int | None:
        """The version that is read; None if there is no table, `ABSENT` if it is read as not existing."""
        self.fix()
        return self._read.versions.get(self._name)

    @property
    def is_newest(self) -> bool:
        """Whether there is no newer version than the one that is read."""
        return self._read.warehouse.version(self._name) == self.version

    @property
    def rows(self) -> int:
        """The number of rows of its newest version."""
        return self._read.rows(self._name)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the commit that made its rows carries about them; empty if it is not known."""
        version = self.version
        return {} if version in (None, ABSENT) else row_metadata(self._read.warehouse.path(self._name), version)


def keys_as(keys: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Returns keys under the column names of a table; `columns` maps each of these to the name in `keys`."""
    return keys.select(*[F.col(quote(name)).alias(column) for column, name in columns.items()])
