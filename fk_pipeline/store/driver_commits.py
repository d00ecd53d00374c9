"""Commits of the driver to the tables of a warehouse: each is made, or declined for Spark to make it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from fk_pipeline.environment.object_stores import is_for_one_driver, log_store
from fk_pipeline.environment.storage import is_s3
from fk_pipeline.frames import empty
from fk_pipeline.parquet_files import DAMAGED
from fk_pipeline.store.commit import CommitInfo, committing
from fk_pipeline.store.driver_writes import DriverWriter, arrow_columns
from fk_pipeline.store.marked_writes import MarkedWriter, Merge, merge_of, nothing
from fk_pipeline.store.schemas import DELETION_VECTORS, Table
from fk_pipeline.store.skipping import Condition
from fk_pipeline.store.tables import StoredTables


class DriverCommits:
    """Commits to the tables without Spark: by delta-rs, or with deletion vectors of our own (ADR 0009, 0030, 0039)."""

    def __init__(self, tables: StoredTables) -> None:
        self._tables, self._logs, self._sizes = tables, tables.logs, tables.sizes
        # Another log store stands for other programs that commit to the tables, and not by conditional puts.
        own = is_s3(tables.home) and log_store("s3a", lambda name: tables.session.conf.get(name, ""))
        in_s3 = bool(own and is_for_one_driver(own))
        self._writer = DriverWriter(tables.logs, tables.sizes, in_s3=in_s3)
        self._marked = MarkedWriter(tables.logs, tables.sizes)
        self._types: dict[tuple[tuple[str, str], ...], pa.Schema] = {}

    def may_append(self, table: Table, number: int) -> bool:
        """Returns whether the driver may append so many rows to a table, or create it with them."""
        return self._writer.may_append(self._tables.path(table.name), table, number)

    def may_insert(self, table: Table, number: int) -> bool:
        """Returns whether the driver may append so many rows with new keys to a large table (ADR 0039)."""
        path = self._tables.path(table.name)
        large = self._logs.rows(path) > self._sizes.rewritten_rows
        return large and self._writer.may_append(path, table, number, marked=True)

    def may_merge(self, table: Table, number: int) -> bool:
        """Returns whether the driver may merge so many rows into a table, if its files allow it."""
        marked = self._tables.reads_in_the_driver
        return self._writer.may_append(self._tables.path(table.name), table, number, marked=marked)

    def append(self, rows: pa.Table, table: Table, info: CommitInfo) -> None:
        """Appends rows; creates the table if it does not exist.

        Only for tables for which `may_append` returns true, or `may_insert` and `info` names a version.

        Raises:
            CommitFailedError: the table does not have this version, or got another one meanwhile.
        """
        path, columns = self._tables.path(table.name), self._columns(table)
        with committing(table, info):
            self._writer.append(path, rows, table, info.as_json(), columns, only_at=info.only_at)

    def tell(self, table: Table, info: CommitInfo) -> bool:
        """Makes a commit without rows, for the facts that it carries; returns whether it did."""
        if self.may_append(table, 0):
            self.append(self._columns(table).empty_table(), table, info)
            return True
        stored = self._logs.table(self._tables.path(table.name))
        if stored is None or not self.may_merge(table, 0):
            return False
        return self._commit_marked(stored, stored.version(), nothing(), table, info)

    def merge(self, rows: pa.Table, table: Table, info: CommitInfo, *, delete_when: str | None = None) -> bool:
        """Merges rows as `Warehouse.merge` does; returns whether it did (ADR 0030, 0042).

        It does not merge into a table that is too large to be rewritten until that has deletion vectors
        (`Warehouse.enable_deletion_vectors`).

        Args:
            rows: the columns of the table and `delete_when`; one row per key.
            table: the table.
            info: of the commit.
            delete_when: a BOOLEAN column of `rows`: a row in which it is true is removed instead.
        """
        if self._tables.version(table.name) is None:
            live = rows if delete_when is None else rows.filter(pc.invert(rows[delete_when]))
            if not self.may_append(table, len(live)):
                return False
            self.append(live, table, info)
            return True
        columns, metadata = self._columns(table), info.as_json()

        def commit(stored: DeltaTable) -> None:
            self._writer.merge(stored, rows, table, metadata, columns, delete_when=delete_when)

        return self._rewritten(table, info, (), commit) or self._merge_marked(rows, table, info, delete_when)

    def replace(
        self, rows: pa.Table, table: Table, predicate: str, where: Sequence[Condition], info: CommitInfo
    ) -> bool:
        """Replaces rows as `Warehouse.replace` does; returns whether it did (ADR 0030).

        `where` are conditions that all rows meet that match the predicate.
        """
        columns, metadata = self._columns(table), info.as_json()

        def commit(stored: DeltaTable) -> None:
            self._writer.replace(stored, rows, table, metadata, columns, predicate=predicate)

        return self._rewritten(table, info, where, commit)

    def _merge_marked(self, rows: pa.Table, table: Table, info: CommitInfo, delete_when: str | None) -> bool:
        """Merges rows into a large table, whose old rows get into deletion vectors; returns whether it did."""
        if not self.may_merge(table, len(rows)):
            return False
        if not len(rows):  # their number was an upper bound
            return True
        stored = self._logs.table(self._tables.path(table.name))
        if stored is None or stored.metadata().configuration.get(DELETION_VECTORS) != "true":
            return False
        version = stored.version()
        try:
            places = self._tables.locate(table, version, rows)
            if places is None:
                return False
            merge = merge_of(rows, places, table, self._columns(table), delete_when=delete_when)
        except DAMAGED:  # Spark reports it
            return False
        return self._commit_marked(stored, version, merge, table, info)

    def _commit_marked(self, stored: DeltaTable, version: int, merge: Merge, table: Table, info: CommitInfo) -> bool:
        """Commits a merge right after the version that was read; returns whether it did (`MarkedWriter.commit`)."""
        path = self._tables.path(table.name)
        with committing(table, info):
            if not self._marked.commit(path, stored, version, merge, table, info.as_json()):
                return False
        self._logs.keep(path, stored)
        return True

    def _rewritten(
        self, table: Table, info: CommitInfo, where: Sequence[Condition], commit: Callable[[DeltaTable], None]
    ) -> bool:
        """Makes a commit that rewrites files, if it may; returns whether it made it.

        If delta-rs cannot read a file, for example for a text that is not UTF-8, nothing is committed.
        """
        path = self._tables.path(table.name)
        stored = self._writer.rewritable(path, table, where)
        if stored is None:
            return False
        with committing(table, info):
            try:
                commit(stored)
            except CommitFailedError:  # a conflict
                raise
            except (DeltaError, pa.ArrowException):
                return False
        self._logs.keep(path, stored)
        return True

    def _columns(self, table: Table) -> pa.Schema:
        """Returns the columns of a table with the types that Spark gives them, which it is asked for once."""
        if table.columns not in self._types:
            self._types[table.columns] = arrow_columns(empty(self._tables.session, table.columns).schema)
        return self._types[table.columns]
