"""Reads rows of a table in the driver with Arrow: planning and running a Spark job takes several times as long."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from fk_pipeline.store.logs import PlainFiles
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.skipping import Within

ALIKE = (
    T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.StringType, T.BinaryType, T.BooleanType, T.DecimalType,
)  # fmt: skip
"""Types that Arrow reads from Parquet as Spark does, whoever wrote the file; not dates: their calendar is unknown."""

ALIKE_IN_OURS = (*ALIKE, T.FloatType, T.DoubleType, T.DateType, T.TimestampType)
"""The same types in files that are exact (`is_exact`), with dates, timestamps and floating-point numbers."""

_OLD_CALENDAR = b"org.apache.spark.legacyDateTime"
"""The metadata key that Spark writes into a file with dates in the calendar from before 1582."""

READERS = 2
"""The number of files that are read at once. Each reader holds the wanted columns of a row group as stored (in
files of older versions up to 128 megabytes), and `Sizes.decoded_bytes` of their rows."""

UNMARKED = pa.array([], pa.int64())
"""The indices of the deleted rows of a file without a deletion vector: none."""


@dataclass(frozen=True)
class _Asked:
    """The wanted values of a column: ascending, without nulls."""

    values: list[Any]
    array: pa.Array

    @classmethod
    def of(cls, values: pa.ChunkedArray, kind: pa.DataType) -> _Asked:
        """Returns the values, converted to the type of the column."""
        array = _ordered(values.cast(kind)).unique().drop_null()
        array = array.take(pc.sort_indices(array))
        return cls(array.to_pylist(), array)

    def are_between(self, low: Any, high: Any) -> bool:
        """Returns whether a wanted value is between two values, which may be such values."""
        return bisect_left(self.values, low) < bisect_right(self.values, high)

    def among(self, column: pa.Array) -> pa.Array:
        """Returns a mask of the rows with a wanted value; compares only values between their minimum and maximum."""
        column = _ordered(column)
        ends = pc.min_max(column).as_py()
        if ends["min"] is None:
            return pa.repeat(False, len(column))
        low = bisect_left(self.values, ends["min"])
        return pc.is_in(column, self.array.slice(low, bisect_right(self.values, ends["max"]) - low))


def read_here(files: PlainFiles, columns: Sequence[str], within: Within, sizes: Sizes) -> pa.Table | None:
    """Returns the rows of some batches with Spark's types; None if Spark has to read them.

    Args:
        files: files with at least these rows.
        columns: the columns that are wanted.
        within: the batches.
        sizes: the limits for reading in the driver.
    """
    return None if files.rows > sizes.batch_rows else _chosen(files, columns, [within], {}, ALIKE, sizes)


def look_up(
    files: PlainFiles,
    columns: Sequence[str],
    keys: Mapping[str, pa.ChunkedArray],
    within: Sequence[Within],
    sizes: Sizes,
) -> pa.Table | None:
    """Returns rows with some values in their key columns, with Spark's types; None if Spark has to read them.

    If a key has several columns, each column is compared on its own: more rows than those with the keys may return.

    Args:
        files: files with at least these rows, written by a pipeline.
        columns: the columns that are wanted.
        keys: per key column, its wanted values.
        within: conditions on the batches of the rows.
        sizes: the limits for reading in the driver.
    """
    try:
        return _chosen(files, columns, within, keys, ALIKE_IN_OURS, sizes)
    except (pa.ArrowException, OSError, UnicodeDecodeError):  # damaged, gone or invalid text: Spark reports it
        return None


def _chosen(
    files: PlainFiles,
    columns: Sequence[str],
    within: Sequence[Within],
    keys: Mapping[str, pa.ChunkedArray],
    alike: tuple[type[T.DataType], ...],
    sizes: Sizes,
) -> pa.Table | None:
    stored = T.StructType.fromJson(files.schema)
    if not {*columns} <= {*stored.names}:  # the version is from before a column was added
        return None
    schema = T.StructType([stored[name] for name in columns]).toNullable()
    compared = T.StructType([stored[name] for name in (*keys, *[one.column for one in within])]).toNullable()
    if not all(_is_alike(field.dataType, alike) for field in (*schema.fields, *compared.fields)):
        return None
    if not all(_is_comparable(field.dataType) for field in compared.fields):
        return None
    kinds = to_arrow_schema(compared, timezone="UTC")
    asked = {name: _Asked.of(values, kinds.field(name).type) for name, values in keys.items()}
    search = _Search(to_arrow_schema(schema, timezone="UTC"), kinds, asked, within, T.DateType in alike, sizes)

    def found(path: str) -> list[pa.Table] | None:
        return search.through(path, files.deleted.get(path.rsplit("/", 1)[1], UNMARKED))

    with ThreadPoolExecutor(min(READERS, pa.cpu_count())) as pool:
        parts = list(pool.map(found, files.paths))
    rows = [search.wanted.empty_table()]
    for part in parts:
        if part is None:
            return None
        rows += part
    return pa.concat_tables(rows).combine_chunks()


@dataclass
class _Search:
    """A search through files.

    Attributes:
        wanted: the columns that are wanted.
        compared: the columns that are compared.
        asked: per column, the wanted values.
        within: conditions on the wanted batches.
        times: whether there may be dates or timestamps among the columns.
        sizes: the limits for decoded and for found rows.
        found: bytes that were found so far.
    """

    wanted: pa.Schema
    compared: pa.Schema
    asked: Mapping[str, _Asked]
    within: Sequence[Within]
    times: bool
    sizes: Sizes
    found: int = 0

    def through(self, path: str, marked: pa.Array) -> list[pa.Table] | None:
        """Returns the wanted rows of a file without deleted ones; None if Spark must read it or there are too many."""
        with pq.ParquetFile(path) as file:
            if self.times and not is_exact(file.metadata, {*self.wanted.names, *self.compared.names}):
                return None
            parts = []
            for part in self._taken(file, marked):
                parts.append(part)
                self.found += part.nbytes
                if self.found > self.sizes.found_bytes:
                    return None
            return parts

    def _taken(self, file: pq.ParquetFile, marked: pa.Array) -> Iterator[pa.Table]:
        """Yields the wanted rows of a file in parts; a column that the file does not have is null."""
        there = set(file.schema_arrow.names)
        needed = [name for name in dict.fromkeys([*self.wanted.names, *self.compared.names]) if name in there]
        for start, batch in self._batches(file, needed):
            places = pc.indices_nonzero(pc.fill_null(self._meeting(batch), False))
            if len(marked) and len(places):
                places = places.filter(pc.invert(pc.is_in(pc.add(places.cast(pa.int64()), start), marked)))
            if len(places):
                # Cast first: some writers store strings in a form that Arrow cannot filter.
                typed = [
                    batch[field.name].cast(field.type) if field.name in there else pa.nulls(len(batch), field.type)
                    for field in self.wanted
                ]
                yield pa.Table.from_arrays(typed, schema=self.wanted).take(places)

    def _batches(self, file: pq.ParquetFile, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yields the rows of the row groups that may have wanted ones, in parts, with the index of their first row."""
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        width = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
        at_once = max(1, min(self.sizes.decoded_rows, self.sizes.decoded_bytes // max(1, width)))
        paths = [file.metadata.schema.column(i).path for i in range(len(file.metadata.schema))]
        # A field of a struct may have the path of a column with a dot in its name.
        places = {name: paths.index(name) for name in self.compared.names if paths.count(name) == 1}
        start = 0
        for number, group in enumerate(groups):
            if self._may_have(group, places):
                at = start
                for batch in file.iter_batches(at_once, [number], columns=columns, use_threads=False):
                    yield at, batch
                    at += len(batch)
            start += group.num_rows

    def _may_have(self, group: pq.RowGroupMetaData, places: Mapping[str, int]) -> bool:
        """Returns whether a row group may have wanted rows, by the bounds of its columns, given their places."""
        for name, place in places.items():
            ends = _ends(group.column(place).statistics, self.compared.field(name).type)
            if ends is None:
                continue
            if name in self.asked and not self.asked[name].are_between(*ends):
                return False
            batches = [one.batches for one in self.within if one.column == name]
            if any(int(one.last) < ends[0] or int(one.first) > ends[1] for one in batches):
                return False
        return True

    def _meeting(self, rows: pa.RecordBatch) -> pa.Array:
        """Returns a mask of the wanted rows."""
        masks = [asked.among(rows[name].cast(self.compared.field(name).type)) for name, asked in self.asked.items()]
        for one in self.within:
            masks.append(pc.greater_equal(rows[one.column], int(one.batches.first)))
            masks.append(pc.less_equal(rows[one.column], int(one.batches.last)))
        return reduce(pc.and_, masks)


def _ends(found: pq.Statistics | None, kind: pa.DataType) -> tuple[Any, Any] | None:
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


def _is_alike(kind: T.DataType, alike: tuple[type[T.DataType], ...]) -> bool:
    if isinstance(kind, T.StructType) and T.DateType in alike:
        return all(_is_alike(field.dataType, alike) for field in kind.fields)
    if isinstance(kind, T.StringType):
        return kind == T.StringType()  # not with a collation, which Arrow would lose
    return isinstance(kind, alike)


def _ordered(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns values to compare, in the order of the given ones: of timestamps their microseconds since 1970.

    Python has timestamps of only 9,999 years.
    """
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def is_exact(metadata: pq.FileMetaData, columns: Collection[str] | None = None) -> bool:
    """Returns whether Arrow and delta-rs read the times and dates of a Parquet file as Spark does.

    Not timestamps of 96 bits, which they take as nanoseconds: those before 1677 and after 2262 would be others. And not
    dates in the calendar from before 1582.

    Args:
        metadata: of the file.
        columns: the columns that are read; None: all.
    """
    if _OLD_CALENDAR in (metadata.metadata or {}):
        return False
    stored = [metadata.schema.column(i) for i in range(len(metadata.schema))]
    wide = [one.path for one in stored if one.physical_type == "INT96"]
    return not any(columns is None or any(f"{path}.".startswith(f"{c}.") for c in columns) for path in wide)


def _is_comparable(kind: T.DataType) -> bool:
    """Returns whether Arrow and Spark compare values of a type alike: not floating-point numbers; nor dates.

    Python has dates of only 9,999 years.
    """
    return not isinstance(kind, (T.FloatType, T.DoubleType, T.DateType, T.StructType))
