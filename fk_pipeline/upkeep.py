"""Upkeep of the tables: folds old batches, packs small files into larger ones, and removes files that nothing needs."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.answers import Closing
from fk_pipeline.blocks.horizon import is_later, sql_of
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.contract import Kind, Role, TableDef, loaded
from fk_pipeline.engine.folding import foldable, forgettable, is_old, searched, settled, superseded
from fk_pipeline.engine.runner import Runner
from fk_pipeline.engine.sole import sole_session
from fk_pipeline.environment import storage
from fk_pipeline.identity import QUARANTINING, BatchId, BatchRange, Side, ranges_sql
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.store import schemas as s
from fk_pipeline.store.lease import LeaseCheck, lease, leases
from fk_pipeline.store.ledger.entries import SCHEMAS
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.settings import settings, suiting
from fk_pipeline.store.warehouse import CommitInfo, clustered
from fk_pipeline.table_features import open_table

PACKED = {
    "spark.databricks.delta.optimize.minFileSize": str(16 << 20),
    "spark.databricks.delta.optimize.maxFileSize": str(64 << 20),
}
"""Sizes with which packing keeps the files of a table that was written in key order: look-ups skip files by keys."""

ANY_RETENTION = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
"""Lets `settings.retention_hours` be less than a week."""

LOG_FOLDER = "/_delta_log/"
"""Part of the path of a file that is not a data file of a table."""

LOG_RETENTION = "delta.logRetentionDuration"
LEDGER_LOG_HOURS = 24
"""How long entries of the log of a ledger table are kept, at most: nobody reads its older versions."""

MOST_ENTRIES = 1.5
"""Entries of an index per row of its state, above which the index is rewritten."""


@dataclass(frozen=True)
class Size:
    """The size of a table: files and bytes of its current version, and bytes on disk, older versions included.

    `unneeded` is the number of bytes of data files on disk that the current version does not need.
    """

    files: int
    bytes: int
    stored: int
    unneeded: int = 0


@dataclass(frozen=True)
class TableUpkeep:
    """The outcome of the upkeep of one table."""

    table: str
    before: Size
    after: Size
    freed_from: datetime
    """The time from which the last file that only older versions need may be removed."""
    removed: int = 0
    """Number of rows that folding removed, including those of deleted keys that were forgotten."""

    @property
    def freed(self) -> int:
        """Bytes that are no longer on disk; negative if the table grew."""
        return self.before.stored - self.after.stored

    @property
    def freed_later(self) -> int:
        """Bytes that a later upkeep removes, once nothing may need them."""
        return self.after.unneeded

    def as_json(self) -> dict[str, Any]:
        """Returns the outcome as the command prints it."""
        told = {"freed": self.freed, "freed_later": self.freed_later}
        return asdict(self) | told | {"freed_from": self.freed_from.isoformat(timespec="seconds")}


def compact(runner: Runner, progress: Callable[[str], None] = lambda _: None) -> list[TableUpkeep]:
    """Folds old batches, packs small files and removes old ones, table by table, under leases of stages.

    Files that versions of the last `settings.retention_hours` need are kept. The result does not change, nor does the
    state, except for deleted keys that are forgotten (`settings.tombstone_retention`) and for what a pipeline does not
    keep (`history`, `retention`). It may be killed at any point: the next upkeep continues.

    Args:
        runner: the runner of the pipeline.
        progress: called with the name of each table before its upkeep.

    Raises:
        LeaseTakenError: a stage kept its lease for too long.
        StateError: the stored tables do not fit the pipeline file, or somebody has upgraded a table of the ledger so
            that it cannot be written.
    """
    runner.ledger.entries.refuse_upgraded()
    home, tables, hours = runner.spec.home, runner.layout.tables, runner.spec.settings.retention_hours
    stored = [table.name for table in tables if runner.warehouse.version(table.name) is not None]
    before = {name: _size(runner.warehouse.path(name)) for name in stored}
    folding = _Folding(runner)
    if _to_fold(runner):
        with _ledger_alone(home, runner.ledger.kind):
            runner.ledger.refresh()
            runner.ledger.folds.record(_to_fold(runner))
    closing = closing_of(runner.spec)
    if closing is not None:
        progress("horizon")
        folding.close(closing)
    if runner.ledger.folds.on_all_sides:
        for stage, side in runner.ledger.inputs.items():
            progress(f"folding: {side}")
            folding.versions_of(stage, side)
        for table in runner.ledger.kind.tables:
            if table.role is Role.MESSAGES:
                progress(f"folding: {table.name}")
                folding.messages(table)
            elif table.role is Role.INDEX:
                folding.index(table)
    done = []
    for name in stored:
        progress(name)
        with _alone(runner, _writers(runner.ledger.kind, name)):
            _pack(runner, name)
        after = _size(runner.warehouse.path(name))
        done.append(TableUpkeep(name, before[name], after, _freed_from(hours), folding.removed[name]))
    with _ledger_alone(home, runner.ledger.kind):
        for name in SCHEMAS:
            if DeltaTable.is_deltatable(f"{home}/{name}", storage.delta_options(home)):
                progress(name)
                done.append(_ledger_table(f"{home}/{name}", name, hours))
    return done


@contextmanager
def _ledger_alone(home: str, kind: Kind) -> Iterator[None]:
    """Keeps discoveries and stages from running: a process that wrote a ledger entry meanwhile would get a conflict."""
    with lease(home, "discovery"), leases(home, kind.stage_names):
        yield


def closing_of(spec: PipelineSpec) -> Closing | None:
    """Returns what a pipeline does not keep for ever; None if it keeps everything."""
    found: Closing | None = loaded(spec.definition.closing)(spec) if spec.definition.closing else None
    return found


def _to_fold(runner: Runner) -> list[BatchId]:
    """Returns the batches to fold that are not folded yet."""
    ledger, hours = runner.ledger, runner.spec.settings.fold_after_hours
    if hours is None or ledger.rebuilds.unfinished is not None:
        return []
    folded = ledger.folds.on_all_sides
    return [batch for batch in foldable(ledger, datetime.now(UTC), hours) if batch not in folded]


def _writers(kind: Kind, name: str) -> list[str]:
    """Returns the stages whose leases keep a table unchanged."""
    table = kind.table(name)
    writers = [*kind.rejecting.values()] if table.stage is None else [table.stage]
    if table.role is Role.INDEX:
        # A stage that finds rows by an index may have opened an older state and needs the entries of that state.
        writers += [stage.name for stage in kind.stages if kind.indexed_by(table) in stage.reads]
    return [*dict.fromkeys(writers)]


@contextmanager
def _alone(runner: Runner, stages: Sequence[str]) -> Iterator[LeaseCheck]:
    """Keeps runs of some stages, including those that died, from going on."""
    home = runner.spec.home
    with leases(home, stages) as held, sole_session(runner.session, home, stages):
        yield held


def _pack(runner: Runner, name: str) -> None:
    session, path = runner.session, runner.warehouse.path(name)
    with settings(session, suiting(runner.warehouse.logs.rows(path)) | PACKED | ANY_RETENTION, optional=True):
        runner.warehouse.pack(name, runner.spec.settings.retention_hours)


class _Folding:
    """Removes rows that are stored only for folded batches, table by table."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.spec, self.layout = runner, runner.spec, runner.layout
        self.warehouse, self.ledger, self.kind = runner.warehouse, runner.ledger, runner.ledger.kind
        self.removed: Counter[str] = Counter()
        """Number of removed rows, by table."""

    @contextmanager
    def _at(self, *tables: Table) -> Iterator[CommitInfo | None]:
        """Keeps others from writing some tables; yields the commit information, None if nothing is to be done."""
        stages = self.ledger.kind.in_order(one for table in tables for one in _writers(self.ledger.kind, table.name))
        with _alone(self.runner, stages) as held:
            self.ledger.refresh()  # a rebuild may have restored everything since the folds were recorded
            batches = settled(self.ledger, self.ledger.folds.on_all_sides)
            if not batches or self.ledger.rebuilds.unfinished is not None:
                yield None
                return
            where = BatchRange.of(min(batches), max(batches))
            info = CommitInfo(self.spec.name, "compact", where, uuid.uuid4().hex[:12], held)
            with settings(self.runner.session, suiting(self.warehouse.rows(tables)), optional=True):
                yield info

    def versions_of(self, stage: str, side: Side) -> None:
        """Removes from a side's changelog all versions of folded batches but the last per key; forgets deleted keys.

        Deleted keys are forgotten only with `settings.tombstone_retention`.
        """
        log, state = self.layout[self.kind.input(side).log], self.layout[self.kind.state_of(side).name]
        with self._at(log) as info:
            if info is not None:
                old = ranges_sql(s.BATCH, settled(self.ledger, self.ledger.folds.of(stage)), self.ledger.batches)
                keys = [*self.kind.keys_in_log(self.spec, side, state.keys).values()]
                if s.BATCH not in keys:  # else each batch is a version
                    self._remove(superseded(self.warehouse.read(log), self.spec.side(side), keys, old), info, log)
        if self.spec.settings.tombstone_retention is not None:
            self._forget(stage, side, self.spec.settings.tombstone_retention)

    def _forget(self, log_stage: str, side: Side, hours: float) -> None:
        """Removes deleted keys, from the changelog first; a key left only in the state is removed the next time."""
        ledger, log, stored = self.ledger, self.layout[self.kind.input(side).log], self.kind.state_of(side)
        state = self.layout[stored.name]
        keys = self.kind.keys_in_log(self.spec, side, state.keys)
        with self._at(log, state) as info:
            if info is None or ledger.due.of(log_stage) or ledger.due.of(str(stored.stage)):
                return  # landed rows that are not read yet may be older than a delete
            now = datetime.now(UTC)
            done = [b for b in settled(ledger, ledger.folds.on_all_sides) if is_old(ledger, b, now, hours)]

            def old(column: str) -> str:
                return ranges_sql(column, done, ledger.batches)

            dead = forgettable(self.warehouse.read(log), self.warehouse.read(state), keys, old).persist()
            try:
                owned = dead.select(
                    *[F.col(quote(key)).alias(name) for key, name in keys.items() if name != s.BATCH],
                    F.col(s.OWNER).alias(s.BATCH),
                )
                self._remove(owned, info, log)
                self._remove(dead.select(*map(quote, keys)), info, state)
            finally:
                dead.unpersist()

    def close(self, closing: Closing) -> None:
        """Moves the horizon of a pipeline that does not keep everything, and removes what only older times need.

        The horizon moves only when nothing is due: everything that landed has then reached the result. Rows of batches
        that are not folded stay, because they may be withdrawn.
        """
        ledger, kind = self.ledger, self.kind
        states = {side: self.layout[kind.state_of(side).name] for side in closing.sides}
        logs = {side: self.layout[kind.input(side).log] for side in closing.sides}
        stored = {side: state for side, state in states.items() if self.warehouse.version(state.name) is not None}
        if not stored:
            return
        with _ledger_alone(self.spec.home, kind):
            ledger.refresh()
            if not self._is_due() and ledger.rebuilds.unfinished is None:
                found = {side: self._final(side, state, closing) for side, state in stored.items()}
                horizon = closing.horizon(found, datetime.now(UTC))
                stages = {side: kind.input(side).stage for side in closing.sides}
                if horizon is not None and all(is_later(horizon, ledger.folds.horizon(one)) for one in stages.values()):
                    ledger.folds.close(stages, horizon)
        for side, state in stored.items():
            with self._at(logs[side], state) as info:
                horizon = sql_of(ledger.folds.horizon(kind.input(side).stage))
                if info is not None and horizon is not None and not (closing.waits and self._is_due()):
                    self._remove_closed(closing, side, logs[side], state, horizon, info)

    def _is_due(self) -> bool:
        return any(self.ledger.due.of(name) for name in self.kind.stage_names)

    def _final(self, side: Side, state: Table, closing: Closing) -> DataFrame:
        """Returns the rows of a state by which the horizon moves: those that no batch can correct any more.

        If no batch is ever folded, these are all rows, or none.
        """
        rows = self.warehouse.read(state)
        if self.spec.settings.fold_after_hours is None:
            return rows.limit(0) if closing.waits else rows
        folded = self.ledger.folds.of(self.kind.input(side).stage)
        return rows.where(ranges_sql(s.OWNER, folded, self.ledger.batches))

    def _remove_closed(
        self, closing: Closing, side: Side, log: Table, state: Table, horizon: str, info: CommitInfo
    ) -> None:
        """Removes rows of a state and of its changelog that only times before the horizon need.

        A row that a process left in one of them, because it died, is removed the next time. Not those of keys among
        whose rows values are searched that a source did not send.
        """
        batches = settled(self.ledger, self.ledger.folds.on_all_sides)

        def old(*columns: str) -> str:
            return " AND ".join(ranges_sql(column, batches, self.ledger.batches) for column in columns)

        keys = self.kind.keys_in_log(self.spec, side, state.keys)
        of_side, versions, named = self.spec.side(side), self.warehouse.read(log), [*keys.values()]
        final = f"({old(s.OWNER)} AND ({s.APPLIED_IN} IS NULL OR {old(s.APPLIED_IN)}))"
        dead = closing.removable(side, self.warehouse.read(state), state.keys, horizon, final)
        dead = dead.select(*[F.col(quote(key)).alias(name) for key, name in keys.items()])
        dead = dead.join(versions.where(f"NOT ({old(s.BATCH)})"), named, "left_anti")
        if format_of(of_side).has_holes:
            dead = dead.join(searched(versions, of_side), [c.name for c in of_side.key_columns], "left_anti")
        dead = dead.persist()
        try:
            for role in closing.order:
                if role is Role.LOG:
                    lost = versions.where(old(s.BATCH))
                    if closing.order[0] is Role.STATE:  # it has lost them, now or before
                        there = self.warehouse.read(state).select(
                            *[F.col(quote(key)).alias(name) for key, name in keys.items()]
                        )
                        lost = lost.where(f"{quote(named[0])} IS NOT NULL").join(there, named, "left_anti")
                    else:
                        lost = lost.join(dead, named, "left_semi")
                    self._remove(lost.select(s.BATCH, *map(quote, named)), info, log)
                else:
                    own = [F.col(quote(name)).alias(key) for key, name in keys.items()]
                    self._remove(dead.select(*own), info, state)
        finally:
            dead.unpersist()

    def messages(self, of: TableDef) -> None:
        """Removes the messages of folded batches.

        A folded batch may run again; its new messages are then still to be resolved. Rows that could not be computed
        are resolved again on request (`quarantine --replay`), so the messages of their batches stay.
        """
        table, ledger = self.layout[of.name], self.ledger
        with self._at(table) as info:
            if info is None:
                return
            both = settled(ledger, ledger.folds.on_all_sides)
            counts = {b: ledger.state(self.kind.result_stage, b).counts for b in both}
            refused = [b for b, found in counts.items() if any(found.get(name) for name in QUARANTINING)]
            where = ranges_sql(s.BATCH, {*both}.difference(refused), ledger.batches)
            number = self.warehouse.read(table).where(where).count()
            if number:
                self.warehouse.delete(where, table, info)
            self.removed[table.name] += number

    def index(self, of: TableDef) -> None:
        """Rewrites the index of a state if it has many entries that the state no longer has."""
        state, table = self.layout[self.kind.indexed_by(of)], self.layout[of.name]
        rows = self.warehouse.rows([table])
        if rows <= self.warehouse.rows([state]) * MOST_ENTRIES:
            return
        with self._at(table) as info:
            if info is not None:
                index = loaded(of.index)(self.spec)
                ordered = clustered(index.entries(self.warehouse.read(state)), index.keys, rows, self.warehouse.sizes)
                self.warehouse.rewrite(ordered, None, table, info, delete_when=None)

    def _remove(self, lost: DataFrame, info: CommitInfo, table: Table) -> None:
        """Removes rows; commits nothing if there are none."""
        lost = lost.persist()
        try:
            number = lost.count()
            if number:
                self.warehouse.remove(lost, table, info)
            self.removed[table.name] += number
        finally:
            lost.unpersist()


def _ledger_table(path: str, name: str, retention_hours: float) -> TableUpkeep:
    before, table = _size(path), open_table(path, ledger=True)
    table.optimize.compact()
    table.vacuum(retention_hours=int(retention_hours), enforce_retention_duration=False, dry_run=False)
    _forget_log(table, min(retention_hours, LEDGER_LOG_HOURS))
    return TableUpkeep(name, before, _size(path), _freed_from(retention_hours))


def _forget_log(table: DeltaTable, hours: float) -> None:
    """Removes the entries of a log that are older and that a checkpoint replaces.

    Every commit lists them all: with ten thousand entries, some weeks of small batches, it takes eight times as long.
    A process that had read an older version reads the table anew.
    """
    kept = {LOG_RETENTION: f"interval {int(hours)} hours"}
    if table.metadata().configuration.get(LOG_RETENTION) != kept[LOG_RETENTION]:
        table.alter.set_table_properties(kept)
        table.update_incremental()
    table.create_checkpoint()
    table.cleanup_metadata()


def _freed_from(retention_hours: float) -> datetime:
    """Returns the time from which the files that a table has just replaced are not needed."""
    return datetime.now(UTC) + timedelta(hours=retention_hours)


def _size(path: str) -> Size:
    table = open_table(path)
    sizes = table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    fs, root = storage.filesystem(path)
    on_disk = fs.find(root, detail=True)
    stored = sum(int(one["size"]) for one in on_disk.values())
    data = sum(
        int(one["size"]) for file, one in on_disk.items() if file.endswith(".parquet") and LOG_FOLDER not in file
    )
    return Size(len(sizes), sum(sizes), stored, max(0, data - sum(sizes)))
