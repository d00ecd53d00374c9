"""A pipeline as an object: discover, run, verify, read. The command and the Dagster assets stand on it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fk_pipeline.cdc.landing import READER_VERSION, READERS_KEPT, Discovery, discover, look, refuse_missing
from fk_pipeline.cdc.zone import FsspecLandingZone, LandingZone
from fk_pipeline.contract import Source
from fk_pipeline.errors import EnvironmentNotFit, FanOutError, StateError, UsageError
from fk_pipeline.identity import (
    BatchId,
    BatchRange,
    Origin,
    Side,
    contiguous,
    cut,
    parse_batches,
    passes,
)
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.spec.load import merged
from fk_pipeline.spec.model import FAN_OUT_WITHIN_BUDGET
from fk_pipeline.store import LEDGER_TABLES
from fk_pipeline.store.lease import lease
from fk_pipeline.store.sizes import MEASURED, Sizes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fk_pipeline.explain import Story
    from fk_pipeline.impact import Impact
    from fk_pipeline.plan import Plan
    from fk_pipeline.quarantine import Replay
    from fk_pipeline.rebuild import StageRebuild
    from fk_pipeline.stages.behind import Lag
    from fk_pipeline.stages.runner import Runner, StageRun
    from fk_pipeline.store.checks import FailedCheck
    from fk_pipeline.store.ledger import Ledger
    from fk_pipeline.store.reader import TableReader
    from fk_pipeline.upkeep import TableUpkeep
    from fk_pipeline.verify.report import VerifyReport

Progress = Callable[["Pass", "StageRun | None"], None]
"""Called before a pass of a stage (without a result) and after it."""


BATCHES_TOLD = 12
"""So many runs of numbers an error names where it says which batches there are."""

ROUNDS = 10
"""So often a run looks again whether what it did has made other batches of a stage due (architecture, rule 9)."""


@dataclass(frozen=True)
class Pass:
    """One pass of a stage over a range of batches.

    Attributes:
        stage: the stage.
        batches: the range.
        number: which pass of the run it is, from 1.
        of: how many the run makes, as far as is known when the pass begins; never less than `number`.
    """

    stage: str
    batches: BatchRange
    number: int
    of: int


def load(file: str | Path) -> Pipeline:
    """The pipeline of a pipeline file.

    Raises:
        PipelineFileError: see `fk_pipeline.spec.load_spec`.
    """
    return Pipeline(load_spec(file))


def _ranges(batches: str | Sequence[BatchRange] | None, option: str) -> Sequence[BatchRange] | None:
    try:
        return parse_batches(batches) if isinstance(batches, str) else batches
    except ValueError as error:
        raise UsageError(f"{option}: {error}", fix=f"for example {option} 3,7,9..12") from None


def changes(pipeline: Pipeline, batch: int) -> DataFrame:
    """What the runs for a batch inserted, updated and deleted in the result: see `fk_pipeline.feed.changes`."""
    return pipeline.changes(batch)


class Pipeline:
    """One join. Spark starts only when a method needs it.

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
        sizes: Sizes = MEASURED,
    ) -> None:
        self.spec, self.sizes = spec, sizes
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
        from fk_pipeline.stages import behind
        from fk_pipeline.stages.claim import claim
        from fk_pipeline.stages.evolution import reopen
        from fk_pipeline.stages.fingerprints import columns_to_add

        with lease(self.spec.home, "discovery", wait_seconds=wait_seconds):
            ledger = self.ledger()
            if ledger.files and not ledger.claim:
                self.look()
            found = discover(self.spec, ledger, self.zone)
            ledger.record_claim(claim(self.spec, ledger))
            lags = behind.lags(self.spec, ledger, found)
            behind.reopen(ledger, lags)
            reopen(self.spec, self._ledger, columns_to_add(self.spec, self._ledger), uuid.uuid4().hex[:12])
            return found, lags

    def remove_batch(self, batch: int, tell: Callable[[str], None] | None = None) -> dict[str, list[BatchId]]:
        """Withdraws a batch on purpose, so that the result becomes what it would be without it.

        Nothing runs yet: its changelogs are due, and by them everything after. `run(str(batch))` brings it back.

        Args:
            batch: its number.
            tell: called where nothing has landed in it.

        Returns:
            What is due now.

        Raises:
            UsageError: there is no such batch (see `_empty`), or it is withdrawn already.
            StateError: it was folded.
        """
        from fk_pipeline.stages.folding import refuse_folded

        self.check_fingerprints()
        self.discover()
        with lease(self.spec.home, "discovery"):
            ledger = self.ledger()
            empty = self._empty([batch], "nothing was withdrawn")
            if empty:
                (tell or (lambda _: None))(empty[0])
                return self.due()
            refuse_folded(ledger, self.spec, batch)
            if batch in ledger.removed:
                raise UsageError(
                    f"batch {batch} is withdrawn already",
                    fix=f"fk-pipeline run {self.spec.file} --batches {batch} brings it back",
                )
            ledger.remove(batch)
        return self.due()

    def quarantined(self, batches: str | Sequence[BatchRange] | None = None, side: Origin | None = None) -> DataFrame:
        """Records of the quarantine, all or some: see `fk_pipeline.quarantine.records`."""
        from fk_pipeline.quarantine import records

        self.refuse_unfinished()
        return records(self.runner, _ranges(batches, "--batch") or (), side)

    def export_quarantine(
        self, file: str | Path, batches: str | Sequence[BatchRange] | None = None, side: Origin | None = None
    ) -> int:
        """Writes records of the quarantine to a .csv or .jsonl file, for `correct`; returns their number."""
        from fk_pipeline.export import write
        from fk_pipeline.quarantine import ENDINGS

        return write(self.quarantined(batches, side), Path(file), ENDINGS, private=True)

    def replay(self, batches: str | Sequence[BatchRange] | None = None, side: Origin | None = None) -> list[BatchId]:
        """Makes batches with records in the quarantine due again, all or some; needs no Spark.

        Nothing runs yet: what read the records is due for these batches, and by that everything after.

        Returns:
            The batches.
        """
        from fk_pipeline.quarantine import reopen

        self.check_fingerprints()
        self.discover()
        with lease(self.spec.home, "discovery"):
            return reopen(self.ledger(), _ranges(batches, "--batch") or (), side, uuid.uuid4().hex[:12])

    def correct(self, file: str | Path) -> Replay:
        """Takes corrections of lines over from an edited file of quarantined records; needs no Spark.

        Nothing runs yet: the batches of the lines are due, and read them as corrected from now on.

        Raises:
            UsageError: the file cannot be used, or a record in it cannot be corrected by its text; nothing was stored.
        """
        from fk_pipeline.quarantine import correct

        self.check_fingerprints()
        gone = self.discover().vanished
        with lease(self.spec.home, "discovery"):
            return correct(Path(file), self.spec, self.ledger(), gone, uuid.uuid4().hex[:12])

    def _empty(self, batches: Iterable[int], why: str) -> list[str]:
        """What to tell of the batches in which nothing has landed, though something has before and after them.

        Raises:
            UsageError: a number is less than that of the first batch, or greater than that of the last.
        """
        known, found = self.ledger().batches, []
        for batch in (batch for batch in batches if batch not in known):
            if known and known[0] < batch < known[-1]:
                found.append(
                    f"batch {int(batch)} is empty: no landing file has this number; there is nothing to do for it"
                )
            else:
                runs = list(map(str, contiguous(known, [n + 1 for n in known if n + 1 not in known])))
                there = ", ".join(runs if len(runs) <= BATCHES_TOLD else [*runs[: BATCHES_TOLD - 1], "...", runs[-1]])
                raise UsageError(
                    f"there is no batch {int(batch)}: no landing file has this number",
                    where=f"pipeline {self.spec.name}",
                    why=why,
                    fix=f"the batches are {there}" if known else "land a file first: there is no batch yet",
                )
        return found

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
        if ledger.open_rebuild is None:
            check_fingerprints(self.spec, ledger)

    def rebuild(
        self, source: str = "changelog", stages: Iterable[str] | None = None, progress: Progress | None = None
    ) -> list[StageRebuild]:
        """Makes state and result anew and swaps them in atomically (`docs/reference/command.md`, rebuild).

        Args:
            source: `changelog` or `landing`: what to read.
            stages: make only these anew, and everything downstream; default: state and result, with `landing` also the
                changelogs, and whatever an edited pipeline file makes necessary.
            progress: called before and after every pass.

        Returns:
            Per stage the rows of its tables and the seconds.
        """
        from fk_pipeline.privacy import concealing
        from fk_pipeline.rebuild import Rebuild
        from fk_pipeline.stages.damage import make_ledger_readable, telling_damage

        if source not in list(Source):
            raise UsageError(f"a rebuild cannot read {source!r}", fix=f"--from {' or '.join(Source)}")
        chosen = None if stages is None else self._stages(stages)
        make_ledger_readable(self.spec, self.zone, Source(source))
        self._discover()

        def report(stage: str, batches: BatchRange, number: int, of: int, result: StageRun | None) -> None:
            if progress is not None:
                progress(Pass(stage, batches, number, of), result)

        with telling_damage(self.spec, self.zone), concealing(self.spec):
            ledger, given = self.ledger(), (self.zone, Source(source), chosen, self.sizes)
            return Rebuild(self.session, self.spec, ledger, *given).run(report)

    def _restore(self, batch: BatchId) -> None:
        """Brings a withdrawn batch back.

        Raises:
            UsageError: one of its landing files is gone; the batch stays withdrawn.
            StateError: it was folded.
        """
        from fk_pipeline.stages.folding import refuse_folded

        ledger = self.ledger()
        refuse_folded(ledger, self.spec, batch)
        gone = [f.path for f in self.look().vanished if f.batch == batch]
        if gone:
            raise UsageError(
                f"batch {batch} cannot be brought back: {gone[0]} is gone from the landing folder",
                where=str(self.spec.file),
                why="the batch stays withdrawn",
                fix="restore the file and run again",
            )
        with lease(self.spec.home, "discovery"):
            ledger.restore(batch)

    def look(self) -> Discovery:
        """What `discover` would record; records nothing.

        Raises:
            StateError: the tables are another pipeline's.
        """
        from fk_pipeline.stages.claim import check_unclaimed

        found = look(self.spec, self.ledger(), self.zone)
        check_unclaimed(self.spec, self._ledger, found)
        return found

    def due(self) -> dict[str, list[BatchId]]:
        """Per stage the batches that must run, without looking for new files."""
        ledger = self.ledger()
        return {stage: ledger.due(stage) for stage in self.spec.definition.stage_names}

    def behind(self, found: Discovery | None = None) -> list[Lag]:
        """The tables that are not what the ledger says of them; needs no Spark.

        Args:
            found: what `look` found, if that is known already.
        """
        from fk_pipeline.stages.behind import lags

        return lags(self.spec, self.ledger(), found or self.look())

    def plan(self) -> Plan:
        """What `run` without arguments would do, and why; an edited pipeline file is explained. Needs no Spark.

        Raises:
            LandingError, PipelineFileError: as with `discover`.
            StateError: the tables are another pipeline's, or older than the ledger so that only a rebuild mends them.
        """
        from fk_pipeline.plan import make_plan
        from fk_pipeline.stages.behind import refuse

        found = self.look()
        refuse_missing(found, self.spec, self._ledger)
        behind = self.behind(found)
        refuse(self.spec, behind)
        return make_plan(self.spec, self._ledger, found, behind)

    def run(
        self,
        batches: str | Sequence[BatchRange] | None = None,
        stages: Iterable[str] | None = None,
        progress: Progress | None = None,
        waive: str | None = None,
        adopt: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> list[StageRun]:
        """Discovers batches and runs stages.

        Without `batches`, a batch that failed a check is left out, and told in the end.

        Args:
            batches: passes to make in the given order, each stage by stage, `3,7,9..12` for example; default: all that
                is due. A withdrawn batch that is named on its own is brought back.
            stages: only these stages; default: all five.
            progress: called before and after every pass.
            waive: why batches that failed checks are to be gone on with as they are; recorded.
            adopt: the tables are this pipeline's from now on, though its files landed elsewhere before.
            tell: called with what people should know of the landing files, before the first pass.

        Returns:
            What every pass did, in order.

        Raises:
            UsageError: a number in `batches` that is no range is of no batch.
            CheckFailedError: a batch failed a check upstream of a stage, waits for somebody to agree, or was folded and
                landed anew.
        """
        chosen = self._stages(stages)
        ranges = _ranges(batches, "--batches")
        if adopt:
            self.adopt()
        self._prepare(ranges or (), tell or (lambda _: None))
        done: list[StageRun] = []
        if waive is not None:
            self._waive(chosen, ranges, waive)
        size = self.spec.settings.max_batches_per_pass
        if ranges is not None:
            parts = [part for wanted in ranges for part in cut(wanted, self.ledger().batches, size)]
            works = [(stage, part) for part in parts for stage in chosen]
            return [self._pass(Pass(*work, i, len(works)), progress) for i, work in enumerate(works, start=1)]
        from fk_pipeline.plan import expected_passes

        expected = expected_passes(self.spec, self.ledger(), chosen)

        def run_pass(stage: str, part: BatchRange) -> None:
            number = len(done) + 1
            done.append(self._pass(Pass(stage, part, number, max(number, expected)), progress))

        refused: list[FailedCheck] = []
        for stage in chosen:
            refusing = self._run_due(stage, size, run_pass)
            refused += [one for one in refusing if one not in refused]
        if refused:
            from fk_pipeline.stages.runner import check_failed

            stopped = check_failed(refused, self.spec, self._ledger)
            stopped.done = done
            raise stopped
        return done

    def _waive(self, stages: Iterable[str], ranges: Sequence[BatchRange] | None, reason: str) -> None:
        """Records that the failed checks for which stages would not run for batches do not count."""
        if not reason.strip():
            raise UsageError("--waive needs a reason", fix="say why the batch is good enough: it is recorded")
        ledger = self.ledger()
        wanted = [b for b in ledger.batches if ranges is None or any(b in some for some in ranges)]
        failed = {one: None for stage in stages for one in ledger.refusing(stage, wanted) if one.may_be_waived}
        ledger.waive(failed, reason)

    def _stages(self, stages: Iterable[str] | None) -> list[str]:
        known = self.spec.definition.stage_names
        if stages is None:
            return list(known)
        asked = {name.strip() for name in stages}
        unknown = sorted(asked.difference(known))
        if unknown:
            raise UsageError(f"there is no stage {unknown[0]!r}", fix=f"stages are {', '.join(known)}")
        return [stage for stage in known if stage in asked]

    def _prepare(self, ranges: Sequence[BatchRange], tell: Callable[[str], None]) -> None:
        """What a run does before its first pass: it looks at the landing folders, and mends what was left half done.

        Raises:
            UsageError: a number that is no range is of no batch (see `_empty`).
            StateError: the stored tables do not fit the pipeline file.
        """
        from fk_pipeline.stages.fingerprints import columns_to_add

        self.check_fingerprints()
        notices = self.discover().notices
        alone = [one.first for one in ranges if one.first == one.last]
        for notice in [*map(str, notices), *self._empty(alone, "nothing was run")]:
            tell(notice)
        for batch in alone:
            if batch in self.ledger().removed:
                self._restore(batch)
        if self.ledger().open_rebuild is not None:
            self.runner.finish_rebuild()
        if columns_to_add(self.spec, self.ledger()):
            self.runner.add_columns()

    def _run_due(self, stage: str, size: int, run: Callable[[str, BatchRange], None]) -> list[FailedCheck]:
        """Runs a stage until none of its batches is due but those that failed checks; these checks."""
        refusing: list[FailedCheck] = []
        left = ROUNDS
        while left:
            ledger = self.ledger()
            allowed, refusing = ledger.not_refused(stage, ledger.due(stage))
            if not allowed:
                break
            left -= 1
            for part in passes(allowed, ledger.batches, size):
                try:
                    run(stage, part)
                except FanOutError:  # the ledger has it: another round does without these batches
                    left = ROUNDS
        return refusing

    def _pass(self, work: Pass, progress: Progress | None) -> StageRun:
        if progress is not None:
            progress(work, None)
        result = self.runner.run(work.stage, work.batches)
        if progress is not None:
            progress(work, result)
        return result

    def table(self, name: str) -> DataFrame:
        """The rows of any of its tables, as they are now; of `verdicts` those that are not stored too.

        Raises:
            UsageError: no such table.
            StateError: a rebuild died while its tables were swapped in, or nothing was ever run.
        """
        from fk_pipeline.store.schemas import VERDICTS
        from fk_pipeline.store.warehouse import empty

        runner = self.runner
        if name in LEDGER_TABLES:
            if runner.warehouse.version(name) is not None:
                return self.session.read.format("delta").load(runner.warehouse.path(name))
            self.refuse_never_run()
            return empty(self.session, [("entry", "BIGINT")])
        self.refuse_unfinished()
        table = runner.layout.table(name)
        if table is None:
            names = [*(one.name for one in runner.layout.tables), *LEDGER_TABLES]
            raise UsageError(f"there is no table {name!r}", fix=f"tables are {', '.join(names)}")
        self.refuse_never_run()
        return runner.verdicts() if name == VERDICTS else runner.warehouse.read(table)

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
        if ledger.open_rebuild is not None:
            raise StateError(
                "a rebuild died while its tables were swapped in",
                where=self.spec.home,
                why="some of the stored tables are from before it, some from after",
                fix=f"fk-pipeline run {self.spec.file} swaps in the rest",
            )

    def verify(self, share: float = 1.0) -> VerifyReport:
        """Compares the result with the join of the last writers of both changelogs.

        Args:
            share: of the left keys, chosen by a hash of the key; 1 for all.

        Raises:
            StateError: the stored tables do not fit the pipeline file, nothing was ever run, or a file of a table is
                not the one of which its log says that it was written.
        """
        from fk_pipeline.privacy import concealing
        from fk_pipeline.stages.damage import refuse_damaged
        from fk_pipeline.store.settings import settings, suiting
        from fk_pipeline.verify.rejoin import verify

        self.refuse_never_run()
        self.refuse_unfinished()
        refuse_damaged(self.spec, zone=self.zone)
        read, proved = self.runner.reader(), self.spec.definition.proved
        tables = {name: read.read(name) for name in proved}
        with concealing(self.spec), settings(self.session, suiting(read.rows(*proved), self.sizes), optional=True):
            return verify(tables, self.due(), self.spec, self.ledger(), share)

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

    def explain(self, key: str) -> Story:
        """The story of one left key: see `fk_pipeline.explain`.

        Args:
            key: `17`, or `a=1,b=2` where it has several columns.
        """
        from fk_pipeline.explain import explain

        with self._looking() as read:
            return explain(read, self.spec, self._ledger, key)

    def impact(self, right_key: str | None = None, changes: str | Path | None = None, limit: int = 20) -> Impact:
        """What a change of the right side would touch: see `fk_pipeline.impact`. Changes nothing.

        Args:
            right_key: a right row, as `explain` takes a key; or
            changes: a file as it would land.
            limit: how many right keys are told.
        """
        from fk_pipeline.impact import of_changes, of_key

        if (right_key is None) == (changes is None):
            raise UsageError(
                "impact needs a right key, or a file of changes", fix="--right-key KEY, or --changes FILE; not both"
            )
        with self._looking() as read:
            if right_key is not None:
                return of_key(read, self.spec, right_key)
            return of_changes(read, self.spec, self._ledger, Path(str(changes)), limit)

    def changes(self, batch: int) -> DataFrame:
        """What the runs for a batch changed in the result: see `fk_pipeline.feed.changes`."""
        from fk_pipeline.feed import changes

        self.refuse_never_run()
        self.refuse_unfinished()
        return changes(self.runner, batch)

    def compact(self, progress: Callable[[str], None] = lambda _: None) -> list[TableUpkeep]:
        """Folds old batches, packs small files and removes old ones: see `fk_pipeline.upkeep.compact`."""
        from fk_pipeline.privacy import concealing
        from fk_pipeline.upkeep import compact

        self.refuse_unfinished()
        with concealing(self.spec):
            return compact(self.runner, progress)

    def export(self, file: str | Path) -> int:
        """Writes the result to a .csv, .jsonl or .parquet file, sorted by key; returns the number of rows."""
        from fk_pipeline.export import export
        from fk_pipeline.privacy import concealing

        self.refuse_never_run()
        with concealing(self.spec):
            return export(self.table("resolved_join"), self.spec, Path(file))

    def changed_rows(self, batch: int) -> tuple[int, int]:
        """How many result rows carry `batch` as their last change, and how many there are."""
        from fk_pipeline.store.schemas import BATCH

        result = self.table("resolved_join")
        return result.where(f"{BATCH} = {int(batch)}").count(), result.count()
