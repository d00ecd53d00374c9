"""Runs one stage for a range of batches: lease, ledger, work, and a repetition of the work where that helps.

The command and the Dagster assets call this and nothing else. Every run: take the lease, read the ledger, record the
start, recompute the stage's whole effect from upstream tables at fixed versions, commit table by table, record the end.
A crash anywhere leaves the stage due; running it again repairs it (architecture, rule 8).
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from fk_pipeline.cdc.zone import FsspecLandingZone, LandingZone
from fk_pipeline.contract import Source
from fk_pipeline.engine.behind import overtaken, versions_of
from fk_pipeline.engine.damage import telling_damage, translated
from fk_pipeline.engine.described import layout_of
from fk_pipeline.engine.evolution import reopen_batches
from fk_pipeline.engine.execution import Done, Execution
from fk_pipeline.engine.failed_checks import check_failed
from fk_pipeline.engine.failed_stage import last_error, place, spark_ended, stage_failed
from fk_pipeline.engine.fingerprints import check_fingerprints, columns_to_add, fingerprints, refuse_unknown_types
from fk_pipeline.engine.registered import refuse_taken, register
from fk_pipeline.engine.sole import sole_session, sole_stages
from fk_pipeline.engine.swap import finish_rebuild
from fk_pipeline.environment.refusals import refusal
from fk_pipeline.environment.spark_life import has_ended
from fk_pipeline.errors import (
    FkPipelineError,
    LeaseLostError,
    SparkEndedError,
)
from fk_pipeline.failures import is_conflict, is_from_spark
from fk_pipeline.identity import BatchRange
from fk_pipeline.privacy import cause_of, concealing, message_of
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.failing import ISOLATING, STOPPING
from fk_pipeline.stage_input import Counts
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.lease import LeaseCheck, lease
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.planner import Choice
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.sizes import MEASURED, Sizes
from fk_pipeline.store.warehouse import Warehouse
from fk_pipeline.table_features import without_row_numbers

ATTEMPTS_ON_CONFLICT = 3
"""The most attempts of a stage that meets concurrent commits; each one reads the tables again."""


@dataclass(frozen=True)
class StageRun:
    """The result of one run of a stage: counts per batch, seconds, and the Delta versions that it read and wrote."""

    stage: str
    batches: BatchRange
    run_id: str
    counts: Counts
    seconds: float
    versions: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    choice: Choice | None = None
    """The strategy and its reason; None if there was nothing to do, or no choice."""
    warnings: tuple[str, ...] = ()
    """Probable mistakes in the pipeline file."""


Ran = TypeVar("Ran", StageRun, StageRun | None)


class Runner:
    """Runs the stages of one pipeline in one Spark session."""

    def __init__(
        self,
        session: SparkSession,
        spec: PipelineSpec,
        ledger: Ledger,
        zone: LandingZone | None = None,
        warehouse: Warehouse | None = None,
        sizes: Sizes = MEASURED,
        source: Source = Source.LANDING,
    ) -> None:
        self.session = session
        self.spec = spec
        self.zone = zone or FsspecLandingZone()
        self.layout = layout_of(session, spec)
        self.warehouse = warehouse or Warehouse(session, spec.home, sizes=sizes)
        self.ledger, self.source = ledger, source

    def reader(self) -> TableReader:
        """Returns a reader of the tables, which reads each at the version that it has at its first read."""
        return TableReader(self.warehouse, self.layout.tables)

    def finish_rebuild(self) -> None:
        """Completes the swap of a rebuild that died during it, if there is one."""
        with telling_damage(self.spec, self.zone), concealing(self.spec):
            finish_rebuild(self.session, self.spec, self.ledger, self.layout)

    def add_columns(self) -> None:
        """Adds the columns that the stored tables lack to them, if the edit of the schema only added columns.

        The values are read when the changelog stages run for the batches that may have them; these become due.
        """
        with (
            telling_damage(self.spec, self.zone),
            concealing(self.spec),
            sole_stages(self.session, self.ledger.home, self.spec.definition.stage_names) as held,
        ):
            self.ledger.refresh()
            stale = columns_to_add(self.spec, self.ledger)
            if not stale:
                return
            known = self.ledger.batches
            run_id = uuid.uuid4().hex[:12]
            info = CommitInfo(self.spec.name, "add columns", BatchRange(known[0], known[-1]), run_id, held)
            for table in self.layout.tables:
                self.warehouse.add_columns(table, info)
            reopen_batches(self.spec, self.ledger, stale, run_id)
            self.ledger.record_fingerprints(fingerprints(self.spec))

    def make_result(self) -> None:
        """Creates the result without rows if it does not exist."""
        kind, known = self.spec.definition, self.ledger.batches
        with telling_damage(self.spec, self.zone), lease(self.ledger.home, kind.result_stage) as held:
            run_id = uuid.uuid4().hex[:12]
            info = CommitInfo(self.spec.name, "make result", BatchRange(known[0], known[-1]), run_id, held)
            self.warehouse.create(self.layout[kind.result.name], info)

    def register(self) -> None:
        """Registers the result in Spark's catalog under the name in the pipeline file, if it has one and is there.

        Raises:
            StateError: the name is that of something else.
        """
        result = self.spec.definition.result.name
        if self.spec.register_ is not None and not self._in_shadow and self.warehouse.version(result) is not None:
            register(self.session, self.spec)

    @property
    def _in_shadow(self) -> bool:
        """Whether no other run knows the tables: those of a rebuild."""
        return self.ledger.home != self.warehouse.home

    def run(self, stage: str, batches: BatchRange) -> StageRun:
        """Runs a stage for every known batch of a range, due or not.

        Raises:
            StageError: the stage failed; its batches stay due.
            CheckFailedError: a batch failed a check upstream of the stage.
            LeaseTakenError: another run of the stage is still running.
            StateError: the stored tables do not fit the pipeline file.
        """
        return self._in_lease(stage, lambda held, run_id: self._run_leased(stage, batches, held, run_id))

    def run_due(self, stage: str, batches: BatchRange) -> StageRun | None:
        """Runs a stage for every known batch of a range, if all of them are due once no other run has the stage.

        Returns:
            None, and nothing was done, if one of them is not: another run has done it meanwhile.

        Raises:
            as `run`.
        """

        def run(held: LeaseCheck, run_id: str) -> StageRun | None:
            known = [batch for batch in self.ledger.batches if batch in batches]
            due = all(self.ledger.due.has(stage, batch) for batch in known)
            return self._run_leased(stage, batches, held, run_id) if due else None

        return self._in_lease(stage, run)

    def _in_lease(self, stage: str, work: Callable[[LeaseCheck, str], Ran]) -> Ran:
        """Does some work while no other run has the stage, with the ledger as it is then and tables that fit it."""
        refuse_unknown_types(self.spec)
        while True:
            home, run_id = self.ledger.home, uuid.uuid4().hex[:12]
            with (
                telling_damage(self.spec, self.zone),
                concealing(self.spec),
                lease(home, stage, run_id=run_id) as held,
                sole_session(self.session, home, [stage]),
            ):
                self.ledger.refresh()
                if self.ledger.rebuilds.unfinished is None:
                    check_fingerprints(self.spec, self.ledger)
                    if not columns_to_add(self.spec, self.ledger):
                        return work(held, run_id)
            self.finish_rebuild()
            self.add_columns()

    def _run_leased(self, stage: str, batches: BatchRange, held: LeaseCheck, run_id: str) -> StageRun:
        started = time.monotonic()
        known = [b for b in self.ledger.batches if b in batches]
        if not known:
            note = f"batch {batches} has no files: an empty batch"
            return StageRun(stage, batches, run_id, {int(batches.first): {"rows": 0}}, 0.0, notes=(note,))
        refused = self.ledger.checks.refusing(stage, known)
        if refused:
            raise check_failed(refused, self.spec, self.ledger)
        if not self.ledger.fingerprints:
            self.ledger.record_fingerprints(fingerprints(self.spec))
        of_result = stage == self.spec.definition.result_stage
        if of_result and not self._in_shadow:
            refuse_taken(self.session, self.spec)
        info = CommitInfo(self.spec.name, stage, batches, run_id, held)
        parts = (self.warehouse, self.ledger, self.layout, self.spec, self.zone)
        work = Execution(*parts, stage, known, info, self.source)
        before = last_error(self.ledger, stage, batches)
        try:
            done = self._with_second_tries(work)
            seconds = time.monotonic() - started
            how = (done.choice.strategy, done.choice.reason) if done.choice else (None, None)
            self.ledger.runs.succeed(done.counts, done.versions, seconds, *how)
        except Exception as error:
            where = place(self.spec, stage, batches)
            own_error = self._ended(stage, batches, error) or error
            if not isinstance(own_error, FkPipelineError):
                explained = refusal(error, self.ledger.home, where) or without_row_numbers(error)
                own_error = explained or translated(error, self.spec, self.zone)
            what = message_of(own_error, self.spec)
            with contextlib.suppress(OSError, DeltaError):  # a full disk: the entry of its start must suffice
                self.ledger.runs.fail(time.monotonic() - started, what)
            if own_error is not error:
                raise own_error from cause_of(error, self.spec)
            if not isinstance(error, (OSError, DeltaError)) and not is_from_spark(error):
                raise
            failed = stage_failed(self.spec, self.ledger, stage, batches, error, what, before)
            raise failed from cause_of(error, self.spec)
        if of_result:
            self.register()
        outcome = tuple(done.notes), done.choice, tuple(done.warnings)
        return StageRun(stage, batches, run_id, done.counts, seconds, done.versions, *outcome)

    def _ended(self, stage: str, batches: BatchRange, error: Exception) -> SparkEndedError | None:
        """Returns the error for a stage whose Spark has ended, and forgets that Spark; None if Spark still runs."""
        if not has_ended(self.session, error):
            return None
        return spark_ended(self.spec, self.ledger, stage, batches)

    def _with_second_tries(self, work: Execution) -> Done:
        """Runs the work; repeats it after a conflict, and with row-error isolation after an error in a row or a file.

        A commit that a run without its lease makes meanwhile also counts as a conflict, though Delta sees none.
        """
        conflicts, evaluator, stage = 0, STOPPING, work.stage.name
        home, kind, in_shadow = self.ledger.home, self.ledger.kind, self._in_shadow
        while True:
            before = {} if in_shadow else versions_of(kind, home, stage)
            try:
                done = work.run(evaluator, before)
                late = None if in_shadow else overtaken(kind, home, stage, work.info.run_id, before)
            except Exception as error:
                if is_conflict(error) and conflicts < ATTEMPTS_ON_CONFLICT - 1:
                    conflicts += 1
                elif not evaluator.isolating and work.may_be_mended(error):
                    evaluator = ISOLATING
                else:
                    raise
                continue
            if late is None:
                return done
            conflicts += 1
            if conflicts == ATTEMPTS_ON_CONFLICT or late.appends:
                raise LeaseLostError(
                    f"run {late.run_id} of {stage} committed meanwhile, without its lease",
                    where=f"pipeline {self.spec.name}, stage {stage}",
                    why="the tables may hold what both wrote; the batches stay due",
                    fix=f"fk-pipeline run {self.spec.file}",
                )
