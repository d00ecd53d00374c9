"""The batches for which the sensor of a pipeline may request runs: those that are due, those that wait, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fk_pipeline.identity import SIDES, BatchId, BatchRange, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.settings import Settings
from fk_pipeline.store.ledger import Ledger

LONGEST_PAUSE = timedelta(hours=1)
"""The longest pause between two tries of the same batches."""


@dataclass(frozen=True)
class DueBatches:
    """The batches with work due.

    Attributes:
        batches: the batches for which a run may be requested now, in order.
        waiting: the reasons why other batches are left out, the most urgent first.
        failed: the `batches` whose last run failed: one of them may have made the others fail.
    """

    batches: tuple[BatchId, ...]
    waiting: tuple[str, ...]
    failed: frozenset[BatchId]


def due_now(spec: PipelineSpec, ledger: Ledger, now: datetime) -> DueBatches:
    """Returns the batches that are due by the ledger.

    Left out are batches that failed a check, that failed just now or too often, or that have not settled.
    """
    refusing, failed, settling = [], [], []
    candidates: dict[BatchId, None] = {}
    for stage in ledger.kind.stage_names:
        allowed, refused = ledger.checks.not_refused(stage, ledger.due.of(stage))
        for failure in refused:
            mend = "mend or waive it" if failure.may_be_waived else "mend it"
            refusing.append(f"{failure}; {mend}: 'fk-pipeline run {spec.file}' says how")
        candidates |= dict.fromkeys(allowed)
    may = []
    for batch in sorted(candidates):
        why_failed, why_settles = _failed(spec, ledger, batch, now), _settles(spec.settings, ledger, batch, now)
        if why_failed:
            failed.append(why_failed)
        elif why_settles:
            settling.append(why_settles)
        else:
            may.append(batch)
    if ledger.rebuilds.unfinished is not None and ledger.batches and not may:  # any run swaps in the remaining tables
        may.append(ledger.batches[0])
    again = frozenset(
        batch for batch in may if any(ledger.state(stage, batch).failures for stage in ledger.kind.stage_names)
    )
    return DueBatches(tuple(may), tuple(dict.fromkeys([*refusing, *failed, *settling])), again)


def pause(settings: Settings, failures: int) -> timedelta:
    """Returns the pause after a number of failures in a row: it doubles with each, up to `LONGEST_PAUSE`."""
    doublings = min(failures - 1, 30)
    return min(timedelta(seconds=settings.retry_seconds) * (1 << doublings), LONGEST_PAUSE)


def why_not_again(settings: Settings, what: str, failures: int, last: datetime, now: datetime) -> str | None:
    """Returns the reason why failed work is not tried again now; None if it may be."""
    if failures >= settings.max_failures:
        return f"{what}. Mend it and start 'fk-pipeline run' once; the sensor then goes on"
    left = last + pause(settings, failures) - now
    return f"{what}; the next try is in {left.total_seconds():.0f} s" if left > timedelta(0) else None


def _failed(spec: PipelineSpec, ledger: Ledger, batch: BatchId, now: datetime) -> str | None:
    """Returns the reason why a failed batch is not tried again now; None if it may be, or did not fail."""
    for stage in ledger.kind.stage_names:
        state = ledger.state(stage, batch)
        if state.last_event == "failed" and state.failed_at is not None:
            times = "once" if state.failures == 1 else f"{state.failures} times"
            what = f"{stage} of batch {int(batch)} failed {times}: {state.error}"
            why = why_not_again(spec.settings, what, state.failures, state.failed_at, now)
            if why:
                return why
    return None


def _settles(settings: Settings, ledger: Ledger, batch: BatchId, now: datetime) -> str | None:
    """Returns the reason why a new batch with files of one side waits for the other side; None if it does not wait."""
    if not settings.settle_seconds or any(ledger.state(stage, batch).attempts for stage in ledger.inputs):
        return None
    sides = [source.name for source in ledger.kind.logged if source.name in SIDES]
    landed = [side for side in sides if ledger.files.of(batch, side)]
    if len(landed) != 1:
        return None
    since: datetime = ledger.files.lists[int(batch), landed[0]]["recorded_at"]
    left = since + timedelta(seconds=settings.settle_seconds) - now
    if left <= timedelta(0):
        return None
    other = Side.RIGHT if landed[0] == Side.LEFT else Side.LEFT
    return f"batch {int(batch)} waits another {left.total_seconds():.0f} s for a file of the {other} side"


def ranges(
    batches: Sequence[BatchId], partitions: Sequence[str], at_most: int, separate: Collection[BatchId] = ()
) -> Iterator[BatchRange]:
    """Yields ranges that together contain exactly some batches, also in the order of Dagster.

    A range in Dagster contains all partitions between two, in the order in which they were added.

    Args:
        batches: the batches.
        partitions: all partitions, in the order of Dagster.
        at_most: the largest number of batches in a range.
        separate: batches that get a range of their own.
    """
    places = {key: place for place, key in enumerate(partitions)}
    run: list[BatchId] = []
    for batch in sorted(batches):
        full = len(run) == at_most or bool({batch, *run[-1:]} & set(separate))
        if run and (full or places[batch.key] != places[run[-1].key] + 1):
            yield BatchRange(run[0], run[-1])
            run = []
        run.append(batch)
    if run:
        yield BatchRange(run[0], run[-1])
