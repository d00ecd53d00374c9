"""Commits to the Delta tables of one pipeline, by Spark. Only the driver commits to them besides (`driver_commits`).

Every commit covers one table and carries `{pipeline, stage, batches, run_id}` as Delta user metadata.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.errors import StateError
from fk_pipeline.frames import empty
from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import text
from fk_pipeline.store.commit import CommitInfo, committing
from fk_pipeline.store.driver_commits import DriverCommits
from fk_pipeline.store.schemas import COMMENT, DELETION_VECTORS, STATISTICS, Table
from fk_pipeline.store.settings import RECORDED, file_settings, settings
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.skipping import Condition, exactly
from fk_pipeline.store.tables import StoredTables
from fk_pipeline.table_features import may_have_vectors, refuse_changes

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

UNCHECKED = {"spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false"}
"""Turns off Delta's check of replaced rows: it would compare every written row with all keys in the predicate of the
commit, outside of any compiled plan.
"""


class Warehouse(StoredTables):
    """Reads the tables under one folder or URI, and commits to them."""

    @cached_property
    def driver(self) -> DriverCommits:
        """Commits without Spark."""
        return DriverCommits(self)

    def add_columns(self, table: Table, info: CommitInfo) -> None:
        """Adds to a stored table the columns that it lacks, each in its place and null in all rows; rewrites no file.

        Raises:
            StateError: the table has one of the columns with another type.
        """
        if self.version(table.name) is None:
            return
        stored = dict(self.session.read.format("delta").load(self.path(table.name)).dtypes)
        for name, dtype in empty(self.session, table.columns).dtypes:
            if stored.get(name, dtype) != dtype:
                raise StateError(
                    f"column {name} of {table.name} is there already, as {stored[name]}",
                    where=self.path(table.name),
                    why="an edit of the schema was begun before, and undone; nothing was changed",
                    fix="fk-pipeline rebuild PIPELINE.yaml --from landing",
                )
        places = zip(table.columns, ["FIRST", *(f"AFTER {quote(name)}" for name in table.names)], strict=False)
        added = [f"{quote(name)} {dtype} {place}" for (name, dtype), place in places if name not in stored]
        if added:
            with self._commit_by_sql(table, info):
                self.session.sql(f"ALTER TABLE {self._in_sql(table.name)} ADD COLUMNS ({', '.join(added)})")

    def create(self, table: Table, info: CommitInfo) -> None:
        """Creates a table without rows if it does not exist, as its first rows would."""
        if self.version(table.name) is None:
            self.tell(table, info)

    def tell(self, table: Table, info: CommitInfo) -> None:
        """Makes a commit without rows, for the facts that it carries; creates the table if it does not exist."""
        if not self.driver.tell(table, info):
            with settings(self.session, RECORDED):
                self.append(empty(self.session, table.columns), table, info)

    def append(self, frame: DataFrame, table: Table, info: CommitInfo) -> None:
        """Appends rows; creates the table if it does not exist."""
        writer = self._writer(frame, table, info).mode("append")
        with self._commit(table, info, adds=True):
            writer.save(self.path(table.name))

    def replace(self, frame: DataFrame, table: Table, predicate: str, info: CommitInfo) -> None:
        """Replaces the rows that match a predicate by rows that match it too, in one commit."""
        if self.version(table.name) is None:
            self.append(frame, table, info)
            return
        writer = self._writer(frame, table, info).mode("overwrite").option("replaceWhere", predicate)
        with self._commit(table, info):
            writer.save(self.path(table.name))

    def delete(self, predicate: str, table: Table, info: CommitInfo) -> None:
        """Removes the rows that match a predicate, in one commit; makes no commit if there are none."""
        with self._commit_by_sql(table, info):
            self.session.sql(f"DELETE FROM {self._in_sql(table.name)} WHERE {predicate}").collect()

    def remove(self, rows: DataFrame, table: Table, info: CommitInfo) -> None:
        """Removes the rows that equal a row of `rows` in all columns of `rows`, in one commit."""
        on = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in rows.columns)
        self._merge_by_sql(rows, table, info, f"ON {on} WHEN MATCHED THEN DELETE")

    def describe(self, table: Table) -> None:
        """Gives a stored table the description, comments and statistics that it lacks or has otherwise; no row changes.

        It has others if Spark has created it, or an older version, or if the pipeline file was edited.
        """
        stored = self.logs.table(self.path(table.name))
        if stored is None:
            return
        about, fields = stored.metadata(), json.loads(stored.schema().to_json())["fields"]
        properties = {name: value for name, value in table.statistics.items() if about.configuration.get(name) != value}
        if table.description != (about.description or ""):
            properties["comment"] = table.description
        comments = {column["name"]: column["metadata"].get(COMMENT) for column in fields}
        other = {name: value for name, value in table.comments.items() if comments.get(name, value) != value}
        with settings(self.session, file_settings(self.sizes), optional=True):  # a commit may write a checkpoint
            if properties and {*table.skip_by} <= {*comments}:
                self.session.sql(f"ALTER TABLE {self._in_sql(table.name)} {_setting(properties)}")
            if other:
                columns = ", ".join(f"{quote(name)} COMMENT {text(value)}" for name, value in other.items())
                self.session.sql(f"ALTER TABLE {self._in_sql(table.name)} ALTER COLUMN {columns}")

    def withdraw_statistics(self, table: Table, info: CommitInfo) -> None:
        """Takes columns that have become sensitive off the statistics of a stored table, before anything is written.

        Commits write bounds of the columns that the table names, not of those that the pipeline file does.
        """
        stored = self.logs.table(self.path(table.name))
        named = "" if stored is None else stored.metadata().configuration.get(STATISTICS, "")
        secret = [name for name in table.sensitive - {*table.skip_by} if quote(name) in named.split(",")]
        if secret:
            with self._commit_by_sql(table, info):
                self.session.sql(f"ALTER TABLE {self._in_sql(table.name)} {_setting(table.statistics)}")

    def pack(self, name: str, retention_hours: float) -> None:
        """Packs the small files of a table, and removes those that no version of the last `retention_hours` needs."""
        with settings(self.session, file_settings(self.sizes), optional=True):
            self.session.sql(f"OPTIMIZE {self._in_sql(name)}").collect()
            self.session.sql(f"VACUUM {self._in_sql(name)} RETAIN {retention_hours:f} HOURS").collect()

    def _merge_by_sql(self, source: DataFrame, table: Table, info: CommitInfo, how: str) -> None:
        """Runs a MERGE of `source`, alias `s`, into a table, alias `t`; `how` is the text from ON onwards."""
        view = f"fk_source_{uuid.uuid4().hex}"
        source.createOrReplaceTempView(view)
        try:
            with self._commit_by_sql(table, info):
                self.session.sql(f"MERGE INTO {self._in_sql(table.name)} t USING {view} s {how}")
        finally:
            self.session.catalog.dropTempView(view)

    def replace_all(self, frame: DataFrame, table: Table, info: CommitInfo) -> None:
        """Replaces rows, columns and properties of a table in one commit; its history stays."""
        writer = typed(frame, table, commented=True).writeTo(self._in_sql(table.name)).using("delta")
        about = {"comment": table.description} if table.description else {}
        for name, value in (about | table.delta_properties).items():
            writer = writer.tableProperty(name, value)
        if table.partition_by:
            writer = writer.partitionedBy(*[F.col(name) for name in table.partition_by])
        with self._commit_by_sql(table, info):
            writer.createOrReplace()

    def rewrite(
        self, source: DataFrame, stays: DataFrame | None, table: Table, info: CommitInfo, *, delete_when: str | None
    ) -> None:
        """Merges rows as `merge` does, but rewrites the whole table.

        In the change feed every row is then a delete and an insert.

        Args:
            source: the columns of the table, and the columns that `delete_when` reads; one row per key.
            stays: the rows of the table with other keys; None if there are none.
            table: the table.
            info: of the commit.
            delete_when: SQL condition on source columns: a row that meets it is removed instead.
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
        """Wraps a commit by SQL, whose user metadata can only be set in the session."""
        self.session.conf.set(USER_METADATA, info.as_json())
        try:
            with self._commit(table, info):
                yield
        finally:
            self.session.conf.unset(USER_METADATA)

    @contextmanager
    def _commit(self, table: Table, info: CommitInfo, *, adds: bool = False) -> Iterator[None]:
        """Wraps a commit by Spark; `adds`: it only adds rows.

        Raises:
            StateError: somebody has changed the table so that Spark replaces none of its rows.
        """
        stored = None if adds else self.logs.table(self.path(table.name))
        if stored is not None:
            refuse_changes(self.path(table.name), stored)
        try:
            with settings(self.session, file_settings(self.sizes), optional=True), committing(table, info):
                yield
        finally:
            self.logs.look_again(self.path(table.name))

    def _writer(self, frame: DataFrame, table: Table, info: CommitInfo):  # type: ignore[no-untyped-def]
        created = self.version(table.name) is None
        writer = typed(frame, table, commented=created).write.format("delta").option("userMetadata", info.as_json())
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
        """Merges rows into a table: updates the rows whose keys it has, and inserts the others.

        If a commit may name the keys, the rows replace those with the same keys without a MERGE: this takes half the
        jobs, and no job for the change feed. Not if the key is sensitive: the log of the table would contain the keys.

        Args:
            source: the columns of the table, and the columns that `delete_when` reads.
            table: the table; its keys identify a row.
            info: of the commit.
            where: conditions that all rows of the table with keys of `source` meet; no other rows need to be read.
            keys: the keys of `source`, each once, if they are in the driver.
            delete_when: SQL condition on source columns: a row that meets it is removed instead.
            once: whether the keys of `source` are unique; if not, any row of a key is written.
        """
        exact = None
        if keys is not None and len(keys) <= self.nameable(table) and self.version(table.name) is not None:
            exact = exactly(keys, table, self.sizes)
        if exact is None and not once:
            source, once = source.dropDuplicates([*table.keys]), True
        rows = source if delete_when is None else source.where(f"NOT ({delete_when})")
        if self.version(table.name) is None:
            self.append(rows, table, info)
            return
        self.enable_deletion_vectors(table, info)
        if keys is not None and exact is not None:
            predicate = " AND ".join([exact, *[condition.sql() for condition in where]])
            # Rows in the order of their keys need no further sort to remove duplicates.
            ordered = _in_files(rows, table.keys, len(keys), self.sizes)
            with settings(self.session, UNCHECKED):
                self.replace(ordered if once else ordered.dropDuplicates([*table.keys]), table, predicate, info)
            return
        self._merge(source, table, info, where, delete_when)

    def enable_deletion_vectors(self, table: Table, info: CommitInfo) -> None:
        """Gives a table that the driver created deletion vectors once it is too large to be rewritten (ADR 0030)."""
        path = self.path(table.name)
        stored, value = self.logs.table(path), table.delta_properties.get(DELETION_VECTORS)
        if stored is None or value is None or self.logs.rows(path) <= self.sizes.rewritten_rows:
            return
        if DELETION_VECTORS in stored.metadata().configuration or not may_have_vectors(stored):
            return
        with self._commit_by_sql(table, info):
            self.session.sql(f"ALTER TABLE {self._in_sql(table.name)} {_setting({DELETION_VECTORS: value})}")

    def _merge(
        self, source: DataFrame, table: Table, info: CommitInfo, where: Sequence[Condition], delete_when: str | None
    ) -> None:
        on = " AND ".join([table.same_key("t", "s"), *[c.sql("t.") for c in where]])
        columns = [quote(n) for n in table.names]
        update = ", ".join(f"t.{c} = s.{c}" for c in columns)
        insert = f"INSERT ({', '.join(columns)}) VALUES ({', '.join(f's.{c}' for c in columns)})"
        delete = f"WHEN MATCHED AND s.{delete_when} THEN DELETE " if delete_when else ""
        guard = f" AND NOT s.{delete_when}" if delete_when else ""
        matched = f"{delete}WHEN MATCHED THEN UPDATE SET {update}"
        self._merge_by_sql(source, table, info, f"ON {on} {matched} WHEN NOT MATCHED{guard} THEN {insert}")


def _setting(properties: Mapping[str, str]) -> str:
    """Returns the end of an ALTER TABLE that sets some properties."""
    return f"SET TBLPROPERTIES ({', '.join(f'{text(name)} = {text(value)}' for name, value in properties.items())})"


def _in_files(frame: DataFrame, keys: Sequence[str], rows: int, sizes: Sizes) -> DataFrame:
    """Returns changed rows for one file, or sorted by their keys for files of about `rows_per_file` rows."""
    if rows <= sizes.sorted_rows:
        return frame.coalesce(1)
    names = [quote(name) for name in keys]
    return frame.repartition(max(1, round(rows / sizes.rows_per_file)), *names).sortWithinPartitions(*names)


def clustered(frame: DataFrame, columns: Sequence[str], rows: int, sizes: Sizes) -> DataFrame:
    """Returns rows sorted by some columns, for files of about `rows_per_file` rows.

    Few files and pages then contain a given value of the columns.
    """
    names = [quote(name) for name in columns]
    files = max(1, round(rows / sizes.rows_per_file))
    return (frame.coalesce(1) if files == 1 else frame.repartitionByRange(files, *names)).sortWithinPartitions(*names)


def typed(frame: DataFrame, table: Table, *, commented: bool = False) -> DataFrame:
    """Returns the columns of a table, in its order and with its types; `commented`: with their comments."""
    comments = table.comments if commented else {}
    about = {name: {"metadata": {COMMENT: comment}} for name, comment in comments.items()}
    return frame.select(
        *[F.col(quote(name)).cast(dtype).alias(name, **about.get(name, {})) for name, dtype in table.columns]
    )
