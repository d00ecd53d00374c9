"""Runs: the events of every stage and batch, and the state that follows from them. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fk_pipeline.contract import Kind
from fk_pipeline.identity import UNWRITTEN, BatchId, BatchRange
from fk_pipeline.store.ledger.commits import CommitLog
from fk_pipeline.store.ledger.entries import Entries

LACKING = "another batch has values that it lacks"
"""The default reason why a batch is due although its inputs are unchanged."""


@dataclass(frozen=True)
class Success:
    """A run of a stage that succeeded for a batch.

    Attributes:
        entry: of its row in `runs`.
        run_id: of the run, also in the metadata of its Delta commits.
        batches: from the first batch of the run to the last.
        counts: what was counted for this batch.
        versions: as of the column `versions` of `runs`.
        seconds: of the whole run.
        strategy: how the stage went about it; None where there was nothing to do.
        reason: why that strategy.
        read: what it read: the digest of the landing files, and per stage upstream the entry of the figures.
    """

    entry: int
    run_id: str
    batches: BatchRange
    counts: Mapping[str, int]
    versions: Mapping[str, int]
    seconds: float
    strategy: str | None
    reason: str | None
    read: tuple[str, Mapping[str, int | None]]


@dataclass
class StageState:
    """The state of one stage and batch in the ledger."""

    last_event: str = ""
    last_entry: int = 0
    started: int = 0
    """Entry of the last start."""
    reopened: int = 0
    """Entry at which it was made due although its inputs are unchanged; if that was during a run, entry of the success
    of this run."""
    reopened_because: str = LACKING
    attempts: int = 0
    successes: int = 0
    failures: int = 0
    """Failed runs since the last success."""
    failed_at: datetime | None = None
    generation: int = 0
    started_input: str | None = None
    uncertain: bool = False
    """Whether a run started since the last success with another input; that run may have committed."""
    succeeded: int | None = None
    """Entry of the last success."""
    input: str | None = None
    upstream: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """The counts of the last success."""
    totals: dict[str, int] = field(default_factory=dict)
    """The sum of each count over all successes."""
    versions: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    finished_at: datetime | None = None
    error: str | None = None
    last: Success | None = None
    """The last success."""
    figures: Success | None = None
    """The first success with what the last one read: a run that repeats the work tells nothing new of the batch."""

    @property
    def was_read(self) -> bool:
        """Whether the last run succeeded, so that the stored rows are those of the input with which it started."""
        return self.succeeded is not None and not self.uncertain and self.input == self.started_input

    @property
    def is_unwritten(self) -> bool:
        """Whether the last success left its messages to be computed by what reads them (ADR 0062)."""
        return bool(self.counts.get(UNWRITTEN))

    @property
    def stands(self) -> bool:
        """Whether a run has succeeded, and nothing was undone since it began that makes it due again."""
        return self.succeeded is not None and self.reopened < self.succeeded


class RunLog:
    """Keeps the state of every stage and batch from the rows of `runs`, and appends the events of a run.

    `started` is written before a stage commits data and `succeeded` after, so a crash between the two leaves the stage
    due; and a batch without any `started` was never committed, so that its first commit may be a plain append.

    Attributes:
        stages: per stage and batch, its state.
        commits: what the runs recorded about table versions.
    """

    def __init__(self, entries: Entries, kind: Kind) -> None:
        """Reads the rows."""
        self._entries = entries
        self.stages: dict[tuple[str, int], StageState] = {}
        self._started: dict[int, dict[str, Any]] = {}
        self.commits = CommitLog(kind)
        for row in entries.rows("runs"):
            self._fold(row)

    def state(self, stage: str, batch: int) -> StageState:
        """Returns the state of a stage and batch; the default state if it never ran."""
        return self.stages.get((stage, batch)) or StageState()

    def last_of(self, stage: str) -> Success | None:
        """Returns the last success of a stage, for any batch."""
        successes = [state.last for (name, _), state in self.stages.items() if name == stage and state.last is not None]
        return max(successes, key=lambda success: success.entry, default=None)

    def seconds_after(self, stage: str, version: int) -> float | None:
        """Returns the seconds of the last success of a stage; None if it had not read this version of its main table.

        A version below 0 stands for a table that did not exist.
        """
        last = self.last_of(stage)
        return last.seconds if last is not None and last.versions.get(stage, -1) == version else None

    def never_started(self, stage: str, batches: Iterable[int]) -> bool:
        """Returns whether the stage was never started for any of the batches, so cannot have committed for them."""
        return all(self.state(stage, batch).attempts == 0 for batch in batches)

    def never_did(self, stage: str, batches: Iterable[int], *counts: str) -> bool:
        """Returns whether the stage had none of the counts for the batches; false after a run that did not succeed."""
        states = [self.state(stage, batch) for batch in batches]
        return all(st.attempts == st.successes and not any(st.totals.get(name) for name in counts) for st in states)

    def unchanged_since(self, stages: Iterable[str], entry: int) -> bool:
        """Returns whether every run of some stages, for any batch, had ended before an entry."""
        concerned = set(stages)
        return all(
            state.last_event in ("succeeded", "failed") and state.last_entry < entry
            for (stage, _), state in self.stages.items()
            if stage in concerned
        )

    def generations(self, stage: str) -> dict[int, int]:
        """Returns the generation of every batch whose partition was ever rewritten."""
        return {b: s.generation for (name, b), s in self.stages.items() if name == stage and s.generation > 0}

    def since(self, stage: str, entry: int) -> list[BatchId]:
        """Returns the batches for which a stage was last started after an entry, in order."""
        return sorted(BatchId(b) for (name, b), s in self.stages.items() if name == stage and s.started > entry)

    def start(
        self,
        stage: str,
        reading: Mapping[BatchId, tuple[str, Mapping[str, int]]],
        run_id: str,
        versions: Mapping[str, int],
    ) -> dict[int, int]:
        """Records, before the first commit, that a stage runs for some batches.

        Args:
            stage: the stage.
            reading: per batch, the digest of the landing input, and per stage upstream the entry of its last success.
            run_id: of the run.
            versions: the versions, before the run, of the tables that only this stage writes.

        Returns:
            Per batch the generation of its partition; it grows when the stage reads another input than at its last
            start, or when the batch was reopened since.
        """
        rows: list[dict[str, Any]] = []
        batches = [*reading]
        for batch, (read, upstream) in reading.items():
            state = self.state(stage, batch)
            changed = state.attempts > 0 and (state.started_input != read or state.reopened > state.started)
            rows.append(
                {
                    "event": "started",
                    "run_id": run_id,
                    "stage": stage,
                    "batch": int(batch),
                    "first": int(batches[0]),
                    "last": int(batches[-1]),
                    "generation": state.generation + changed,
                    "input": read,
                    "upstream": list(upstream.items()),
                    "versions": [*versions.items()],
                }
            )
        for row in self._entries.append("runs", rows):
            self._fold({**row, "error": None})
        self._started = {row["batch"]: row for row in rows}
        return {row["batch"]: row["generation"] for row in rows}

    def succeed(
        self,
        counts: Mapping[int, Mapping[str, int]],
        versions: Mapping[str, int],
        seconds: float,
        strategy: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Records, after the last commit, the counts per batch, the strategy and its reason for the started run."""
        self._finish("succeeded", counts, versions, seconds, strategy=strategy, reason=reason)

    def fail(self, seconds: float, error: str) -> None:
        """Records that the started run failed; its batches stay due."""
        self._finish("failed", {}, {}, seconds, error=error)

    def reopen(
        self,
        stage: str,
        batches: Iterable[int],
        run_id: str,
        because: str = LACKING,
        versions: Mapping[str, int] | None = None,
    ) -> None:
        """Records that a stage is due for some batches although their inputs are unchanged.

        Args:
            stage: the stage.
            batches: the batches.
            run_id: of the run that found the reason.
            because: the reason why they are due.
            versions: per table, the version up to which its commits are accounted for by this event.
        """
        details = {"reason": because, "versions": [*(versions or {}).items()]}
        self._append([self._about(stage, batch, run_id, "reopened") | details for batch in batches])

    def assume_started(self, stage: str, batches: Iterable[int], run_id: str) -> None:
        """Records a start for a run that is known only from its commits, as if it had been killed."""
        self._append(
            [
                self._about(stage, batch, run_id, "started")
                | {"generation": self.state(stage, batch).generation, "input": None}
                for batch in batches
            ]
        )

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Takes over rows of another ledger, with their entries."""
        self._entries.add("runs", [*rows])
        for row in rows:
            self._fold(row)

    @staticmethod
    def _about(stage: str, batch: int, run_id: str, event: str) -> dict[str, Any]:
        return {"event": event, "run_id": run_id, "stage": stage, "batch": int(batch), "error": None}

    def _append(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in self._entries.append("runs", rows):
            self._fold(row)

    def _finish(
        self,
        event: str,
        counts: Mapping[int, Mapping[str, int]],
        versions: Mapping[str, int],
        seconds: float,
        **details: str | None,
    ) -> None:
        self._append(
            [
                {
                    **started,
                    "event": event,
                    "counts": [(k, int(v)) for k, v in counts.get(batch, {}).items()],
                    "versions": [(k, int(v)) for k, v in versions.items()],
                    "seconds": seconds,
                    "error": None,
                    **details,
                }
                for batch, started in self._started.items()
            ]
        )
        self._started = {}

    def _fold(self, row: Mapping[str, Any]) -> None:
        self.commits.fold(row)
        state = self.stages.setdefault((row["stage"], row["batch"]), StageState())
        if row["event"] == "reopened":
            state.reopened, state.reopened_because = row["entry"], row.get("reason") or LACKING
            return
        state.last_event, state.last_entry = row["event"], row["entry"]
        state.error = row["error"]
        if row["event"] == "failed":
            state.failures += 1
            state.failed_at = row["recorded_at"]
        if row["event"] == "started":
            state.attempts += 1
            state.started = row["entry"]
            state.uncertain |= state.succeeded is not None and row["input"] != state.input
            state.generation, state.started_input = row["generation"], row["input"]
        if row["event"] == "succeeded":
            if state.reopened > state.started:  # the run began before something was undone: it may not have repaired it
                state.reopened = row["entry"]
            state.succeeded, state.input = row["entry"], row["input"]
            state.upstream, state.counts = dict(row["upstream"] or ()), dict(row["counts"] or ())
            state.versions = dict(row["versions"] or ())
            state.seconds, state.finished_at = row["seconds"], row["recorded_at"]
            state.successes += 1
            state.uncertain = False
            state.failures = 0
            self._keep(state, row)
            for name, value in state.counts.items():
                state.totals[name] = state.totals.get(name, 0) + value

    def _keep(self, state: StageState, row: Mapping[str, Any]) -> None:
        """Keeps a success, and its figures unless it repeats the work of an earlier one."""
        batch = row["batch"]
        upstream = {up: figures.entry if (figures := self.state(up, batch).figures) else None for up in state.upstream}
        state.last = Success(
            row["entry"],
            row["run_id"],
            BatchRange.of(*(batch if row[end] is None else row[end] for end in ("first", "last"))),
            state.counts,
            state.versions,
            state.seconds,
            row.get("strategy"),
            row.get("reason"),
            (row["input"] or "", upstream),
        )
        before, is_of_rebuild = state.figures, not state.versions  # whose runs are taken over without them
        if before is None or is_of_rebuild or before.read != state.last.read or state.reopened >= before.entry:
            state.figures = state.last
