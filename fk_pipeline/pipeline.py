"""A pipeline as an object: all that changes its tables. The command and the Dagster assets use it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fk_pipeline.contract import Source
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import BatchId, BatchRange
from fk_pipeline.opened import ranges_of
from fk_pipeline.passes import Pass, PassProgress, chosen_stages, run_stages
from fk_pipeline.shown import ShownPipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.project import with_inline
from fk_pipeline.store.lease import lease

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fk_pipeline.engine.runner import StageRun
    from fk_pipeline.expectations.checking import CheckedStages
    from fk_pipeline.quarantine import Replay
    from fk_pipeline.rebuild import StageRebuild
    from fk_pipeline.testing.run import CaseResult
    from fk_pipeline.upkeep import TableUpkeep
    from fk_pipeline.verify.report import VerifyReport


def load(file: str | Path) -> Pipeline:
    """Returns the pipeline of a pipeline file.

    Raises:
        PipelineFileError: see `fk_pipeline.spec.load_spec`.
    """
    return Pipeline(load_spec(file))


def changes(
    pipeline: Pipeline,
    batch: int | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
) -> DataFrame:
    """Returns the rows that runs inserted, updated and deleted in the result: see `Pipeline.changes`."""
    return pipeline.changes(batch, since, until)


class Pipeline(ShownPipeline):
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
        landed = self.discover()
        with lease(self.spec.home, "discovery"):
            withdraw(self.spec, self.ledger(), landed, int(batch), tell or (lambda _: None), forget)
        return self.due()

    def replay(self, batches: str | Sequence[BatchRange] | None = None, side: str | None = None) -> list[BatchId]:
        """Makes batches with records in the quarantine due again, all or some; needs no Spark.

        Nothing runs yet: the stages that rejected the records become due for these batches, and so does everything
        downstream.

        Returns:
            The batches.
        """
        from fk_pipeline.quarantine import reopen_quarantined
        from fk_pipeline.quarantine_in_process import refuse_no_origin

        refuse_no_origin(self.spec, side)
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

    def test(
        self,
        cases: Sequence[str | Path] = (),
        select: str = "",
        progress: Callable[[CaseResult], None] = lambda _: None,
        *,
        any_order: bool = False,
        keep: bool = False,
    ) -> list[CaseResult]:
        """Runs cases of the pipeline, each in a temporary copy of it; its own tables are not touched.

        Args:
            cases: files of cases; default: the one beside the pipeline file, `NAME.tests.yaml` for `NAME.yaml`.
            select: only cases with this text in their name, in any case.
            progress: called with the result of each case when it ends.
            any_order: whether each case runs again with its batches in other orders.
            keep: whether the folders of the cases stay.

        Raises:
            UsageError: there is no file of cases, or none of them is selected.
            CaseFileError: a file of cases is wrong.
        """
        from fk_pipeline.testing.case_file import selected_cases
        from fk_pipeline.testing.run import run_cases

        chosen = selected_cases(self.spec, [*map(Path, cases)], select)
        given = self._session if self._is_given else None
        results = []
        ran = run_cases(
            self.spec, chosen, lambda spec: Pipeline(spec, given, sizes=self.sizes), any_order=any_order, keep=keep
        )
        with closing(ran):
            for result in ran:
                progress(result)
                results.append(result)
        return results

    def check(self, proof: VerifyReport | None = None, docs: str | Path | None = None) -> CheckedStages:
        """Checks every table with Great Expectations, and records the verdicts: a batch with a red check stops runs.

        Args:
            proof: what `verify` has returned, if it was called before; else this verifies the result, too.
            docs: a folder for Data Docs, an HTML report; default: none is written.

        Raises:
            StateError: as with `verify`.
        """
        from fk_pipeline.expectations.checking import check_all

        return check_all(self, proof, None if docs is None else Path(docs))

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
