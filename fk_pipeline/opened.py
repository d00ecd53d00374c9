"""What is known of a pipeline before anything runs: its session, its ledger, what landed, what is due, its tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from fk_pipeline.cdc.landing import READER_VERSION, READERS_KEPT, Discovery, look
from fk_pipeline.cdc.zone import FsspecLandingZone, LandingZone
from fk_pipeline.contract import loaded
from fk_pipeline.errors import EnvironmentNotFit, StateError, UsageError
from fk_pipeline.identity import (
    BatchId,
    Side,
)
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.load import merged
from fk_pipeline.spec.settings import FAN_OUT_WITHIN_BUDGET
from fk_pipeline.store import LEDGER_TABLES
from fk_pipeline.store.lease import lease
from fk_pipeline.store.sizes import MEASURED, Sizes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fk_pipeline.stages.behind import Lag
    from fk_pipeline.stages.runner import Runner
    from fk_pipeline.store.ledger import Ledger
    from fk_pipeline.store.reader import TableReader


class OpenPipeline:
    """A pipeline that can be looked at. Spark starts only when a method needs it.

    Args:
        spec: the pipeline file, as `load_spec` reads it.
        session: a Spark session; default: one that is started when it is needed.
        zone: lists landing folders; default: local ones and object stores.
        sizes: at which the engine takes another physical way; default: those that were measured.
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
        """The Spark session; started on first use, and anew when the one that was started has ended.

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

            require_s3([self.spec.home, *map(self.spec.landing, Side)], self.spec.settings)
            self._session = start_session(merged([self.spec]))
        return self._session

    @property
    def runner(self) -> Runner:
        """Runs single stages.

        Raises:
            StateError: the stored tables were made with another pipeline file.
        """
        from fk_pipeline.environment.spark_life import is_gone
        from fk_pipeline.stages.runner import Runner

        if self._runner is None or is_gone(self._runner.session):
            self.check_fingerprints()
            self._runner = Runner(self.session, self.spec, self._ledger, self.zone, sizes=self.sizes)
        return self._runner

    @cached_property
    def _ledger(self) -> Ledger:
        from fk_pipeline.store.ledger import Ledger

        budget = self.spec.settings.max_fan_out
        limits = {} if budget is None else {FAN_OUT_WITHIN_BUDGET: budget}
        return Ledger(self.spec.home, self.spec.definition, READER_VERSION, limits, READERS_KEPT)

    def ledger(self) -> Ledger:
        """The ledger as it is now; needs no Spark.

        Raises:
            StateError: a table of it is damaged, or it is another pipeline's.
        """
        from fk_pipeline.stages.claim import check_claim
        from fk_pipeline.stages.damage import telling_damage

        with telling_damage(self.spec, self.zone):
            self._ledger.refresh()
        check_claim(self.spec, self._ledger)
        return self._ledger

    def adopt(self) -> None:
        """Makes the tables this pipeline's own, whosever they were: its landing locations are in the pipeline file.

        Landing files that are known, and are in other places, have vanished by that, which changes nothing.
        """
        from fk_pipeline.stages.claim import claim

        with lease(self.spec.home, "discovery"):
            self._ledger.refresh()
            self._ledger.record_claim(claim(self.spec, self._ledger))

    def discover(self, wait_seconds: float = 600.0) -> Discovery:
        """Assigns new and changed landing files to batches. Idempotent; needs no Spark.

        Batches that may have values of columns that the schema has now are due again, and those of which tables lack
        what the ledger says that was written.

        Args:
            wait_seconds: how long another discovery is waited for.

        Raises:
            LeaseTakenError: it took longer.
            LandingError: a name gives no batch.
            PipelineFileError: a landing folder is not there and never was.
            StateError: the tables are another pipeline's, or older than the ledger so that only a rebuild mends them.
        """
        from fk_pipeline.stages.behind import refuse

        found, behind = self._discover(wait_seconds)
        refuse(self.spec, behind)
        return found

    def _discover(self, wait_seconds: float = 600.0) -> tuple[Discovery, list[Lag]]:
        """What `discover` does, where tables that lack what the ledger says are no error: they are returned."""
        from fk_pipeline.stages import behind
        from fk_pipeline.stages.claim import claim
        from fk_pipeline.stages.discovery import discover
        from fk_pipeline.stages.evolution import reopen_batches
        from fk_pipeline.stages.fingerprints import columns_to_add

        with lease(self.spec.home, "discovery", wait_seconds=wait_seconds):
            ledger = self.ledger()
            if ledger.files.known and not ledger.claim:
                self.look()
            found = discover(self.spec, ledger, self.zone)
            ledger.record_claim(claim(self.spec, ledger))
            lags = behind.lags(self.spec, ledger, found)
            behind.reopen(ledger, lags)
            reopen_batches(self.spec, self._ledger, columns_to_add(self.spec, self._ledger), uuid.uuid4().hex[:12])
            return found, lags

    def look(self) -> Discovery:
        """What `discover` would record; records nothing.

        Raises:
            StateError: the tables are another pipeline's.
        """
        from fk_pipeline.stages.claim import check_unclaimed

        found = look(self.spec, self.ledger().files, self.zone)
        check_unclaimed(self.spec, self._ledger, found)
        return found

    def due(self) -> dict[str, list[BatchId]]:
        """Per stage the batches that must run, without looking for new files."""
        ledger = self.ledger()
        return {stage: ledger.due.of(stage) for stage in self.spec.definition.stage_names}

    def behind(self, found: Discovery | None = None) -> list[Lag]:
        """The tables that are not what the ledger says of them; needs no Spark.

        Args:
            found: what `look` found, if that is known already.
        """
        from fk_pipeline.stages.behind import lags

        return lags(self.spec, self.ledger(), found or self.look())

    def has_files(self, batch: int) -> bool:
        """Whether any landing file was ever known for a batch; needs no Spark."""
        return batch in self.ledger().batches

    def check_fingerprints(self) -> None:
        """Refuses an edited pipeline file before Spark starts.

        A rebuild that died while it was swapped in is no reason: the first stage that runs finishes it.

        Raises:
            StateError: the stored tables were made with another pipeline file, or have no ledger.
        """
        from fk_pipeline.stages.fingerprints import check_fingerprints

        ledger = self.ledger()
        if ledger.rebuilds.unfinished is None:
            check_fingerprints(self.spec, ledger)

    def table(self, name: str) -> DataFrame:
        """The rows of any of its tables, as they are now; of `verdicts` those that are not stored too.

        Raises:
            UsageError: no such table.
            StateError: a rebuild died while its tables were swapped in, or nothing was ever run.
        """
        from fk_pipeline.frames import empty

        runner = self.runner
        if name in LEDGER_TABLES:
            if runner.warehouse.version(name) is not None:
                return self.session.read.format("delta").load(runner.warehouse.path(name))
            self.refuse_never_run()
            return empty(self.session, [("entry", "BIGINT")])
        self.refuse_unfinished()
        if runner.layout.table(name) is None:
            names = [*(one.name for one in runner.layout.tables), *LEDGER_TABLES]
            raise UsageError(f"there is no table {name!r}", fix=f"tables are {', '.join(names)}")
        self.refuse_never_run()
        view = self.spec.definition.views.get(name)
        read = runner.reader()
        return read.read(name) if view is None else loaded(view)(read, self._ledger, self.spec)

    def refuse_never_run(self) -> None:
        """There is nothing to look at; needs no Spark.

        Raises:
            StateError: no stage was ever started, in this warehouse and under this name.
        """
        from fk_pipeline.store.neighbours import refuse_never_run

        refuse_never_run(self.spec, self.ledger())

    def refuse_unfinished(self) -> None:
        """The tables are not what the pipeline file says, and will be after a run.

        Raises:
            StateError: a rebuild died while its tables were swapped in, or swaps them in; or columns were added to the
                schema.
        """
        from fk_pipeline.stages.fingerprints import columns_to_add

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
                fix=f"fk-pipeline run {self.spec.file} swaps in the rest",
            )

    @contextmanager
    def _looking(self) -> Iterator[TableReader]:
        """A reader, for a look at finished tables that evaluates expressions of the pipeline file."""
        from fk_pipeline.privacy import concealing
        from fk_pipeline.store.settings import GUARDED, settings, suiting

        self.refuse_never_run()
        self.refuse_unfinished()
        runner = self.runner
        suits = suiting(runner.warehouse.rows(runner.layout.tables), self.sizes)
        with concealing(self.spec), settings(self.session, suits, optional=True), settings(self.session, GUARDED):
            yield runner.reader()
