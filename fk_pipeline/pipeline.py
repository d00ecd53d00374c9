"""A pipeline as an object: discover, run, verify, read. The command and the Dagster assets use it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fk_pipeline.answers import AnyImpact
from fk_pipeline.cdc.landing import refuse_missing
from fk_pipeline.contract import Source, loaded
from fk_pipeline.errors import LeftToSpark, UsageError
from fk_pipeline.identity import BatchId, BatchRange, Side
from fk_pipeline.opened import OpenPipeline
from fk_pipeline.passes import Pass, PassProgress, chosen_stages, ranges_of, run_stages
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.project import results_read, with_inline
from fk_pipeline.store.lease import lease

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fk_pipeline.blocks.story import Story
    from fk_pipeline.engine.runner import StageRun
    from fk_pipeline.plan import Plan
    from fk_pipeline.quarantine import Replay
    from fk_pipeline.rebuild import StageRebuild
    from fk_pipeline.store.rows_here import Relation
    from fk_pipeline.upkeep import TableUpkeep
    from fk_pipeline.verify.inputs.report import InputsReport
    from fk_pipeline.verify.report import VerifyReport


def load(file: str | Path) -> Pipeline:
    """Returns the pipeline of a pipeline file.

    Raises:
        PipelineFileError: see `fk_pipeline.spec.load_spec`.
    """
    return Pipeline(load_spec(file))


def changes(pipeline: Pipeline, batch: int) -> DataFrame:
    """Returns the rows that the runs for a batch inserted, updated and deleted in the result.

    See `fk_pipeline.feed.changes`.
    """
    return pipeline.changes(batch)


class Pipeline(OpenPipeline):
    """One join and all operations on it. Spark starts only when a method needs it."""

    def remove_batch(
        self, batch: int | str, tell: Callable[[str], None] | None = None, forget: bool = False
    ) -> dict[str, list[BatchId]]:
        """Removes a batch, so that the result becomes what it would be without it.

        Nothing runs yet: its changelogs become due, and therefore everything downstream. `run(str(batch))` restores it.

        Versions of a Delta table that were never read and cannot be read any more leave the batch for good, and the
        next discovery takes the whole table; what else is in the batch then stays.

        Args:
            batch: its number.
            tell: called with a notice if the batch has no landing files, or stays without some versions.
            forget: agrees that its rows are lost, because landing files of it are gone.

        Returns:
            The due batches per stage.

        Raises:
            UsageError: the batch does not exist (see `engine.withdrawal.empty_batches`), or is removed already; or a
                landing file of it is gone, or versions of a Delta table, so that it could not be brought back.
            StateError: it was folded.
        """
        from fk_pipeline.engine.withdrawal import withdraw

        self.check_fingerprints()
        found = self.discover()
        with lease(self.spec.home, "discovery"):
            withdraw(self.spec, self.ledger(), found, BatchId(int(batch)), tell or (lambda _: None), forget)
        return self.due()

    def quarantined(self, batches: str | Sequence[BatchRange] | None = None, side: str | None = None) -> DataFrame:
        """Returns records of the quarantine, all or some: see `fk_pipeline.quarantine.quarantined_records`."""
        from fk_pipeline.quarantine import quarantined_records

        self._refuse_no_origin(side)
        self.refuse_unfinished()
        return quarantined_records(self.runner, ranges_of(batches, "--batch") or (), side)

    def _refuse_no_origin(self, side: str | None) -> None:
        """Refuses a side that no record of the quarantine can come from.

        Raises:
            UsageError: it is no input, and not `join`; or the pipeline has no quarantine.
        """
        origins = self.spec.definition.rejecting
        if not origins:
            read = [f"fk-pipeline quarantine {file}" for file in results_read(self.spec)]
            raise UsageError(
                f"pipeline {self.spec.name} has no quarantine",
                where=str(self.spec.file),
                why="it reads tables where they lie, and no landing files",
                fix=f"those of the pipelines that it reads: {', '.join(read)}" if read else "look into its sources",
            )
        if side is not None and side not in origins:
            raise UsageError(f"{side!r} is no input of pipeline {self.spec.name}", fix=f"--side {', '.join(origins)}")

    def quarantined_here(self, batches: str | Sequence[BatchRange] | None = None, side: str | None = None) -> pa.Table:
        """Returns records of the quarantine as `quarantined` does, in Arrow; needs no Spark.

        Raises:
            LeftToSpark: only Spark can read them.
        """
        from fk_pipeline.quarantine_here import quarantined_records
        from fk_pipeline.store.schemas import QUARANTINE

        ranges = ranges_of(batches, "--batch") or ()
        self._refuse_no_origin(side)
        self.check_fingerprints()
        self.refuse_unfinished()
        return quarantined_records(self._relation(QUARANTINE), self.spec, ranges, side)

    def export_quarantine(
        self,
        file: str | Path,
        batches: str | Sequence[BatchRange] | None = None,
        side: str | None = None,
        told: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Writes records of the quarantine to a .csv or .jsonl file, for `correct`; returns their number.

        Args:
            file: the file.
            batches: the batches whose records are written; none: all.
            side: the origin whose records are written; None: all.
            told: is called with the reason if Spark has to read the records.
        """
        from fk_pipeline.export_files import check_ending, write_here
        from fk_pipeline.quarantine_here import EDITED_ENDINGS

        target = Path(file)
        check_ending(target, EDITED_ENDINGS)
        try:
            return write_here(self.quarantined_here(batches, side), target, EDITED_ENDINGS, private=True)
        except LeftToSpark as left:
            why = str(left)
        told(why)
        from fk_pipeline.export import write

        return write(self.quarantined(batches, side), target, EDITED_ENDINGS, private=True)

    def replay(self, batches: str | Sequence[BatchRange] | None = None, side: str | None = None) -> list[BatchId]:
        """Makes batches with records in the quarantine due again, all or some; needs no Spark.

        Nothing runs yet: the stages that rejected the records become due for these batches, and so does everything
        downstream.

        Returns:
            The batches.
        """
        from fk_pipeline.quarantine import reopen_quarantined

        self._refuse_no_origin(side)
        self.check_fingerprints()
        self.discover()
        with lease(self.spec.home, "discovery"):
            return reopen_quarantined(self.ledger(), ranges_of(batches, "--batch") or (), side, uuid.uuid4().hex[:12])

    def correct(self, file: str | Path) -> Replay:
        """Records corrections of lines from an edited file of quarantined records; needs no Spark.

        Nothing runs yet: the batches of the lines become due, and read the lines as corrected from now on.

        Raises:
            UsageError: the file cannot be used, or a record in it cannot be corrected by its text; nothing was stored.
        """
        from fk_pipeline.quarantine import correct

        self.check_fingerprints()
        gone = self.discover().vanished
        with lease(self.spec.home, "discovery"):
            return correct(Path(file), self.spec, self.ledger(), gone, uuid.uuid4().hex[:12])

    def rebuild(
        self,
        source: str = "changelog",
        stages: Iterable[str] | None = None,
        progress: PassProgress | None = None,
        forget: bool = False,
    ) -> list[StageRebuild]:
        """Rebuilds state and result and swaps them in atomically (`docs/reference/command.md`, rebuild).

        Args:
            source: the source to read: `changelog` or `landing`.
            stages: rebuild only these stages and everything downstream; default: state and result, with `landing` also
                the changelogs, and the stages that an edited pipeline file makes necessary.
            progress: called before and after every pass.
            forget: agrees that rows of closed times lose what they saw (`history`).

        Returns:
            Per stage the number of rows of its tables and the seconds.
        """
        from fk_pipeline.engine.damage import make_ledger_readable, telling_damage
        from fk_pipeline.privacy import concealing
        from fk_pipeline.rebuild import Rebuild

        if source not in list(Source):
            raise UsageError(f"a rebuild cannot read {source!r}", fix=f"--from {' or '.join(Source)}")
        chosen = None if stages is None else chosen_stages(self, stages)
        make_ledger_readable(self.spec, self.zone, Source(source))
        self._discover(stopped=True)

        def report(stage: str, batches: BatchRange, number: int, of: int, result: StageRun | None) -> None:
            if progress is not None:
                progress(Pass(stage, batches, number, of), result)

        with telling_damage(self.spec, self.zone), concealing(self.spec):
            ledger, given = self.ledger(), (self.zone, Source(source), chosen, self.sizes, forget)
            return Rebuild(self.session, self.spec, ledger, *given).run(report)

    def plan(self) -> Plan:
        """Returns what `run` without arguments would do, and why; explains an edited pipeline file. Needs no Spark.

        Raises:
            LandingError, PipelineFileError: as with `discover`.
            StateError: as with `discover`.
        """
        from fk_pipeline.engine.behind import refuse
        from fk_pipeline.plan import make_plan

        found = self.look()
        self._ledger.entries.refuse_upgraded()
        refuse_missing(found, self.spec, self._ledger.files)
        behind = self.behind(found)
        refuse(self.spec, behind)
        return make_plan(self.spec, self._ledger, found, behind)

    def run(
        self,
        batches: str | Sequence[BatchRange] | None = None,
        stages: Iterable[str] | None = None,
        progress: PassProgress | None = None,
        waive: str | None = None,
        adopt: bool = False,
        tell: Callable[[str], None] | None = None,
        *,
        inline: bool = True,
        now: datetime | str | None = None,
    ) -> list[StageRun]:
        """Discovers batches and runs stages.

        Without `batches`, a batch that failed a check is left out and reported at the end. Without `batches` and
        `stages`, the pipelines of inline inputs run first.

        Args:
            batches: the passes in the given order, each stage by stage, for example `3,7,9..12`; default: all due
                batches. A removed batch that is named on its own is restored.
            stages: only these stages; default: all five.
            progress: called before and after every pass.
            waive: the reason for which failed checks of batches are waived; it is recorded.
            adopt: whether to claim the tables for this pipeline, although its files landed elsewhere before.
            tell: called with notices about the landing files, before the first pass.
            inline: whether the pipelines of inline inputs run first.
            now: what the clocks among the inputs of a query show, `2026-05-01` or `2026-05-01T13:00`, without an offset
                in their zones; also earlier than what they showed. Default: the time it is, and never an earlier one.

        Returns:
            The outcome of every pass, in order.

        Raises:
            UsageError: a single number in `batches` is not that of a batch; or there is no clock to set to `now`.
            CheckFailedError: a batch failed a check upstream of a stage, waits for approval, or was folded and landed
                again.
        """
        if inline and batches is None and stages is None:
            *before, _ = with_inline([self.spec])
            for spec in before:
                given = self._session if self._is_given else None
                Pipeline(spec, given, self.zone, self.sizes).run(waive=waive, adopt=adopt, tell=tell)
        return run_stages(self, batches, stages, progress, waive, adopt, tell, now)

    def verify(self, share: float = 1.0) -> VerifyReport:
        """Compares the result with the join of the last writers of both changelogs.

        Args:
            share: the share of the left keys to compare, chosen by a hash of the key; 1 for all.

        Raises:
            StateError: the stored tables do not fit the pipeline file, nothing was ever run, or a file of a table is
                not the one that was written according to its log.
        """
        from fk_pipeline.engine.damage import refuse_damaged
        from fk_pipeline.privacy import concealing
        from fk_pipeline.store.settings import settings, suiting
        from fk_pipeline.verify.verification import verify

        self.refuse_never_run()
        self.refuse_unfinished()
        refuse_damaged(self.spec, zone=self.zone)
        read, proved = self.runner.reader(), self.spec.definition.proved
        tables = {name: read.read(name) for name in proved}
        with concealing(self.spec), settings(self.session, suiting(read.rows(*proved), self.sizes), optional=True):
            return verify(tables, self.due(), self.spec, self.ledger(), share)

    def verify_inputs(self, share: float | None = None) -> InputsReport:
        """Compares the landing files with the changelogs and the quarantine, by an independent reader.

        Args:
            share: the share of the batches to compare, chosen by a hash of their files' names; 1 for all. None: all of
                them, or a sample if there is much to read.

        Raises:
            StateError: as with `verify`.
        """
        from fk_pipeline.engine.damage import refuse_damaged
        from fk_pipeline.privacy import concealing
        from fk_pipeline.verify.inputs.inputs import verify_inputs

        self.refuse_never_run()
        self.refuse_unfinished()
        refuse_damaged(self.spec, zone=self.zone)
        with concealing(self.spec):
            return verify_inputs(self.spec, self.ledger(), self.zone, self.runner.reader(), share)

    def explain(self, key: str, told: Callable[[str], None] = lambda _: None) -> Story:
        """Returns the story of one left key, in an outer join also of a right key: see `Kind.explain`.

        Args:
            key: `17`, or `a=1,b=2` if it has several columns; a right key as `right.17`.
            told: is called with the reason if Spark has to tell it.
        """
        kind = self.spec.definition
        story: Story = self._told(kind.explain_here, kind.explain, told, key)
        return story

    def impact(
        self,
        right_key: str | None = None,
        changes: str | Path | None = None,
        limit: int = 20,
        since: str | None = None,
        told: Callable[[str], None] = lambda _: None,
        side: str | None = None,
    ) -> AnyImpact:
        """Returns the impact of a change of the right side, or of an input of a query: see `Kind.impact`.

        Changes nothing.

        Args:
            right_key: the key of a right row, or of a row of the input, in the form that `explain` takes; or
            changes: a file as it would land.
            limit: the largest number of right keys, or of rows of the result of a query, to report.
            since: with `as_of` and a right key, the time since which the changed version holds; default: any version.
            told: is called with the reason if Spark has to find it.
            side: the name of the input; default: the right side, or the only input of a query.

        Raises:
            UsageError: an input is named that is not the right side, of a pipeline that is no query.
        """
        kind, file = self.spec.definition, None if changes is None else Path(changes)
        args: tuple[Any, ...] = (right_key, file, limit, since)
        if kind.named_inputs:
            args = (*args, side)
        elif side not in (None, Side.RIGHT):
            why = "only a query has inputs to choose from"
            raise UsageError(f"--input {side}: {why}", where=str(self.spec.file), fix="leave it out")
        found: AnyImpact = self._told(kind.impact_here, kind.impact, told, *args)
        return found

    def _told(self, here: str, by_spark: str, told: Callable[[str], None], *args: Any) -> Any:
        """Returns what a function of the kind tells without Spark, or where it cannot, what another tells with it."""
        try:
            return self._told_here(here, *args)
        except LeftToSpark as left:
            why = str(left)
        told(why)
        with self._looking() as read:
            return loaded(by_spark)(read, self.spec, self._ledger, *args)

    def changes(self, batch: int) -> DataFrame:
        """Returns the rows that the runs for a batch changed in the result: see `fk_pipeline.feed.changes`."""
        from fk_pipeline.feed import changes

        self.refuse_never_run()
        self.refuse_unfinished()
        return changes(self.runner, batch)

    def changes_here(self, batch: int) -> Relation:
        """Returns what `changes` returns, read in this process; needs no Spark.

        Raises:
            LeftToSpark: only Spark can read them.
        """
        from fk_pipeline.feed_here import changes

        self.check_fingerprints()
        self.refuse_never_run()
        self.refuse_unfinished()
        return changes(self.spec, self._ledger, self.sizes, batch)

    def compact(self, progress: Callable[[str], None] = lambda _: None) -> list[TableUpkeep]:
        """Folds old batches, packs small files and removes old files; see `fk_pipeline.upkeep.compact`.

        Raises:
            LandingError, PipelineFileError, LeaseTakenError, StateError: as with `discover`, if it folds batches.
        """
        from fk_pipeline.privacy import concealing
        from fk_pipeline.upkeep import closing_of, compact

        self.refuse_unfinished()
        if self.spec.settings.fold_after_hours is not None or closing_of(self.spec) is not None:
            self.discover()  # a batch that has landed anew is due, and not folded
        with concealing(self.spec):
            return compact(self.runner, progress)

    def export(self, file: str | Path, told: Callable[[str], None] = lambda _: None) -> int:
        """Writes the result to a .csv, .jsonl or .parquet file, sorted by key; returns the number of rows.

        Args:
            file: the file.
            told: is called with the reason if Spark has to read the result.
        """
        from fk_pipeline.export import export
        from fk_pipeline.export_files import EXPORT_ENDINGS, check_ending, write_here
        from fk_pipeline.privacy import concealing
        from fk_pipeline.reads import result_in_order

        target, name = Path(file), self.spec.definition.result.name
        self.refuse_never_run()
        check_ending(target, EXPORT_ENDINGS)
        with concealing(self.spec):
            try:
                return write_here(result_in_order(self.here(name), self.spec), target, private=self.spec.has_sensitive)
            except LeftToSpark as left:
                why = str(left)
            told(why)
            return export(self.table(name), self.spec, target)

    def changed_rows(self, batch: int) -> tuple[int, int]:
        """Returns the number of result rows whose last change was in `batch`, and the number of all result rows."""
        from fk_pipeline.store.schemas import BATCH

        result = self.table(self.spec.definition.result.name)
        return result.where(f"{BATCH} = {int(batch)}").count(), result.count()
