"""A pipeline before anything runs: its session, its ledger, its landing files, its due batches and its plan."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from fk_pipeline.cdc.landing import READER_VERSION, Discovery, refuse_missing
from fk_pipeline.cdc.zone import FsspecLandingZone, LandingZone
from fk_pipeline.errors import EnvironmentNotFit, StateError, UsageError
from fk_pipeline.identity import BatchId, BatchRange, parse_batches
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.places import landing_path
from fk_pipeline.spec.project import merged
from fk_pipeline.spec.settings import FAN_OUT_WITHIN_BUDGET
from fk_pipeline.store.lease import lease
from fk_pipeline.store.sizes import MEASURED, Sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fk_pipeline.engine.behind import Lag
    from fk_pipeline.engine.runner import Runner
    from fk_pipeline.plan import Plan
    from fk_pipeline.store.ledger import Ledger


class OpenPipeline:
    """A pipeline that can be inspected. Spark starts only when a method needs it.

    Args:
        spec: the pipeline file, as `load_spec` reads it.
        session: a Spark session; default: one that is started when it is needed.
        zone: lists landing folders; default: local folders and object stores.
        sizes: the sizes at which the engine chooses another physical plan; default: the measured ones.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        session: SparkSession | None = None,
        zone: LandingZone | None = None,
        sizes: Sizes | None = None,
    ) -> None:
        self.spec, self.sizes = spec, sizes or MEASURED
        self.zone = zone or FsspecLandingZone()
        self._session, self._is_given = session, session is not None
        self._runner: Runner | None = None

    @property
    def session(self) -> SparkSession:
        """The Spark session; started on first use, and started again after it has ended.

        Raises:
            EnvironmentNotFit: Spark cannot be started, or the session that the pipeline was given has ended.
        """
        from fk_pipeline.environment.spark_life import is_gone

        if self._session is not None and is_gone(self._session):
            if self._is_given:
                raise EnvironmentNotFit(
                    "the Spark session that the pipeline was given has ended",
                    where=str(self.spec.file),
                    fix="make the Pipeline with a new session, or without one: it starts its own",
                )
            self._session = None
        if self._session is None:
            from fk_pipeline.session import require_s3, start_session

            landing = [landing_path(self.spec, side) for side in self.spec.sides]
            require_s3([self.spec.home, *landing], self.spec.settings)
            self._session = start_session(merged([self.spec]))
        return self._session

    @property
    def runner(self) -> Runner:
        """The runner of single stages.

        Raises:
            StateError: the stored tables were made with another pipeline file.
        """
        from fk_pipeline.engine.runner import Runner
        from fk_pipeline.environment.spark_life import is_gone

        if self._runner is None or is_gone(self._runner.session):
            self.check_fingerprints()
            self._runner = Runner(self.session, self.spec, self._ledger, self.zone, sizes=self.sizes)
        return self._runner

    @cached_property
    def _ledger(self) -> Ledger:
        from fk_pipeline.engine.claim import landing_places
        from fk_pipeline.store.ledger import Ledger

        budget = self.spec.settings.max_fan_out
        limits = {} if budget is None else {FAN_OUT_WITHIN_BUDGET: budget}
        kind, places = self.spec.definition, landing_places(self.spec)
        return Ledger(self.spec.home, kind, READER_VERSION, limits, places=places)

    def ledger(self) -> Ledger:
        """Returns the ledger as it is now; needs no Spark.

        Raises:
            StateError: one of its tables is damaged, or it is another pipeline's.
        """
        from fk_pipeline.engine.claim import check_claim
        from fk_pipeline.engine.damage import telling_damage

        with telling_damage(self.spec, self.zone):
            self._ledger.refresh()
        check_claim(self.spec, self._ledger)
        return self._ledger

    def adopt(self) -> None:
        """Claims the tables for this pipeline, whichever pipeline had them, with the landing locations of its file.

        A file there then counts as the known one of the same name. Known files without one count as vanished, which
        changes nothing.
        """
        from fk_pipeline.engine.claim import adopted

        with lease(self.spec.home, "discovery"):
            self._ledger.refresh()
            self._ledger.record_claim(adopted(self.spec, self._ledger, self.zone))
            self._ledger.entries.forget()  # the files are called otherwise now

    def discover(self, wait_seconds: float = 600.0, now: datetime | None = None) -> Discovery:
        """Assigns new and changed landing files to batches. Idempotent; needs no Spark.

        Batches become due again if they may have values of columns that were added to the schema, or if tables lack
        rows of them that are written according to the ledger.

        Args:
            wait_seconds: the time to wait for another discovery, in seconds.
            now: what clocks among the inputs show, also if that is earlier than what they showed; default: the time
                it is, and never an earlier one.

        Raises:
            LeaseTakenError: the other discovery took longer.
            LandingError: no batch can be read from a name.
            PipelineFileError: a landing folder does not exist and never did.
            StateError: the tables are another pipeline's, or so much older than the ledger that only a rebuild repairs
                them; or somebody has upgraded a table of the ledger so that it cannot be written.
        """
        from fk_pipeline.engine.behind import refuse

        discovery, behind = self._discover(wait_seconds, now)
        refuse(self.spec, behind)
        return discovery

    def _discover(
        self, wait_seconds: float = 600.0, now: datetime | None = None, *, stopped: bool = False
    ) -> tuple[Discovery, list[Lag]]:
        """Does the work of `discover`, but returns tables that are behind the ledger instead of raising an error.

        With `stopped`, clocks show what they showed last.
        """
        from fk_pipeline.engine import behind
        from fk_pipeline.engine.discovery import discover
        from fk_pipeline.engine.evolution import reopen_batches
        from fk_pipeline.engine.fingerprints import columns_to_add

        with lease(self.spec.home, "discovery", wait_seconds=wait_seconds):
            ledger = self.ledger()
            ledger.entries.refuse_upgraded()
            if ledger.files.known and not ledger.claim:
                self.look()
            discovery = discover(self.spec, ledger, self.zone, now, stopped=stopped)
            lags = behind.lags(self.spec, ledger, discovery)
            behind.reopen(ledger, lags)
            reopen_batches(self.spec, self._ledger, columns_to_add(self.spec, self._ledger), uuid.uuid4().hex[:12])
            return discovery, lags

    def look(self) -> Discovery:
        """Returns what `discover` would record; records nothing.

        Raises:
            StateError: the tables are another pipeline's.
        """
        from fk_pipeline.engine.claim import check_unclaimed
        from fk_pipeline.engine.discovery import find

        discovery = find(self.spec, self.ledger(), self.zone)
        check_unclaimed(self.spec, self._ledger, discovery)
        return discovery

    def plan(self) -> Plan:
        """Returns what `run` without arguments would do, and why; explains an edited pipeline file. Needs no Spark.

        Raises:
            LandingError, PipelineFileError: as with `discover`.
            StateError: as with `discover`.
        """
        from fk_pipeline.engine.behind import refuse
        from fk_pipeline.plan import make_plan

        discovery = self.look()
        self._ledger.entries.refuse_upgraded()
        refuse_missing(discovery, self.spec, self._ledger.files)
        behind = self.behind(discovery)
        refuse(self.spec, behind)
        return make_plan(self.spec, self._ledger, discovery, behind)

    def due(self) -> dict[str, list[BatchId]]:
        """Returns the due batches per stage, without a discovery of new files."""
        ledger = self.ledger()
        return {stage: ledger.due.of(stage) for stage in self.spec.definition.stage_names}

    def behind(self, discovery: Discovery | None = None) -> list[Lag]:
        """Returns the tables that differ from the ledger; needs no Spark.

        Args:
            discovery: the outcome of `look`, if it is known already.
        """
        from fk_pipeline.engine.behind import lags

        return lags(self.spec, self.ledger(), discovery or self.look())

    def has_files(self, batch: int) -> bool:
        """Returns whether any landing file was ever known for a batch; needs no Spark."""
        return batch in self.ledger().batches

    def check_fingerprints(self) -> None:
        """Refuses an edited pipeline file before Spark starts.

        A rebuild that died during its swap is not refused: the first stage that runs finishes it.

        Raises:
            StateError: the stored tables were made with another pipeline file, or have no ledger.
        """
        from fk_pipeline.engine.fingerprints import check_fingerprints

        ledger = self.ledger()
        if ledger.rebuilds.unfinished is None:
            check_fingerprints(self.spec, ledger)

    def refusal(self) -> StateError | None:
        """Returns the error of `check_fingerprints`: why nothing runs; None if nothing is refused."""
        try:
            self.check_fingerprints()
        except StateError as error:
            return error
        return None

    def refuse_never_run(self) -> None:
        """Refuses a pipeline that was never run; needs no Spark.

        Raises:
            StateError: no stage was ever started in this warehouse and under this name.
        """
        from fk_pipeline.store.neighbours import refuse_never_run

        refuse_never_run(self.spec, self.ledger())

    def refuse_unfinished(self) -> None:
        """Refuses tables that do not fit the pipeline file until the next run.

        Raises:
            StateError: a rebuild died while its tables were swapped in, or is swapping them in; or columns were added
                to the schema.
        """
        from fk_pipeline.engine.fingerprints import columns_to_add, finishing

        ledger = self.ledger()
        if columns_to_add(self.spec, ledger):
            raise StateError(
                "columns were added to the schema, and the stored tables have not got them yet",
                where=str(self.spec.file),
                fix=f"fk-pipeline run {self.spec.file} gives them these",
            )
        if ledger.rebuilds.unfinished is not None:
            raise StateError(
                "a rebuild died while its tables were swapped in",
                where=self.spec.home,
                why="some of the stored tables are from before it, some from after",
                fix=finishing(self.spec, ledger),
            )


def ranges_of(batches: str | Sequence[BatchRange] | None, option: str) -> Sequence[BatchRange] | None:
    """Parses ranges given as text (`3,7,9..12`); an error names the option with which they were given."""
    try:
        return parse_batches(batches) if isinstance(batches, str) else batches
    except ValueError as error:
        raise UsageError(f"{option}: {error}", fix=f"for example {option} 3,7,9..12") from None
