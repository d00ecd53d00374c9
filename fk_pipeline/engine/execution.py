"""One run of one stage: its steps, each a function from a reader to effects, which are applied in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fk_pipeline.blocks.changelog import row_expressions
from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.contract import Role, Source, loaded
from fk_pipeline.effects import Effect, Index, Reject, Reopen, ReplaceBatches, Report, Upsert
from fk_pipeline.engine.filling import reopened
from fk_pipeline.engine.landing import Landing, are_many, as_stored
from fk_pipeline.engine.landing_refusals import refuse_gone_versions
from fk_pipeline.engine.stage_reader import StageReader
from fk_pipeline.errors import BadRecordError, FanOutError, UnreadableFileError
from fk_pipeline.failures import is_from_spark, is_of_a_file
from fk_pipeline.identity import BatchId
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.spec.settings import FAN_OUT_WITHIN_BUDGET
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.stage_input import Counts
from fk_pipeline.store import schemas as s
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.history import RunHistory
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.checks import AGREEMENT
from fk_pipeline.store.planner import Choice
from fk_pipeline.store.settings import FEW_PARTITIONS, GUARDED, ONE_PARTITION, SMALL, SPLIT, always, holding, settings
from fk_pipeline.store.warehouse import Warehouse
from fk_pipeline.store.writer import TableWriter


@dataclass(frozen=True)
class Step:
    """A part of a stage, which can read the rows that the part before it has written.

    Attributes:
        effects: computes the effects of the step.
        explain: takes an error and raises a more specific one, if there is one.
    """

    effects: Callable[[StageReader], Sequence[Effect]]
    explain: Callable[[Exception], None] = lambda _: None


@dataclass
class Done:
    """The result of a run of a stage.

    Attributes:
        counts: per batch, numbers by name.
        versions: per table, the Delta version that was read; per `TABLE written`, the version that was committed.
        choice: the strategy of the stage; None if there was nothing to do, or no choice.
        notes: information for people.
        warnings: probable mistakes in the pipeline file.
        reported: the strategy as the stage reported it; None: as the planner chose.
    """

    counts: Counts
    versions: dict[str, int] = field(default_factory=dict)
    choice: Choice | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reported: Choice | None = None


class Execution:
    """Runs one stage for some batches. `run` may be called again at any time, and starts from the beginning."""

    def __init__(
        self,
        warehouse: Warehouse,
        ledger: Ledger,
        layout: Layout,
        spec: PipelineSpec,
        zone: LandingZone,
        stage: str,
        known: Sequence[BatchId],
        info: CommitInfo,
        source: Source,
    ) -> None:
        self.warehouse, self.ledger, self.layout, self.spec, self.zone = warehouse, ledger, layout, spec, zone
        self.stage, self.known, self.info, self.source = spec.definition.stage(stage), known, info, source
        self.side = spec.definition.side_of(stage)

    def may_be_mended(self, error: Exception) -> bool:
        """Returns whether the run may succeed after an error with row-error isolation of rows and files."""
        unreadable = isinstance(error, UnreadableFileError) or is_of_a_file(error)
        return unreadable or (is_from_spark(error) and self.evaluates)

    @property
    def evaluates(self) -> bool:
        """Whether the stage computes an expression of the pipeline file other than a plain column."""
        expressions = [*self.stage.evaluates(self.spec), *(row_expressions(self.spec, self.side) if self.side else ())]
        return not all(parse_expression(sql).plain for sql in expressions)

    def run(self, evaluator: Evaluator, versions: Mapping[str, int]) -> Done:
        """Runs the steps of the stage and commits their effects.

        Args:
            evaluator: with row-error isolation, rows on which an expression of the pipeline file fails, and unreadable
                parts of files, are quarantined; otherwise the run stops there.
            versions: the versions of the tables that only this stage writes, at its start.
        """
        history = RunHistory.before(self.ledger, self.stage.name, self.known)
        generations = self.ledger.start(self.stage.name, self.known, self.info.run_id, versions)
        done = Done({int(batch): {} for batch in self.known})

        def reader() -> StageReader:
            return StageReader(
                self.warehouse,
                self.layout.tables,
                self.spec,
                history,
                self.info.batches,
                generations=generations,
                evaluator=evaluator,
            )

        session, guarded = self.warehouse.session, GUARDED if evaluator.isolating else {}
        with self.warehouse.logs.looking_once():
            if self.stage.name == self.spec.definition.result_stage:
                self.warehouse.withdraw_statistics(self.layout[self.spec.definition.result.name], self.info)
            suiting = always(self.warehouse.sizes) | self._settings(reader())
            with settings(session, suiting, optional=True), settings(session, guarded):
                for step in self._steps():
                    with reader() as read:
                        self._apply(step, read, done)
                    history.counted = done.counts
                self._make_result(done)
        return done

    def _make_result(self, done: Done) -> None:
        """Creates the result without rows after the first run of its stage: what reads it needs its columns."""
        result = self.layout[self.spec.definition.result.name]
        if self.stage.name == self.spec.definition.result_stage and self.warehouse.version(result.name) is None:
            self.warehouse.create(result, self.info)
            done.versions[f"{result.name} written"] = 0

    def _steps(self) -> Iterator[Step]:
        """Yields the steps of the stage, in order."""
        side = self.side
        if side is not None and self.spec.definition.input(side).shared(self.spec) is not None:
            return  # the stage of that input reads its rows
        if side is not None and self.source is Source.CHANGELOG:
            yield Step(lambda read: as_stored(read, side))
        elif side is not None:
            retained: list[int] = []

            def bring(read: StageReader) -> Sequence[Effect]:
                landing = Landing(read, self.zone, side)
                retained.extend(landing.keep_stored())
                return landing.effects()

            def explain(error: Exception) -> None:
                files = {int(b): self.ledger.files.of(b, side) for b in self.known if b not in retained}
                refuse_gone_versions(self.spec, side, files, error)

            yield Step(bring, explain)
            yield Step(lambda read: reopened(read, side, retained))
        if self.stage.run:
            yield Step(loaded(self.stage.run))

    def _apply(self, step: Step, read: StageReader, done: Done) -> None:
        """Computes the effects of a step and commits them."""
        writer = TableWriter(
            self.warehouse,
            read,
            read.limits,
            self.info,
            indexes=self._indexes(),
            first_time=read.history.first_time,
            spark=self.spec.settings.spark,
        )
        try:
            for effect in step.effects(read):
                self._write(effect, writer, done)
        except FanOutError as error:
            self._record(error)
            raise
        except Exception as error:
            step.explain(error)
            raise
        done.choice = done.reported or read.limits.choice
        done.versions |= read.versions | {f"{name} written": version for name, version in writer.versions.items()}

    def _indexes(self) -> dict[str, Index]:
        """Returns, per state that has one, its index."""
        kind = self.spec.definition
        indexes = [table for table in kind.tables if table.role is Role.INDEX]
        return {kind.indexed_by(table): loaded(table.index)(self.spec) for table in indexes}

    def _write(self, effect: Effect, writer: TableWriter, done: Done) -> None:
        match effect:
            case ReplaceBatches():
                _add(writer.replace_batches(effect), done.counts)
            case Upsert():
                _add(writer.upsert(effect), done.counts)
            case Reject():
                self._refuse(effect)
                writer.reject(effect)
            case Report():
                done.counts |= effect.counts
                done.notes += effect.notes
                done.warnings += effect.warnings
                done.reported = done.reported if effect.strategy is None else Choice(*effect.strategy)
            case Reopen():
                self.ledger.runs.reopen(self.stage.name, effect.batches, self.info.run_id)

    def _refuse(self, effect: Reject) -> None:
        """Refuses bad records if the pipeline file says so.

        Raises:
            BadRecordError: there are bad records, and `on_bad_record` is `fail`.
        """
        if self.spec.on_bad_record != "fail" or effect.rows is None or not effect.number:
            return
        first = effect.rows.orderBy(s.FILE, s.LINE).first()
        assert first is not None
        raise BadRecordError(
            f"{effect.number} record(s) cannot be used; the first: {first[s.REASON]}",
            where=f"{first[s.FILE]}:{first[s.LINE]}" if first[s.FILE] else f"batch {first[s.BATCH]}",
            why="on_bad_record is 'fail': nothing of the batch was applied",
            fix="correct the file, or set on_bad_record: quarantine",
        )

    def _record(self, error: FanOutError) -> None:
        """Records the batches that need an approval as failed checks."""
        same: dict[str, Any] = {"stage": self.stage.name, "name": FAN_OUT_WITHIN_BUDGET, "severity": "critical"}
        same |= {"depth": "batch", "passed": False, "pending": 0, "cure": AGREEMENT}
        self.ledger.checks.record(
            same | {"first": batch, "last": batch, "batches": [batch], "value": float(touched)}
            for batch, touched in sorted(error.values.items())
        )

    def _settings(self, read: StageReader) -> dict[str, str]:
        """Returns the Spark settings for the size of the changes, of the rows that they concern, and of the tables."""
        sizes, kind = read.limits.sizes, self.spec.definition
        of = self.ledger.files.of
        landed = {side: [file for batch in self.known for file in of(batch, side)] for side in self.spec.sides}
        joins = kind.table(self.stage.name).role in (Role.MESSAGES, Role.RESULT)
        many = SPLIT | holding(sizes) if joins else SPLIT
        many = {name: value for name, value in many.items() if name not in self.spec.settings.spark}
        if sum(file.size for files in landed.values() for file in files) > sizes.small_bytes:
            return many
        compiled = any(are_many(self.spec, side, files, sizes, {}) for side, files in landed.items())
        if not compiled and read.rows(*self.stage.reads) <= sizes.small_rows:
            return SMALL
        concerned = loaded(self.stage.concerns)(read) if self.stage.concerns else 0
        if concerned > sizes.many_rows:
            return many
        return FEW_PARTITIONS | ONE_PARTITION if concerned <= read.limits.in_driver else FEW_PARTITIONS


def _add(added: Counts, counts: Counts) -> None:
    for batch, numbers in added.items():
        counts.setdefault(batch, {}).update(numbers)
