"""The rebuild of state and result from the changelogs or the landing files, beside the tables that are in use.

Rebuilt stages run over all batches as in an empty warehouse, so the result starts empty: after an edit from a left to
an inner join no row is left over. The new tables are verified, and only then swapped in (`engine/swap.py`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import hashed
from fk_pipeline.cdc.endings import is_of_format
from fk_pipeline.cdc.landing import look
from fk_pipeline.cdc.table_versions import are_kept
from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.contract import Input, Role, Source
from fk_pipeline.engine.behind import lags, refuse
from fk_pipeline.engine.damage import damage_error, damages, translated
from fk_pipeline.engine.described import layout_of
from fk_pipeline.engine.evolution import forget_columns, reopen_batches
from fk_pipeline.engine.fingerprints import (
    NeededRebuild,
    can_be_finished,
    fingerprints,
    needed_rebuild,
    shadow_home,
    stale_parts,
    tables_without_ledger,
)
from fk_pipeline.engine.runner import Runner, StageRun
from fk_pipeline.engine.sole import sole_stages
from fk_pipeline.engine.swap import discard_shadow, swap_in
from fk_pipeline.errors import FkPipelineError, StageError, StateError, UsageError
from fk_pipeline.failures import is_from_spark
from fk_pipeline.identity import BatchRange, Side, passes
from fk_pipeline.privacy import cause_of, message_of
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store import schemas as s
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.damage import damage_of
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.lease import LeaseCheck
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.checks import AGREEMENT
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.warehouse import Warehouse, typed
from fk_pipeline.verify.verification import verify

RebuildProgress = Callable[[str, BatchRange, int, int, StageRun | None], None]
"""Called before a pass of a stage (without a result) and after it."""


@dataclass(frozen=True)
class StageRebuild:
    """One rebuilt stage: the number of rows of each of its tables, and the seconds that it took."""

    stage: str
    rows: dict[str, int]
    seconds: float


class Rebuild:
    """One rebuild of one pipeline.

    Args:
        session: the Spark session.
        spec: the pipeline as it is now.
        ledger: its ledger, after a discovery.
        zone: the landing zone.
        source: the source to read.
        stages: the stages to rebuild, with everything downstream; default: state and result, and the stages that a
            stale part of the pipeline file makes necessary.
        sizes: the sizes at which the engine chooses another physical plan.
        forget: agrees that the result loses what is made of rows that are not kept (`history`, `retention`).
    """

    def __init__(
        self,
        session: SparkSession,
        spec: PipelineSpec,
        ledger: Ledger,
        zone: LandingZone,
        source: Source,
        stages: Iterable[str] | None,
        sizes: Sizes,
        forget: bool = False,
    ) -> None:
        self.session, self.spec, self.ledger, self.zone, self.source = session, spec, ledger, zone, source
        self.sizes, self.forget = sizes, forget
        self.kind = spec.definition
        self.requested = None if stages is None else tuple(stages)

    def run(self, progress: RebuildProgress) -> list[StageRebuild]:
        """Builds the new tables and swaps them in; if anything fails before the swap, the tables stay as they were.

        Raises:
            UsageError: this rebuild would not make the tables fit the pipeline file.
            StateError: the rebuild is not possible; nothing was changed.
        """
        with sole_stages(self.session, self.spec.home, self.kind.stage_names) as check:
            self.ledger.refresh()
            layout = layout_of(self.session, self.spec)
            if can_be_finished(self.spec, self.ledger):
                self._finish(layout, check)
            stages = self._stages()
            if not self.ledger.batches:
                return []
            self._refuse_to_forget(stages)
            self._refuse_what_is_gone(stages)
            self._refuse_what_stays_damaged(stages)
            self._refuse_what_is_behind(stages)
            stale = stale_parts(self.spec, self.ledger)
            forget_columns(self.ledger, stale)
            if self.source is Source.CHANGELOG:
                reopen_batches(self.spec, self.ledger, stale, uuid.uuid4().hex[:12])
            discard_shadow(self.spec)
            try:
                done = self._build(stages, layout, progress)
            except Exception as error:
                check()
                discard_shadow(self.spec)
                damage = error if isinstance(error, FkPipelineError) else translated(error, self.spec, self.zone)
                if damage is not error:
                    raise damage from cause_of(error, self.spec)
                if not isinstance(error, FkPipelineError) and not is_from_spark(error):
                    raise
                raise self._given_up(error) from cause_of(error, self.spec)
            check()
            self.ledger.rebuilds.record(
                "ready",
                rebuild_id=uuid.uuid4().hex[:12],
                source=self.source,
                stages=[*stages],
                fingerprints=list(fingerprints(self.spec).items()),
                rows=[item for stage in done for item in stage.rows.items()],
                seconds=[(stage.stage, stage.seconds) for stage in done],
            )
            swap_in(self.session, self.spec, self.ledger, layout, check)
            return done

    def _finish(self, layout: Layout, check: LeaseCheck) -> None:
        """Finishes the swap of a rebuild that died during it; a failure is ignored if everything is rebuilt anyway."""
        try:
            swap_in(self.session, self.spec, self.ledger, layout, check)
        except Exception:
            check()
            if self.source is not Source.LANDING or self.requested not in (None, self.kind.stage_names):
                raise

    def _refuse_what_stays_damaged(self, stages: tuple[str, ...]) -> None:
        """Refuses a rebuild after which a damaged table would be read or stay damaged."""
        rebuilt = {name for stage in stages for name in self.kind.written_by(stage)}
        if self.source is not Source.LANDING:
            rebuilt -= {*self.kind.with_role(Role.LOG)}
        elif stages == self.kind.stage_names:
            rebuilt |= {*self.kind.with_role(Role.REJECTED)}
        damaged = damages(self.spec)
        if any(damage.table not in rebuilt for damage in damaged):
            raise damage_error(damaged, self.spec, self.zone)

    def _stages(self) -> tuple[str, ...]:
        stale = stale_parts(self.spec, self.ledger)
        needed = needed_rebuild(self.kind, stale) if stale else None
        if tables_without_ledger(self.spec, self.ledger):
            needed = NeededRebuild.of_all(self.kind)
        left_open = self.ledger.rebuilds.unfinished
        begun = list(left_open["stages"]) if left_open else []
        if left_open and left_open["source"] == Source.LANDING and self.source is not Source.LANDING:
            why = "a rebuild from the landing files died while it was swapped in, and cannot be finished any more"
            self._refuse(NeededRebuild.of_all(self.kind), why)
        requested = self.kind.rebuilds(self.source) if self.requested is None else self.requested
        chosen = self.kind.downstream([*requested, *begun])
        if needed is not None:
            if needed.source is Source.LANDING and self.source is not Source.LANDING:
                self._refuse(needed, f"changelogs cannot tell what {self._names(stale)} would have made of the files")
            if self.requested is not None and not set(needed.stages) <= set(chosen):
                self._refuse(needed, f"{self._names(stale)} was edited, and more stages depend on it")
            chosen = self.kind.downstream([*chosen, *needed.stages])
        if self.ledger.folds.on_all_sides:  # messages of folded batches are not stored: rebuild those that are read
            messages = {str(self.kind.table(name).stage) for name in self.kind.with_role(Role.MESSAGES)}
            for stage in reversed(self.kind.stage_names):
                if stage in chosen:
                    chosen = self.kind.downstream([*chosen, *(messages & {*self.kind.stage(stage).upstream})])
        if self.source is Source.CHANGELOG:
            for input_ in self.kind.logged:
                derived = {f"{input_.name}.where", *(input_.derived_as(column) for column in input_.derives(self.spec))}
                for part in (derived | {*input_.computed(self.spec).values()}) & {*stale}:
                    self._refuse_lost_lines(input_, part)
        return chosen

    @staticmethod
    def _names(stale: Iterable[str]) -> str:
        return " and ".join(stale) or "the pipeline file"

    def _refuse(self, needed: NeededRebuild, why: str) -> None:
        raise UsageError(
            "this rebuild would not be enough", where=str(self.spec.file), why=why, fix=needed.command(self.spec)
        )

    def _refuse_lost_lines(self, of: Input, part: str) -> None:
        """Refuses a rebuild that would lose lines: those on which an old expression failed are in no changelog.

        With the new one they may be valid.
        """
        warehouse = Warehouse(self.session, self.spec.home)
        if warehouse.version(s.QUARANTINE) is None:
            return
        rows = self.session.read.format("delta").load(warehouse.path(s.QUARANTINE))
        part = part.removeprefix(f"{of.name}.")
        lost = rows.where(F.col(s.SIDE) == of.name).where(F.col(s.REASON).startswith(f"{part} "))
        if not lost.isEmpty():
            self._refuse(
                NeededRebuild.of_all(self.kind),
                f"there are lines in the quarantine on which the old {part} failed: the changelog has not got them",
            )

    def _refuse_to_forget(self, stages: tuple[str, ...]) -> None:
        """Refuses a rebuild that would take from the result what is not kept any more, unless that was agreed."""
        read_again = stages if self.source is Source.LANDING else ()
        for input_ in self.kind.logged:
            horizon = None if input_.stage in read_again else self.ledger.folds.horizon(input_.stage)
            if horizon is None or self.forget:
                continue
            raise StateError(
                f"rows of the result are made of rows of the {input_.name} side that are not kept any more: "
                f"the pipeline goes back to {horizon}",
                where=str(self.spec.file),
                why="this rebuild would leave these rows without them; nothing was changed",
                fix=f"fk-pipeline rebuild {self.spec.file} --from {Source.LANDING}, if the files are still there; or "
                "agree: --forget",
            )

    def _refuse_what_is_gone(self, stages: tuple[str, ...]) -> None:
        if self.source is not Source.LANDING:
            return
        if tables_without_ledger(self.spec, self.ledger):
            self._refuse_batches_without_files()
        removed, sides = (
            self.ledger.files.removed,
            {input_.name for input_ in self.kind.logged if input_.stage in stages},
        )
        listed = [f for f in self.ledger.files.known.values() if f.batch not in removed and f.side in sides]
        foreign = [f for f in listed if not is_of_format(f.path, self.spec.side(f.side))]
        if foreign:
            format_ = self.spec.side(foreign[0].side).format
            raise StateError(
                f"{len(foreign)} landing file(s) are not written as format {format_} is, the first: {foreign[0].path}",
                where=str(self.spec.file),
                why="a rebuild from the landing files reads them all; nothing was changed",
                fix="put the format back, or name another warehouse in the pipeline file and land the tables in "
                f"format {format_} there",
            )
        vanished = look(self.spec, self.ledger.files, self.zone).vanished
        gone = [f for f in vanished if f.batch not in removed and f.side in sides]
        versions = [f for f in listed if self.spec.side(f.side).format == "delta"]
        gone += [f for f in versions if not are_kept(self.spec.location(f.path))]
        if gone:
            damaged = damages(self.spec)
            if damaged:  # a rebuild from the changelogs may not be possible either
                raise damage_error(damaged, self.spec, self.zone)
            raise StateError(
                f"{len(gone)} landing file(s) are gone, the first: {gone[0].path}",
                where=str(self.spec.file),
                why="a rebuild from the landing files needs them all; nothing was changed",
                fix="restore them; if the schema, keys, formats and order in the pipeline file are what they were, "
                f"fk-pipeline rebuild {self.spec.file} --from {Source.CHANGELOG} does without",
            )

    def _refuse_what_is_behind(self, stages: tuple[str, ...]) -> None:
        """Refuses a rebuild that reads state which only a larger rebuild repairs; changelogs are used as they are."""
        replaced = [name for stage in stages for name in self.kind.written_by(stage)]
        refuse(self.spec, lags(self.spec, self.ledger), [*replaced, *self.kind.with_role(Role.LOG)])

    def _refuse_batches_without_files(self) -> None:
        """Refuses a rebuild after the ledger was lost, if the changelogs have batches without landing files."""
        warehouse, known = Warehouse(self.session, self.spec.home), set(self.ledger.batches)
        for name in self.kind.with_role(Role.LOG):
            if damage_of(self.spec.home, name) is None and warehouse.version(name) is not None:
                log = self.session.read.format("delta").load(warehouse.path(name))
                gone = sorted({row[0] for row in log.select(s.BATCH).distinct().collect()} - known)
                if gone:
                    raise StateError(
                        f"{len(gone)} batch(es) of {name} have no landing files, the first: {gone[0]}",
                        where=self.spec.home,
                        why="the ledger is lost, and a rebuild without them would lose these; nothing was changed",
                        fix="restore the ledger or the files",
                    )

    def _build(self, stages: tuple[str, ...], layout: Layout, progress: RebuildProgress) -> list[StageRebuild]:
        shadow = shadow_home(self.spec)
        from_log = self.source is Source.CHANGELOG
        forgotten = [stage for stage in stages if not (from_log and self.kind.side_of(stage))]
        copy = self.ledger.copy(shadow, forgotten, self.source)
        copy.record_fingerprints(fingerprints(self.spec))
        names = [name for stage in stages for name in self.kind.written_by(stage)]
        tables = {name: f"{shadow}/{name}" for name in (*names, *self.kind.with_role(Role.REJECTED))}
        warehouse = Warehouse(self.session, self.spec.home, tables, self.sizes)
        runner = Runner(self.session, self.spec, copy, self.zone, warehouse, source=self.source)
        ranges = {stage: self._passes(stage, from_log) for stage in stages}
        number, of = 0, sum(map(len, ranges.values()))
        done = []
        for stage in stages:
            started = time.monotonic()
            side = self.kind.side_of(stage)
            if from_log and side is not None:
                self._write_log(warehouse, layout, side)
            for part in ranges[stage]:
                number += 1
                progress(stage, part, number, of, None)
                progress(stage, part, number, of, runner.run(stage, part))
            done.append(self._built(stage, warehouse, layout, time.monotonic() - started))
        self._prove(warehouse, layout, copy)
        return done

    def _prove(self, warehouse: Warehouse, layout: Layout, copy: Ledger) -> None:
        """Compares the new tables with the join of the changelogs before they are swapped in."""
        tables = {table.name: warehouse.read(table) for table in layout.of(*self.kind.proved)}
        report = verify(tables, {stage: copy.due.of(stage) for stage in self.kind.stage_names}, self.spec, copy)
        if not report.ok:
            raise StateError(
                f"what was built is not the join of the changelogs: {report.counts()}", where=self.spec.home
            )

    def _passes(self, stage: str, from_log: bool) -> list[BatchRange]:
        """Returns the ranges of all batches; for a log that is read again, of the batches that may be in it."""
        known = self.ledger.batches
        if from_log and self._keeps_only_a_log(stage):  # the log is written as a whole
            return []
        checks = [check for check in self.ledger.checks.failed() if check.remedy == AGREEMENT and check.stage == stage]
        unapproved = {check.batch for check in checks}  # a rebuild does not approve these batches
        chosen = [batch for batch in known if batch not in unapproved]
        if from_log and self.kind.side_of(stage):
            chosen = [batch for batch in chosen if self.ledger.state(stage, batch).attempts]
        return passes(chosen, known, self.spec.settings.max_batches_per_pass)

    def _write_log(self, warehouse: Warehouse, layout: Layout, side: Side) -> None:
        table = layout[self.kind.input(side).log]
        known = self.ledger.batches
        info = CommitInfo(self.spec.name, "rebuild", BatchRange(known[0], known[-1]), "")
        stored = Warehouse(self.session, self.spec.home)
        if stored.version(table.name) is not None:
            rows = typed(stored.read(table), table)  # its schema may be an older one
            warehouse.append(hashed(rows, self.spec, side), table, info)

    def _keeps_only_a_log(self, stage: str) -> bool:
        return stage not in self.kind.rebuilds(Source.CHANGELOG)

    def _built(self, stage: str, warehouse: Warehouse, layout: Layout, seconds: float) -> StageRebuild:
        written = layout.of(*self.kind.written_by(stage))
        tables = [table for table in written if warehouse.version(table.name) is not None]
        if stage == self.kind.result_stage and warehouse.version(s.QUARANTINE) is not None:
            tables.append(layout[s.QUARANTINE])
        return StageRebuild(stage, {table.name: warehouse.rows([table]) for table in tables}, round(seconds, 3))

    def _given_up(self, error: Exception) -> StateError:
        return StateError(
            f"the rebuild failed: {message_of(error, self.spec)}",
            where=error.where if isinstance(error, FkPipelineError) else str(self.spec.file),
            why="it was given up; the tables are as they were",
            fix=(error.fix if isinstance(error, StageError) else "mend that and rebuild again")
            + ("" if self.source is Source.LANDING else f"; or rebuild --from {Source.LANDING}"),
        )
