"""Reads the Delta tables of one pipeline at pinned versions, and skips files and pages without wanted rows.

Makes no commits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.environment.storage import PATHS_AS_THEY_ARE, is_s3
from fk_pipeline.frames import empty
from fk_pipeline.spec import quote
from fk_pipeline.store.deletion_vectors import AT, IN, places, unmarked
from fk_pipeline.store.local import greatest, locate, look_up, read_in_process
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.skipping import Between, Condition, InRange, Within, among, nameable
from fk_pipeline.store.table_files import PlainFiles

LISTED_IN_THE_DRIVER = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""The setting with the most files of a table that are read as Parquet: Delta needs several jobs to find files.

See ADR 0005.
"""

UNLIMITED = sys.maxsize


_FOOTER_ROWS = 100
"""Rows of a table below which its bytes tell nothing of their width: the footer of a file has some thousand bytes."""


class StoredTables:
    """Reads the tables under one folder or URI.

    Args:
        session: the Spark session.
        home: the folder or URI.
        elsewhere: per table that is in another place, its path or URI.
        sizes: the sizes at which it reads in another way.
    """

    def __init__(
        self,
        session: SparkSession,
        home: str,
        elsewhere: Mapping[str, str] | None = None,
        sizes: Sizes | None = None,
    ) -> None:
        self.session = session
        self.sizes = sizes or Sizes()
        self.home = home.rstrip("/")
        self.logs = DeltaLogs()
        self._elsewhere = elsewhere or {}
        self._whole: dict[str, tuple[int, tuple[str, ...], DataFrame]] = {}
        """Per path, the version that was last read whole: its number, its files, its rows."""

    def path(self, name: str) -> str:
        """Returns the path or URI of a table."""
        return self._elsewhere.get(name, f"{self.home}/{name}")

    def _in_sql(self, name: str) -> str:
        """Returns a table as SQL names it."""
        return f"delta.{quote(self.path(name))}"

    def version(self, name: str) -> int | None:
        """Returns the current Delta version of a table; None if it does not exist."""
        return self.logs.version(self.path(name))

    def read(self, table: Table, version: int | None = None, where: Sequence[Condition] = ()) -> DataFrame:
        """Returns the rows of a table at one fixed version (default: the current one); empty if it does not exist.

        A stage reads each table at one version, so it does not see commits of other stages in the meantime. A column
        that was added after the version is null.

        Args:
            table: the table.
            version: its version.
            where: conditions that all wanted rows meet; files and pages without such rows are not read.
        """
        if version is None:
            version = self.version(table.name)
        if version is None:
            return empty(self.session, table.columns)
        path = self.path(table.name)
        # Delta compares the sizes of files with the log; on a disk `plain_files` does, and in S3 only `fetched`.
        files = None if is_s3(path) else self._files(table, version, where)
        if files is not None and not files.paths:
            return empty(self.session, table.columns)
        most_deleted_rows = self.sizes.deletion_vector_rows
        if not where and files is not None and files.rows > most_deleted_rows:
            most_deleted_rows = min(most_deleted_rows, 0)
        if files is not None and files.marked > most_deleted_rows:
            files = None
        if files is None:
            frame = self.session.read.format("delta").option("versionAsOf", version).load(path)
            return _with_all(_meeting(where, frame), frame.columns, table)
        if where:
            return self._plain(files, table, where)
        known = self._whole.get(path)
        if known is None or known[:2] != (version, files.paths):  # a table that was replaced has files with other names
            known = self._whole[path] = version, files.paths, self._plain(files, table)
        return known[2]

    def _plain(self, files: PlainFiles, table: Table, where: Sequence[Condition] = ()) -> DataFrame:
        """Returns the rows of Parquet files, without those in deletion vectors."""
        stored = T.StructType.fromJson(files.schema)
        schema = T.StructType([T.StructField(f.name, f.dataType) for f in stored])  # comments stay with the table
        frame = _meeting(where, self.session.read.schema(schema).options(**PATHS_AS_THEY_ARE).parquet(*files.paths))
        condition = unmarked(files.deleted, self.sizes)
        if condition is not None:
            frame = frame.where(condition)
        elif files.marked:
            marked = self.session.createDataFrame(places(files.deleted))
            place = {IN: F.col("_metadata.file_name"), AT: F.col("_metadata.row_index")}
            frame = frame.withColumns(place).join(F.broadcast(marked), [*place], "left_anti").drop(*place)
        return frame if schema.names == table.names else _with_all(frame, schema.names, table)

    def read_in_process(self, table: Table, version: int, columns: Iterable[str], within: Within) -> pa.Table | None:
        """Returns the rows of some batches, read in the driver; None if files are large or only Spark can read them.

        Args:
            table: the table.
            version: its version.
            columns: the columns to return.
            within: the batches.
        """
        files = self._files(table, version, [within])
        return None if files is None else read_in_process(files, list(columns), within, self.sizes)

    def look_up(
        self,
        table: Table,
        version: int,
        keys: Mapping[str, pa.ChunkedArray],
        columns: Sequence[str],
        within: Sequence[InRange] = (),
        sizes: Sizes | None = None,
    ) -> pa.Table | None:
        """Returns rows with some values in their key columns, and maybe more, read in the driver; None if Spark must.

        The driver reads them only if Spark runs on the same machine.

        Args:
            table: the table.
            version: its version.
            keys: per key column, the values that a row may have.
            columns: the columns to return.
            within: conditions on the batches or times of the rows.
            sizes: the limits for what is read; None: those of the warehouse.
        """
        if not self.reads_in_the_driver:
            return None
        where = [*among(pa.table(keys), {name: name for name in keys}, {}, self.sizes), *within]
        files = self.logs.plain_files(self.path(table.name), version, UNLIMITED, where)
        if files is None:
            return None
        number = max((len(values) for values in keys.values()), default=0)
        share = len(columns) / len(files.schema["fields"])
        # Spark skips pages without wanted keys if a table is sorted by them. Logs and indexes are, others by their key.
        few_pages = not keys or not table.keys or next(iter(keys)) == table.keys[0]
        much = files.bytes * share > self.sizes.scanned_bytes
        if few_pages and much and files.rows > number * self.sizes.scanned_rows_per_key:
            return None
        return look_up(files, columns, keys, within, sizes or self.sizes)

    def locate(self, table: Table, version: int, keys: pa.Table) -> pa.Table | None:
        """Returns the keys and places of the rows with some keys, and maybe of more; None if Spark must find them.

        Args:
            table: the table.
            version: its version.
            keys: the keys of the table; a null in a nullable key equals null.
        """
        if not self.reads_in_the_driver:
            return None
        named = {name: name for name in table.keys if name not in table.nullable_keys}
        where = among(keys, named, {}, self.sizes)
        files = self.logs.plain_files(self.path(table.name), version, UNLIMITED, where)
        return None if files is None else locate(files, keys.select([*table.keys]), self.sizes)

    def greatest(self, table: Table, version: int, column: str) -> list[int] | None:
        """Returns the greatest value of a column per file that may have the greatest of all; None if Spark must read.

        Args:
            table: the table.
            version: its version.
            column: a column with integers, or with timestamps, which count in microseconds since 1970.
        """
        path = self.path(table.name)
        if not self.reads_in_the_driver:
            return None
        where = [Between.of(table, column, self.logs.floor(path, version, column), None)]
        files = self.logs.plain_files(path, version, UNLIMITED, where)
        return None if files is None else greatest(files, column, self.sizes)

    @cached_property
    def reads_in_the_driver(self) -> bool:
        """Whether Spark runs on this machine only."""
        return str(self.session.conf.get("spark.master", "")).startswith("local")

    def rows_at(self, table: Table, version: int, within: Within) -> int | None:
        """Returns the number of rows in the files that may have rows of some batches; None if only Spark can tell."""
        files = self._files(table, version, [within])
        return None if files is None else files.rows

    def _files(self, table: Table, version: int, where: Sequence[Condition]) -> PlainFiles | None:
        """Returns the files of a table at a version that may have wanted rows; None if Delta has to find them."""
        at_most = int(self.session.conf.get(LISTED_IN_THE_DRIVER) or 0)
        return self.logs.plain_files(self.path(table.name), version, at_most, where)

    def rows(self, tables: Iterable[Table]) -> int:
        """Returns the number of rows of some tables together."""
        return sum(self.logs.rows(self.path(table.name)) for table in tables)

    def bytes(self, table: Table) -> int:
        """Returns the size of the files of a table in bytes."""
        return self.logs.bytes(self.path(table.name))

    def width(self, table: Table, version: int, within: Sequence[Within]) -> int:
        """Returns the average stored bytes per row: of all rows, or of the rows of some batches if these are wider."""
        path = self.path(table.name)
        totals = [(self.logs.bytes(path), self.logs.rows(path))]
        files = self.logs.plain_files(path, version, UNLIMITED, within) if within else None
        totals += [(files.bytes, files.rows)] if files is not None else []
        return max(size // max(_FOOTER_ROWS, rows) for size, rows in totals)

    def nameable(self, table: Table) -> int:
        """Returns the largest number of keys of a table that a commit may name."""
        return nameable(table, self.sizes, lambda column: self.logs.span(self.path(table.name), column))

    def widths(self, table: Table, columns: Iterable[str]) -> dict[str, int]:
        """Returns, per integer column, the distance of values one page apart, in a table written in their order."""
        bounds = {column: self.logs.span(self.path(table.name), column) for column in columns}
        pages = max(1, self.rows([table]) // self.sizes.rows_per_page)
        return {column: (span[1] - span[0]) // pages for column, span in bounds.items() if span is not None}

    def history(self, name: str) -> list[tuple[int, str]]:
        """Returns the commits with user metadata that the log of a table still has: version and user metadata."""
        commits = self.session.sql(f"DESCRIBE HISTORY {self._in_sql(name)}").where("userMetadata IS NOT NULL")
        return [(int(row[0]), row[1]) for row in commits.select("version", "userMetadata").collect()]

    def feed(self, table: Table, version: int) -> DataFrame:
        """Returns the rows that a commit changed, as in the table's change feed."""
        options: dict[str, Any] = {"readChangeFeed": "true", "startingVersion": version, "endingVersion": version}
        return self.session.read.format("delta").options(**options).load(self.path(table.name))


def _meeting(where: Sequence[Condition], frame: DataFrame) -> DataFrame:
    """Returns the rows that meet all conditions."""
    return reduce(lambda rows, condition: rows.where(condition.sql()), where, frame)


def _with_all(frame: DataFrame, stored: Sequence[str], table: Table) -> DataFrame:
    """Returns the columns of a table; columns that were added after the stored version are null."""
    present = {name.lower() for name in stored}
    return frame.selectExpr(
        *[
            quote(name) if name.lower() in present else f"CAST(NULL AS {dtype}) AS {quote(name)}"
            for name, dtype in table.columns
        ]
    )
