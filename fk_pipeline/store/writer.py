"""Commits the effects of stages to the tables; it hides the physical ways to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.effects import CountBy, Index, Reject, ReplaceBatches, Upsert
from fk_pipeline.environment.storage import is_s3
from fk_pipeline.frames import join_by_key
from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import Counts, RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.driver_writes import one_per_key
from fk_pipeline.store.lease import lease
from fk_pipeline.store.ledger.commits import READ
from fk_pipeline.store.limits import sendable
from fk_pipeline.store.materialised import counted
from fk_pipeline.store.planner import Planner
from fk_pipeline.store.reader import ABSENT, TableReader
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.settings import WHOLE, settings
from fk_pipeline.store.sizes import UNKNOWN
from fk_pipeline.store.skipping import Condition, Either, Within
from fk_pipeline.store.warehouse import Warehouse, clustered


class TableWriter:
    """Commits the effects of one run of a stage.

    Attributes:
        versions: per table, the Delta version that the run committed last.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        read: TableReader,
        planner: Planner,
        info: CommitInfo,
        *,
        indexes: Mapping[str, Index],
        first_time: bool,
        spark: Mapping[str, str],
    ) -> None:
        """Writes for a run.

        Args:
            warehouse: the tables.
            read: the reader of the run.
            planner: chooses between MERGE, replacement and rewrite.
            info: the purpose of every commit.
            indexes: per state that has one, its index.
            first_time: whether nothing can have been committed for any of the batches, so that rows are appended.
            spark: Spark settings of the pipeline file, which take precedence.
        """
        self.read, self.planner, self.info, self.first_time, self.spark = read, planner, info, first_time, spark
        self.warehouse, self.driver, self.sizes, self.indexes = warehouse, warehouse.driver, read.limits.sizes, indexes
        self.versions: dict[str, int] = {}

    @property
    def batches(self) -> BatchRange:
        """The batches that the run is for."""
        return self.info.batches

    def replace_batches(self, effect: ReplaceBatches) -> Counts:
        """Replaces the rows of the batches from an earlier run; returns the counts of the written rows.

        Few rows are counted before they are written, many rows are counted in the table afterwards.
        """
        rows, by = effect.rows, effect.counted
        if by is None:
            self._replace(rows, effect)
            return {}
        if rows.at_most <= self.read.limits.in_driver:
            computed = self.read.frames.computed(rows)
            groups = computed.counts(by.batch, by.column)
            self._replace(computed, effect)
        else:
            self._replace(rows, effect)
            written = self.warehouse.read(self.read.table_of(effect.table), where=[Within(by.batch, self.batches)])
            groups = counted(written, by.batch, by.column)
        return _named(groups, by)

    def reject(self, effect: Reject) -> None:
        """Replaces the bad records of the batches from an earlier run in the quarantine."""
        number, name = effect.number, s.QUARANTINE
        if effect.rows is not None and number:
            rows = self.read.frames.planned(effect.rows.withColumn(s.SIDE, F.lit(effect.origin)), number)
        elif not self.first_time and self.warehouse.version(name) is not None:
            of_origin = f"{s.SIDE} = '{effect.origin}'"
            stored = (
                self.warehouse.read(self.read.table_of(name)).where(self.batches.predicate(s.BATCH)).where(of_origin)
            )
            if stored.isEmpty():
                return
            rows = self.read.frames.planned(stored.limit(0), 0)
        else:
            return
        with self._exclusively(name):
            self.replace_batches(ReplaceBatches(name, rows, origin=effect.origin))

    def upsert(self, effect: Upsert) -> Counts:
        """Inserts rows or replaces the rows with their keys; returns the counts of the changed rows."""
        rows, by = effect.rows, effect.counted
        if by is None:
            if rows.at_most:
                self._merge(effect, rows)
            return {}
        if by.first and self.read.limits.in_driver < rows.at_most < UNKNOWN and not self.read.rows(effect.table):
            return self._first_rows(effect, by)
        if self.planner.choice is None:
            self.planner.lookup_limit(rows.at_most, effect.table)
        computed = rows if rows.cached else self.read.frames.computed(rows)
        groups = computed.counts(by.batch, by.column)
        values = [(value, n) for group in groups.values() for (value,), n in group.items() if value not in by.unwritten]
        changed = sum(n for _, n in values)
        if changed:
            if effect.table in self.indexes:
                self._add_to_index(effect.table, computed, changed)
            written = (computed.but(by.column, *by.unwritten) if by.unwritten else computed).bounded(changed)
            if not {value for value, _ in values} <= {*by.new} or not self._insert(effect, written):
                self._merge(effect, written)
        elif effect.always:
            table = self.read.table_of(effect.table)
            self.warehouse.tell(table, self._info(effect))
            self._committed(table)
        return _named(groups, by)

    def _insert(self, effect: Upsert, rows: RowSet) -> bool:
        """Appends rows whose keys a large table does not have, if the driver may; returns whether it did (ADR 0039)."""
        table = self.read.table_of(effect.table)
        version = self.read.versions.get(table.name, ABSENT)
        if rows.local is None or self._full or version == ABSENT or not self.driver.may_insert(table, rows.at_most):
            return False
        self.driver.append(rows.local, table, replace(self._info(effect), only_at=version))
        self._committed(table)
        return True

    def _first_rows(self, effect: Upsert, by: CountBy) -> Counts:
        """Writes the first rows of a table, which are all new, and counts them in the written table."""
        table, rows, number = self.read.table_of(effect.table), effect.rows.frame, effect.rows.at_most
        if not self.batches.is_single:
            rows = clustered(rows, table.keys, number, self.sizes)
        self.warehouse.append(rows, table, self._info(effect))
        self._committed(table)
        index = self.indexes.get(table.name)
        if index is not None and number >= self.sizes.indexed_rows:
            # After the state, from its columns: without an index the whole state is read.
            self._append_entries(index, index.entries(self.warehouse.read(table)), number)
        named = self.warehouse.read(table).withColumn(by.column, F.expr(by.first))
        return _named(counted(named, by.stored, by.column), by)

    def _add_to_index(self, state: str, rows: RowSet, changed: int) -> None:
        """Adds the entries of new rows of a large state to its index, before the state is written.

        So after a crash the index may have too many entries, but never too few.
        """
        index, stored, number = self.indexes[state], 0, changed
        if not self.read.rows(index.table):
            stored = self.read.rows(state)
            if stored + changed < self.sizes.indexed_rows:
                return
        entries = index.entries(rows.frame)
        if stored:
            entries, number = entries.unionByName(index.entries(self.read.read(state))), changed + stored
        self._append_entries(index, entries, number)

    def _append_entries(self, index: Index, entries: DataFrame, number: int) -> None:
        ordered = clustered(entries, index.keys, number, self.sizes)
        self._append(self.read.frames.planned(ordered, number), self.read.table_of(index.table))

    def _append(self, rows: RowSet, table: Table) -> None:
        """Appends rows to a table."""
        local = self._in_driver(rows, table)
        if local is not None:
            self.driver.append(local, table, self.info)
        else:
            self.warehouse.append(self._in_one_file_if_few(rows), table, self.info)
        self._committed(table)

    def _in_driver(self, rows: RowSet, table: Table) -> pa.Table | None:
        """Returns rows in the driver if they are few and it may write them to a table; else None."""
        if not self.driver.may_append(table, rows.at_most):
            return None
        small = rows.at_most <= self.read.limits.in_driver
        return self.read.frames.computed(rows).local if small else rows.local

    def _in_one_file_if_few(self, rows: RowSet) -> DataFrame:
        return rows.frame.coalesce(1) if rows.at_most <= self.read.limits.in_driver else rows.frame

    def _replace(self, rows: RowSet, effect: ReplaceBatches) -> None:
        """Replaces the batches in a log; appends if the log cannot have rows of them yet."""
        table = self.read.table_of(effect.table)
        if self.first_time:
            if rows.at_most:
                self._append(rows, table)
            return
        where = self.batches.predicate(s.BATCH)
        if effect.origin:
            where += f" AND {s.SIDE} = '{effect.origin}'"
        if effect.retained:
            where += f" AND {s.BATCH} NOT IN ({', '.join(map(str, effect.retained))})"
        local, within = self._in_driver(rows, table), [Within(s.BATCH, self.batches)]
        if local is None or not self.driver.replace(local, table, where, within, self.info):
            self.warehouse.replace(self._in_one_file_if_few(rows), table, where, self.info)
        self._committed(table)

    def _merge(self, effect: Upsert, rows: RowSet) -> None:
        """Inserts rows or replaces the rows with their keys, in the way that the planner chooses by their number."""
        table, delete_when, info = self.read.table_of(effect.table), effect.delete_when, self._info(effect)
        number, unique = rows.at_most, rows.unique
        limit, in_driver = self.planner.lookup_limit(number, effect.table), self.read.limits.in_driver
        full, first = self._full, not self.read.rows(table.name)
        if (first or not full) and number <= in_driver and self.driver.may_merge(table, number):
            rows = self.read.frames.computed(rows)
            if rows.local is not None:
                local = rows.local if unique else one_per_key(rows.local, table.keys)
                if len(local):  # else their number was an upper bound
                    self.warehouse.enable_deletion_vectors(table, info)
                if self.driver.merge(local, table, info, delete_when=delete_when):
                    self._committed(table)
                    return
        if full:
            stays = self._rows_that_stay(table, rows)
            frame = rows.frame if unique else rows.frame.dropDuplicates([*table.keys])
            self.warehouse.rewrite(frame, stays, table, info, delete_when=delete_when)
            self._committed(table)
            return
        where: Sequence[Condition] = ()
        if number <= min(limit, in_driver):
            rows = self.read.frames.computed(rows)
        keys = rows.local
        if keys is not None:
            where = self._key_filter(table, keys)
        elif number <= self.warehouse.nameable(table):
            keys = _keys_of(rows, table).toArrow()
            keys = keys if unique else keys.group_by([*table.keys]).aggregate([])
        if keys is not None and not len(keys):  # the number was an upper bound
            return
        many = keys is not None and len(keys) > self.sizes.listed_keys and rows.cached
        whole = {name: value for name, value in WHOLE.items() if many and name not in self.spark}
        with settings(self.warehouse.session, whole, optional=True):
            self.warehouse.merge(rows.frame, table, info, where, keys=keys, delete_when=delete_when, once=unique)
        self._committed(table)

    @property
    def _full(self) -> bool:
        """Whether the planner has chosen to write whole tables."""
        return self.planner.choice is not None and self.planner.choice.full

    def _info(self, effect: Upsert) -> CommitInfo:
        """Returns the purpose of the commit, with the facts about the rows and the version that they were made from."""
        if not effect.metadata:
            return self.info
        read = self.read.versions.get(effect.table, ABSENT)
        return replace(self.info, metadata={**effect.metadata, READ: read})

    def _key_filter(self, table: Table, keys: pa.Table) -> list[Condition]:
        """Returns conditions that all rows of a table with some keys meet."""
        if table.either:
            parts = [self.read.key_filter(table, keys, {key: key for key in part}) for part in table.either]
            return [Either(tuple(map(tuple, parts)))]
        return self.read.key_filter(table, keys, {k: k for k in table.keys if k not in table.nullable_keys})

    def _rows_that_stay(self, table: Table, replaced: RowSet) -> DataFrame | None:
        """Returns the rows of a table whose keys are not replaced; None if there are none.

        The rows keep their order if the keys can be sent to them; otherwise they are sorted by their keys.
        """
        stored, number, names = self.warehouse.rows([table]), replaced.at_most, list(table.keys)
        if not stored:
            return None
        sent, keys = number <= sendable(table, names, self.sizes), _keys_of(replaced, table)
        rows, others = self.read.read(table.name), F.broadcast(keys) if sent else keys
        stays = join_by_key(rows, others, names, "left_anti", nullable=bool(table.nullable_keys))
        if number >= stored and stays.isEmpty():
            return None
        return stays if sent else clustered(stays, names, stored, self.sizes)

    @contextmanager
    def _exclusively(self, name: str) -> Iterator[None]:
        """Prevents two commits at once to a table that several stages write: Spark commits to S3 unconditionally."""
        with lease(self.warehouse.home, name) if is_s3(self.warehouse.home) else nullcontext():
            self.warehouse.logs.look_again(self.warehouse.path(name))
            yield

    def _committed(self, table: Table) -> None:
        version = self.warehouse.version(table.name)
        if version is not None:
            self.versions[table.name] = version


def _keys_of(rows: RowSet, table: Table) -> DataFrame:
    """Returns the key columns of rows, by the cheaper way to compute them."""
    return (rows.frame if rows.keys is None else rows.keys).select(*map(quote, table.keys))


def _named(groups: Mapping[int, Mapping[tuple[str, ...], int]], by: CountBy) -> Counts:
    """Returns the counts per batch under the names that `by` gives them."""
    counts: Counts = {}
    for batch, group in groups.items():
        of_batch = counts.setdefault(batch, {})
        for (value,), number in group.items():
            of_batch[by.name(value)] = of_batch.get(by.name(value), 0) + number
    return counts
