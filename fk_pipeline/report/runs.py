"""Runs of stages as facts: the seconds that they took, and those that were predicted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from fk_pipeline.contract import loaded
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger.commits import WRITTEN_SUFFIX, row_metadata

RUNS = 80
"""The newest runs that are told each."""

_Row = Mapping[str, Any]


class RunFacts(TypedDict):
    """A run of a stage.

    Attributes:
        stage, run_id: as in the ledger.
        first, last: its batches.
        at: when it ended.
        seconds: what it took.
        predicted_seconds: what it was to take, as its commit tells; None: nothing was predicted.
        strategy, reason: how it went about it, and why.
        error: of a failed run; else None.
    """

    stage: str
    run_id: str
    first: int
    last: int
    at: str
    seconds: float
    predicted_seconds: float | None
    strategy: str | None
    reason: str | None
    error: str | None


class StageFacts(TypedDict):
    """All runs of a stage.

    Attributes:
        stage: the stage.
        runs, failed: runs that ended, and those of them that failed.
        seconds: of all runs; `mean` and `longest`: of one run; `last`: of the last run.
        share: of the seconds of all stages, from 0 to 1.
    """

    stage: str
    runs: int
    failed: int
    seconds: float
    mean: float
    longest: float
    last: float
    share: float


def ended(rows: Sequence[_Row]) -> list[_Row]:
    """Returns the rows of `runs` about the end of a run, one for each run and stage, the oldest first."""
    ends: dict[tuple[str, str], _Row] = {}
    for row in rows:
        if row["event"] in ("succeeded", "failed") and row["seconds"] is not None:
            ends.setdefault((row["run_id"], row["stage"]), row)
    return [*ends.values()]


def stage_facts(spec: PipelineSpec, rows: Sequence[_Row]) -> list[StageFacts]:
    """Returns the stages that ever ran, those that took most seconds first."""
    runs = ended(rows)
    total = sum(row["seconds"] for row in runs) or 1.0
    stages: list[StageFacts] = []
    for stage in spec.definition.stage_names:
        own = [row for row in runs if row["stage"] == stage]
        seconds = [row["seconds"] for row in own]
        if own:
            stages.append(
                {
                    "stage": stage,
                    "runs": len(own),
                    "failed": sum(row["event"] == "failed" for row in own),
                    "seconds": round(sum(seconds), 3),
                    "mean": round(sum(seconds) / len(own), 3),
                    "longest": round(max(seconds), 3),
                    "last": round(seconds[-1], 3),
                    "share": round(sum(seconds) / total, 4),
                }
            )
    return sorted(stages, key=lambda facts: -facts["seconds"])


def run_facts(spec: PipelineSpec, rows: Sequence[_Row], until: float, left_out: list[str]) -> list[RunFacts]:
    """Returns the newest runs, the newest first.

    Args:
        spec: the pipeline.
        rows: those of `runs`.
        until: when to read no more predictions (`time.monotonic`).
        left_out: takes a sentence if some are not read.
    """
    facts = [_run(spec, row, reads=time.monotonic() < until) for row in ended(rows)[: -RUNS - 1 : -1]]
    if facts and spec.definition.forecast_of and time.monotonic() >= until:
        left_out.append("Predicted seconds of runs are left out, or some of them: reading them takes long.")
    return facts


def _run(spec: PipelineSpec, row: _Row, *, reads: bool) -> RunFacts:
    batch = row["batch"]
    return {
        "stage": row["stage"],
        "run_id": row["run_id"],
        "first": batch if row["first"] is None else row["first"],
        "last": batch if row["last"] is None else row["last"],
        "at": row["recorded_at"].isoformat(timespec="seconds"),
        "seconds": round(row["seconds"], 3),
        "predicted_seconds": _predicted(spec, row) if reads else None,
        "strategy": row["strategy"],
        "reason": row["reason"],
        "error": row["error"][:500] if row["error"] else None,
    }


def _predicted(spec: PipelineSpec, row: _Row) -> float | None:
    """Returns the seconds that a run was to take, as the commit that it made of its main table tells."""
    kind, stage = spec.definition, row["stage"]
    written = dict(row["versions"] or ()).get(f"{stage}{WRITTEN_SUFFIX}")
    if not kind.forecast_of or written is None or row["event"] != "succeeded":
        return None
    forecast = loaded(kind.forecast_of)(row_metadata(f"{spec.home}/{stage}", written))
    return None if forecast is None or forecast.seconds is None else round(forecast.seconds, 3)
