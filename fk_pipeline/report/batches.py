"""Batches as facts: what came in, what it touched, what changed in the result; each in full, in groups, as series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from fk_pipeline.contract import StageDef
from fk_pipeline.identity import QUARANTINING, BatchId
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger

CAME_IN = "came in"

OUTCOMES = {
    "changed": ("changed", "applied"),
    "matched": ("joined", "paired"),
    "unmatched": ("half-joined", "alone"),
    "stale": ("stale dropped",),
    "late": ("late",),
    "expired": ("expired",),
    "quarantined": ("quarantined",),
}
"""Per outcome of a row, the numbers of stages (`StageDef.counts`) that count it, in the words of every kind.

`changed` counts rows of the result alone.
"""

_LANDED = ("changes", "quarantined")
"""Counts of the stages that read landing files: they are not of what a batch touched."""

CountsByName = dict[str, int]
"""Counts by their names; those that are 0 are left out."""


class BatchFacts(TypedDict):
    """A batch, or a group of batches with their sums.

    Attributes:
        first, last: its number; of a group the first and the last one.
        number: how many batches it is.
        at: when the last stage ended for it; None: none has.
        state: `done`, `due`, `failed`, or `withdrawn`; of a group the worst.
        files: landing files, or versions of tables, per input.
        came_in: rows of the changelog per input that is kept in one; inputs of one changelog are `left and right`.
        touched: what the stages before the result counted.
        changed: what the stage of the result counted.
        outcomes: per name in `OUTCOMES` the rows, or messages, of all stages.
        seconds: of the runs that did it; a run of several batches counts with its share.
    """

    first: int
    last: int
    number: int
    at: str | None
    state: str
    files: CountsByName
    came_in: CountsByName
    touched: CountsByName
    changed: CountsByName
    outcomes: CountsByName
    seconds: float


class Series(TypedDict):
    """Counts over time.

    Attributes:
        names: what is counted; only what is not 0 everywhere.
        points: batches or groups of batches, the oldest first: `first`, `last`, `at`, and a number for each name.
    """

    names: list[str]
    points: list[dict[str, int | str | None]]


def every_batch(spec: PipelineSpec, ledger: Ledger, runs: Iterable[Mapping[str, Any]]) -> list[BatchFacts]:
    """Returns all batches, in order; `runs` are the rows of this table of the ledger."""
    withdrawn = ledger.files.removed
    sizes = Counter((row["stage"], row["run_id"]) for row in runs if row["event"] == "succeeded")
    return [
        _batch(spec, ledger, batch, sizes, "withdrawn" if batch in withdrawn else "done") for batch in ledger.batches
    ]


def _batch(
    spec: PipelineSpec, ledger: Ledger, batch: BatchId, sizes: Mapping[tuple[str, str], int], otherwise: str
) -> BatchFacts:
    """Returns a batch as the first runs that read what is there now counted it, as Dagster shows it, too.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        batch: the batch.
        sizes: per stage and run the number of batches that it did.
        otherwise: its state if nothing of it is due.
    """
    kind = spec.definition
    came_in, touched, changed, outcomes = CountsByName(), CountsByName(), CountsByName(), CountsByName()
    seconds, times = 0.0, []
    for stage in kind.stages:
        state = ledger.state(stage.name, batch)
        if state.last is None or state.figures is None:
            continue
        times.append(state.finished_at)
        seconds += state.last.seconds / sizes[stage.name, state.last.run_id]
        counts, side = state.figures.counts, kind.side_of(stage.name)
        if side is not None:
            sharing = (input_.name for input_ in kind.logged if (input_.shared(spec) or input_.name) == side)
            _add(came_in, {" and ".join(sharing): counts.get("rows", 0)})
        numbers = numbers_of(stage, counts)
        if stage.name == kind.result_stage:
            _add(changed, numbers)
        else:
            _add(touched, {name: value for name, value in numbers.items() if name not in _LANDED})
        for outcome, names in OUTCOMES.items():
            if outcome != "quarantined" and (outcome != "changed" or stage.name == kind.result_stage):
                _add(outcomes, {outcome: sum(numbers.get(name, 0) for name in names)})
        _add(outcomes, {"quarantined": sum(counts.get(name, 0) for name in QUARANTINING)})
    ended = [at for at in times if at is not None]
    return {
        "first": int(batch),
        "last": int(batch),
        "number": 1,
        "at": max(ended).isoformat(timespec="seconds") if ended else None,
        "state": _state(ledger, batch) or otherwise,
        "files": {str(side): len(files) for side in spec.sides if (files := ledger.files.of(batch, side))},
        "came_in": came_in,
        "touched": touched,
        "changed": changed,
        "outcomes": outcomes,
        "seconds": round(seconds, 3),
    }


def numbers_of(stage: StageDef, counts: Mapping[str, int]) -> CountsByName:
    """Returns the numbers of a stage that are shown: sums of counts, without those that are 0."""
    sums = {name: sum(counts.get(part, 0) for part in parts) for name, parts in stage.counts.items()}
    return {name: number for name, number in sums.items() if number}


def gathered(batches: Sequence[BatchFacts], most: int) -> list[BatchFacts]:
    """Returns batches in at most so many groups of equal size, in their order."""
    size = -(-len(batches) // most) if batches else 1
    return [_group(batches[i : i + size]) for i in range(0, len(batches), size)]


def series_of(batches: Sequence[BatchFacts], most: int) -> Series:
    """Returns what came in and what became of it, over all batches, as at most so many points."""
    groups = gathered(batches, most)
    points = [{CAME_IN: sum(group["came_in"].values()), **group["outcomes"]} for group in groups]
    names = [name for name in (CAME_IN, *OUTCOMES) if any(point.get(name) for point in points)]
    return {
        "names": names,
        "points": [
            {"first": group["first"], "last": group["last"], "at": group["at"], **{n: point.get(n, 0) for n in names}}
            for group, point in zip(groups, points, strict=True)
        ],
    }


def _group(batches: Sequence[BatchFacts]) -> BatchFacts:
    if len(batches) == 1:
        return batches[0]
    states = [batch["state"] for batch in batches]
    return {
        "first": batches[0]["first"],
        "last": batches[-1]["last"],
        "number": len(batches),
        "at": max((batch["at"] for batch in batches if batch["at"] is not None), default=None),
        "state": next((state for state in ("failed", "due", "done") if state in states), states[0]),
        "files": _sum(batch["files"] for batch in batches),
        "came_in": _sum(batch["came_in"] for batch in batches),
        "touched": _sum(batch["touched"] for batch in batches),
        "changed": _sum(batch["changed"] for batch in batches),
        "outcomes": _sum(batch["outcomes"] for batch in batches),
        "seconds": round(sum(batch["seconds"] for batch in batches), 3),
    }


def _state(ledger: Ledger, batch: BatchId) -> str:
    """Returns `failed` or `due`; empty if nothing of a batch is due."""
    due = [stage for stage in ledger.kind.stage_names if ledger.due.has(stage, batch)]
    if any(ledger.state(stage, batch).last_event == "failed" for stage in due):
        return "failed"
    return "due" if due else ""


def _add(to: CountsByName, numbers: Mapping[str, int]) -> None:
    for name, number in numbers.items():
        if number:
            to[name] = to.get(name, 0) + number


def _sum(parts: Iterable[CountsByName]) -> CountsByName:
    total = CountsByName()
    for part in parts:
        _add(total, part)
    return total
