"""Reads tables at fixed versions: whole, by batches or by keys; it hides the physical ways to find rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.effects import RowSet
from fk_pipeline.frames import empty
from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger.commits import row_metadata
from fk_pipeline.store.local import having, renamed
from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.planner import sendable
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import UNKNOWN, Sizes
from fk_pipeline.store.skipping import Between, Condition, Within, among
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
        self._widths: dict[str, int] = {}
        self._kept: list[Materialised] = []
        self._on_release: list[Callable[[], None]] = []
        self._found: dict[int, tuple[DataFrame, pa.Table]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def sizes(self) -> Sizes:
        """The sizes at which the reader changes its physical way."""
        return self.warehouse.sizes

    @property
    def few(self) -> int:
        """The largest number of rows that are brought to the driver; smaller if a table that was read has wide rows."""
        widest = max((self._width(name) for name in self.versions), default=0)
        return min(self.sizes.driver_rows, self.sizes.driver_bytes // max(1, widest))

    def _width(self, name: str) -> int:
        """Returns the average stored bytes per row of a table."""
        version, table = self.versions[name], self._tables[name]
        if name not in self._widths:
            within = self.within(s.BATCH) if s.BATCH in table.names else []
            self._widths[name] = 0 if version == ABSENT else self.warehouse.width(table, version, within)
        return self._widths[name]

    def table_of(self, name: str) -> Table:
        """Returns the declaration of a table: its columns and keys."""
        return self._tables[name]

    def metadata(self, name: str) -> Mapping[str, Any]:
        """Returns what the commit that made the rows of a table carries about them; empty if it is not known."""
        self.pin(name)
        version = self.versions.get(name, ABSENT)
        return {} if version == ABSENT else row_metadata(self.warehouse.path(name), version)

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
        return self.read(name, self.within(column))

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
        self.pin(name)
        version = self.versions.get(name, ABSENT)
        if version == ABSENT:
            return self.read(name)
        at_most = replace(self.sizes, found_bytes=self.sizes.driver_bytes)
        rows = self.warehouse.look_up(table, version, keys or {}, table.names, where, at_most)
        return self.read(name, where) if rows is None or len(rows) > self.few else self._local(rows, table, table.names)

    def greatest(self, name: str, column: str) -> int | None:
        """Returns the greatest value of such a column; None if it has none. Reads only files that may have it."""
        self.pin(name)
        version = self.versions.get(name, ABSENT)
        if version == ABSENT:
            return None
        found_here = self.warehouse.greatest(self._tables[name], version, column)
        if found_here is not None:
            return max(found_here, default=None)
        floor = self.warehouse.logs.floor(self.warehouse.path(name), version, column)
        rows = self.in_range(name, column, floor, None)
        kind = dict(self._tables[name].columns)[column].upper()
        value = f"UNIX_MICROS({quote(column)})" if kind == "TIMESTAMP" else quote(column)
        found = rows.selectExpr(f"{value} AS value").agg(F.max("value")).first()
        return None if found is None or found[0] is None else int(found[0])

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
        found = self._point_lookup(table, keys, columns, where, names)
        return found if found is not None else self._scan(table, keys, columns, where).select(*map(quote, names))

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
        found = self.with_keys(index, keys, columns)
        pairs = self.cached(found if narrow is None else narrow(found), None)
        if pairs.local is None:
            names = [*dict.fromkeys([*self._tables[name].keys, *needed])]
            if not {*columns} <= {*self._tables[name].names}:  # only the index has them
                return self.read(name).select(*map(quote, names)), UNKNOWN
            return self.with_keys(name, keys, columns, needed=needed), UNKNOWN
        own = {key: key for key in self._tables[name].keys}
        return self.with_keys(name, pairs, own, needed=needed), len(pairs.local)

    def cached(self, frame: DataFrame, at_most: int | None) -> Materialised:
        """Returns a frame that is computed once and cached until `release`, for several uses.

        Args:
            frame: the frame.
            at_most: an upper bound of its rows; None: find out by computing the frame.
        """
        found = self._found.get(id(frame))
        kept = Materialised.of(frame, at_most, self.few) if found is None else Materialised(frame, local=found[1])
        self._kept.append(kept)
        return kept

    def planned(self, frame: DataFrame, at_most: int, cached: bool = False) -> Materialised:
        """Returns a frame that is computed only when it is written; `cached` says that its input is cached."""
        return Materialised(frame, at_most, cached=cached)

    def on_release(self, free: Callable[[], None]) -> None:
        """Registers a function that `release` calls."""
        self._on_release.append(free)

    def release(self) -> None:
        """Frees the cached frames, and calls the registered functions."""
        for kept in self._kept:
            kept.release()
        for free in self._on_release:
            free()
        self._kept, self._on_release, self._found = [], [], {}

    def key_filter(self, table: Table, keys: pa.Table, columns: Mapping[str, str]) -> list[Condition]:
        """Returns conditions that rows of a table with some keys meet; none names values of a sensitive column."""
        named = {column: name for column, name in columns.items() if column not in table.sensitive}
        return among(keys, named, self.warehouse.widths(table, named), self.sizes)

    def _scan(self, table: Table, keys: RowSet, columns: Mapping[str, str], where: Sequence[Within]) -> DataFrame:
        """Returns the rows of `with_keys`, found by Spark."""
        if keys.at_most > sendable(table, columns, self.sizes):
            return self.read(table.name, where)
        wanted = F.broadcast(keys_as(keys.frame, columns))
        if keys.local is None:
            return self.read(table.name, where).join(wanted, list(columns), "left_semi")
        rows = self.read(table.name, [*where, *self.key_filter(table, keys.local, columns)])
        return F.broadcast(rows.join(wanted, list(columns), "left_semi"))

    def _point_lookup(
        self,
        table: Table,
        keys: RowSet,
        columns: Mapping[str, str],
        where: Sequence[Within],
        names: Sequence[str],
    ) -> DataFrame | None:
        """Returns the rows of `with_keys`, found in the driver; None if Spark must find them."""
        rows = self._looked_up(table, keys, columns, where, names)
        if rows is None:
            return None
        return self.frame_of(rows, table, names) if len(rows) > self.few else self._local(rows, table, names)

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
        if rows is not None and len(rows) <= self.few:
            wanted = keys.values([*dict.fromkeys(columns.values())])
            assert wanted is not None
            rows = having(rows, renamed(wanted, columns))
            return Materialised(lambda: self.frame_of(rows, table, names), local=rows)
        found = (
            self.with_keys(name, keys, columns, needed=needed) if rows is None else self.frame_of(rows, table, names)
        )
        joined = found.join(keys_as(keys.frame, columns), [*columns], "left_semi")  # puts what it joins by first
        return self.cached(joined.select(*map(quote, names)), None)

    def held(self, rows: pa.Table, columns: Sequence[tuple[str, str]]) -> Materialised:
        """Returns rows that are in the driver; `columns` are their names and types."""
        table = Table("", tuple(columns))
        return Materialised(lambda: self.frame_of(rows, table, table.names), local=rows)

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
        here = self.warehouse.reads_in_the_driver
        if version is None or version == ABSENT or keys.at_most > self.sizes.driver_keys or not here:
            return None
        wanted = keys.values([*dict.fromkeys(columns.values())])
        if wanted is None:
            return None
        named = renamed(wanted, columns)
        rows = self.warehouse.look_up(table, version, {name: named[name] for name in columns}, names, where)
        return having(rows, named) if rows is not None and len(columns) > 1 else rows

    def _local(self, rows: pa.Table, table: Table, columns: Sequence[str]) -> DataFrame:
        """Returns few rows in the driver as a frame that `cached` need not compute."""
        found = F.broadcast(self.frame_of(rows, table, columns))
        self._found[id(found)] = found, rows
        return found

    def frame_of(self, rows: pa.Table, table: Table, columns: Sequence[str]) -> DataFrame:
        """Returns rows in the driver as a frame; `columns` are the columns of the table that they come from."""
        session, kinds = self.warehouse.session, dict(table.columns)
        if len(rows):
            return session.createDataFrame(rows)
        typed = zip(rows.column_names, columns, strict=True)  # from no rows Connect infers no types
        return empty(session, [(name, kinds[column]) for name, column in typed])


def keys_as(keys: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Returns keys under the column names of a table; `columns` maps each of these to the name in `keys`."""
    return keys.select(*[F.col(quote(name)).alias(column) for column, name in columns.items()])
