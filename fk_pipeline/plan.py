"""What a run would do, from the ledger and the landing folders alone: no Spark, and nothing is recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fk_pipeline.cdc.landing import Discovery
from fk_pipeline.identity import SIDE_OF, UPSTREAM, BatchId, BatchRange, Side, Stage, contiguous, cut
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.stages.fingerprints import can_be_finished, cure, stale_parts
from fk_pipeline.tables.ledger import LandedFile, Ledger

INCREMENTAL, FULL = "incremental", "full"
LOG_OF = {Stage.LEFT_CHANGELOG: "left_changelog", Stage.RIGHT_TABLE: "right_changelog"}


@dataclass(frozen=True)
class StagePlan:
    """One stage: the batches that a run would do, why each, in which passes, and how much that is."""

    stage: Stage
    why: dict[BatchId, str]
    passes: tuple[BatchRange, ...]
    files: tuple[LandedFile, ...]
    """That it would read."""
    estimated_rows: int | None
    """Rows of changelogs, or answers; by what earlier batches had per byte and per row. None without any."""
    strategy: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """What a run without arguments would do now."""

    stale: dict[str, tuple[str, str]]
    """Parts of the pipeline file that the stored tables were not made with: (was, is). A run is refused."""
    fix: str
    """The rebuild that mends what is stale, or finishes one that died; empty when a run can go on."""
    found: Discovery
    stages: tuple[StagePlan, ...]

    @property
    def due(self) -> int:
        """Runs of a stage for a batch."""
        return sum(len(stage.why) for stage in self.stages)


def make_plan(spec: PipelineSpec, ledger: Ledger, found: Discovery) -> Plan:
    """The plan.

    Args:
        spec: the pipeline.
        ledger: its ledger as it is.
        found: what a look at the landing folders found.
    """
    stale = stale_parts(spec, ledger)
    fix = cure(stale).command(spec) if stale else ""
    if can_be_finished(spec, ledger):
        stale, fix = {}, f"fk-pipeline run {spec.file} first swaps in the rest of a rebuild that died"
    elif ledger.open_rebuild is not None:
        fix = f"fk-pipeline rebuild {spec.file} --from {ledger.open_rebuild['source']}"
    due = _due(ledger, found)
    known = sorted({*ledger.batches, *(batch for why in due.values() for batch in why)})
    estimate = _Estimate(ledger, found, due)
    plans = []
    for stage, why in due.items():
        side = SIDE_OF.get(stage)
        files = tuple(f for batch in why for f in estimate.files(batch, side)) if side else ()
        passes = [p for r in contiguous(why, known) for p in cut(r, known, spec.settings.max_batches_per_pass)]
        stored = ledger.logs.version(f"{spec.home}/{LOG_OF.get(stage, stage.value)}") is not None
        strategy = INCREMENTAL if stored else FULL
        reason = (
            "only the rows that these batches bring, own or concern"
            if stored
            else "nothing is stored yet: what these batches bring is the whole table"
        )
        rows = estimate.of(stage, why)
        plans.append(StagePlan(stage, why, tuple(passes), files, rows, strategy, reason))
    return Plan(stale, fix, found, tuple(plans))


def _due(ledger: Ledger, found: Discovery) -> dict[Stage, dict[BatchId, str]]:
    """Per stage, in running order, the batches that will be due when it comes to it, and why."""
    removed = ledger.removed
    fresh = [f for f in found.discovered if f.batch not in removed] + [f for _, f in ledger.unlisted()]
    changed = [f for f in found.changed if f.batch not in removed]
    batches = {*ledger.batches, *(f.batch for f in fresh)}
    due: dict[Stage, dict[BatchId, str]] = {}
    for stage in Stage:
        why: dict[BatchId, str] = {}
        for batch in sorted(batches):
            reason = ledger.why_due(stage, batch) if batch in ledger.batches else "a new batch"
            for files, what in ((changed, "its files changed"), (fresh, "it has new files")):
                if reason is None and any(f.batch == batch and f.side is SIDE_OF.get(stage) for f in files):
                    reason = what
            upstream = [up for up in UPSTREAM[stage] if batch in due[up]]
            if reason is None and upstream:
                reason = f"{' and '.join(upstream)} will have run"
            if reason is not None:
                why[BatchId(batch)] = reason
        due[stage] = why
    return due


class _Estimate:
    """Rows by rule of three: what earlier batches had per byte of a landing file, and per changed row."""

    def __init__(self, ledger: Ledger, found: Discovery, due: dict[Stage, dict[BatchId, str]]) -> None:
        self.ledger, self.due = ledger, due
        new = [f for f in (*found.discovered, *found.changed) if f.batch not in ledger.removed]
        self.new = {(f.side, f.path): f for f in new}

    def files(self, batch: int, side: Side) -> list[LandedFile]:
        """The files of a batch as they are now."""
        known = {(f.side, f.path): f for f in self.ledger.files_of(batch, side)}
        now = known | {place: f for place, f in self.new.items() if place[0] is side and f.batch == batch}
        return list(now.values())

    def of(self, stage: Stage, batches: Iterable[BatchId]) -> int | None:
        rows = [self._rows(stage, batch) for batch in batches]
        return None if None in rows else round(sum(r for r in rows if r is not None))

    def _rows(self, stage: Stage, batch: BatchId) -> float | None:
        if stage in SIDE_OF:
            return self._log_rows(stage, batch)
        if stage is Stage.SUBSCRIPTION_STORE:
            return self._log_rows(Stage.LEFT_CHANGELOG, batch)
        if stage is Stage.RESOLVED_JOIN and batch not in self.due[Stage.RESPONSES]:
            return sum(self.ledger.state(Stage.RESPONSES, batch).counts.values())
        changed = [self._log_rows(log, batch) for log in SIDE_OF]
        answers = sum(sum(self.ledger.state(Stage.RESPONSES, b).counts.values()) for b in self.ledger.batches)
        per_row = self._ratio(answers, sum(self._stored(log, b) for log in SIDE_OF for b in self.ledger.batches))
        if None in (per_row, *changed):
            return None
        return sum(rows or 0 for rows in changed) * (per_row or 0)

    def _log_rows(self, log: Stage, batch: BatchId) -> float | None:
        if batch not in self.due[log]:
            return self._stored(log, batch)
        side = SIDE_OF[log]
        size = sum(f.size for f in self.files(batch, side))
        done = [b for b in self.ledger.batches if b not in self.due[log]]
        seen = sum(f.size for b in done for f in self.ledger.files_of(b, side))
        per_byte = self._ratio(sum(self._stored(log, b) for b in done), seen)
        return 0 if not size else None if per_byte is None else size * per_byte

    def _stored(self, log: Stage, batch: int) -> int:
        return self.ledger.state(log, batch).counts.get("rows", 0)

    @staticmethod
    def _ratio(number: float, of: float) -> float | None:
        return number / of if of else None
