"""Searches the Parquet files of a table for rows, in the driver: DuckDB looks up keys in them (ADR 0052)."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from fk_pipeline.parquet_files import is_alike, is_exact
from fk_pipeline.store.deletion_vectors import AT, IN
from fk_pipeline.store.row_groups import ends_of, has_nulls, numbered, places_of
from fk_pipeline.store.sizes import READERS, Sizes
from fk_pipeline.store.skipping import InRange
from fk_pipeline.store.table_files import PlainFiles

if TYPE_CHECKING:
    import duckdb

_PLACE = (pa.field(IN, pa.string()), pa.field(AT, pa.int64()))
"""The columns with the place of a row: its file, and its index in the file."""

_KEYS, _PATH, _PATTERN = "fk_keys_{}", "_fk_path", "*?[{"
"""The names in DuckDB of key values and of the path of a file; the letters of a path that it takes for a pattern."""


@dataclass(frozen=True)
class _KeyValues:
    """The values of a key column that are searched for, each once, without nulls; and whether null is one of them."""

    array: pa.Array
    null: bool

    @classmethod
    def of(cls, values: pa.ChunkedArray, dtype: pa.DataType, *, nulls: bool) -> _KeyValues:
        """Returns the values, converted to the type of the column; a null among them counts if `nulls` is true."""
        array = values.cast(dtype).unique().drop_null()
        return cls(array, nulls and values.null_count > 0)

    @cached_property
    def ordered(self) -> list[Any]:
        """The values in ascending order, as `row_groups.ends_of` has them."""
        values = numbered(self.array)
        return list(values.take(pc.sort_indices(values)).to_pylist())

    def are_between(self, low: Any, high: Any) -> bool:
        """Returns whether one of the values is between two values, or equal to one of these."""
        return bisect_left(self.ordered, low) < bisect_right(self.ordered, high)


@dataclass(frozen=True)
class Search:
    """A search for rows through the files of a table.

    Attributes:
        files: the files, which have at least these rows.
        columns: the columns to return.
        compared: the columns that are compared.
        keys: per key column, the values that a row may have.
        within: ranges that the values of a row must be in.
        times: whether there may be dates or timestamps among the columns.
        sizes: the limit for the rows that are returned.
        placed: whether the places of the rows are returned, too.
    """

    files: PlainFiles
    columns: pa.Schema
    compared: pa.Schema
    keys: Mapping[str, _KeyValues]
    within: Sequence[InRange]
    times: bool
    sizes: Sizes
    placed: bool = False

    @classmethod
    def of(
        cls,
        files: PlainFiles,
        columns: Sequence[str],
        keys: Mapping[str, pa.ChunkedArray],
        within: Sequence[InRange],
        alike: tuple[type[T.DataType], ...],
        sizes: Sizes,
        *,
        placed: bool = False,
    ) -> Search | None:
        """Returns a search for rows through files, which are fetched from S3 before; None if Spark has to search.

        Arrow may not read or compare a column as Spark does, or more than `Sizes.fetched_bytes` would be fetched.

        Raises:
            OSError: a file in S3 is gone or cannot be read.
        """
        stored = T.StructType.fromJson(files.schema)
        if not {*columns} <= {*stored.names}:  # the version is from before a column was added
            return None
        schema = T.StructType([stored[name] for name in columns]).toNullable()
        compared = T.StructType([stored[name] for name in (*keys, *[bounds.column for bounds in within])]).toNullable()
        if not all(is_alike(field.dataType, alike) for field in (*schema.fields, *compared.fields)):
            return None
        if not all(_is_comparable(field.dataType) for field in compared.fields):
            return None
        dtypes = to_arrow_schema(compared, timezone="UTC")
        key_values = {
            name: _KeyValues.of(values, dtypes.field(name).type, nulls=placed) for name, values in keys.items()
        }
        requested = to_arrow_schema(schema, timezone="UTC")
        on_disk = files.fetched(sizes.fetched_bytes)
        if on_disk is None:
            return None
        return cls(on_disk, requested, dtypes, key_values, within, T.DateType in alike, sizes, placed)

    def rows(self) -> pa.Table | None:
        """Returns the rows; None if Spark has to read them."""
        import duckdb

        try:
            return self._rows()
        except duckdb.Error:  # of a file that is damaged or gone, or has a text that is none: Spark reports it
            return None

    def bytes(self) -> int:
        """Returns the bytes that the search reads: the columns of row groups that may have such rows."""
        return sum(map(self._bytes_of, self.files.paths))

    @property
    def _with_place(self) -> pa.Schema:
        """The columns to return, and those of the place if `placed`."""
        return self.columns.append(_PLACE[0]).append(_PLACE[1]) if self.placed else self.columns

    @property
    def _needed(self) -> list[str]:
        """The columns to read."""
        return [*dict.fromkeys([*self.columns.names, *self.compared.names])]

    def _rows(self) -> pa.Table | None:
        alike: dict[frozenset[str], list[str]] = {}
        for path in self.files.paths:
            stored, inexact = _columns_in(path)
            if any(sign in path for sign in _PATTERN) or (self.times and not inexact.isdisjoint(self._needed)):
                return None
            alike.setdefault(stored.intersection(self._needed), []).append(path)
        rows, size = [self._with_place.empty_table()], 0
        with closing(_duckdb().cursor()) as cursor:
            for place, (name, values) in enumerate(self.keys.items()):
                cursor.register(_KEYS.format(place), pa.table({name: values.array}))
            for stored, paths in alike.items():
                deleted = {path: marked for path in paths if len(marked := self.files.deleted_in(path))}
                for part in self._through(cursor, paths, stored):
                    rows.append(self._typed(_living(part, deleted)))
                    size += rows[-1].nbytes
                    if size > self.sizes.found_bytes:
                        return None
        return pa.concat_tables(rows).combine_chunks()

    def _through(
        self, cursor: duckdb.DuckDBPyConnection, paths: Sequence[str], stored: Collection[str]
    ) -> Iterator[pa.Table]:
        """Yields the rows of files that meet the conditions, deleted ones too, in parts; with their paths and indices.

        Args:
            cursor: of DuckDB, in which the values of the keys are registered.
            paths: the files.
            stored: the columns that they have; others are null.
        """
        columns = [_name(name) for name in self.columns.names if name in stored]
        files = ", ".join(map(_text, paths))
        rows = f"read_parquet([{files}], filename = '{_PATH}', file_row_number = true)"
        conditions = [*self._conditions(stored)] or ["TRUE"]
        sql = f"SELECT {', '.join((*columns, _PATH, f'file_row_number AS {AT}'))} FROM {rows}"
        for part in cursor.sql(f"{sql} WHERE {' AND '.join(conditions)}").to_arrow_reader(self.sizes.decoded_rows):
            yield pa.Table.from_batches([part])

    def _conditions(self, stored: Collection[str]) -> Iterator[str]:
        """Yields the conditions of the rows, as DuckDB's SQL."""
        for place, (name, values) in enumerate(self.keys.items()):
            if name not in stored:
                yield "TRUE" if values.null else "FALSE"
                continue
            among = f"{_name(name)} IN (SELECT {_name(name)} FROM {_KEYS.format(place)})"
            yield f"({among} OR {_name(name)} IS NULL)" if values.null else among
        for bounds in self.within:
            column = _name(bounds.column) if bounds.column in stored else "NULL"
            dtype = self.compared.field(bounds.column).type
            yield f"{column} IS NOT NULL"
            yield f"({' OR '.join(_between(column, *ends, dtype) for ends in bounds.ranges)})"

    def _typed(self, rows: pa.Table) -> pa.Table:
        """Returns rows from DuckDB with Spark's types."""
        present = {*rows.column_names}
        columns = [
            rows[field.name].cast(field.type) if field.name in present else pa.nulls(len(rows), field.type)
            for field in self.columns
        ]
        typed = pa.Table.from_arrays(columns, schema=self.columns)
        typed.validate(full=True)  # a text may be none
        if not self.placed:
            return typed
        names, at = pc.replace_substring_regex(rows[_PATH], ".*/", ""), rows[AT].cast(pa.int64())
        return typed.append_column(_PLACE[0], names).append_column(_PLACE[1], at)

    def _bytes_of(self, path: str) -> int:
        metadata = pq.read_metadata(path)
        needed, places = self._needed, places_of(metadata, self.compared.names)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        return sum(
            group.column(i).total_compressed_size
            for group in groups
            if self._may_have(group, places)
            for i in range(group.num_columns)
            if any(f"{group.column(i).path_in_schema}.".startswith(f"{name}.") for name in needed)
        )

    def _may_have(self, group: pq.RowGroupMetaData, places: Mapping[str, int]) -> bool:
        """Returns whether a row group may have such rows, by the bounds of its columns, given their places."""
        for name, place in places.items():
            statistics = group.column(place).statistics
            ends = ends_of(statistics, self.compared.field(name).type)
            if ends is None or (name in self.keys and self.keys[name].null and has_nulls(statistics)):
                continue
            if name in self.keys and not self.keys[name].are_between(*ends):
                return False
            for bounds in self.within:
                if bounds.column == name and not any(_overlap(ends, *span) for span in bounds.ranges):
                    return False
        return True


def _overlap(ends: tuple[Any, Any], low: int | None, high: int | None) -> bool:
    """Returns whether the values between two ends overlap a range."""
    return (low is None or ends[1] >= low) and (high is None or ends[0] < high)


def _between(column: str, low: int | None, high: int | None, dtype: pa.DataType) -> str:
    """DuckDB's SQL (BOOLEAN): a column is in a range."""
    sides = [f"{column} {sign} {_constant(end, dtype)}" for sign, end in ((">=", low), ("<", high)) if end is not None]
    return " AND ".join(sides) or "TRUE"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _constant(value: int, dtype: pa.DataType) -> str:
    """Returns a number, or a timestamp by its microseconds since 1970, as DuckDB's SQL."""
    if not pa.types.is_timestamp(dtype):
        return str(value)
    moment = f"make_timestamp({value})"
    return moment if dtype.tz is None else f"{moment}::TIMESTAMPTZ"


def _living(rows: pa.Table, deleted: Mapping[str, pa.Array]) -> pa.Table:
    """Returns rows without deleted ones; `deleted`: per file the indices of these."""
    for path, marked in deleted.items() if len(rows) else ():
        gone = pc.and_(pc.equal(rows[_PATH], path), pc.is_in(rows[AT], marked))
        rows = rows.filter(pc.invert(gone))
    return rows


@lru_cache(maxsize=20_000)
def _columns_in(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the columns of a file, and those of them that Spark may read otherwise (`is_exact`)."""
    with pq.ParquetFile(path) as file:
        names = frozenset(file.schema_arrow.names)
        exact = is_exact(file.metadata)
        inexact = frozenset(name for name in names if not exact and not is_exact(file.metadata, {name}))
    return names, inexact


@cache
def _duckdb_of(_process: int) -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(":memory:", config={"threads": READERS, "temp_directory": ""})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _duckdb() -> duckdb.DuckDBPyConnection:
    """Returns the database of this process, which stores nothing; each work takes a cursor of it."""
    return _duckdb_of(os.getpid())


def _is_comparable(dtype: T.DataType) -> bool:
    """Returns whether Arrow and Spark compare values of a type alike: not floating-point numbers; nor dates.

    Python has dates of only 9,999 years.
    """
    return not isinstance(dtype, (T.FloatType, T.DoubleType, T.DateType, T.StructType))
