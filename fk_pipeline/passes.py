"""A run of a pipeline: stage by stage in passes over ranges of batches, until nothing is due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fk_pipeline.cdc.landing import Discovery
from fk_pipeline.errors import FanOutError, HeldBackError, UsageError
from fk_pipeline.identity import BatchId, BatchRange, cut, passes
from fk_pipeline.opened import OpenPipeline, ranges_of
from fk_pipeline.spec.clock import moment_of

if TYPE_CHECKING:
    from fk_pipeline.engine.runner import StageRun
    from fk_pipeline.store.ledger.checks import FailedCheck

PassProgress = Callable[["Pass", "StageRun | None"], None]
"""Called before a pass of a stage (without a result) and after it."""

NO_CLOCK = "leave out --now: a clock is an input of a query, inputs: {now: {clock: 1 day}}"
"""What mends that a pipeline has no clock to set."""

ROUNDS = 10
"""How often a run checks again whether its work made other batches of a stage due (architecture, rule 9)."""


@dataclass(frozen=True)
class Pass:
    """One pass of a stage over a range of batches.

    Attributes:
        stage: the stage.
        batches: the range.
        number: the number of the pass in the run, from 1.
        of: the number of passes of the run, as far as it is known when the pass begins; never less than `number`.
    """

    stage: str
    batches: BatchRange
    number: int
    of: int


def run_stages(
    pipeline: OpenPipeline,
    batches: str | Sequence[BatchRange] | None,
    stages: Iterable[str] | None,
    progress: PassProgress | None,
    waive: str | None,
    adopt: bool,
    tell: Callable[[str], None] | None,
    now: datetime | str | None = None,
) -> list[StageRun]:
    """Discovers batches and runs stages: see `Pipeline.run`."""
    moment = None if now is None else _moment(pipeline, now)
    chosen = chosen_stages(pipeline, stages)
    ranges = ranges_of(batches, "--batches")
    if adopt:
        pipeline.adopt()
    tell, progress = tell or (lambda _: None), progress or (lambda *_: None)
    discovery = _prepare(pipeline, ranges or (), tell, moment)
    if waive is not None:
        _waive(pipeline, chosen, ranges, waive)
    if ranges is not None:
        done = _run_ranges(pipeline, chosen, ranges, progress)
    else:
        done = _run_due_batches(pipeline, chosen, progress, tell)
    _refuse_left_out(pipeline, discovery, ranges, done)
    registers = ranges is None and pipeline.spec.register_ is not None
    if registers and not done:  # a catalog in memory forgets it with its session
        pipeline.runner.register()
    return done


def _run_ranges(
    pipeline: OpenPipeline, stages: Sequence[str], ranges: Sequence[BatchRange], progress: PassProgress
) -> list[StageRun]:
    """Runs stages for ranges of batches, due or not; all stages for a part of a range before its next part."""
    size = pipeline.spec.settings.max_batches_per_pass
    parts = [part for whole in ranges for part in cut(whole, pipeline.ledger().batches, size)]
    works = [(stage, part) for part in parts for stage in stages]
    done: list[StageRun] = []
    for number, (stage, part) in enumerate(works, start=1):
        work = Pass(stage, part, number, len(works))
        progress(work, None)
        done.append(pipeline.runner.run(stage, part))
        progress(work, done[-1])
    return done


def _run_due_batches(
    pipeline: OpenPipeline, stages: Sequence[str], progress: PassProgress, tell: Callable[[str], None]
) -> list[StageRun]:
    """Runs stages, in running order, for all batches for which they are due.

    Raises:
        CheckFailedError: batches failed checks; the error has what was done.
    """
    from fk_pipeline.plan import expected_passes

    expected = expected_passes(pipeline.spec, pipeline.ledger(), stages)
    done: list[StageRun] = []

    def run_pass(stage: str, part: BatchRange) -> StageRun | None:
        work = Pass(stage, part, len(done) + 1, max(len(done) + 1, expected))
        progress(work, None)
        ran = pipeline.runner.run_due(stage, part)
        if ran is None:
            tell(f"{stage} of batch {part}: another run has done this meanwhile, or a part of it")
            return None
        done.append(ran)
        progress(work, ran)
        return ran

    refused: list[FailedCheck] = []
    for stage in stages:
        refusing = run_due(pipeline, stage, run_pass)
        refused += [check for check in refusing if check not in refused]
    if refused:
        from fk_pipeline.engine.failed_checks import check_failed

        stopped = check_failed(refused, pipeline.spec, pipeline.ledger())
        stopped.done = done
        raise stopped
    return done


def _waive(pipeline: OpenPipeline, stages: Sequence[str], ranges: Sequence[BatchRange] | None, reason: str) -> None:
    """Records that failed checks are waived which stop stages for batches, or pipelines that read the result."""
    if not reason.strip():
        raise UsageError("--waive needs a reason", fix="say why the batch is good enough: it is recorded")
    ledger = pipeline.ledger()
    requested = [b for b in ledger.batches if ranges is None or any(b in some for some in ranges)]
    failed = [check for stage in stages for check in ledger.checks.refusing(stage, requested)]
    result = pipeline.spec.definition.result_stage
    if result in stages:  # which other pipelines may read
        failed += [check for check in ledger.checks.of_table(result) if check.batch in (None, *requested)]
    ledger.checks.waive(dict.fromkeys(check for check in failed if check.may_be_waived), reason)


def chosen_stages(pipeline: OpenPipeline, stages: Iterable[str] | None) -> list[str]:
    """Returns the given stages in running order; all stages for None.

    Raises:
        UsageError: no stage has a given name.
    """
    known = pipeline.spec.definition.stage_names
    if stages is None:
        return list(known)
    requested = {name.strip() for name in stages}
    unknown = sorted(requested.difference(known))
    if unknown:
        raise UsageError(f"there is no stage {unknown[0]!r}", fix=f"stages are {', '.join(known)}")
    return [stage for stage in known if stage in requested]


def _moment(pipeline: OpenPipeline, now: datetime | str) -> datetime:
    """Returns the moment that the clocks of a pipeline are set to.

    Raises:
        UsageError: it has none, or the text is no moment.
    """
    if not pipeline.spec.clocks:
        raise UsageError(f"pipeline {pipeline.spec.name} has no clock to set", fix=NO_CLOCK)
    try:
        return moment_of(now) if isinstance(now, str) else now
    except ValueError as error:
        raise UsageError(f"--now: {error}") from None


def _prepare(
    pipeline: OpenPipeline, ranges: Sequence[BatchRange], tell: Callable[[str], None], now: datetime | None
) -> Discovery:
    """Prepares a run: discovers landing files, restores named batches, and finishes what an earlier run left half done.

    Returns:
        What the discovery found.

    Raises:
        UsageError: a single number is not that of a batch (see `engine.withdrawal.empty_batches`).
        StateError: the stored tables do not fit the pipeline file.
    """
    from fk_pipeline.engine.withdrawal import empty_batches, restore

    pipeline.check_fingerprints()
    discovery = pipeline.discover(now=now)
    single = [span.first for span in ranges if span.is_single]
    empty = empty_batches(pipeline.spec, pipeline.ledger(), single, "nothing was run")
    for notice in [*map(str, discovery.notices), *empty]:
        tell(notice)
    for batch in single:
        if batch in pipeline.ledger().files.removed:
            restore(pipeline.spec, pipeline.ledger(), pipeline.look(), batch)
    finish(pipeline)
    return discovery


def finish(pipeline: OpenPipeline) -> None:
    """Finishes what an earlier run left half done: the swap of a rebuild, columns that the tables have not got yet."""
    from fk_pipeline.engine.fingerprints import columns_to_add

    if pipeline.ledger().rebuilds.unfinished is not None:
        pipeline.runner.finish_rebuild()
    if columns_to_add(pipeline.spec, pipeline.ledger()):
        pipeline.runner.add_columns()
    if _lacks_result(pipeline):
        pipeline.runner.make_result()


def _lacks_result(pipeline: OpenPipeline) -> bool:
    """Returns whether nothing is due and the result is not there: older versions made it with its first row."""
    from fk_pipeline.store.damage import is_there

    ledger, stage = pipeline.ledger(), pipeline.spec.definition.result_stage
    has_run = any(ledger.state(stage, batch).succeeded for batch in ledger.batches)
    return has_run and not ledger.due.of(stage) and not is_there(pipeline.spec.home, ledger.kind.result.name)


def run_due(
    pipeline: OpenPipeline,
    stage: str,
    run: Callable[[str, BatchRange], StageRun | None],
    among: Collection[BatchId] | None = None,
) -> list[FailedCheck]:
    """Runs a stage until only batches that failed checks are due; returns these checks.

    Args:
        pipeline: the pipeline.
        stage: the stage.
        run: runs it for a range; returns None if another run has done some of it meanwhile.
        among: only these batches; default: all.
    """
    refusing: list[FailedCheck] = []
    left, size = ROUNDS, pipeline.spec.settings.max_batches_per_pass
    while left:
        ledger = pipeline.ledger()
        due = [batch for batch in ledger.due.of(stage) if among is None or batch in among]
        allowed, refusing = ledger.checks.not_refused(stage, due)
        if not allowed:
            break
        left -= 1
        for part in passes(allowed, ledger.batches, size):
            try:
                if run(stage, part) is None:
                    left += 1  # it was not this run that did something: the next round sees what is left
                    break
            except FanOutError:  # the ledger has recorded it: the next round leaves these batches out
                left = ROUNDS
    return refusing


def _refuse_left_out(
    pipeline: OpenPipeline, discovery: Discovery, ranges: Sequence[BatchRange] | None, done: Sequence[StageRun]
) -> None:
    """Refuses files that the discovery of a run left out, if the run was about their batches.

    Raises:
        HeldBackError: there is such a file; the error has what was done.
    """
    from fk_pipeline.engine.discovery import refuse_waiting

    try:
        refuse_waiting(discovery, pipeline.spec, ranges)
    except HeldBackError as error:
        error.done = done
        raise
