"""Writes rows as a Delta table that any reader of Delta can read: protocol (1, 2), no deletion vectors, no change feed.

The files are written by Arrow, one after the other, so that they keep the order of the rows; delta-rs, which would
write them in parallel, makes the commit.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema, TableFeatures
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from fk_pipeline.errors import UsageError
from fk_pipeline.parquet_files import write_rows
from fk_pipeline.store.file_bounds import bounds
from fk_pipeline.store.sizes import MEASURED, Sizes

DELTA_ENDING = ".delta"

_FILE = "export-{}.snappy.parquet"
"""The name of a file."""

_NTZ = "timestampNtz"
"""The feature of a table with timestamps without time zone."""


def write_table(
    rows: pa.Table, folder: Path, description: str | None = None, sizes: Sizes = MEASURED, *, private: bool = False
) -> int:
    """Writes rows as a table, or as the next version of the table that is there; returns their number.

    Readers see the rows before or the rows after. The table has the columns of the rows, without what it had before.
    Files that no version of the last week needs are removed.

    Args:
        rows: the rows, in the order of the table; the metadata of their columns may have a `comment`.
        folder: the folder of the table.
        description: of the table.
        sizes: of files and row groups.
        private: whether only the owner of the folder may read it.

    Raises:
        UsageError: something else is there, or Delta has no type for a column.
    """
    columns = pa.schema([field.with_type(_in_utc(field.type)).with_nullable(True) for field in rows.schema])
    schema = _schema(columns, folder)
    try:
        table = _table_in(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if private:
            folder.chmod(0o700)
        _commit(table, folder, schema, list(_files(rows.cast(columns), folder, sizes)), description)
    except (DeltaError, pa.ArrowException) as error:
        fix = "export to another folder, or to a file that ends in .parquet"
        raise UsageError(f"cannot write the table: {error}", where=str(folder), fix=fix) from error
    return int(rows.num_rows)


def _table_in(folder: Path) -> DeltaTable | None:
    """Returns the table in a folder; None if there is none.

    Raises:
        UsageError: something else is there.
    """
    others = not folder.is_dir() or any(not file.match(_FILE.format("*")) for file in folder.iterdir())
    if folder.is_dir() and DeltaTable.is_deltatable(str(folder)):
        return DeltaTable(str(folder))
    if folder.exists() and others:
        raise UsageError("it is there already, and is no Delta table", where=str(folder), fix="choose another folder")
    return None  # there may be files of an export that was killed


def _in_utc(dtype: pa.DataType) -> pa.DataType:
    """Returns a type with UTC as the zone of its times, whose values stay: delta-rs knows no other name of it."""
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return pa.timestamp(dtype.unit, "UTC")
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in dtype])
    if pa.types.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(_in_utc(dtype.value_type)))
    if pa.types.is_map(dtype):
        return pa.map_(
            dtype.key_field.with_type(_in_utc(dtype.key_type)), dtype.item_field.with_type(_in_utc(dtype.item_type))
        )
    return dtype


def _schema(columns: pa.Schema, folder: Path) -> Schema:
    """Returns the columns of a table as Delta has them.

    Raises:
        UsageError: Delta has no type for a column.
    """
    for field in columns:
        try:
            Schema.from_arrow(pa.schema([field]))
        except Exception as error:  # delta-rs raises no other
            raise UsageError(
                f"column {field.name} is {field.type}, for which Delta has no type",
                where=str(folder),
                fix="convert it in `select`: CAST(... AS STRING)",
            ) from error
    return Schema.from_arrow(columns)


def _files(rows: pa.Table, folder: Path, sizes: Sizes) -> Iterator[AddAction]:
    """Writes rows to Parquet files; yields the action that adds each to the table."""
    for start in range(0, rows.num_rows, sizes.rows_per_file):
        part = rows.slice(start, sizes.rows_per_file)
        file = folder / _FILE.format(uuid.uuid4())
        write_rows(part, str(file), sizes.rows_per_group)
        yield _add(file, part)


def _add(file: Path, rows: pa.Table) -> AddAction:
    """Returns the action that adds a file to a table."""
    flat = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    now = time.time_ns() // 1_000_000
    return AddAction(file.name, file.stat().st_size, {}, now, True, json.dumps(bounds(rows, flat)))


def _commit(
    table: DeltaTable | None, folder: Path, schema: Schema, files: Sequence[AddAction], description: str | None
) -> None:
    """Makes the version of a table that has some files and no others."""
    if table is None:
        create_table_with_add_actions(str(folder), schema, [*files], partition_by=[], description=description)
        return
    if "timestamp_ntz" in schema.to_json() and _NTZ not in (table.protocol().reader_features or ()):
        table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
    table.create_write_transaction([*files], "overwrite", schema, partition_by=[])
    if description is not None and description != table.metadata().description:
        table.update_incremental()
        table.alter.set_table_description(description)
    with suppress(DeltaError):  # the rows are there, and the next export removes old files
        table.update_incremental()
        table.vacuum(dry_run=False)
