"""The reader: tables at fixed versions, whole, by batches or by keys. Every physical way to find rows is behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.effects import RowSet
from fk_pipeline.frames import empty
from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s
from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.planner import sendable
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import UNKNOWN, Sizes
from fk_pipeline.store.skipping import Condition, Within, among
from fk_pipeline.store.tables import StoredTables

ABSENT = -1
"""The version of a table that is not there."""


class TableReader:
    """Reads the tables of a pipeline, and writes nothing.

    A table is read at one version, the same however often it is asked for: a commit that is made in the meantime is
    not seen.

    Attributes:
        warehouse: where the tables lie.
        batches: the batches that the reading is about; None: all.
        versions: by table, the Delta version that is read; `ABSENT` where there must be none.
    """

    def __init__(self, warehouse: StoredTables, tables: Iterable[Table], batches: BatchRange | None = None) -> None:
        self.warehouse, self.batches = warehouse, batches
        self.versions: dict[str, int] = {}
        self._tables = {table.name: table for table in tables}
        self._widths: dict[str, int] = {}
        self._kept: list[Materialised] = []
        self._on_release: list[Callable[[], None]] = []

    @property
    def sizes(self) -> Sizes:
        """The sizes at which another way is taken."""
        return self.warehouse.sizes

    @property
    def few(self) -> int:
        """Rows that are brought to the driver, at most: fewer where a table that was opened has wide rows."""
        widest = max((self._width(name) for name in self.versions), default=0)
        return min(self.sizes.driver_rows, self.sizes.driver_bytes // max(1, widest))

    def _width(self, name: str) -> int:
        """Bytes of a row of a table as it is stored, on average."""
        version, table = self.versions[name], self._tables[name]
        if name not in self._widths:
            within = self.within(s.BATCH) if s.BATCH in table.names else []
            self._widths[name] = 0 if version == ABSENT else self.warehouse.width(table, version, within)
        return self._widths[name]

    def table_of(self, name: str) -> Table:
        """The declaration of a table: its columns and keys."""
        return self._tables[name]

    def rows(self, *names: str) -> int:
        """How many rows some tables have now, together."""
        return self.warehouse.rows(self._tables[name] for name in names)

    def pin(self, name: str) -> None:
        """Fixes the version of a table, where it exists."""
        if name not in self.versions and (version := self.warehouse.version(name)) is not None:
            self.versions[name] = version

    def read(self, name: str, where: Sequence[Condition] = ()) -> DataFrame:
        """The rows of a table that meet some conditions; none where it does not exist."""
        self.pin(name)
        version, table = self.versions.get(name), self._tables[name]
        if version == ABSENT:
            return empty(self.warehouse.session, table.columns)
        return self.warehouse.read(table, version, where)

    def of_batches(self, name: str, column: str) -> DataFrame:
        """The rows of a table that a batch column lays at the batches; all rows where the reading is about all."""
        return self.read(name, self.within(column))

    def within(self, column: str) -> list[Within]:
        """The condition that a column lies among the batches; none where the reading is about all."""
        return [] if self.batches is None else [Within(column, self.batches)]

    def with_keys(
        self,
        name: str,
        keys: RowSet,
        columns: Mapping[str, str],
        within: str = "",
        needed: Sequence[str] = (),
    ) -> DataFrame:
        """The rows of a table with some keys; all rows where the keys are too many to be sent to it.

        Args:
            name: the table.
            keys: rows with the keys.
            columns: by key column of the table, its name in `keys`.
            within: a batch column that lays the rows at the batches besides.
            needed: the columns that are looked at besides its keys; all columns if there are none.
        """
        table, where = self._tables[name], self.within(within) if within else []
        names = [*dict.fromkeys([*columns, *needed])] if needed else table.names
        found = self._point_lookup(table, keys, columns, where, names)
        return found if found is not None else self._scan(table, keys, columns, where).select(*map(quote, names))

    def through_index(
        self, index: str, name: str, keys: RowSet, columns: Mapping[str, str], needed: Sequence[str]
    ) -> tuple[DataFrame, int]:
        """The rows of an indexed state that refer to some keys of another table, or more; and a bound of their number.

        Args:
            index: its rows say which keys of the state refer to which of the other table.
            name: the state; the index has its key columns.
            keys: rows with the keys that are referred to.
            columns: by column of the index, its name in `keys`.
            needed: the columns that are looked at besides the keys of the state.
        """
        pairs = self.cached(self.with_keys(index, keys, columns), None)
        if pairs.local is None:
            return self.with_keys(name, keys, columns, needed=needed), UNKNOWN
        own = {key: key for key in self._tables[name].keys}
        return self.with_keys(name, pairs, own, needed=needed), len(pairs.local)

    def cached(self, frame: DataFrame, at_most: int | None) -> Materialised:
        """A frame that is used several times, computed once, until `release`.

        Args:
            frame: the frame.
            at_most: an upper bound of its rows; None: let the frame itself tell.
        """
        kept = Materialised.of(frame, at_most, self.few)
        self._kept.append(kept)
        return kept

    def planned(self, frame: DataFrame, at_most: int, cached: bool = False) -> Materialised:
        """A frame that is computed where it is written; `cached`: what it is computed from is."""
        return Materialised(frame, at_most, cached=cached)

    def on_release(self, free: Callable[[], None]) -> None:
        """Calls something when what was read is not needed any more."""
        self._on_release.append(free)

    def release(self) -> None:
        """Frees what is cached."""
        for kept in self._kept:
            kept.release()
        for free in self._on_release:
            free()
        self._kept, self._on_release = [], []

    def key_filter(self, table: Table, keys: pa.Table, columns: Mapping[str, str]) -> list[Condition]:
        """Conditions for the rows of a table with some keys; none that would name values of a sensitive column."""
        named = {column: name for column, name in columns.items() if column not in table.sensitive}
        return among(keys, named, self.warehouse.widths(table, named), self.sizes)

    def _scan(self, table: Table, keys: RowSet, columns: Mapping[str, str], where: Sequence[Within]) -> DataFrame:
        """What `with_keys` returns, found by Spark."""
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
        """What `with_keys` returns, found in the driver; None where Spark is to find it."""
        self.pin(table.name)
        version = self.versions.get(table.name)
        here = self.warehouse.reads_in_the_driver
        if version is None or version == ABSENT or keys.at_most > self.sizes.driver_keys or not here:
            return None
        wanted = keys.values([*columns.values()])
        if wanted is None:
            return None
        named = {column: wanted[name] for column, name in columns.items()}
        rows = self.warehouse.look_up(table, version, named, names, where)
        if rows is None:
            return None
        frame = self.frame_of(rows, table, names)
        if len(columns) > 1:
            frame = frame.join(keys_as(keys.frame, columns), list(columns), "left_semi")
        return F.broadcast(frame) if len(rows) <= self.few else frame

    def frame_of(self, rows: pa.Table, table: Table, columns: Sequence[str]) -> DataFrame:
        """Rows in the driver as a frame; `columns` are those of the table that they come from."""
        session, kinds = self.warehouse.session, dict(table.columns)
        if len(rows):
            return session.createDataFrame(rows)
        typed = zip(rows.column_names, columns, strict=True)  # from no rows Connect infers no types
        return empty(session, [(name, kinds[column]) for name, column in typed])


def keys_as(keys: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Keys under the names that they have in a table; `columns` says, per column of it, the name in `keys`."""
    return keys.select(*[F.col(quote(name)).alias(column) for column, name in columns.items()])
