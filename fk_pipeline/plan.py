"""The plan of a run, from the ledger and the landing folders alone: needs no Spark and records nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from fk_pipeline.answers import Blocks, Forecast, Topology
from fk_pipeline.cdc.landing import Discovery
from fk_pipeline.contract import Role, loaded
from fk_pipeline.engine.behind import Lag, due_by
from fk_pipeline.engine.evolution import to_read_again
from fk_pipeline.engine.fingerprints import can_be_finished, columns_to_add, finishing, needed_rebuild, stale_parts
from fk_pipeline.identity import BatchId, BatchRange, LandedFile, Side, passes
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.planner import FULL, INCREMENTAL, Choice, choose
from fk_pipeline.store.sizes import MEASURED
from fk_pipeline.store.skipping import nameable


@dataclass(frozen=True)
class StagePlan:
    """The plan for one stage: the batches that a run would process, each with its reason, the passes and the size."""

    stage: str
    why: dict[BatchId, str]
    passes: tuple[BatchRange, ...]
    files: tuple[LandedFile, ...]
    """The landing files that it would read."""
    estimated_rows: int | None
    """Rows of changelogs, or responses, estimated from the ratios of earlier batches; None if there are none."""
    strategy: str
    reason: str
    forecast: Forecast | None = None
    """What the run should do and take, if the kind makes forecasts; `strategy` and `reason` follow from it."""


@dataclass(frozen=True)
class Plan:
    """The plan of a run without arguments."""

    stale: dict[str, tuple[str, str]]
    """Edited parts of the pipeline file that the stored tables do not fit: (was, is). A run is refused."""
    fix: str
    """The command that remedies stale parts or a rebuild that died; empty if a run is possible."""
    discovery: Discovery
    stages: tuple[StagePlan, ...]
    registers: str | None = None
    """The name in Spark's catalog under which a run registers the result; None: under none."""
    topology: Topology | None = None
    """The operators, and the rules that apply to them, if the kind of join has such rules."""
    blocks: Blocks | None = None
    """The tables that a refresh keeps up to date, if the kind has any."""

    @property
    def due(self) -> int:
        """Number of due runs, each of one stage for one batch."""
        return sum(len(stage.why) for stage in self.stages)


def make_plan(spec: PipelineSpec, ledger: Ledger, discovery: Discovery, behind: Iterable[Lag] = ()) -> Plan:
    """Returns the plan.

    Args:
        spec: the pipeline.
        ledger: its ledger as it is.
        discovery: the outcome of a discovery that records nothing.
        behind: the tables that differ from the ledger.
    """
    adds = columns_to_add(spec, ledger)
    stale = {} if adds else stale_parts(spec, ledger)
    fix = needed_rebuild(spec.definition, stale).command(spec) if stale else ""
    if can_be_finished(spec, ledger):
        stale = {}
    fix = finishing(spec, ledger) or fix
    again: dict[str, dict[int, str]] = due_by(behind)
    for stage, why_again in to_read_again(spec, ledger, adds).items():
        again[stage] = why_again | again.get(stage, {})
    due = _due(ledger, discovery, again)
    known = sorted({*ledger.batches, *(batch for why in due.values() for batch in why)})
    estimate = _Estimate(ledger, discovery, due)
    brought = {name: estimate.of(name, why) for name, why in due.items()}
    ahead: Mapping[str, Forecast] = {}
    if spec.definition.forecasts:
        brings = {name: number for name, number in brought.items() if due[name]}
        ahead = loaded(spec.definition.forecasts)(spec, ledger, discovery.discovered, brings)
    plans = []
    for definition in spec.definition.stages:
        name = definition.name
        why, side = due[name], ledger.inputs.get(name)
        files = tuple(f for batch in why for f in estimate.files(batch, side)) if side else ()
        rows = ledger.logs.rows(f"{spec.home}/{definition.looks_up_in or name}")
        indexed = bool(definition.index) and ledger.logs.rows(f"{spec.home}/{definition.index}") > 0
        ranges = tuple(passes(why, known, spec.settings.max_batches_per_pass))
        changes = brought[name]
        about = estimate.changed(why) if definition.index else changes
        strategy, named = spec.settings.strategy_of(name), _nameable(spec, name, ledger)
        choice = choose(definition, strategy, about, rows, indexed=indexed, nameable=named)
        forecast = ahead.get(name)
        if forecast is not None:
            changes, choice = forecast.changed_rows, Choice(FULL if forecast.full else INCREMENTAL, forecast.why)
        plans.append(StagePlan(name, why, ranges, files, changes, choice.strategy, choice.reason, forecast))
    topology, blocks = (
        loaded(reference)(spec) if reference else None
        for reference in (spec.definition.topology, spec.definition.blocks)
    )
    return Plan(stale, fix, discovery, tuple(plans), spec.register_, topology, blocks)


def _nameable(spec: PipelineSpec, stage: str, ledger: Ledger) -> int:
    """Returns the number of keys that a commit to the main table of a stage may name; 0 if it names none."""
    table = loaded(spec.definition.keys)(spec, stage)
    return nameable(table, MEASURED, lambda column: ledger.logs.span(f"{spec.home}/{stage}", column))


def expected_passes(spec: PipelineSpec, ledger: Ledger, stages: Iterable[str]) -> int:
    """Returns the number of passes of these stages that a run makes over the known batches, unless a check stops it."""
    due = _due(ledger, Discovery(), {}, tuple(stages))
    size = spec.settings.max_batches_per_pass
    return sum(
        len(passes(ledger.checks.not_refused(stage, list(why))[0], ledger.batches, size)) for stage, why in due.items()
    )


def _due(
    ledger: Ledger,
    discovery: Discovery,
    again: Mapping[str, Mapping[int, str]],
    stages: Collection[str] | None = None,
) -> dict[str, dict[BatchId, str]]:
    """Returns, per stage in running order, the batches that will be due when the run reaches it, with the reasons.

    Stages that are not in `stages` have no batches.
    """
    removed = ledger.files.removed
    fresh = [f for f in discovery.discovered if f.batch not in removed] + [f for _, f in ledger.files.unlisted()]
    reasons = {(f.batch, f.side): "it has new files" for f in fresh}
    reasons |= {(f.batch, f.side): "its files changed" for f in discovery.changed if f.batch not in removed}
    known = set(ledger.batches)
    due: dict[str, dict[BatchId, str]] = {}
    for stage, upstream_of in ledger.upstream.items():
        why: dict[BatchId, str] = {}
        sides = ledger.kind.inputs_of(stage)
        for batch in sorted(known | {f.batch for f in fresh}):
            reason = ledger.due.why(stage, batch) if batch in known else "a new batch"
            if reason is None:
                reason = next((reasons[batch, side] for side in sides if (batch, side) in reasons), None)
            reason = reason or again.get(stage, {}).get(batch)
            upstream = [up for up in upstream_of if batch in due[up]]
            if reason is None and upstream:
                reason = f"{' and '.join(upstream)} will have run"
            if reason is not None:
                why[BatchId(batch)] = reason
        due[stage] = why if stages is None or stage in stages else {}
    return due


class _Estimate:
    """Estimates of rows, from the rows that earlier batches had per byte of a landing file and per changed row."""

    def __init__(self, ledger: Ledger, discovery: Discovery, due: dict[str, dict[BatchId, str]]) -> None:
        self.ledger, self.due, self.kind, removed = ledger, due, ledger.kind, ledger.files.removed
        self._asking = [
            table.name for table in self.kind.tables if table.name == table.stage and table.role is Role.MESSAGES
        ]
        self.new: dict[tuple[int, Side], dict[str, LandedFile]] = {}
        for file in (*discovery.discovered, *discovery.changed):
            if file.batch not in removed:
                self.new.setdefault((file.batch, file.side), {})[file.path] = file

    def files(self, batch: int, side: Side) -> list[LandedFile]:
        """Returns the files of a batch as they are now."""
        known = {f.path: f for f in self.ledger.files.of(batch, side)}
        return list((known | self.new.get((batch, side), {})).values())

    def of(self, stage: str, batches: Iterable[BatchId]) -> int | None:
        rows = [self._rows(stage, batch) for batch in batches]
        return None if None in rows else round(sum(r for r in rows if r is not None))

    def changed(self, batches: Iterable[BatchId]) -> int | None:
        """Returns the estimated rows that batches read on both sides; None if that is not known."""
        rows = [self._log_rows(log, batch) for batch in batches for log in self.ledger.inputs]
        return None if None in rows else round(sum(r for r in rows if r is not None))

    def _rows(self, stage: str, batch: BatchId) -> float | None:
        table = self.kind.table(stage)
        if table.of is not None:
            return self._log_rows(self.kind.input(table.of).stage, batch)
        if table.role is Role.RESULT and not any(batch in self.due[name] for name in self._asking):
            return self._responses(batch)
        changed = [self._log_rows(log, batch) for log in self.ledger.inputs]
        if not changed:  # what is read where it lies is not counted
            return None
        if None in (self._responses_per_row, *changed):
            return None
        return sum(rows or 0 for rows in changed) * (self._responses_per_row or 0)

    def _log_rows(self, log: str, batch: BatchId) -> float | None:
        if batch not in self.due[log]:
            return self._stored(log, batch)
        size = sum(f.size for f in self.files(batch, self.ledger.inputs[log]))
        per_byte = self._rows_per_byte[log]
        return 0 if not size else None if per_byte is None else size * per_byte

    @cached_property
    def _rows_per_byte(self) -> dict[str, float | None]:
        ratios = {}
        for log, side in self.ledger.inputs.items():
            done = [batch for batch in self.ledger.batches if batch not in self.due[log]]
            size = sum(f.size for batch in done for f in self.ledger.files.of(batch, side))
            ratios[log] = self._ratio(sum(self._stored(log, batch) for batch in done), size)
        return ratios

    @cached_property
    def _responses_per_row(self) -> float | None:
        batches = self.ledger.batches
        return self._ratio(
            sum(map(self._responses, batches)),
            sum(self._stored(log, batch) for log in self.ledger.inputs for batch in batches),
        )

    def _responses(self, batch: int) -> int:
        states, result = [self.ledger.state(stage, batch) for stage in self._asking], self.kind.result_stage
        if batch not in self.due[result] and any(state.is_unwritten for state in states):  # their number is a bound
            states = [self.ledger.state(result, batch)]
        return sum(sum(state.counts.values()) for state in states)

    def _stored(self, log: str, batch: int) -> int:
        return self.ledger.state(log, batch).counts.get("rows", 0)

    @staticmethod
    def _ratio(number: float, of: float) -> float | None:
        return number / of if of else None
