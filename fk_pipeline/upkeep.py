"""Upkeep of the tables: folds old batches, packs small files into larger ones, and removes files that nothing needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from deltalake import DeltaTable

from fk_pipeline.answers import Closing
from fk_pipeline.contract import Role, loaded
from fk_pipeline.engine.folding import foldable
from fk_pipeline.engine.runner import Runner
from fk_pipeline.engine.sole import sole_stages
from fk_pipeline.engine.unneeded import UnneededRows, undisturbed, writers
from fk_pipeline.environment import storage
from fk_pipeline.identity import BatchId
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.disk_use import Size, size_of
from fk_pipeline.store.ledger.entries import SCHEMAS
from fk_pipeline.store.settings import settings, suiting
from fk_pipeline.table_features import open_table

PACKED = {
    "spark.databricks.delta.optimize.minFileSize": str(16 << 20),
    "spark.databricks.delta.optimize.maxFileSize": str(64 << 20),
}
"""Sizes with which packing keeps the files of a table that was written in key order: look-ups skip files by keys."""

ANY_RETENTION = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
"""Lets `settings.retention_hours` be less than a week."""

LOG_RETENTION = "delta.logRetentionDuration"
LEDGER_LOG_HOURS = 24
"""How long entries of the log of a ledger table are kept, at most: nobody reads its older versions."""


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
        freed = {"freed": self.freed, "freed_later": self.freed_later}
        return asdict(self) | freed | {"freed_from": self.freed_from.isoformat(timespec="seconds")}


def compact(runner: Runner, progress: Callable[[str], None] = lambda _: None) -> list[TableUpkeep]:
    """Folds old batches, packs small files and removes old ones, table by table, under leases of stages.

    Files that versions of the last `settings.retention_hours` need are kept. The result does not change, nor does the
    state, except for deleted keys that are forgotten (`settings.tombstone_retention`) and for what a pipeline does not
    keep (`history`, `retention`). Tables get the descriptions and statistics that they lack. It may be killed at any
    point: the next upkeep continues.

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
    before = {name: size_of(runner.warehouse.path(name)) for name in stored}
    unneeded = UnneededRows(runner)
    if _to_fold(runner):
        with undisturbed(home, runner.ledger.kind):
            runner.ledger.refresh()
            runner.ledger.folds.record(_to_fold(runner))
    closing = closing_of(runner.spec)
    if closing is not None:
        progress("horizon")
        unneeded.close(closing)
    if runner.ledger.folds.on_all_sides:
        for stage, side in runner.ledger.inputs.items():
            progress(f"folding: {side}")
            unneeded.versions_of(stage, side)
        for table in runner.ledger.kind.tables:
            if table.role is Role.MESSAGES:
                progress(f"folding: {table.name}")
                unneeded.messages(table)
            elif table.role is Role.INDEX:
                unneeded.index(table)
    done = []
    for name in stored:
        progress(name)
        with sole_stages(runner.session, home, writers(runner.ledger.kind, name)):
            runner.warehouse.describe(runner.layout[name])
            _pack(runner, name)
        after = size_of(runner.warehouse.path(name))
        done.append(TableUpkeep(name, before[name], after, _freed_from(hours), unneeded.removed[name]))
    with undisturbed(home, runner.ledger.kind):
        for name in SCHEMAS:
            if DeltaTable.is_deltatable(f"{home}/{name}", storage.delta_options(home)):
                progress(name)
                done.append(_ledger_table(f"{home}/{name}", name, hours))
    return done


def closing_of(spec: PipelineSpec) -> Closing | None:
    """Returns what a pipeline does not keep for ever; None if it keeps everything."""
    closing: Closing | None = loaded(spec.definition.closing)(spec) if spec.definition.closing else None
    return closing


def _to_fold(runner: Runner) -> list[BatchId]:
    """Returns the batches to fold that are not folded yet."""
    ledger, hours = runner.ledger, runner.spec.settings.fold_after_hours
    if hours is None or ledger.rebuilds.unfinished is not None:
        return []
    folded = ledger.folds.on_all_sides
    return [batch for batch in foldable(ledger, datetime.now(UTC), hours) if batch not in folded]


def _pack(runner: Runner, name: str) -> None:
    session, path = runner.session, runner.warehouse.path(name)
    with settings(session, suiting(runner.warehouse.logs.rows(path)) | PACKED | ANY_RETENTION, optional=True):
        runner.warehouse.pack(name, runner.spec.settings.retention_hours)


def _ledger_table(path: str, name: str, retention_hours: float) -> TableUpkeep:
    before, table = size_of(path), open_table(path, ledger=True)
    table.optimize.compact()
    table.vacuum(retention_hours=int(retention_hours), enforce_retention_duration=False, dry_run=False)
    _forget_log(table, min(retention_hours, LEDGER_LOG_HOURS))
    return TableUpkeep(name, before, size_of(path), _freed_from(retention_hours))


def _forget_log(table: DeltaTable, hours: float) -> None:
    """Removes the entries of a log that are older and that a checkpoint replaces.

    Every commit lists them all: with ten thousand entries, some weeks of small batches, it takes eight times as long.
    A process that had read an older version reads the whole table again.
    """
    retention = {LOG_RETENTION: f"interval {int(hours)} hours"}
    if table.metadata().configuration.get(LOG_RETENTION) != retention[LOG_RETENTION]:
        table.alter.set_table_properties(retention)
        table.update_incremental()
    table.create_checkpoint()
    table.cleanup_metadata()


def _freed_from(retention_hours: float) -> datetime:
    """Returns the time from which the files that a table has just replaced are not needed."""
    return datetime.now(UTC) + timedelta(hours=retention_hours)
