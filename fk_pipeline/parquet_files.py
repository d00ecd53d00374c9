"""Reads rows of Parquet files with Arrow, where it reads them as Spark does, and writes them for all readers."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

ALIKE = (
    T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.StringType, T.BinaryType, T.BooleanType, T.DecimalType,
)  # fmt: skip
"""Types that Arrow reads from Parquet as Spark does, whoever wrote the file; not dates: their calendar is unknown."""

ALIKE_IN_OURS = (*ALIKE, T.FloatType, T.DoubleType, T.DateType, T.TimestampType)
"""The same types in files that are exact (`is_exact`), with dates, timestamps and floating-point numbers."""

_OLD_CALENDAR = b"org.apache.spark.legacyDateTime"
"""The metadata key that Spark writes into a file with dates in the calendar from before 1582."""

_WRITER = b"org.apache.spark.version"
"""The metadata key with the version of the Spark that wrote a file; before 3.0 it knew the old calendar only."""

DAMAGED = (pa.ArrowException, OSError, UnicodeDecodeError)
"""Errors of files that are damaged or gone, or have a text that is none: Spark reads them, and reports it."""

DECODED_ROWS, DECODED_BYTES = 50_000, 32 * 2**20
"""The most rows that `rows_at` decodes at once, and their bytes by the width of a row in the metadata of the file."""


def is_exact(metadata: pq.FileMetaData, columns: Collection[str] | None = None) -> bool:
    """Returns whether Arrow and delta-rs read the times and dates of a Parquet file as Spark does.

    Not timestamps of 96 bits, which they take as nanoseconds: those before 1677 and after 2262 would be others. And not
    dates in the calendar from before 1582.

    Args:
        metadata: of the file.
        columns: the columns that are read; None: all.
    """
    about = metadata.metadata or {}
    if _OLD_CALENDAR in about or about.get(_WRITER, b"3").startswith((b"1.", b"2.")):
        return False
    stored = [metadata.schema.column(i) for i in range(len(metadata.schema))]
    wide = [column.path for column in stored if column.physical_type == "INT96"]
    return not any(columns is None or any(f"{path}.".startswith(f"{c}.") for c in columns) for path in wide)


def is_alike(dtype: T.DataType, alike: tuple[type[T.DataType], ...]) -> bool:
    """Returns whether Arrow reads a type as Spark does, given the types that have no fields (`ALIKE`)."""
    if isinstance(dtype, T.StructType) and T.DateType in alike:
        return all(is_alike(field.dataType, alike) for field in dtype.fields)
    if isinstance(dtype, T.StringType):
        return dtype == T.StringType()  # not with a collation, which Arrow would lose
    return isinstance(dtype, alike)


def rows_at(path: str, indices: BitMap64, schema: T.StructType) -> pa.Table | None:
    """Returns some rows of a file; reads the row groups that have them.

    Args:
        path: the file.
        indices: the indices (from 0) of the rows in the file.
        schema: the columns; a column that the file does not have is null.

    Returns:
        The rows in the order of the file. None if Spark has to read them.
    """
    arrow_schema = to_arrow_schema(schema.toNullable(), timezone="UTC")
    if not all(is_alike(field.dataType, ALIKE_IN_OURS) for field in schema):
        return None
    rows, start = [arrow_schema.empty_table()], 0
    try:
        with pq.ParquetFile(path) as file:
            if not is_exact(file.metadata, {*arrow_schema.names}):
                return None
            stored = {*file.schema_arrow.names}
            columns = [name for name in arrow_schema.names if name in stored]
            if {name.lower() for name in {*arrow_schema.names} - stored} & {name.lower() for name in stored}:
                return None  # Spark takes names in another case as equal
            size = at_once(file.metadata, DECODED_ROWS, DECODED_BYTES)
            for number in range(file.num_row_groups):
                end = start + file.metadata.row_group(number).num_rows
                if not indices.range_cardinality(start, end):
                    start = end
                    continue
                for batch in file.iter_batches(size, [number], columns=columns, use_threads=False):
                    places = pa.array([at - start for at in indices & BitMap64(range(start, start + len(batch)))])
                    rows.append(typed(batch, arrow_schema).take(places.cast(pa.int64())))
                    start += len(batch)
    except DAMAGED:
        return None
    table = pa.concat_tables(rows).combine_chunks()  # PySpark loses the rows after an empty chunk
    return table if len(table) == len(indices) else None


def write_rows(rows: pa.Table, where: str | pa.NativeFile, rows_per_group: int) -> None:
    """Writes rows to a Parquet file.

    Arrow's bounds of floating-point numbers leave out NaN, the greatest number for Spark. So these get no bounds.

    Args:
        rows: the rows.
        where: the path of the file, or an open stream.
        rows_per_group: the most rows per row group.
    """
    pq.write_table(
        rows,
        where,
        row_group_size=rows_per_group,
        compression="snappy",
        write_statistics=[column.name for column in rows.schema if not pa.types.is_floating(column.type)],
        store_decimal_as_integer=True,
    )


def rows_in(path: str) -> int | None:
    """Returns the number of rows of a file; None if it cannot be read."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except DAMAGED:
        return None


def at_once(metadata: pq.FileMetaData, rows: int, size: int) -> int:
    """Returns how many rows of a file to decode at once: at most `rows`, and about `size` bytes as they are stored."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    width = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(rows, size // max(1, width)))


def typed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Returns rows of a file with the columns and types of a schema; a column that the file does not have is null.

    Some writers store strings in a form that Arrow cannot filter: the rows must be typed before some are taken.
    """
    stored = {*rows.schema.names}
    columns = [
        rows[field.name].cast(field.type) if field.name in stored else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
