"""Reads the rows of stored tables in this process, for commands that only look: Spark takes 20 seconds to start.

The files are read by Arrow, where it reads them as Spark does. What it does not, is left to Spark (`LeftToSpark`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from fk_pipeline.conditions import RowTest, integer, scalar
from fk_pipeline.environment import storage
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.parquet_files import DAMAGED, at_once, is_exact, typed
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.row_groups import ends_of, places_of
from fk_pipeline.store.row_order import ordered
from fk_pipeline.store.sizes import READERS, Sizes
from fk_pipeline.store.table_files import StoredFile

_PHYSICAL = "delta.columnMapping.physicalName"
_COLLATED = "__COLLATIONS"

_Work = TypeVar("_Work")
_Done = TypeVar("_Done")


@dataclass(frozen=True)
class RowRequest:
    """A query of the rows of a table.

    Attributes:
        columns: the columns to return, in this order.
        where: the conditions that the rows meet.
        order: the columns by which the rows are ordered, as Spark orders them; each with whether it descends.
        limit: the most rows to return, the first ones; None: all.
    """

    columns: Sequence[str]
    where: Sequence[RowTest] = ()
    order: Sequence[tuple[str, bool]] = ()
    limit: int | None = None

    @property
    def needed(self) -> list[str]:
        """The columns, and those of the order."""
        return [*dict.fromkeys([*self.columns, *(name for name, _ in self.order)])]


class Relation(Protocol):
    """Rows that can be read here: those of a table, or of a view of tables.

    Attributes:
        schema: its columns.
    """

    @property
    def schema(self) -> pa.Schema: ...

    def read(self, query: RowRequest) -> pa.Table:
        """Returns rows.

        Raises:
            LeftToSpark: only Spark can read them.
        """
        ...


@dataclass(frozen=True)
class NoRows:
    """The rows of a table that does not exist."""

    schema: pa.Schema

    def read(self, query: RowRequest) -> pa.Table:
        """Returns no rows."""
        return _none(pa.schema([self.schema.field(name) for name in query.columns]))


@dataclass(frozen=True)
class HeldRows:
    """Rows in memory."""

    rows: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """Their columns."""
        return self.rows.schema

    def read(self, query: RowRequest) -> pa.Table:
        """Returns some of them."""
        rows = self.rows
        for test in query.where:
            rows = rows.filter(test.mask(rows))
        return _first([rows.select(query.needed)], query).select([*query.columns]).combine_chunks()


@dataclass(frozen=True)
class InProcessTable:
    """A table at its current version.

    Attributes:
        files: its files.
        schema: its columns.
        physical: per column, its name in the files.
        sizes: the limits for reading in this process.
    """

    files: Sequence[StoredFile]
    schema: pa.Schema
    physical: Mapping[str, str]
    sizes: Sizes

    @classmethod
    def of(cls, logs: DeltaLogs, path: str, sizes: Sizes) -> InProcessTable | None:
        """Returns a table; None if it does not exist.

        Raises:
            LeftToSpark: only Spark can read it.
        """
        with leaving_errors():
            table = logs.table(path)
            if table is None:
                return None
            stored = json.loads(table.schema().to_json())
            fields = {field["name"]: field for field in stored["fields"]}
            mapped = {name: field["metadata"].get(_PHYSICAL, name) for name, field in fields.items()}
            if any(_PHYSICAL in json.dumps(field["type"]) for field in fields.values()):
                raise LeftToSpark("the table has fields of structs under other names")
            if _COLLATED in json.dumps(stored):
                raise LeftToSpark("the table has texts with a collation")
            schema = to_arrow_schema(T.StructType.fromJson(stored).toNullable(), timezone="UTC")
            return cls(logs.files(path), schema, mapped, sizes)

    @property
    def rows(self) -> int:
        """The number of its rows, with those in deletion vectors."""
        return sum(file.rows for file in self.files)

    def parts(self, query: RowRequest) -> Iterator[pa.Table]:
        """Yields rows as `read` returns them, but in the order of the files, and `limit` times more.

        Raises:
            LeftToSpark: only Spark can read them.
        """
        with leaving_errors():
            yield from _Reading(self, query).parts()

    def read(self, query: RowRequest) -> pa.Table:
        """Returns rows.

        Raises:
            LeftToSpark: only Spark can read them, or they are too many for the memory of this process.
        """
        with leaving_errors():
            return gathered(_Reading(self, query).parts(), self.schema, query, self.sizes)


def gathered(parts: Iterable[pa.Table], schema: pa.Schema, query: RowRequest, sizes: Sizes) -> pa.Table:
    """Returns the rows of a query from parts whose rows meet its conditions and also have the columns of its order.

    Raises:
        LeftToSpark: they are too many for the memory of this process.
    """
    rows, size, number = [_none(pa.schema([schema.field(name) for name in query.needed]))], 0, 0
    for part in parts:
        rows.append(part)
        size, number = size + part.nbytes, number + len(part)
        if query.limit is not None and number >= query.limit:
            if not query.order:
                break
            if number > max(query.limit, sizes.batch_rows):
                rows = [_first(rows, query)]
                size, number = rows[0].nbytes, len(rows[0])
        if size > sizes.found_bytes:
            raise LeftToSpark(f"the rows are more than {sizes.found_bytes >> 20:,} megabytes")
    return _first(rows, query).select([*query.columns]).combine_chunks()


def _none(schema: pa.Schema) -> pa.Table:
    """Returns no rows; `empty_table` would import pandas, which takes half a second."""
    return pa.Table.from_arrays([pa.nulls(0, dtype) for dtype in schema.types], schema=schema)


def _first(parts: Sequence[pa.Table], query: RowRequest) -> pa.Table:
    return ordered(pa.concat_tables(parts), query.order).slice(0, query.limit)


@contextmanager
def leaving_errors() -> Iterator[None]:
    """Leaves what raises an error of a file or a log to Spark, which reports it."""
    try:
        yield
    except (DeltaError, *DAMAGED) as error:
        raise LeftToSpark(f"it cannot be read without Spark ({type(error).__name__})") from error


@dataclass(frozen=True)
class _Reading:
    """A query of a table that is being answered."""

    table: InProcessTable
    query: RowRequest

    def parts(self) -> Iterator[pa.Table]:
        """Yields the rows that meet the conditions, with the columns of their order."""
        if not self._is_short and sum(file.bytes for file in self.table.files) > self.table.sizes.scanned_in_process:
            raise LeftToSpark(f"the table has {self.table.rows:,} rows")
        with ThreadPoolExecutor(READERS) as pool:
            for tables in in_order(pool, self._groups(), self._in_group, 0 if self._is_short else 2 * READERS):
                yield from tables

    @property
    def _is_short(self) -> bool:
        """Whether the first rows of the files will do."""
        return not self.query.where and not self.query.order and self.query.limit is not None

    def _groups(self) -> Iterator[_Group]:
        """Yields the row groups that may have rows that meet the conditions."""
        compared = sorted(frozenset().union(*(test.columns for test in self.query.where)))
        needed = {*self.query.needed, *compared}
        for file in self.table.files:
            with _opened(file.path) as stored:
                metadata = stored.metadata
                present = {*stored.schema_arrow.names}
            names = {self.table.physical[name]: name for name in self.table.schema.names if name not in file.parts}
            if {name.lower() for name in {*names} - present} & {name.lower() for name in present}:
                raise LeftToSpark("a file has columns in another case")  # Spark takes them as equal
            inside = {stored: name for stored, name in names.items() if stored in present and name in needed}
            if not is_exact(metadata, {*inside}):
                raise LeftToSpark("a file has times in a form that only Spark reads")
            start, places = 0, places_of(metadata, [self.table.physical[name] for name in compared])
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                if group.num_rows and all(test.may_meet(self._ends(group, places)) for test in self.query.where):
                    yield _Group(file, metadata, number, start, inside)
                start += group.num_rows

    def _ends(self, group: pq.RowGroupMetaData, places: Mapping[str, int]) -> Callable[[str], tuple[Any, Any] | None]:
        def ends(column: str) -> tuple[Any, Any] | None:
            place = places.get(self.table.physical[column])
            return (
                None if place is None else ends_of(group.column(place).statistics, self.table.schema.field(column).type)
            )

        return ends

    def _in_group(self, group: _Group) -> list[pa.Table]:
        """Returns the rows of a row group that meet the conditions."""
        compared = {*frozenset().union(*(test.columns for test in self.query.where))}
        needed = {*self.query.needed}
        tables: list[pa.Table] = []
        with _opened(group.file.path, group.metadata) as file:
            if compared and compared != needed and not self._has_some(file, group, compared):
                return tables
            number = 0
            for at, rows in self._batches(file, group, needed | compared):
                tables.append(self._chosen(rows, at, group).select(self.query.needed))
                number += len(tables[-1])
                if self.query.limit is not None and not self.query.order and number >= self.query.limit:
                    break
        return tables

    def _has_some(self, file: pq.ParquetFile, group: _Group, compared: set[str]) -> bool:
        """Returns whether a row group has rows that meet the conditions; most have none, and few columns tell that."""
        return any(len(self._chosen(rows, at, group)) for at, rows in self._batches(file, group, compared))

    def _chosen(self, rows: pa.Table, at: int, group: _Group) -> pa.Table:
        """Returns the rows that are not deleted and meet the conditions; `at`: the index of the first in the file."""
        deleted = group.file.deleted
        if len(deleted):
            deleted = pc.subtract(deleted, integer(at))
            inside = pc.and_(pc.greater_equal(deleted, integer(0)), pc.less(deleted, integer(len(rows))))
            deleted = deleted.filter(inside)
        masks = [test.mask(rows) for test in self.query.where]
        if not masks and not len(deleted):
            return rows
        mask = reduce(pc.and_, masks) if masks else pa.nulls(len(rows), pa.int8()).is_null()
        places = pc.indices_nonzero(mask).cast(pa.int64())  # neither false nor null
        if len(deleted):
            places = places.filter(pc.invert(pc.is_in(places, deleted)))
        return rows.take(places)

    def _batches(self, file: pq.ParquetFile, group: _Group, names: set[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yields some columns of the rows of a row group, named and typed as in the table, after their first index."""
        sizes = self.table.sizes
        size = at_once(group.metadata, sizes.decoded_rows, sizes.decoded_bytes)
        if self._is_short and self.query.limit is not None:
            size = min(size, self.query.limit + len(group.file.deleted))
        schema = pa.schema([field for field in self.table.schema if field.name in names])
        stored = [name for name, own in group.columns.items() if own in names]
        at = group.start
        for batch in file.iter_batches(size, [group.number], columns=stored, use_threads=False):
            renamed = batch.rename_columns([group.columns[name] for name in batch.schema.names])
            yield at, self._with_parts(typed(renamed, schema), group.file.parts)
            at += len(batch)

    def _with_parts(self, rows: pa.Table, parts: Mapping[str, Any]) -> pa.Table:
        """Returns rows with the values of partition columns, which the file does not have."""
        for name, value in parts.items():
            if name in rows.column_names and value is not None:
                field = rows.schema.field(name)
                values = pa.repeat(scalar(value), len(rows)).cast(field.type)
                rows = rows.set_column(rows.column_names.index(name), field, values)
        return rows


@dataclass(frozen=True)
class _Group:
    """A row group.

    Attributes:
        file: its file.
        metadata: of the file.
        number: of the row group, from 0.
        start: the index of its first row in the file.
        columns: per column of the file that is needed, its name in the table.
    """

    file: StoredFile
    metadata: pq.FileMetaData
    number: int
    start: int
    columns: Mapping[str, str]


@contextmanager
def _opened(path: str, metadata: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    if "://" not in path:
        with pq.ParquetFile(path, metadata=metadata) as file:
            yield file
        return
    with storage.opened(path) as stream, pq.ParquetFile(stream, metadata=metadata, pre_buffer=True) as file:
        yield file


def in_order(
    pool: ThreadPoolExecutor, works: Iterable[_Work], do: Callable[[_Work], _Done], ahead: int
) -> Iterator[_Done]:
    """Yields what is done in a pool, in the order of the works; at most `ahead` are begun before they are needed."""
    begun: deque[Future[_Done]] = deque()
    try:
        for work in works:
            begun.append(pool.submit(do, work))
            if len(begun) > ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()
