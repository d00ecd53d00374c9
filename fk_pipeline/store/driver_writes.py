"""Commits few rows from the driver with delta-rs: a commit takes Spark a second, and some hundredths here (ADR 0030).

Only to tables on a local disk or in S3 whose files and features delta-rs and Spark read and write alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from fk_pipeline.environment import storage
from fk_pipeline.parquet_files import DAMAGED, is_exact
from fk_pipeline.spec import quote
from fk_pipeline.store.file_bounds import days_of, is_short
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.schemas import COMMENT, Table
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.skipping import Condition
from fk_pipeline.table_features import may_be_written_in_process

OTHERWISE_STORED = re.compile(r"\b(ARRAY|MAP|INTERVAL|VARIANT|OBJECT|CHAR|VARCHAR|VOID|COLLATE)\b", re.IGNORECASE)
"""Types that delta-rs may write to Parquet in another form than Spark."""

INEXACT_INSIDE = re.compile(r"\bSTRUCT\b.*\b(FLOAT|REAL|DOUBLE|DEC|DECIMAL|NUMERIC)\b", re.IGNORECASE | re.DOTALL)
"""Structs with numbers whose bounds delta-rs would write inexactly."""

MOST_FILES = 32
"""Files that one commit of the driver may rewrite; the footer of each is read before."""


class DriverWriter:
    """Commits to the tables of a warehouse from the driver."""

    def __init__(self, logs: DeltaLogs, sizes: Sizes, *, in_s3: bool = True) -> None:
        """Takes the cached logs of the tables, the limits of what the driver rewrites, and whether it writes to S3."""
        self._logs, self._sizes, self._in_s3 = logs, sizes, in_s3

    def may_append(self, path: str, table: Table, number: int, *, marked: bool = False) -> bool:
        """Returns whether delta-rs may append so many rows to a table, or create it with them.

        `marked`: also if the table may have deletion vectors.
        """
        refused = (OTHERWISE_STORED, INEXACT_INSIDE)
        if (
            not storage.has_exclusive_writes(path)
            or (storage.is_s3(path) and not self._in_s3)
            or table.partition_by
            or any(pattern.search(dtype) for _, dtype in table.columns for pattern in refused)
        ):
            return False
        stored = self._logs.table(path)
        if stored is None:  # a folder that is there already has files of a table whose log is gone
            return number <= self._sizes.rewritten_rows and not storage.has_files(path)
        # Other names: adding columns has begun.
        names = [f.name for f in stored.schema().fields]
        # delta-rs would copy wrong bounds into its next checkpoint.
        return (
            names == table.names
            and may_be_written_in_process(stored, marked=marked)
            and self._logs.has_exact_bounds(path)
        )

    def append(
        self,
        path: str,
        rows: pa.Table,
        table: Table,
        user_metadata: str,
        columns: pa.Schema,
        *,
        only_at: int | None = None,
    ) -> None:
        """Appends rows to a table for which `may_append` is true; creates it if it does not exist.

        A table that the driver creates has no deletion vectors: delta-rs cannot write to tables with them.

        Args:
            path: the table's folder.
            rows: the rows; columns that the table does not have are left out.
            table: the table.
            user_metadata: of the commit.
            columns: the columns of the table as Arrow's.
            only_at: the version that the table must have; default: any.

        Raises:
            CommitFailedError: the table has another version, or got one meanwhile.
        """
        stored = self._logs.table(path)
        if only_at is not None and (stored is None or stored.version() != only_at):
            raise CommitFailedError(f"{table.name} is not at version {only_at} any more")
        created = stored is None
        written = rows.select(table.names).cast(_commented(columns, table) if created else columns)
        write_deltalake(
            stored or path,
            written,
            mode="append",
            description=table.description or None if created else None,
            configuration=table.small_properties if created else None,
            storage_options=storage.delta_options(path) if created else None,
            writer_properties=self._files(columns, _far_dates(written)),
            commit_properties=_properties(user_metadata, 0 if only_at is not None else None),
        )
        if stored is not None:
            self._logs.keep(path, stored)

    def rewritable(self, path: str, table: Table, where: Sequence[Condition]) -> DeltaTable | None:
        """Returns a table whose files the driver may rewrite; None if Spark must.

        Args:
            path: the table's folder.
            table: the table.
            where: conditions that all rows meet that are to be replaced; files without such rows stay.
        """
        stored = self._logs.table(path)
        if stored is None or not self.may_append(path, table, 0):
            return None
        files = self._logs.plain_files(path, stored.version(), MOST_FILES, where)
        if files is None or files.bytes > self._sizes.rewritten_bytes or files.rows > self._sizes.rewritten_rows:
            return None
        try:
            on_disk = files.fetched(self._sizes.fetched_bytes)
            exact = on_disk is not None and all(is_exact(pq.read_metadata(file)) for file in on_disk.paths)
        except DAMAGED:  # Spark reports it
            return None
        return stored if exact else None

    def merge(
        self,
        stored: DeltaTable,
        rows: pa.Table,
        table: Table,
        user_metadata: str,
        columns: pa.Schema,
        *,
        delete_when: str | None,
    ) -> None:
        """Updates the rows of a small table whose keys are in `rows`, and inserts the others.

        Args:
            stored: the table, which is `rewritable`.
            rows: the columns of the table and `delete_when`; one row per key.
            table: the table; its keys identify a row.
            user_metadata: of the commit.
            columns: the columns of the table as Arrow's.
            delete_when: a BOOLEAN column of `rows`; a row in which it is true is removed from the table.
        """
        values = {quote(name): f"s.{quote(name)}" for name in table.names}
        live = None if delete_when is None else f"NOT s.{quote(delete_when)}"
        source = rows.select(table.names).cast(columns)
        if delete_when is not None:
            source = source.append_column(delete_when, rows[delete_when])
        merge = stored.merge(
            source,
            table.same_key("t", "s"),
            source_alias="s",
            target_alias="t",
            writer_properties=self._files(columns),
            commit_properties=_properties(user_metadata),
        )
        if delete_when is not None:
            merge = merge.when_matched_delete(f"s.{quote(delete_when)}")
        merge.when_matched_update(values).when_not_matched_insert(values, live).execute()

    def replace(
        self,
        stored: DeltaTable,
        rows: pa.Table,
        table: Table,
        user_metadata: str,
        columns: pa.Schema,
        *,
        predicate: str,
    ) -> None:
        """Replaces the rows that match a predicate by rows that match it too.

        Args:
            stored: the table, which is `rewritable`.
            rows: the new rows.
            table: the table.
            user_metadata: of the commit.
            columns: the columns of the table as Arrow's.
            predicate: SQL that Spark and DataFusion understand alike.
        """
        write_deltalake(
            stored,
            rows.select(table.names).cast(columns),
            mode="overwrite",
            predicate=predicate,
            writer_properties=self._files(columns),
            commit_properties=_properties(user_metadata),
        )

    def _files(self, columns: pa.Schema, boundless: Sequence[str] = ()) -> WriterProperties:
        """Returns the properties of files: small row groups, without bounds of numbers that delta-rs tells inexactly.

        Its bounds of floating-point numbers leave out NaN, which Spark takes as the greatest number. Its bounds of
        decimals in the log are floating-point numbers, exact for short ones only. A reader with a condition on such a
        column would skip files that have wanted rows.
        """
        inexact = [
            column.name
            for column in columns
            if pa.types.is_floating(column.type) or (pa.types.is_decimal(column.type) and not is_short(column.type))
        ]
        without = dict.fromkeys([*inexact, *boundless], ColumnProperties(statistics_enabled="NONE"))
        return WriterProperties(max_row_group_size=self._sizes.rows_per_group, column_properties=without or None)


def _far_dates(rows: pa.Table) -> list[str]:
    """Returns the columns with dates outside of the years 1 to 9999, of which delta-rs cannot tell bounds."""
    dates = {field.name: rows[field.name] for field in rows.schema if pa.types.is_date32(field.type)}
    return [name for name, days in dates.items() if days.null_count < len(days) and days_of(days) is None]


def arrow_columns(schema: T.StructType) -> pa.Schema:
    """Returns the columns of a table as Arrow's, nullable throughout, as in every table that Spark creates."""
    return to_arrow_schema(schema.toNullable(), timezone="UTC")


def _commented(columns: pa.Schema, table: Table) -> pa.Schema:
    """Returns the columns of a table with their comments."""
    texts = {name: {COMMENT: text} for name, text in table.comments.items()}
    return pa.schema([column.with_metadata(texts.get(column.name)) for column in columns])


def _properties(user_metadata: str, retries: int | None = None) -> CommitProperties:
    return CommitProperties(custom_metadata={"userMetadata": user_metadata}, max_commit_retries=retries)


def one_per_key(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Returns one row of every key: the first one."""
    place = "_fk_place"
    # 0.0 and -0.0 are one key to Spark, and two to Arrow.
    values = [pc.add(rows[key], 0.0) if pa.types.is_floating(rows[key].type) else rows[key] for key in keys]
    numbered = pa.table([*values, pa.array(range(len(rows)), pa.int64())], names=[*keys, place])
    first = numbered.group_by([*keys], use_threads=False).aggregate([(place, "min")])[f"{place}_min"]
    return rows if len(first) == len(rows) else rows.take(first)
