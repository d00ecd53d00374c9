"""Upkeep of the tables: old batches folded, small files packed into larger ones, files that nothing needs removed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import fsspec
from deltalake import DeltaTable

from fk_pipeline.identity import SIDE_OF, BatchId, BatchRange, Stage, ranges_sql
from fk_pipeline.stages.folding import foldable, settled, superseded
from fk_pipeline.stages.resolved_join import QUARANTINED
from fk_pipeline.stages.runner import Runner
from fk_pipeline.stages.sole import sole_session
from fk_pipeline.stages.subscription_store import new_subscribers
from fk_pipeline.stages.swap import TABLES_OF
from fk_pipeline.tables import schemas as s
from fk_pipeline.tables.entries import SCHEMAS
from fk_pipeline.tables.lease import Check, lease, leases
from fk_pipeline.tables.settings import settings, suiting
from fk_pipeline.tables.warehouse import CommitInfo, clustered

PACKED = {
    "spark.databricks.delta.optimize.minFileSize": str(16 << 20),
    "spark.databricks.delta.optimize.maxFileSize": str(64 << 20),
}
"""Leave the files of a table that was written in the order of its keys as they are: look-ups skip by them."""

ANY_RETENTION = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
"""`settings.retention_hours` says what is removed, less than a week too."""

MOST_PAIRS = 1.5
"""Pairs of the index of subscribers per row of the store, above which it is written anew."""


@dataclass(frozen=True)
class Size:
    """Of a table: files and bytes of its current version, and bytes on disk, older versions included."""

    files: int
    bytes: int
    stored: int


@dataclass(frozen=True)
class TableUpkeep:
    """What the upkeep of one table did."""

    table: str
    before: Size
    after: Size
    removed: int = 0
    """Rows that were removed: what folding leaves out."""

    def as_json(self) -> dict[str, Any]:
        """The result as the command prints it."""
        return asdict(self)


def compact(runner: Runner, progress: Callable[[str], None] = lambda _: None) -> list[TableUpkeep]:
    """Folds old batches, packs small files and removes old ones, table by table, under leases of stages.

    What versions of the last `settings.retention_hours` need stays. The state and the result are the same before and
    after. Killed anywhere, it has done no harm: the next one goes on.

    Args:
        runner: of the pipeline.
        progress: hears the name of each table before it is worked on.

    Raises:
        LeaseTakenError: a stage was at work for too long.
        StateError: the stored tables do not fit the pipeline file.
    """
    home = runner.spec.home
    done = []
    if _to_fold(runner):
        with _ledger_alone(home):
            runner.ledger.refresh()
            runner.ledger.record_folds(_to_fold(runner))
    writers: dict[str, list[Stage]] = {name: [stage] for stage, names in TABLES_OF.items() for name in names}
    writers[s.SUBSCRIBERS].append(Stage.RESPONSES)  # it may have opened an older store: the pairs of that are looked up
    writers[s.QUARANTINE] = [Stage.LEFT_CHANGELOG, Stage.RIGHT_TABLE, Stage.RESOLVED_JOIN]
    for name, stages in writers.items():
        if runner.warehouse.version(name) is None:
            continue
        progress(name)
        with leases(home, stages) as held, sole_session(runner.session, home, stages):
            done.append(_state_table(runner, name, held))
    with _ledger_alone(home):
        for name in SCHEMAS:
            if DeltaTable.is_deltatable(f"{home}/{name}"):
                progress(name)
                done.append(_ledger_table(f"{home}/{name}", name, runner.spec.settings.retention_hours))
    return done


@contextmanager
def _ledger_alone(home: str) -> Iterator[None]:
    """No discovery and no stage goes on: whoever writes an entry meanwhile would meet a conflict."""
    with lease(home, "discovery"), leases(home, Stage):
        yield


def _to_fold(runner: Runner) -> list[BatchId]:
    """The batches that are folded from here on."""
    ledger, hours = runner.ledger, runner.spec.settings.fold_after_hours
    if hours is None or ledger.open_rebuild is not None:
        return []
    folded = ledger.fully_folded
    return [batch for batch in foldable(ledger, datetime.now(UTC), hours) if batch not in folded]


def _state_table(runner: Runner, name: str, held: Check) -> TableUpkeep:
    session, path = runner.session, runner.warehouse.path(name)
    before, rows = _size(path), runner.warehouse.logs.rows(path)
    with settings(session, suiting(rows) | PACKED | ANY_RETENTION, optional=True):
        _fold(runner, name, held)
        runner.warehouse.pack(name, runner.spec.settings.retention_hours)
    return TableUpkeep(name, before, _size(path), rows - runner.warehouse.logs.rows(path))


def _fold(runner: Runner, name: str, held: Check) -> None:
    """Removes the rows of a table that are there for batches which are folded only."""
    spec, layout, warehouse, ledger = runner.spec, runner.layout, runner.warehouse, runner.ledger
    ledger.refresh()  # a rebuild may have brought everything back since the folds were recorded
    table = layout.table(name)
    if table is None or ledger.open_rebuild is not None or not ledger.fully_folded:
        return
    # A folded batch may run again; what it answers then is still to be resolved.
    known, both = ledger.batches, settled(ledger, ledger.fully_folded)
    if not both:
        return
    info = CommitInfo(spec.name, "compact", BatchRange.of(min(both), max(both)), uuid.uuid4().hex[:12], held)
    for stage, side in SIDE_OF.items():
        if table == layout.changelog(side):
            old = ranges_sql(s.BATCH, settled(ledger, ledger.folded(stage)), known)
            lost = superseded(warehouse.read(table), spec.side(side), old).persist()
            try:
                if not lost.isEmpty():
                    warehouse.remove(lost, table, info)
            finally:
                lost.unpersist()
    if table in (layout.responses, layout.verdicts):
        # Pairs that could not be computed are resolved again when somebody asks for that (`quarantine --replay`).
        refused = [b for b in both if ledger.state(Stage.RESOLVED_JOIN, b).counts.get(QUARANTINED)]
        where = ranges_sql(s.BATCH, {*both}.difference(refused), known)
        if not warehouse.read(table).where(where).isEmpty():
            warehouse.delete(where, table, info)
    elif table == layout.subscribers:
        pairs = new_subscribers(warehouse.read(layout.subscription_store), spec)
        rows = warehouse.rows([table])
        if rows > warehouse.rows([layout.subscription_store]) * MOST_PAIRS:
            ordered = clustered(pairs, [name for name, _ in s.fk_columns(spec)], rows)
            warehouse.rewrite(ordered, None, table, info, delete_when=None)


def _ledger_table(path: str, name: str, retention_hours: float) -> TableUpkeep:
    before, table = _size(path), DeltaTable(path)
    table.optimize.compact()
    table.vacuum(retention_hours=int(retention_hours), enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    return TableUpkeep(name, before, _size(path))


def _size(path: str) -> Size:
    sizes = DeltaTable(path).get_add_actions(flatten=True).column("size_bytes").to_pylist()
    fs, root = fsspec.core.url_to_fs(path)
    return Size(len(sizes), sum(sizes), int(fs.du(root)))
