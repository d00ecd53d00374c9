"""Runs one stage for a range of batches: lease, ledger, work, and the work again where that helps.

The command and the Dagster assets call this and nothing else. Every run: take the lease, read the ledger, record the
start, recompute the stage's whole effect from upstream tables at fixed versions, commit table by table, record the end.
A crash anywhere leaves the stage due; running it again repairs it (architecture, rule 8).
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from fk_pipeline.cdc.landing import FsspecLandingZone, LandingZone
from fk_pipeline.errors import FkPipelineError, StageError
from fk_pipeline.identity import BatchRange, Stage
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.stages.fingerprints import check_fingerprints, fingerprints
from fk_pipeline.stages.layout import Layout, layout_of
from fk_pipeline.stages.work import Counts, StageWork
from fk_pipeline.tables.lease import lease
from fk_pipeline.tables.ledger import Ledger
from fk_pipeline.tables.warehouse import CommitInfo, Warehouse

ATTEMPTS_ON_CONFLICT = 3
"""A stage that meets a concurrent commit is recomputed from fresh reads this often."""


@dataclass(frozen=True)
class StageRun:
    """What one run of a stage did: counts per batch, seconds, and the Delta versions that it read and wrote."""

    stage: Stage
    batches: BatchRange
    run_id: str
    counts: Counts
    seconds: float
    versions: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Runner:
    """Runs the stages of one pipeline in one Spark session."""

    def __init__(
        self, session: SparkSession, spec: PipelineSpec, ledger: Ledger, zone: LandingZone | None = None
    ) -> None:
        self.session = session
        self.spec = spec
        self.zone = zone or FsspecLandingZone()
        self.layout: Layout = layout_of(session, spec)
        self.warehouse = Warehouse(session, spec.home)
        self.ledger = ledger
        self.ledger.refresh()
        check_fingerprints(spec, ledger)

    def run(self, stage: Stage, batches: BatchRange) -> StageRun:
        """Runs a stage for every known batch of a range.

        Raises:
            StageError: the stage failed; its batches stay due.
            LeaseTakenError: another run of the stage goes on.
        """
        with lease(self.spec.home, stage):
            return self._run_leased(stage, batches)

    def _run_leased(self, stage: Stage, batches: BatchRange) -> StageRun:
        started = time.monotonic()
        run_id = uuid.uuid4().hex[:12]
        self.ledger.refresh()
        known = [b for b in self.ledger.batches if b in batches]
        if not known:
            note = f"batch {batches} has no files: an empty batch"
            return StageRun(stage, batches, run_id, {int(batches.first): {"rows": 0}}, 0.0, notes=(note,))
        if not self.ledger.fingerprints:
            self.ledger.record_fingerprints(fingerprints(self.spec))
        info = CommitInfo(self.spec.name, stage, batches, run_id)
        work = StageWork(self.warehouse, self.ledger, self.layout, self.spec, self.zone, stage, known, info)
        attempts = 1
        while True:
            try:
                counts = work.run()
                break
            except FkPipelineError as error:
                self.ledger.fail(time.monotonic() - started, error.what)
                raise
            except Exception as error:
                if _is_conflict(error) and attempts < ATTEMPTS_ON_CONFLICT:
                    attempts += 1
                    continue
                from_spark = type(error).__module__.startswith(("pyspark.", "py4j."))
                if from_spark and work.may_meet_bad_rows and not work.careful:
                    work.careful = True
                    continue
                what = _root_message(error)
                self.ledger.fail(time.monotonic() - started, what)
                if not from_spark:
                    raise
                raise StageError(
                    what,
                    where=f"pipeline {self.spec.name}, stage {stage}, batch {batches}",
                    why="the batches stay due; whatever the stage had committed is repaired by running it again",
                    fix=f"fk-pipeline run {self.spec.file}",
                ) from error
        seconds = time.monotonic() - started
        self.ledger.succeed(counts, work.versions, seconds)
        return StageRun(stage, batches, run_id, counts, seconds, work.versions, tuple(work.notes))


def _is_conflict(error: Exception) -> bool:
    return "DELTA_CONCURRENT" in str(error) or "ConcurrentModification" in str(error)


def _root_message(error: Exception) -> str:
    text = str(error).strip()
    for line in text.splitlines():
        if line.startswith("Caused by:"):
            text = line.removeprefix("Caused by:").strip()
    return text.splitlines()[0]
