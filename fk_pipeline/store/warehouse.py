"""The Delta tables of one pipeline: pinned reads, and the only place that commits.

Every commit covers one table and carries `{pipeline, stage, batches, run_id}` as Delta user metadata.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.environment.storage import PATHS_AS_THEY_ARE
from fk_pipeline.errors import StateError
from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import quote
from fk_pipeline.store import faults
from fk_pipeline.store.local import look_up, read_here
from fk_pipeline.store.logs import DeltaLogs, PlainFiles
from fk_pipeline.store.marked import AT, IN, places, unmarked
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.settings import settings, writing
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.skipping import Condition, Within, among, exactly, nameable

LISTED_IN_THE_DRIVER = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""Up to so many files of a table are read as Parquet: Delta would run several jobs to find the files (ADR 0005)."""

UNLIMITED = sys.maxsize

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

WRITABLE = {"appendOnly", "invariants", "timestampNtz"}
"""Features of a table's writer that delta-rs and Spark have alike."""

OTHERWISE_STORED = re.compile(r"\b(ARRAY|MAP|INTERVAL|VARIANT|OBJECT|CHAR|VARCHAR|VOID)\b", re.IGNORECASE)
"""Types of which delta-rs may write Parquet that differs from Spark's."""

UNCHECKED = {"spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false"}
"""Delta would compare every row that a commit writes with the keys that it names, outside of any compiled plan."""


@dataclass(frozen=True)
class CommitInfo:
    """What a commit is for, stored in the Delta history; and whether it may be made."""

    pipeline: str
    stage: str
    batches: BatchRange
    run_id: str
    check: Callable[[], None] = lambda: None
    """Called before and after the commit; raises when it must not be made, or came too late: the stage stays due."""

    def as_json(self) -> str:
        """The user metadata of the commit."""
        return json.dumps(
            {"pipeline": self.pipeline, "stage": self.stage, "batches": str(self.batches), "run_id": self.run_id}
        )


def empty(session: SparkSession, columns: Sequence[tuple[str, str]]) -> DataFrame:
    """No rows, with these columns (name, DDL type). Unlike `createDataFrame` it starts no Python worker."""
    nulls = [f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in columns]
    return session.range(1).selectExpr(*nulls).limit(0)  # Spark drops joins with a limit of 0 when it plans


class Warehouse:
    """Reads and commits the tables under one folder or URI.

    Args:
        session: the Spark session.
        home: the folder or URI.
        elsewhere: by table, the folder or URI of one that lies in another.
        sizes: at which it takes another way.
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
        """By path, the version that was last read whole: its number, its files, its rows."""

    def path(self, name: str) -> str:
        """Where a table lies."""
        return f"{self._elsewhere.get(name, self.home)}/{name}"

    def version(self, name: str) -> int | None:
        """The current Delta version of a table; None when it does not exist."""
        return self.logs.version(self.path(name))

    def read(self, table: Table, version: int | None = None, where: Sequence[Condition] = ()) -> DataFrame:
        """The rows of a table at one fixed version (default: the current one); empty when it does not exist.

        A stage reads each table at one version: a commit by another stage in the meantime is not seen. A version from
        before a column was added has it as null.

        Args:
            table: the table.
            version: its version.
            where: what all wanted rows meet; files and pages without such rows are left unread.
        """
        if version is None:
            version = self.version(table.name)
        if version is None:
            return empty(self.session, table.columns)
        path = self.path(table.name)
        files = self._files(table, version, where)
        if files is not None and not files.paths:
            return empty(self.session, table.columns)
        most_marked = self.sizes.marked_rows
        if not where and files is not None and files.rows > most_marked:
            most_marked = min(most_marked, 0)
        if files is not None and files.marked > most_marked:
            files = None
        if files is None:
            frame = self.session.read.format("delta").option("versionAsOf", version).load(path)
            return _with_all(_meeting(where, frame), frame.columns, table)
        if where:
            return self._plain(files, table, where)
        known = self._whole.get(path)
        if known is None or known[:2] != (version, files.paths):  # a table made anew has files of other names
            known = self._whole[path] = version, files.paths, self._plain(files, table)
        return known[2]

    def _plain(self, files: PlainFiles, table: Table, where: Sequence[Condition] = ()) -> DataFrame:
        """The rows of Parquet files, without those that a deletion vector marks."""
        schema = T.StructType.fromJson(files.schema)
        frame = _meeting(where, self.session.read.schema(schema).options(**PATHS_AS_THEY_ARE).parquet(*files.paths))
        condition = unmarked(files.deleted, self.sizes)
        if condition is not None:
            frame = frame.where(condition)
        elif files.marked:
            marked = self.session.createDataFrame(places(files.deleted))
            place = {IN: F.col("_metadata.file_name"), AT: F.col("_metadata.row_index")}
            frame = frame.withColumns(place).join(F.broadcast(marked), [*place], "left_anti").drop(*place)
        return frame if schema.names == table.names else _with_all(frame, schema.names, table)

    def read_here(self, table: Table, version: int, columns: Iterable[str], within: Within) -> pa.Table | None:
        """The rows of some batches, read in the driver; None where they lie in large files, or only Spark can tell.

        Args:
            table: the table.
            version: its version.
            columns: the columns that are wanted.
            within: the batches.
        """
        files = self._files(table, version, [within])
        return None if files is None else read_here(files, list(columns), within, self.sizes)

    def look_up(
        self,
        table: Table,
        version: int,
        keys: Mapping[str, pa.ChunkedArray],
        columns: Sequence[str],
        within: Sequence[Within] = (),
    ) -> pa.Table | None:
        """Rows with some values in their key columns, or more, read in the driver; None where Spark is to find them.

        The driver looks for them where it is the machine that Spark works on.

        Args:
            table: the table.
            version: its version.
            keys: by key column, its values.
            columns: the columns that are wanted.
            within: batches that the rows are of besides.
        """
        if not self.reads_in_the_driver:
            return None
        where = [*among(pa.table(keys), {name: name for name in keys}, {}, self.sizes), *within]
        files = self.logs.plain_files(self.path(table.name), version, UNLIMITED, where)
        if files is None:
            return None
        number = max(len(values) for values in keys.values())
        share = len(columns) / len(files.schema["fields"])
        if files.bytes * share > self.sizes.scanned_bytes and files.rows > number * self.sizes.scanned_rows_per_key:
            return None
        return look_up(files, columns, keys, within, self.sizes)

    @cached_property
    def reads_in_the_driver(self) -> bool:
        """Spark runs in this machine alone."""
        return str(self.session.conf.get("spark.master", "")).startswith("local")

    def rows_at(self, table: Table, version: int, within: Within) -> int | None:
        """How many rows the files have that hold those of some batches; None where only Spark can tell."""
        files = self._files(table, version, [within])
        return None if files is None else files.rows

    def _files(self, table: Table, version: int, where: Sequence[Condition]) -> PlainFiles | None:
        """The files of a table at a version, or those that may have wanted rows; None where Delta has to find them."""
        few = int(self.session.conf.get(LISTED_IN_THE_DRIVER) or 0)
        return self.logs.plain_files(self.path(table.name), version, few, where)

    def fits(self, table: Table) -> bool:
        """Whether the stored table has these columns."""
        stored = self.session.read.format("delta").load(self.path(table.name)).schema
        wanted = empty(self.session, table.columns).schema
        return [(f.name, f.dataType) for f in stored.fields] == [(f.name, f.dataType) for f in wanted.fields]

    def rows(self, tables: Iterable[Table]) -> int:
        """How many rows some tables have together."""
        return sum(self.logs.rows(self.path(table.name)) for table in tables)

    def bytes(self, table: Table) -> int:
        """How many bytes the files of a table have."""
        return self.logs.bytes(self.path(table.name))

    def width(self, table: Table, version: int, within: Sequence[Within]) -> int:
        """Bytes of a row as it is stored, on average: of all rows, or of those of some batches if these are wider."""
        path = self.path(table.name)
        found = [(self.logs.bytes(path), self.logs.rows(path))]
        files = self.logs.plain_files(path, version, UNLIMITED, within) if within else None
        found += [(files.bytes, files.rows)] if files is not None else []
        return max(size // max(1, rows) for size, rows in found)

    def nameable(self, table: Table) -> int:
        """How many keys of a table a commit may name."""
        if not table.keys:
            return 0
        kinds = dict(table.columns)
        keys = [(key, kinds[key]) for key in table.keys]
        return nameable(keys, table.sensitive, self.sizes, self.logs.span(self.path(table.name), table.keys[0]))

    def widths(self, table: Table, columns: Iterable[str]) -> dict[str, int]:
        """How far apart the values of integer columns are that lie a page apart, in a table written in their order."""
        bounds = {column: self.logs.span(self.path(table.name), column) for column in columns}
        pages = max(1, self.rows([table]) // self.sizes.rows_per_page)
        return {column: (span[1] - span[0]) // pages for column, span in bounds.items() if span is not None}

    def add_columns(self, table: Table, info: CommitInfo) -> None:
        """Gives a stored table the columns that it lacks, in their places, null in all rows; nothing is rewritten."""
        if self.version(table.name) is None:
            return
        stored = dict(self.session.read.format("delta").load(self.path(table.name)).dtypes)
        for name, kind in empty(self.session, table.columns).dtypes:
            if stored.get(name, kind) != kind:
                raise StateError(
                    f"column {name} of {table.name} is there already, as {stored[name]}",
                    where=self.path(table.name),
                    why="an edit of the schema was begun before, and undone; nothing was changed",
                    fix="fk-pipeline rebuild PIPELINE.yaml --from landing",
                )
        places = zip(table.columns, ["FIRST", *(f"AFTER {quote(name)}" for name in table.names)], strict=False)
        added = [f"{quote(name)} {kind} {place}" for (name, kind), place in places if name not in stored]
        if added:
            target = self.path(table.name).replace("`", "``")
            with self._commit_by_sql(table, info):
                self.session.sql(f"ALTER TABLE delta.`{target}` ADD COLUMNS ({', '.join(added)})")

    def append(self, frame: DataFrame, table: Table, info: CommitInfo) -> None:
        """Adds rows; creates the table if need be."""
        with self._commit(table, info):
            self._writer(frame, table, info).mode("append").save(self.path(table.name))

    def appends_locally(self, table: Table) -> bool:
        """Whether rows can be added to a table without Spark.

        It is there, on a local disk, without partitions and features of its own, and Arrow, Spark and delta-rs agree on
        how its columns are stored.
        """
        path = self.path(table.name)
        stored = None if "://" in path or table.partition_by else self.logs.table(path)
        if stored is None or any(OTHERWISE_STORED.search(kind) for _, kind in table.columns):
            return False
        if [f.name for f in stored.schema().fields] != table.names:  # columns were begun to be added
            return False
        protocol = stored.protocol()
        return protocol.min_writer_version <= 2 or set(protocol.writer_features or ()) <= WRITABLE

    def append_local(self, rows: pa.Table, table: Table, info: CommitInfo) -> None:
        """Adds rows that are in the driver without Spark, which takes a tenth of the time (ADR 0009).

        For tables of which `appends_locally` is true.
        """
        path = self.path(table.name)
        stored = self.logs.table(path)
        properties = CommitProperties(custom_metadata={"userMetadata": info.as_json()})
        with committing(table, info):
            write_deltalake(stored or path, rows.select(table.names), mode="append", commit_properties=properties)
        if stored is not None:
            self.logs.keep(path, stored)

    def replace(self, frame: DataFrame, table: Table, predicate: str, info: CommitInfo) -> None:
        """Replaces the rows that match a predicate by others that match it, in one commit."""
        if self.version(table.name) is None:
            self.append(frame, table, info)
            return
        writer = self._writer(frame, table, info).mode("overwrite").option("replaceWhere", predicate)
        with self._commit(table, info):
            writer.save(self.path(table.name))

    def delete(self, predicate: str, table: Table, info: CommitInfo) -> None:
        """Removes the rows that match a predicate, in one commit, or none where there are none."""
        target = self.path(table.name).replace("`", "``")
        with self._commit_by_sql(table, info):
            self.session.sql(f"DELETE FROM delta.`{target}` WHERE {predicate}").collect()

    def remove(self, rows: DataFrame, table: Table, info: CommitInfo) -> None:
        """Removes the rows that have the values of others in all columns of these, in one commit."""
        on = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in rows.columns)
        self._merge_by_sql(rows, table, info, f"ON {on} WHEN MATCHED THEN DELETE")

    def history(self, name: str) -> list[tuple[int, str]]:
        """The commits that the log of a table still has: version and user metadata, where there is some."""
        found = self.session.sql(f"DESCRIBE HISTORY delta.`{self.path(name)}`").where("userMetadata IS NOT NULL")
        return [(int(row[0]), row[1]) for row in found.select("version", "userMetadata").collect()]

    def pack(self, name: str, retention_hours: float) -> None:
        """Packs the small files of a table, and removes those that versions of the last hours do not need."""
        self.session.sql(f"OPTIMIZE delta.`{self.path(name)}`").collect()
        self.session.sql(f"VACUUM delta.`{self.path(name)}` RETAIN {retention_hours:f} HOURS").collect()

    def feed(self, table: Table, version: int) -> DataFrame:
        """What a commit changed, as the table's change feed has it."""
        options: dict[str, Any] = {"readChangeFeed": "true", "startingVersion": version, "endingVersion": version}
        return self.session.read.format("delta").options(**options).load(self.path(table.name))

    def _merge_by_sql(self, source: DataFrame, table: Table, info: CommitInfo, how: str) -> None:
        """A MERGE of `source`, as `s`, into a table, as `t`: `how` is its ON and what follows."""
        view, target = f"fk_source_{uuid.uuid4().hex}", self.path(table.name).replace("`", "``")
        source.createOrReplaceTempView(view)
        try:
            with self._commit_by_sql(table, info):
                self.session.sql(f"MERGE INTO delta.`{target}` t USING {view} s {how}")
        finally:
            self.session.catalog.dropTempView(view)

    def replace_all(self, frame: DataFrame, table: Table, info: CommitInfo) -> None:
        """Replaces rows, columns and properties of a table in one commit; its history stays."""
        target = self.path(table.name).replace("`", "``")
        writer = typed(frame, table).writeTo(f"delta.`{target}`").using("delta")
        for name, value in table.delta_properties.items():
            writer = writer.tableProperty(name, value)
        if table.partition_by:
            writer = writer.partitionedBy(*[F.col(name) for name in table.partition_by])
        with self._commit_by_sql(table, info):
            writer.createOrReplace()

    def rewrite(
        self, source: DataFrame, stays: DataFrame | None, table: Table, info: CommitInfo, *, delete_when: str | None
    ) -> None:
        """What `merge` does, by writing the whole table anew. In the change feed every row is a delete and an insert.

        Args:
            source: the columns of the table, and the columns that `delete_when` reads; one row per key.
            stays: the rows of the table with other keys; None if it has no rows.
            table: the table.
            info: of the commit.
            delete_when: SQL condition on source columns: the row is removed instead.
        """
        rows = typed(source if delete_when is None else source.where(f"NOT ({delete_when})"), table)
        if self.version(table.name) is None:
            self.append(rows, table, info)
            return
        whole = rows if stays is None else typed(stays, table).unionByName(rows)
        with self._commit(table, info):
            self._writer(whole, table, info).mode("overwrite").save(self.path(table.name))

    @contextmanager
    def _commit_by_sql(self, table: Table, info: CommitInfo) -> Iterator[None]:
        """A commit whose user metadata can only be set in the session."""
        self.session.conf.set(USER_METADATA, info.as_json())
        try:
            with self._commit(table, info):
                yield
        finally:
            self.session.conf.unset(USER_METADATA)

    @contextmanager
    def _commit(self, table: Table, info: CommitInfo) -> Iterator[None]:
        """A commit by Spark."""
        with settings(self.session, writing(self.sizes), optional=True), committing(table, info):
            yield

    def _writer(self, frame: DataFrame, table: Table, info: CommitInfo):  # type: ignore[no-untyped-def]
        writer = typed(frame, table).write.format("delta").option("userMetadata", info.as_json())
        for name, value in table.delta_properties.items():
            writer = writer.option(name, value)
        return writer.partitionBy(*table.partition_by) if table.partition_by else writer

    def merge(
        self,
        source: DataFrame,
        table: Table,
        info: CommitInfo,
        where: Sequence[Condition] = (),
        *,
        keys: pa.Table | None = None,
        delete_when: str | None = None,
        once: bool = True,
    ) -> None:
        """One MERGE of rows: update what is there, insert what is not.

        Rows whose keys a commit may name are put in place of those with their keys instead: half the jobs, and the
        change feed needs none of its own. Not where the key is sensitive: the log of the table would name the keys.

        Args:
            source: the columns of the table, and the columns that `delete_when` reads.
            table: the table; its keys identify a row.
            info: of the commit.
            where: what all rows of the table with keys of `source` meet; what does not is left unread.
            keys: of `source`, if they are in the driver; each once.
            delete_when: SQL condition on source columns: the row is removed instead.
            once: the keys of `source` are unique; else any of the rows of a key is taken.
        """
        exact = None
        if keys is not None and len(keys) <= self.nameable(table) and self.version(table.name) is not None:
            exact = exactly(keys, table.keys[0], self.sizes)
        if exact is None and not once:
            source, once = source.dropDuplicates([*table.keys]), True
        rows = source if delete_when is None else source.where(f"NOT ({delete_when})")
        if self.version(table.name) is None:
            self.append(rows, table, info)
            return
        if keys is not None and exact is not None:
            predicate = " AND ".join([exact, *[condition.sql() for condition in where]])
            # What is in the order of its keys needs no further sort to be told apart by them.
            ordered = _in_files(rows, table.keys, len(keys), self.sizes)
            with settings(self.session, UNCHECKED):
                self.replace(ordered if once else ordered.dropDuplicates([*table.keys]), table, predicate, info)
            return
        self._merge(source, table, info, where, delete_when)

    def _merge(
        self, source: DataFrame, table: Table, info: CommitInfo, where: Sequence[Condition], delete_when: str | None
    ) -> None:
        on = " AND ".join([*[f"t.{quote(k)} = s.{quote(k)}" for k in table.keys], *[c.sql("t.") for c in where]])
        columns = [quote(n) for n in table.names]
        update = ", ".join(f"t.{c} = s.{c}" for c in columns)
        insert = f"INSERT ({', '.join(columns)}) VALUES ({', '.join(f's.{c}' for c in columns)})"
        delete = f"WHEN MATCHED AND s.{delete_when} THEN DELETE " if delete_when else ""
        guard = f" AND NOT s.{delete_when}" if delete_when else ""
        matched = f"{delete}WHEN MATCHED THEN UPDATE SET {update}"
        self._merge_by_sql(source, table, info, f"ON {on} {matched} WHEN NOT MATCHED{guard} THEN {insert}")


def _meeting(where: Sequence[Condition], frame: DataFrame) -> DataFrame:
    """The rows that meet all conditions."""
    return reduce(lambda rows, condition: rows.where(condition.sql()), where, frame)


def _with_all(frame: DataFrame, stored: Sequence[str], table: Table) -> DataFrame:
    """The columns of a table; those that a version from before they were added does not have are null."""
    there = {name.lower() for name in stored}
    return frame.selectExpr(
        *[
            quote(name) if name.lower() in there else f"CAST(NULL AS {kind}) AS {quote(name)}"
            for name, kind in table.columns
        ]
    )


def _in_files(frame: DataFrame, keys: Sequence[str], rows: int, sizes: Sizes) -> DataFrame:
    """Changed rows in one file, or in files of about `rows_per_file` that are sorted by their keys."""
    if rows <= sizes.sorted_rows:
        return frame.coalesce(1)
    names = [quote(name) for name in keys]
    return frame.repartition(max(1, round(rows / sizes.rows_per_file)), *names).sortWithinPartitions(*names)


def clustered(frame: DataFrame, columns: Sequence[str], rows: int, sizes: Sizes) -> DataFrame:
    """Rows in the order of some columns, in files of about `rows_per_file`, so that few files and pages have a key."""
    names = [quote(name) for name in columns]
    files = max(1, round(rows / sizes.rows_per_file))
    return (frame.coalesce(1) if files == 1 else frame.repartitionByRange(files, *names)).sortWithinPartitions(*names)


def typed(frame: DataFrame, table: Table) -> DataFrame:
    """The columns of a table, in its order and with its types."""
    return frame.select(*[F.col(quote(name)).cast(kind).alias(name) for name, kind in table.columns])


@contextmanager
def committing(table: Table, info: CommitInfo) -> Iterator[None]:
    """A commit, where it may be made, and where tests let a run die."""
    info.check()
    with faults.around(f"commit of {table.name}"):
        yield
    info.check()
