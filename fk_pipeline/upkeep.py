"""Upkeep of the tables: small files packed into larger ones, files that no kept version needs removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import fsspec
from deltalake import DeltaTable

from fk_pipeline.identity import Stage
from fk_pipeline.stages.runner import Runner
from fk_pipeline.stages.sole import sole_session
from fk_pipeline.stages.swap import TABLES_OF
from fk_pipeline.tables import schemas as s
from fk_pipeline.tables.entries import SCHEMAS
from fk_pipeline.tables.lease import lease, leases
from fk_pipeline.tables.settings import settings, suiting

PACKED = {
    "spark.databricks.delta.optimize.minFileSize": str(16 << 20),
    "spark.databricks.delta.optimize.maxFileSize": str(64 << 20),
}
"""Leave the files of a table that was written in the order of its keys as they are: look-ups skip by them."""

ANY_RETENTION = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
"""`settings.retention_hours` says what is removed, less than a week too."""


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

    def as_json(self) -> dict[str, Any]:
        """The result as the command prints it."""
        return {"table": self.table, "before": asdict(self.before), "after": asdict(self.after)}


def compact(runner: Runner, progress: Callable[[str], None] = lambda _: None) -> list[TableUpkeep]:
    """Packs small files and removes old ones, table by table, under the leases of the stages that write it.

    What versions of the last `settings.retention_hours` need stays. The rows are the same before and after.

    Args:
        runner: of the pipeline.
        progress: hears the name of each table before it is worked on.

    Raises:
        LeaseTakenError: a stage was at work for too long.
        StateError: the stored tables do not fit the pipeline file.
    """
    home = runner.spec.home
    done = []
    writers: dict[str, list[Stage]] = {name: [stage] for stage, names in TABLES_OF.items() for name in names}
    writers[s.QUARANTINE] = [Stage.LEFT_CHANGELOG, Stage.RIGHT_TABLE, Stage.RESOLVED_JOIN]
    for name, stages in writers.items():
        if runner.warehouse.version(name) is None:
            continue
        progress(name)
        with leases(home, stages), sole_session(runner.session, home, stages):
            done.append(_state_table(runner, name))
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


def _state_table(runner: Runner, name: str) -> TableUpkeep:
    session, path = runner.session, runner.warehouse.path(name)
    before, rows = _size(path), runner.warehouse.logs.rows(path)
    with settings(session, suiting(rows) | PACKED | ANY_RETENTION, optional=True):
        session.sql(f"OPTIMIZE delta.`{path}`").collect()
        session.sql(f"VACUUM delta.`{path}` RETAIN {runner.spec.settings.retention_hours:f} HOURS").collect()
    return TableUpkeep(name, before, _size(path))


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
