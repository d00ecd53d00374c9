"""Removes rows that nothing needs any more: those that only folded batches have, and those before a horizon."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.answers import Closing
from fk_pipeline.blocks.horizon import is_later, sql_of
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.contract import Kind, Role, TableDef, loaded
from fk_pipeline.engine.folding import forgettable, is_old, searched, settled, superseded
from fk_pipeline.engine.runner import Runner
from fk_pipeline.engine.sole import sole_stages
from fk_pipeline.identity import QUARANTINING, BatchRange, Side, ranges_sql
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.lease import lease, leases
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.settings import settings, suiting
from fk_pipeline.store.warehouse import clustered

MOST_ENTRIES = 1.5
"""Entries of an index per row of its state, above which the index is rewritten."""


@contextmanager
def undisturbed(home: str, kind: Kind) -> Iterator[None]:
    """Keeps discoveries and stages from running: a process that wrote a ledger entry meanwhile would get a conflict."""
    with lease(home, "discovery"), leases(home, kind.stage_names):
        yield


def writers(kind: Kind, *names: str) -> tuple[str, ...]:
    """Returns the stages whose leases keep some tables unchanged, in running order."""
    stages: list[str] = []
    for table in map(kind.table, names):
        stages += kind.rejecting.values() if table.stage is None else [table.stage]
        if table.role is Role.INDEX:
            # A stage that finds rows by an index may have opened an older state and needs the entries of that state.
            stages += [stage.name for stage in kind.stages if kind.indexed_by(table) in stage.reads]
    return kind.in_order(stages)


class UnneededRows:
    """Removes rows that nothing needs any more, table by table, under the leases of the stages that write it."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.spec, self.layout = runner, runner.spec, runner.layout
        self.warehouse, self.ledger, self.kind = runner.warehouse, runner.ledger, runner.ledger.kind
        self.removed: Counter[str] = Counter()
        """Number of removed rows, by table."""

    @contextmanager
    def _at(self, *tables: Table) -> Iterator[CommitInfo | None]:
        """Keeps others from writing some tables; yields the commit information, None if nothing is to be done."""
        stages = writers(self.kind, *[table.name for table in tables])
        with sole_stages(self.runner.session, self.spec.home, stages) as held:
            self.ledger.refresh()  # a rebuild may have restored everything since the folds were recorded
            batches = settled(self.ledger, self.ledger.folds.on_all_sides)
            if not batches or self.ledger.rebuilds.unfinished is not None:
                yield None
                return
            where = BatchRange.of(min(batches), max(batches))
            info = CommitInfo(self.spec.name, "compact", where, uuid.uuid4().hex[:12], held)
            with settings(self.runner.session, suiting(self.warehouse.rows(tables)), optional=True):
                yield info

    def versions_of(self, stage: str, side: Side) -> None:
        """Removes from a side's changelog all versions of folded batches but the last per key; forgets deleted keys.

        Deleted keys are forgotten only with `settings.tombstone_retention`.
        """
        log, state = self.layout[self.kind.input(side).log], self.layout[self.kind.state_of(side).name]
        with self._at(log) as info:
            if info is not None:
                old = ranges_sql(s.BATCH, settled(self.ledger, self.ledger.folds.of(stage)), self.ledger.batches)
                keys = [*self.kind.keys_in_log(self.spec, side, state.keys).values()]
                if s.BATCH not in keys:  # else each batch is a version
                    self._remove(superseded(self.warehouse.read(log), self.spec.side(side), keys, old), info, log)
        if self.spec.settings.tombstone_retention is not None:
            self._forget(stage, side, self.spec.settings.tombstone_retention)

    def _forget(self, log_stage: str, side: Side, hours: float) -> None:
        """Removes deleted keys, from the changelog first; a key left only in the state is removed the next time."""
        ledger, log, stored = self.ledger, self.layout[self.kind.input(side).log], self.kind.state_of(side)
        state = self.layout[stored.name]
        keys = self.kind.keys_in_log(self.spec, side, state.keys)
        with self._at(log, state) as info:
            if info is None or ledger.due.of(log_stage) or ledger.due.of(str(stored.stage)):
                return  # landed rows that are not read yet may be older than a delete
            now = datetime.now(UTC)
            done = [b for b in settled(ledger, ledger.folds.on_all_sides) if is_old(ledger, b, now, hours)]

            def old(column: str) -> str:
                return ranges_sql(column, done, ledger.batches)

            dead = forgettable(self.warehouse.read(log), self.warehouse.read(state), keys, old).persist()
            try:
                owned = dead.select(
                    *[F.col(quote(key)).alias(name) for key, name in keys.items() if name != s.BATCH],
                    F.col(s.OWNER).alias(s.BATCH),
                )
                self._remove(owned, info, log)
                self._remove(dead.select(*map(quote, keys)), info, state)
            finally:
                dead.unpersist()

    def close(self, closing: Closing) -> None:
        """Moves the horizon of a pipeline that does not keep everything, and removes what only older times need.

        The horizon moves only when nothing is due: everything that landed has then reached the result. Rows of batches
        that are not folded stay, because they may be withdrawn.
        """
        ledger, kind = self.ledger, self.kind
        states = {side: self.layout[kind.state_of(side).name] for side in closing.sides}
        logs = {side: self.layout[kind.input(side).log] for side in closing.sides}
        stored = {side: state for side, state in states.items() if self.warehouse.version(state.name) is not None}
        if not stored:
            return
        with undisturbed(self.spec.home, kind):
            ledger.refresh()
            if not self._is_due() and ledger.rebuilds.unfinished is None:
                final = {side: self._final(side, state, closing) for side, state in stored.items()}
                horizon = closing.horizon(final, datetime.now(UTC))
                stages = {side: kind.input(side).stage for side in closing.sides}
                if horizon is not None and all(
                    is_later(horizon, ledger.folds.horizon(stage)) for stage in stages.values()
                ):
                    ledger.folds.close(stages, horizon)
        for side, state in stored.items():
            with self._at(logs[side], state) as info:
                horizon = sql_of(ledger.folds.horizon(kind.input(side).stage))
                if info is not None and horizon is not None and not (closing.waits and self._is_due()):
                    self._remove_closed(closing, side, logs[side], state, horizon, info)

    def _is_due(self) -> bool:
        return any(self.ledger.due.of(name) for name in self.kind.stage_names)

    def _final(self, side: Side, state: Table, closing: Closing) -> DataFrame:
        """Returns the rows of a state by which the horizon moves: those that no batch can correct any more.

        If no batch is ever folded, these are all rows, or none.
        """
        rows = self.warehouse.read(state)
        if self.spec.settings.fold_after_hours is None:
            return rows.limit(0) if closing.waits else rows
        folded = self.ledger.folds.of(self.kind.input(side).stage)
        return rows.where(ranges_sql(s.OWNER, folded, self.ledger.batches))

    def _remove_closed(
        self, closing: Closing, side: Side, log: Table, state: Table, horizon: str, info: CommitInfo
    ) -> None:
        """Removes rows of a state and of its changelog that only times before the horizon need.

        A row that a process left in one of them, because it died, is removed the next time. Not those of keys among
        whose rows values are searched that a source did not send.
        """
        batches = settled(self.ledger, self.ledger.folds.on_all_sides)

        def old(*columns: str) -> str:
            return " AND ".join(ranges_sql(column, batches, self.ledger.batches) for column in columns)

        keys = self.kind.keys_in_log(self.spec, side, state.keys)
        of_side, versions, named = self.spec.side(side), self.warehouse.read(log), [*keys.values()]
        final = f"({old(s.OWNER)} AND ({s.APPLIED_IN} IS NULL OR {old(s.APPLIED_IN)}))"
        dead = closing.removable(side, self.warehouse.read(state), state.keys, horizon, final)
        dead = dead.select(*[F.col(quote(key)).alias(name) for key, name in keys.items()])
        dead = dead.join(versions.where(f"NOT ({old(s.BATCH)})"), named, "left_anti")
        if format_of(of_side).has_holes:
            dead = dead.join(searched(versions, of_side), [c.name for c in of_side.key_columns], "left_anti")
        dead = dead.persist()
        try:
            for role in closing.order:
                if role is Role.LOG:
                    lost = versions.where(old(s.BATCH))
                    if closing.order[0] is Role.STATE:  # it has lost them, now or before
                        in_state = self.warehouse.read(state).select(
                            *[F.col(quote(key)).alias(name) for key, name in keys.items()]
                        )
                        lost = lost.where(f"{quote(named[0])} IS NOT NULL").join(in_state, named, "left_anti")
                    else:
                        lost = lost.join(dead, named, "left_semi")
                    self._remove(lost.select(s.BATCH, *map(quote, named)), info, log)
                else:
                    own = [F.col(quote(name)).alias(key) for key, name in keys.items()]
                    self._remove(dead.select(*own), info, state)
        finally:
            dead.unpersist()

    def messages(self, of: TableDef) -> None:
        """Removes the messages of folded batches.

        A folded batch may run again; its new messages are then still to be resolved. Rows that could not be computed
        are resolved again on request (`quarantine --replay`), so the messages of their batches stay.
        """
        table, ledger = self.layout[of.name], self.ledger
        with self._at(table) as info:
            if info is None:
                return
            both = settled(ledger, ledger.folds.on_all_sides)
            counts = {b: ledger.state(self.kind.result_stage, b).counts for b in both}
            refused = [b for b, numbers in counts.items() if any(numbers.get(name) for name in QUARANTINING)]
            where = ranges_sql(s.BATCH, {*both}.difference(refused), ledger.batches)
            number = self.warehouse.read(table).where(where).count()
            if number:
                self.warehouse.delete(where, table, info)
            self.removed[table.name] += number

    def index(self, of: TableDef) -> None:
        """Rewrites the index of a state if it has many entries that the state no longer has."""
        state, table = self.layout[self.kind.indexed_by(of)], self.layout[of.name]
        rows = self.warehouse.rows([table])
        if rows <= self.warehouse.rows([state]) * MOST_ENTRIES:
            return
        with self._at(table) as info:
            if info is not None:
                index = loaded(of.index)(self.spec)
                ordered = clustered(index.entries(self.warehouse.read(state)), index.keys, rows, self.warehouse.sizes)
                self.warehouse.rewrite(ordered, None, table, info, delete_when=None)

    def _remove(self, lost: DataFrame, info: CommitInfo, table: Table) -> None:
        """Removes rows; commits nothing if there are none."""
        lost = lost.persist()
        try:
            number = lost.count()
            if number:
                self.warehouse.remove(lost, table, info)
            self.removed[table.name] += number
        finally:
            lost.unpersist()
