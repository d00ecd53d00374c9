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
from fk_pipeline.store.logs import PlainFiles
from fk_pipeline.store.row_groups import ends_of, has_nulls, numbered, places_of
from fk_pipeline.store.sizes import READERS, Sizes
from fk_pipeline.store.skipping import InRange

if TYPE_CHECKING:
    import duckdb

_PLACE = (pa.field(IN, pa.string()), pa.field(AT, pa.int64()))
"""The columns with the place of a row: its file, and its index in the file."""

_ASKED, _PATH, _PATTERN = "fk_asked_{}", "_fk_path", "*?[{"
"""What DuckDB calls the wanted values and the path of a file; and the letters of a path that it takes for a pattern."""


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
        """The values in ascending order, as `row_groups.ends_of` has them."""
        values = numbered(self.array)
        return list(values.take(pc.sort_indices(values)).to_pylist())

    def are_between(self, low: Any, high: Any) -> bool:
        """Returns whether a wanted value is between two values, which may be such values."""
        return bisect_left(self.ordered, low) < bisect_right(self.ordered, high)


@dataclass(frozen=True)
class Search:
    """A search for rows through the files of a table.

    Attributes:
        files: the files, which have at least the wanted rows.
        wanted: the columns that are wanted.
        compared: the columns that are compared.
        asked: per column, the wanted values.
        within: ranges of wanted values.
        times: whether there may be dates or timestamps among the columns.
        sizes: the limit for found rows.
        placed: whether the places of the rows are wanted, too.
    """

    files: PlainFiles
    wanted: pa.Schema
    compared: pa.Schema
    asked: Mapping[str, _Asked]
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
        return cls(files, wanted, kinds, asked, within, T.DateType in alike, sizes, placed)

    def rows(self) -> pa.Table | None:
        """Returns the rows; None if Spark has to read them."""
        import duckdb

        try:
            return self._rows()
        except duckdb.Error:  # of a file that is damaged or gone, or has a text that is none: Spark reports it
            return None

    def bytes(self) -> int:
        """Returns the bytes that the search reads: the columns of row groups that may have wanted rows."""
        return sum(map(self._bytes_of, self.files.paths))

    @property
    def _columns(self) -> pa.Schema:
        """The columns of the rows that are found."""
        return self.wanted.append(_PLACE[0]).append(_PLACE[1]) if self.placed else self.wanted

    @property
    def _needed(self) -> list[str]:
        """The columns to read."""
        return [*dict.fromkeys([*self.wanted.names, *self.compared.names])]

    def _rows(self) -> pa.Table | None:
        alike: dict[frozenset[str], list[str]] = {}
        for path in self.files.paths:
            there, inexact = _columns_in(path)
            if any(one in path for one in _PATTERN) or (self.times and not inexact.isdisjoint(self._needed)):
                return None
            alike.setdefault(there.intersection(self._needed), []).append(path)
        rows, size = [self._columns.empty_table()], 0
        with closing(_duckdb().cursor()) as cursor:
            for place, (name, asked) in enumerate(self.asked.items()):
                cursor.register(_ASKED.format(place), pa.table({name: asked.array}))
            for there, paths in alike.items():
                deleted = {path: marked for path in paths if len(marked := self.files.deleted_in(path))}
                for part in self._through(cursor, paths, there):
                    rows.append(self._typed(_living(part, deleted)))
                    size += rows[-1].nbytes
                    if size > self.sizes.found_bytes:
                        return None
        return pa.concat_tables(rows).combine_chunks()

    def _through(
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

    def _typed(self, rows: pa.Table) -> pa.Table:
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
        return found.append_column(_PLACE[0], names).append_column(_PLACE[1], at)

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
        """Returns whether a row group may have wanted rows, by the bounds of its columns, given their places."""
        for name, place in places.items():
            found = group.column(place).statistics
            ends = ends_of(found, self.compared.field(name).type)
            if ends is None or (name in self.asked and self.asked[name].null and has_nulls(found)):
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


def _is_comparable(kind: T.DataType) -> bool:
    """Returns whether Arrow and Spark compare values of a type alike: not floating-point numbers; nor dates.

    Python has dates of only 9,999 years.
    """
    return not isinstance(kind, (T.FloatType, T.DoubleType, T.DateType, T.StructType))
