"""The reader of a check: the tables of a pipeline at fixed versions, whole or only the rows that batches touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cached_property, partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.contract import Role
from fk_pipeline.identity import BatchId, BatchRange
from fk_pipeline.spec import quote
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.history import RunHistory
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.limits import Limits, sendable
from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.reader import ABSENT, TableReader
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.settings import INTERPRETED, ONE_PARTITION, ONE_TASK, suiting
from fk_pipeline.store.sizes import UNKNOWN
from fk_pipeline.store.skipping import Within
from fk_pipeline.store.tables import StoredTables


class CheckReader(TableReader):
    """The reader of the tables that the checks of a stage need, with the batches that are due.

    Args:
        warehouse: the stored tables.
        tables: the tables.
        spec: the pipeline (`PipelineSpec`).
        ledger: its ledger.
        stage: the stage whose tables are checked.
        batches: reads only the rows that these batches touched; None for all rows.
        refuse_unfinished: raises an error if a rebuild died while its tables were swapped in.
    """

    def __init__(
        self,
        warehouse: StoredTables,
        tables: Iterable[Table],
        spec: Any,
        ledger: Ledger,
        stage: str,
        batches: BatchRange | None,
        refuse_unfinished: Callable[[], None],
    ) -> None:
        super().__init__(warehouse, tables, batches)
        self.spec, self.kind, self.ledger, self.stage = spec, spec.definition, ledger, stage
        self.known = [b for b in ledger.batches if batches is None or b in batches]
        self.history = RunHistory(ledger, "", self.known)
        # Tables are opened upstream first, so a commit made meanwhile is not older than the inputs that it read.
        self._names = [table.name for table in self.kind.tables if table.role is not Role.REJECTED]
        self._read_before: dict[tuple[str, int | None, Within | None], DataFrame] = {}
        self._whole: set[str] = set()
        """The names of the tables that were read whole."""
        self.index_fits = True
        """Whether every index was built from its state at the version that is read, or from an older one."""
        self.due = self._open(refuse_unfinished)
        """Per stage (this one and those upstream of it): the batches whose unfinished work may explain a row."""

    def _open(self, refuse_unfinished: Callable[[], None]) -> dict[str, list[BatchId]]:
        """Fixes the versions of all tables, also of absent ones, and returns the batches that are due per stage.

        Raises:
            StateError: a rebuild died while its tables were swapped in.
        """
        while True:
            refuse_unfinished()
            swaps = len(self.ledger.rebuilds.rows)
            # Read before and after: the work of a run that ends in between is due before, the work it causes, after.
            before = unfinished(self.ledger, self.stage)
            for name in self._names:
                self.pin(name)
                self.versions.setdefault(name, ABSENT)
            self.ledger.refresh()
            after = unfinished(self.ledger, self.stage)
            if len(self.ledger.rebuilds.rows) == swaps:
                return {stage: sorted({*before[stage], *after[stage]}) for stage in before}
            self.versions.clear()

    def whole(self, name: str) -> DataFrame:
        """Returns all rows of a table."""
        self._whole.add(name)
        return self._once(name)

    def of_batches(self, name: str, column: str) -> DataFrame:
        """Returns the rows of a table whose batch column is one of the batches; all rows if all batches are checked."""
        return self._once(name, *self.within(column))

    def _once(self, name: str, where: Within | None = None) -> DataFrame:
        """Returns the rows of a table; the same frame at every call."""
        place = name, self.versions.get(name), where
        if place not in self._read_before:
            self._read_before[place] = self.read(name, [where] if where else [])
        return self._read_before[place]

    def as_of(self, versions: Mapping[str, int]) -> CheckReader:
        """Returns a copy of this reader with some tables at other versions."""
        other = copy(self)
        other.versions = {**self.versions, **versions}
        other.limits = Limits(self.warehouse, self._tables, other.versions, self.batches)
        # An index was built from its state at this version: it may lack entries for another version.
        states = [self.kind.indexed_by(table) for table in self.kind.tables if table.role is Role.INDEX]
        other.index_fits = all(other.versions[name] == self.versions[name] for name in states)
        return other

    def at_hand(self, frame: DataFrame, at_most: int | None) -> Materialised:
        """Returns some rows of large tables, collected in the driver if they are few.

        Args:
            frame: the rows.
            at_most: an upper bound of their number; None: the frame itself determines it.
        """
        if at_most is not None and at_most > self.limits.in_driver:
            return self.frames.planned(frame, at_most)
        return self.frames.cached(frame, at_most)

    def touched_by(
        self, places: Mapping[str, str], columns: Mapping[str, str], at_most: int | None = None
    ) -> Materialised:
        """Returns the distinct values of some columns in the rows of some tables whose batch column is in the batches.

        Args:
            places: per table, its batch column.
            columns: per column of the result, its name in the tables.
            at_most: an upper bound of the number of rows, if one is known.
        """
        local = self._touched_in_driver(places, columns)
        if local is not None:
            frame = self.frames.frame_of(local, self.table_of(next(iter(places))), list(columns.values()))
            return Materialised(frame, local=local)
        selected = [F.col(quote(column)).alias(name) for name, column in columns.items()]
        frames = [self.of_batches(name, mark).select(*selected) for name, mark in places.items()]
        rows = reduce(DataFrame.union, frames).distinct()
        if self.small:
            return self.frames.planned(rows, UNKNOWN if at_most is None else at_most)
        return self.at_hand(rows, at_most)

    def _touched_in_driver(self, places: Mapping[str, str], columns: Mapping[str, str]) -> pa.Table | None:
        """Returns the rows of `touched_by`, read without Spark; None if they need Spark or are too many."""
        parts = []
        for name, mark in places.items():
            within = Within(mark, self.span)
            rows = self.warehouse.read_in_process(self.table_of(name), self.versions[name], columns.values(), within)
            if rows is None:
                return None
            parts.append(rows.rename_columns(list(columns)))
        distinct = pa.concat_tables(parts).group_by(list(columns)).aggregate([])
        return distinct if len(distinct) <= self.limits.in_driver else None

    def touched(
        self, name: str, columns: Sequence[str], log_name: str, logged: DataFrame, keys: Mapping[str, str], at_most: int
    ) -> tuple[DataFrame, DataFrame]:
        """Returns the rows of a state table that the batches own or whose keys are in their changelog rows, once each.

        Args:
            name: the state table.
            columns: SQL of the columns to return.
            log_name: the changelog.
            logged: its rows for the batches, with the key columns named as in the state table.
            keys: per key column of the state table, its name in the changelog.
            at_most: an upper bound of the number of changelog rows.

        Returns:
            The rows of the state table, and `logged`; rows that are looked up are computed once.
        """
        table = self.table_of(name)
        if self.small or at_most > sendable(table, keys, self.limits.sizes):  # the table is read once
            same = " AND ".join(f"k.{quote(key)} = t.{quote(key)}" for key in keys)
            rows = self.warehouse.session.sql(
                f"SELECT t.* FROM {{rows}} AS t WHERE {self.span.predicate(f't.{s.OWNER}')} "
                f"OR EXISTS (SELECT 1 FROM {{keys}} AS k WHERE {same})",
                rows=self.whole(name),
                keys=logged,
            )
            return rows.selectExpr(*columns), logged
        touched, mark, own = self.touched_by({log_name: s.BATCH}, keys, at_most), s.OWNER, {key: key for key in keys}
        state = self.with_keys(name, touched, own).selectExpr(*columns)
        looks = [partial(self.at_hand, look, at_most) for look in (logged, state)]
        if some_not_among(self._touched_in_driver({name: mark}, own), touched):
            owned = self.read(name, [Within(mark, self.span)]).join(touched.frame, list(keys), "left_anti")
            looks.append(partial(self.at_hand, owned.selectExpr(*columns), None))
        log, *parts = at_once(*looks)
        return reduce(DataFrame.unionByName, [part.frame for part in parts]), log.frame

    @cached_property
    def stored(self) -> int:
        """The number of rows of all tables together."""
        return self.rows(*self._names)

    @property
    def small(self) -> bool:
        """Whether all tables together are small enough to be joined whole, without key filters."""
        return self.stored <= self.limits.sizes.small_rows

    @property
    def span(self) -> BatchRange:
        """The batches of the check; all known batches if it is of everything."""
        everything = BatchRange(self.known[0], self.known[-1]) if self.known else BatchRange.of(0)
        return self.batches or everything

    @property
    def folded(self) -> frozenset[int]:
        """The folded batches whose rows may be missing in the stage's tables.

        For a stage that reads landing files, the batches folded on its side; otherwise those folded on all sides.
        """
        return self.ledger.folds.of(self.stage) if self.stage in self.ledger.inputs else self.ledger.folds.on_all_sides

    def rows_read(self, log_stage: str) -> int:
        """Returns the number of rows that a changelog has for the batches; `UNKNOWN` if a run is not finished."""
        return self.history.rows_read(log_stage) if self.history.is_finished(log_stage) else UNKNOWN

    @cached_property
    def _touched(self) -> int:
        """An upper bound of the rows read from a log of this stage or upstream of it; `UNKNOWN` if it is not known.

        Where no log is upstream, the rows that the stage wrote.
        """
        if self.batches is None:
            return UNKNOWN
        upstream = {self.stage, *self.ledger.due.all_upstream(self.stage)}
        logs = [log for log in self.ledger.inputs if log in upstream]
        if not logs:
            return self.history.messages(self.stage).at_most
        if any(map(self.history.truncated, logs)):
            return UNKNOWN
        own = [table.name for table in self.kind.tables if table.role is Role.MESSAGES and table.name == table.stage]
        written = [self.history.messages(stage).at_most for stage in own if stage in upstream]
        return max([*written, *map(self.rows_read, logs)])

    def settings(self) -> dict[str, str]:
        """Returns Spark settings that suit the size of the check."""
        settings = suiting(self.stored, self.limits.sizes, few_of_them=self._touched <= self.limits.sizes.small_rows)
        if self.small:
            return settings | ONE_TASK
        return settings | ONE_PARTITION if self._touched <= self.limits.in_driver else settings

    def settings_of_counts(self) -> dict[str, str]:
        """Returns further Spark settings for the scan that counts: none unless all rows read so far are few."""
        if self._touched > self.limits.in_driver or self._whole or not self.frames.all_in_driver:
            return {}
        reads = [(name, version, within) for name, version, within in self._read_before if version != ABSENT]
        return INTERPRETED if all(self._in_small_files(*read) for read in reads) else {}

    def _in_small_files(self, name: str, version: int | None, within: Within | None) -> bool:
        """Returns whether the files that hold the read rows of a table have few rows in total."""
        rows = (
            None if within is None or version is None else self.warehouse.rows_at(self.table_of(name), version, within)
        )
        return rows is not None and rows <= self.limits.sizes.small_rows


def at_once(*looks: Callable[[], Materialised]) -> list[Materialised]:
    """Runs independent look-ups in parallel and returns their results: Spark plans one while it runs another."""
    with ThreadPoolExecutor(len(looks)) as pool:
        return [future.result() for future in [pool.submit(look) for look in looks]]


def some_not_among(keys: pa.Table | None, others: RowSet) -> bool:
    """Returns whether some keys are absent from others (a null always is); True if one is not in the driver."""
    if keys is None or others.local is None:
        return True
    known = others.local.select(keys.column_names).cast(keys.schema)
    return len(keys.join(known, keys.column_names, join_type="left anti")) > 0


def unfinished(ledger: Ledger, stage: str) -> dict[str, list[BatchId]]:
    """Returns, per stage (this one and those upstream of it), the due batches that may explain a row of its tables.

    A batch that no stage has started yet explains nothing: no table has a row of it.
    """
    due = {}
    for name in (stage, *ledger.due.all_upstream(stage)):
        read_by = [name, *ledger.due.all_upstream(name)]
        due[name] = [b for b in ledger.due.of(name) if any(ledger.state(up, b).attempts for up in read_by)]
    return due
