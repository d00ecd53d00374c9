"""Reads rows of a table in the driver: planning and running a Spark job takes several times as long.

DuckDB looks up keys in Parquet files; which files may have them the log of the table tells (ADR 0052).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from fk_pipeline.parquet_files import ALIKE, ALIKE_IN_OURS, DAMAGED, is_exact
from fk_pipeline.store.file_search import Search
from fk_pipeline.store.row_groups import ends_of, numbered, places_of
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.skipping import InRange, Within
from fk_pipeline.store.table_files import PlainFiles

_WHOLE_TABLE = 8
"""To find the rows that a commit replaces, the driver scans so many times what it scans to read rows: a MERGE by Spark
reads, joins and shuffles the whole table (ADR 0042)."""


def read_in_process(files: PlainFiles, columns: Sequence[str], within: Within, sizes: Sizes) -> pa.Table | None:
    """Returns the rows of some batches with Spark's types; None if Spark has to read them.

    Args:
        files: files with at least these rows.
        columns: the columns to return.
        within: the batches.
        sizes: the limits for reading in the driver.
    """
    if files.rows > sizes.batch_rows:
        return None
    try:
        search = Search.of(files, columns, {}, [within], ALIKE, sizes)
        return None if search is None else search.rows()
    except DAMAGED:
        return None


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
        columns: the columns to return.
        keys: per key column, the values that a row may have.
        within: conditions on the batches or times of the rows.
        sizes: the limits for reading in the driver.
    """
    try:
        search = Search.of(files, columns, keys, within, ALIKE_IN_OURS, sizes)
        return None if search is None else search.rows()
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
        them, or if more than `_WHOLE_TABLE` times `Sizes.scanned_bytes` would have to be read.
    """
    try:
        values = {name: keys[name] for name in keys.column_names}
        search = Search.of(files, keys.column_names, values, [], ALIKE_IN_OURS, sizes, placed=True)
        if search is None or search.bytes() > _WHOLE_TABLE * sizes.scanned_bytes:
            return None
        return search.rows()
    except DAMAGED:
        return None


def greatest(files: PlainFiles, column: str, sizes: Sizes) -> list[int] | None:
    """Returns the greatest value, per file that has any, of a column with integers or timestamps; None if Spark must.

    Timestamps count in microseconds since 1970.
    """
    dtype = to_arrow_schema(T.StructType([T.StructType.fromJson(files.schema)[column]]), timezone="UTC").field(0).type
    if not (pa.types.is_integer(dtype) or pa.types.is_timestamp(dtype)):
        return None
    values = []
    try:
        on_disk = files.fetched(sizes.fetched_bytes)
        if on_disk is None:
            return None
        for path in on_disk.paths:
            with pq.ParquetFile(path) as file:
                if not is_exact(file.metadata, {column}):
                    return None
                value = _greatest(file, column, dtype, files.deleted_in(path))
                values += [] if value is None else [value]
    except DAMAGED:
        return None
    return values


def _greatest(file: pq.ParquetFile, column: str, dtype: pa.DataType, marked: pa.Array) -> int | None:
    """Returns the greatest value of a column in the rows of a file that are not deleted; reads few row groups."""
    if column not in file.schema_arrow.names:
        return None
    place = places_of(file.metadata, [column]).get(column)
    groups, start = [], 0
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        ends = None if place is None else ends_of(group.column(place).statistics, dtype)
        groups.append((ends is None, 0 if ends is None else ends[1], number, start))
        start += group.num_rows
    best: int | None = None
    deleted = marked.to_pylist()
    for unknown, most, number, start in sorted(groups, reverse=True):
        if best is not None and not unknown and most <= best:
            break
        values = numbered(file.read_row_group(number, columns=[column], use_threads=False)[column].cast(dtype))
        in_group = deleted[bisect_left(deleted, start) : bisect_left(deleted, start + len(values))]
        keep = [True] * len(values)
        for at in in_group:
            keep[at - start] = False
        top = pc.max(values.filter(pa.array(keep)) if in_group else values).as_py()
        best = top if best is None or (top is not None and top > best) else best
    return best


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
    places = _places(rows, keys)
    return rows if len(places) == len(rows) else rows.take(places.sort())


def lacking(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Returns the rows that have none of some keys (`having`)."""
    places = _places(rows, keys)
    return rows.filter(pc.invert(pc.is_in(pa.array(range(len(rows)), pa.int64()), places))) if len(places) else rows


def _places(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """Returns the indices of the rows that have one of some keys."""
    place = "_fk_place"
    of_keys = rows.select(keys.column_names)
    numbered = of_keys.append_column(place, pa.array(range(len(rows)), pa.int64()))
    matches = numbered.join(keys.cast(of_keys.schema), keys.column_names, join_type="left semi", use_threads=False)
    return matches[place].combine_chunks()
