"""Reads rows of a table in the driver: planning and running a Spark job takes several times as long.

DuckDB looks up keys in Parquet files; which files may have them the log of the table tells (ADR 0052).
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from fk_pipeline.parquet_files import ALIKE, ALIKE_IN_OURS, DAMAGED, is_alike, is_exact
from fk_pipeline.store.deletion_vectors import AT, IN
from fk_pipeline.store.logs import PlainFiles
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.skipping import InRange, Within

if TYPE_CHECKING:
    import duckdb

READERS = 2
"""The number of files that are read at once. Each reader holds the wanted columns of a row group as stored (in
files of older versions up to 128 megabytes), and `Sizes.decoded_bytes` of their rows."""

FOUND_AT = (pa.field(IN, pa.string()), pa.field(AT, pa.int64()))
"""The columns with the place of a row: its file, and its index in the file."""


@dataclass(frozen=True)
class _Asked:
    """The wanted values of a column, each once and without nulls; and whether null is wanted, too."""

    array: pa.Array
    null: bool

    @classmethod
    def of(cls, values: pa.ChunkedArray, kind: pa.DataType, *, nulls: bool) -> _Asked:
        """Returns the values, converted to the type of the column; a null among them is wanted if `nulls` says so."""
        array = values.cast(kind).unique().drop_null()
        return cls(array, nulls and values.null_count > 0)

    @cached_property
    def ordered(self) -> list[Any]:
        """The values in ascending order, as `ends_of` has them."""
        values = _ordered(self.array)
        return list(values.take(pc.sort_indices(values)).to_pylist())

    def are_between(self, low: Any, high: Any) -> bool:
        """Returns whether a wanted value is between two values, which may be such values."""
        return bisect_left(self.ordered, low) < bisect_right(self.ordered, high)


def read_here(files: PlainFiles, columns: Sequence[str], within: Within, sizes: Sizes) -> pa.Table | None:
    """Returns the rows of some batches with Spark's types; None if Spark has to read them.

    Args:
        files: files with at least these rows.
        columns: the columns that are wanted.
        within: the batches.
        sizes: the limits for reading in the driver.
    """
    if files.rows > sizes.batch_rows:
        return None
    search = _search(files, columns, {}, [within], ALIKE, sizes)
    return None if search is None else _chosen(files, search)


def look_up(
    files: PlainFiles,
    columns: Sequence[str],
    keys: Mapping[str, pa.ChunkedArray],
    within: Sequence[InRange],
    sizes: Sizes,
) -> pa.Table | None:
    """Returns rows with some values in their key columns, with Spark's types; None if Spark has to read them.

    If a key has several columns, each column is compared on its own: more rows than those with the keys may return.

    Args:
        files: files with at least these rows, written by a pipeline.
        columns: the columns that are wanted.
        keys: per key column, its wanted values.
        within: conditions on the batches or times of the rows.
        sizes: the limits for reading in the driver.
    """
    try:
        search = _search(files, columns, keys, within, ALIKE_IN_OURS, sizes)
        return None if search is None else _chosen(files, search)
    except DAMAGED:
        return None


def locate(files: PlainFiles, keys: pa.Table, sizes: Sizes) -> pa.Table | None:
    """Returns the places of rows with some values in their key columns.

    A null in a key column equals null. If a key has several columns, more rows than those with the keys may return.

    Args:
        files: files with at least these rows, written by a pipeline.
        keys: the keys.
        sizes: the limits for reading in the driver.

    Returns:
        One row per row: its key columns, its file (`IN`), and its index in the file (`AT`). None if Spark has to read
        them, or if more than `Sizes.scanned_bytes` would have to be read.
    """
    try:
        asked = {name: keys[name] for name in keys.column_names}
        search = _search(files, keys.column_names, asked, [], ALIKE_IN_OURS, sizes, placed=True)
        if search is None or sum(map(search.bytes_of, files.paths)) > sizes.scanned_bytes:
            return None
        return _chosen(files, search)
    except DAMAGED:
        return None


def greatest(files: PlainFiles, column: str) -> list[int] | None:
    """Returns the greatest value, per file that has any, of a column with integers or timestamps; None if Spark must.

    Timestamps count in microseconds since 1970.
    """
    kind = to_arrow_schema(T.StructType([T.StructType.fromJson(files.schema)[column]]), timezone="UTC").field(0).type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
        return None
    found = []
    try:
        for path in files.paths:
            with pq.ParquetFile(path) as file:
                if not is_exact(file.metadata, {column}):
                    return None
                value = _greatest(file, column, kind, files.deleted_in(path))
                found += [] if value is None else [value]
    except DAMAGED:
        return None
    return found


def _greatest(file: pq.ParquetFile, column: str, kind: pa.DataType, marked: pa.Array) -> int | None:
    """Returns the greatest value of a column in the rows of a file that are not deleted; reads few row groups."""
    if column not in file.schema_arrow.names:
        return None
    place = places_of(file.metadata, [column]).get(column)
    groups, start = [], 0
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        ends = None if place is None else ends_of(group.column(place).statistics, kind)
        groups.append((ends is None, 0 if ends is None else ends[1], number, start))
        start += group.num_rows
    best: int | None = None
    deleted = marked.to_pylist()
    for unknown, most, number, start in sorted(groups, reverse=True):
        if best is not None and not unknown and most <= best:
            break
        values = _ordered(file.read_row_group(number, columns=[column], use_threads=False)[column].cast(kind))
        here = deleted[bisect_left(deleted, start) : bisect_left(deleted, start + len(values))]
        keep = [True] * len(values)
        for at in here:
            keep[at - start] = False
        top = pc.max(values.filter(pa.array(keep)) if here else values).as_py()
        best = top if best is None or (top is not None and top > best) else best
    return best


def _search(
    files: PlainFiles,
    columns: Sequence[str],
    keys: Mapping[str, pa.ChunkedArray],
    within: Sequence[InRange],
    alike: tuple[type[T.DataType], ...],
    sizes: Sizes,
    *,
    placed: bool = False,
) -> _Search | None:
    """Returns a search for rows; None if Arrow does not read or compare a column as Spark does."""
    stored = T.StructType.fromJson(files.schema)
    if not {*columns} <= {*stored.names}:  # the version is from before a column was added
        return None
    schema = T.StructType([stored[name] for name in columns]).toNullable()
    compared = T.StructType([stored[name] for name in (*keys, *[one.column for one in within])]).toNullable()
    if not all(is_alike(field.dataType, alike) for field in (*schema.fields, *compared.fields)):
        return None
    if not all(_is_comparable(field.dataType) for field in compared.fields):
        return None
    kinds = to_arrow_schema(compared, timezone="UTC")
    asked = {name: _Asked.of(values, kinds.field(name).type, nulls=placed) for name, values in keys.items()}
    wanted = to_arrow_schema(schema, timezone="UTC")
    return _Search(wanted, kinds, asked, within, T.DateType in alike, sizes, placed)


def _chosen(files: PlainFiles, search: _Search) -> pa.Table | None:
    """Returns the rows that a search finds; None if Spark has to read them."""
    import duckdb

    try:
        return _found(files, search)
    except duckdb.Error:  # of a file that is damaged or gone, or has a text that is none: Spark reports it
        return None


def _found(files: PlainFiles, search: _Search) -> pa.Table | None:
    alike: dict[frozenset[str], list[str]] = {}
    for path in files.paths:
        there, inexact = _columns_in(path)
        if any(one in path for one in _PATTERN) or (search.times and not inexact.isdisjoint(search.needed)):
            return None
        alike.setdefault(there.intersection(search.needed), []).append(path)
    rows, size = [search.found_columns.empty_table()], 0
    with closing(_duckdb().cursor()) as cursor:
        for place, (name, asked) in enumerate(search.asked.items()):
            cursor.register(_ASKED.format(place), pa.table({name: asked.array}))
        for there, paths in alike.items():
            deleted = {path: marked for path in paths if len(marked := files.deleted_in(path))}
            for part in search.through(cursor, paths, there):
                rows.append(search.typed(_living(part, deleted)))
                size += rows[-1].nbytes
                if size > search.sizes.found_bytes:
                    return None
    return pa.concat_tables(rows).combine_chunks()


def _living(rows: pa.Table, deleted: Mapping[str, pa.Array]) -> pa.Table:
    """Returns rows without deleted ones; `deleted`: per file the indices of these."""
    for path, marked in deleted.items() if len(rows) else ():
        gone = pc.and_(pc.equal(rows[_PATH], path), pc.is_in(rows[AT], marked))
        rows = rows.filter(pc.invert(gone))
    return rows


_ASKED, _PATH, _PATTERN = "fk_asked_{}", "_fk_path", "*?[{"
"""What DuckDB calls the wanted values and the path of a file; and the letters of a path that it takes for a pattern."""


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


@dataclass(frozen=True)
class _Search:
    """A search through files.

    Attributes:
        wanted: the columns that are wanted.
        compared: the columns that are compared.
        asked: per column, the wanted values.
        within: ranges of wanted values.
        times: whether there may be dates or timestamps among the columns.
        sizes: the limit for found rows.
        placed: whether the places of the rows are wanted, too.
    """

    wanted: pa.Schema
    compared: pa.Schema
    asked: Mapping[str, _Asked]
    within: Sequence[InRange]
    times: bool
    sizes: Sizes
    placed: bool = False

    @property
    def found_columns(self) -> pa.Schema:
        """The columns of the rows that are found."""
        return self.wanted.append(FOUND_AT[0]).append(FOUND_AT[1]) if self.placed else self.wanted

    def bytes_of(self, path: str) -> int:
        """Returns the bytes that a search through a file reads: the columns of row groups that may have wanted rows."""
        metadata = pq.read_metadata(path)
        needed, places = self.needed, places_of(metadata, self.compared.names)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        return sum(
            group.column(i).total_compressed_size
            for group in groups
            if self._may_have(group, places)
            for i in range(group.num_columns)
            if any(f"{group.column(i).path_in_schema}.".startswith(f"{name}.") for name in needed)
        )

    def through(
        self, cursor: duckdb.DuckDBPyConnection, paths: Sequence[str], there: Collection[str]
    ) -> Iterator[pa.Table]:
        """Yields the wanted rows of files, in parts, each with its path and its index; deleted ones are among them.

        Args:
            cursor: of DuckDB, which knows the wanted values.
            paths: the files.
            there: the columns that they have; others are null.
        """
        columns = [_name(one) for one in self.wanted.names if one in there]
        files = ", ".join(map(_text, paths))
        rows = f"read_parquet([{files}], filename = '{_PATH}', file_row_number = true)"
        conditions = [*self._conditions(there)] or ["TRUE"]
        sql = f"SELECT {', '.join((*columns, _PATH, f'file_row_number AS {AT}'))} FROM {rows}"
        for part in cursor.sql(f"{sql} WHERE {' AND '.join(conditions)}").to_arrow_reader(self.sizes.decoded_rows):
            yield pa.Table.from_batches([part])

    def _conditions(self, there: Collection[str]) -> Iterator[str]:
        """Yields what wanted rows meet, as DuckDB's SQL."""
        for place, (name, asked) in enumerate(self.asked.items()):
            if name not in there:
                yield "TRUE" if asked.null else "FALSE"
                continue
            among = f"{_name(name)} IN (SELECT {_name(name)} FROM {_ASKED.format(place)})"
            yield f"({among} OR {_name(name)} IS NULL)" if asked.null else among
        for one in self.within:
            column, kind = _name(one.column) if one.column in there else "NULL", self.compared.field(one.column).type
            yield f"{column} IS NOT NULL"
            for sign, end in ((">=", one.low), ("<", one.high)):
                if end is not None:
                    yield f"{column} {sign} {_constant(end, kind)}"

    def typed(self, rows: pa.Table) -> pa.Table:
        """Returns rows that were found with Spark's types."""
        there = {*rows.column_names}
        columns = [
            rows[one.name].cast(one.type) if one.name in there else pa.nulls(len(rows), one.type) for one in self.wanted
        ]
        found = pa.Table.from_arrays(columns, schema=self.wanted)
        found.validate(full=True)  # a text may be none
        if not self.placed:
            return found
        names, at = pc.replace_substring_regex(rows[_PATH], ".*/", ""), rows[AT].cast(pa.int64())
        return found.append_column(FOUND_AT[0], names).append_column(FOUND_AT[1], at)

    @property
    def needed(self) -> list[str]:
        """The columns to read."""
        return [*dict.fromkeys([*self.wanted.names, *self.compared.names])]

    def _may_have(self, group: pq.RowGroupMetaData, places: Mapping[str, int]) -> bool:
        """Returns whether a row group may have wanted rows, by the bounds of its columns, given their places."""
        for name, place in places.items():
            found = group.column(place).statistics
            ends = ends_of(found, self.compared.field(name).type)
            if ends is None or (name in self.asked and self.asked[name].null and _has_nulls(found)):
                continue
            if name in self.asked and not self.asked[name].are_between(*ends):
                return False
            for one in self.within:
                if one.column == name and (
                    (one.low is not None and ends[1] < one.low) or (one.high is not None and ends[0] >= one.high)
                ):
                    return False
        return True


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _constant(value: int, kind: pa.DataType) -> str:
    """Returns a number, or a timestamp by its microseconds since 1970, as DuckDB's SQL."""
    if not pa.types.is_timestamp(kind):
        return str(value)
    moment = f"make_timestamp({value})"
    return moment if kind.tz is None else f"{moment}::TIMESTAMPTZ"


def places_of(metadata: pq.FileMetaData, columns: Sequence[str]) -> dict[str, int]:
    """Returns the places of columns in the metadata of a file; not of one with the path of a field of a struct."""
    paths = [metadata.schema.column(i).path for i in range(len(metadata.schema))]
    return {name: paths.index(name) for name in columns if paths.count(name) == 1}


def ends_of(found: pq.Statistics | None, kind: pa.DataType) -> tuple[Any, Any] | None:
    """Returns the bounds of a column in a row group, as `_Asked` has its values; None if they are not known.

    The bounds of texts may be shortened: the lower one is then less, the upper one greater.
    """
    if found is None or not found.has_min_max:
        return None
    if pa.types.is_timestamp(kind):
        is_micros = '"microseconds"' in found.logical_type.to_json()
        return (found.min_raw, found.max_raw) if is_micros else None
    if pa.types.is_integer(kind) or pa.types.is_string(kind):
        low, high = found.min, found.max
        return (low, high) if type(low) is (str if pa.types.is_string(kind) else int) else None
    return None


def _has_nulls(found: pq.Statistics) -> bool:
    """Returns whether a column may be null in a row of a row group."""
    return not found.has_null_count or found.null_count > 0


def _ordered(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns values to compare, in the order of the given ones: of timestamps their microseconds since 1970.

    Python has timestamps of only 9,999 years.
    """
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _is_comparable(kind: T.DataType) -> bool:
    """Returns whether Arrow and Spark compare values of a type alike: not floating-point numbers; nor dates.

    Python has dates of only 9,999 years.
    """
    return not isinstance(kind, (T.FloatType, T.DoubleType, T.DateType, T.StructType))


def distinct(some: Iterable[pa.Table], names: Sequence[str]) -> pa.Table:
    """Returns the values of some columns of tables, each once; there is at least one table."""
    return pa.concat_tables([rows.select([*names]) for rows in some]).group_by([*names]).aggregate([])


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Returns the values of a column; times as numbers, as Python does not know them all."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return list(column.to_pylist())


def renamed(keys: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    """Returns keys under the column names of a table; `columns` maps each of these to the name in `keys`."""
    return pa.table({column: keys[name] for column, name in columns.items()})


def having(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Returns the rows that have one of some keys, given as columns of the rows; a null equals nothing, as in SQL."""
    found = _places(rows, keys)
    return rows if len(found) == len(rows) else rows.take(found.sort())


def lacking(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Returns the rows that have none of some keys (`having`)."""
    found = _places(rows, keys)
    return rows.filter(pc.invert(pc.is_in(pa.array(range(len(rows)), pa.int64()), found))) if len(found) else rows


def _places(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """Returns the indices of the rows that have one of some keys."""
    place = "_fk_place"
    of_keys = rows.select(keys.column_names)
    numbered = of_keys.append_column(place, pa.array(range(len(rows)), pa.int64()))
    found = numbered.join(keys.cast(of_keys.schema), keys.column_names, join_type="left semi", use_threads=False)
    return found[place].combine_chunks()
