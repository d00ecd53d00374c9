"""What the five stages do in one run: the thin place that reads, calls the stage functions and commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.errors import FanOutError, UnreadableFileError
from fk_pipeline.failures import is_from_spark, is_of_a_file
from fk_pipeline.identity import APPLIED, INSERTED, LATE, BatchRange, Side
from fk_pipeline.kinds.foreign_key.kind import REFUSED, Stage
from fk_pipeline.spec import Column, PipelineSpec, quote
from fk_pipeline.spec.model import FAN_OUT_WITHIN_BUDGET
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.stages import materialised
from fk_pipeline.stages import resolved_join as resolver
from fk_pipeline.stages.access import Counts, keys_as
from fk_pipeline.stages.fan_out import beyond
from fk_pipeline.stages.materialised import UNKNOWN, Materialised
from fk_pipeline.stages.reading import ChangelogWork
from fk_pipeline.stages.responses import due_rights, due_subscriptions, responses
from fk_pipeline.stages.right_table import right_table
from fk_pipeline.stages.strategy import AUTO, choose
from fk_pipeline.stages.subscription_store import new_subscribers, subscription_store
from fk_pipeline.stages.versions import BEFORE, COUNTED_IN, OUTCOME
from fk_pipeline.store import schemas as s
from fk_pipeline.store.checks import AGREEMENT
from fk_pipeline.store.ledger import StageState
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.settings import (
    ALWAYS,
    FEW,
    GUARDED,
    HELD_BYTES,
    HOLDING,
    MANY_ROWS,
    SMALL,
    SMALL_BYTES,
    SMALL_ROWS,
    SPLIT,
    settings,
)
from fk_pipeline.store.skipping import Within
from fk_pipeline.store.warehouse import clustered

INDEXED_ROWS = 500_000
"""Rows of the subscription store from which on an index finds the subscribers of a right key."""


class MakeState(Protocol):
    """What batches make of a state table: `right_table` or `subscription_store`."""

    def __call__(
        self,
        log: DataFrame,
        state: DataFrame,
        spec: PipelineSpec,
        batches: BatchRange,
        generations: Mapping[int, int],
        truncated: bool = False,
        /,
    ) -> DataFrame: ...


class StageWork(ChangelogWork):
    """One run of one stage: its reads, its effect and its commits. `run` may be called again from the start.

    After it, `versions` are the Delta versions that it read and wrote, `choice` is how it went about it (None where
    there was nothing to do), `notes` what a person should know, and `warnings` what is probably wrong.
    """

    def may_be_mended(self, error: Exception) -> bool:
        """Whether the work may succeed after an error, with care."""
        unreadable = isinstance(error, UnreadableFileError) or is_of_a_file(error)
        return unreadable or (is_from_spark(error) and self.may_meet_bad_rows)

    @property
    def may_meet_bad_rows(self) -> bool:
        """The stage computes an expression of the pipeline file that is more than a column."""
        if self.stage == Stage.RESOLVED_JOIN:
            return not all(output.plain for output in self.spec.outputs)
        side = self.spec.definition.side_of(self.stage)
        return side is not None and not all(parse_expression(sql).plain for sql in self.spec.row_expressions(side))

    def run(self) -> Counts:
        """Does the work, whatever was done before; returns the counts per batch."""
        steps: dict[str, Callable[[], Counts]] = {
            Stage.LEFT_CHANGELOG: lambda: self._changelog(Side.LEFT),
            Stage.RIGHT_TABLE: self._right_table,
            Stage.SUBSCRIPTION_STORE: self._subscription_store,
            Stage.RESPONSES: self._responses,
            Stage.RESOLVED_JOIN: self._resolved_join,
        }
        stage = self.spec.definition.stage(self.stage)
        self.versions = {}
        self.notes, self.warnings = [], []
        self.choice = choose(stage, AUTO, None, 0) if stage.full_share is None else None
        self.first_time = self.ledger.never_started(self.stage, self.known)
        self.never_any = self.ledger.never_did(self.stage, self.known, "rows", "quarantined")
        self.vanished = []
        self.looked = {}
        self.generations = self.ledger.start(self.stage, self.known, self.info.run_id)
        try:
            session, guarded = self.warehouse.session, GUARDED if self.careful else {}
            with settings(session, ALWAYS | self._settings(), optional=True), settings(session, guarded):
                return steps[self.stage]()
        finally:
            self.release()

    def _settings(self) -> dict[str, str]:
        """What suits the size of the changes, of what they touch, and of the tables that they meet."""
        landed = {side: [f for batch in self.known for f in self.ledger.files_of(batch, side)] for side in Side}
        many = SPLIT | HOLDING if self.stage in (Stage.RESPONSES, Stage.RESOLVED_JOIN) else SPLIT
        many = {name: value for name, value in many.items() if name not in self.spec.settings.spark}
        if sum(file.size for files in landed.values() for file in files) > SMALL_BYTES:
            return many
        compiled = any(self._are_many(files, side) for side, files in landed.items())
        tables = self.layout.of(*self.spec.definition.stage(self.stage).reads)
        if not compiled and self.warehouse.rows(tables) <= SMALL_ROWS:
            return SMALL
        return many if self._touched() > MANY_ROWS else FEW

    def _touched(self) -> int:
        """About how many rows of the result the batches concern: those of a few right rows may be all of them."""
        if self.stage == Stage.RESPONSES:
            store, right = (self.warehouse.rows([t]) for t in (self.layout.subscription_store, self.layout.right_table))
            return self._announced(Stage.RIGHT_TABLE) * store // max(1, right)
        return self._answered()[1] if self.stage == Stage.RESOLVED_JOIN else 0

    def _answered(self) -> tuple[list[StageState], int]:
        """What the ledger says now of the answers given on behalf of the batches, and how many these are."""
        if not self._known(Stage.RESPONSES):
            return [], UNKNOWN
        states = [replace(self.ledger.state(Stage.RESPONSES, batch)) for batch in self.known]
        return states, sum(sum(state.counts.values()) for state in states)

    def _right_table(self) -> Counts:
        counts = self._changelog(Side.RIGHT)
        if all(not c["rows"] for c in counts.values()) and not self._rewritten(Stage.RIGHT_TABLE):
            return counts
        keys = {c.name: c.name for c in self.spec.right.key_columns}
        return self._state(
            right_table, Stage.RIGHT_TABLE, self.layout.right_changelog, self.layout.right_table, keys, counts
        )

    def _subscription_store(self) -> Counts:
        counts: Counts = {int(b): {} for b in self.known}
        log_stage = Stage.LEFT_CHANGELOG
        if self.ledger.never_did(log_stage, self.known, "rows") and not self._rewritten(log_stage):
            return counts
        keys = {pk: name for name, pk in self.left_keys.items()}
        log, store = self.layout.left_changelog, self.layout.subscription_store
        return self._state(subscription_store, log_stage, log, store, keys, counts)

    def _rewritten(self, log_stage: str) -> bool:
        return any(batch in self.batches for batch in self.ledger.generations(log_stage))

    def _state(
        self, make: MakeState, log_stage: str, log_table: Table, table: Table, keys: Mapping[str, str], counts: Counts
    ) -> Counts:
        """Commits what changed in a state table.

        Args:
            make: says what the batches make of the state.
            log_stage: the stage of its changelog.
            log_table: the changelog.
            table: the state.
            keys: by key column of the state, its name in the changelog.
            counts: per batch; outcomes are added.
        """
        log, state = self._read(log_table), self._read(table)
        brought = sum(c.get("rows") or self.ledger.state(log_stage, b).counts.get("rows", 0) for b, c in counts.items())
        truncated = any(c.get("truncates") for c in counts.values())
        truncated = truncated or self._truncated(log_stage, log, next(iter(keys.values())))
        at_most = UNKNOWN
        if not truncated and not self._rewritten(log_stage) and self._known(log_stage):
            at_most = brought
            needed = {*keys.values(), *table.names, s.BATCH}
            log = self._read(log_table, [Within(s.BATCH, self.batches)])
            log = log.select(*[quote(name) for name in log_table.names if name in needed])
            if brought <= self._choose(brought, table):
                incoming = self._materialise(log, brought)
                log, state = incoming.frame, self._rows_of(table, incoming, keys)
            else:
                state = state.join(keys_as(log, keys), list(keys), "left_semi")
        rows = make(log, state, self.spec, self.batches, self.ledger.generations(log_stage), truncated).drop(BEFORE)
        budget = self.ledger.limits.get(FAN_OUT_WITHIN_BUDGET)
        if table.name == s.RIGHT_TABLE and budget is not None:
            rows = self._within_budget(rows, at_most, budget)
        if materialised.SMALL < at_most < UNKNOWN and not self.warehouse.rows([table]):
            return self._first_state(rows, table, counts, brought)
        if self.choice is None:
            self._choose(at_most, table)
        kept = self._materialise(rows, at_most)
        changed = 0
        for batch, outcomes in kept.counts(COUNTED_IN, OUTCOME).items():
            for (outcome,), number in outcomes.items():
                counts.setdefault(batch, {})[outcome] = number
                changed += number if outcome != LATE else 0
        if changed:
            if table.name == s.SUBSCRIPTION_STORE:
                self._index(kept.frame, changed)
            self._merge(kept.but(OUTCOME, LATE), changed, table)
        return counts

    def _within_budget(self, rows: DataFrame, at_most: int, budget: int) -> DataFrame:
        """What batches make of the right table, where each touches no more rows of the result than it may.

        Raises:
            FanOutError: a batch would touch more, and nobody agreed; the ledger has it as a failed check.
        """
        store = self._read(self.layout.subscription_store)
        if not self.warehouse.rows([self.layout.subscription_store]):
            return rows
        kept = self._materialise(rows, at_most)
        if kept.local is not None and self.warehouse.rows([self.layout.subscribers]):
            store, _ = self._subscribers_of(kept, {fk: name for name, fk in self.right_keys.items()})
        found = beyond(kept.frame, store, self.spec, budget, self.ledger.agreed(self.stage, FAN_OUT_WITHIN_BUDGET))
        if found is None:
            return kept.frame
        failed = {"stage": self.stage, "name": FAN_OUT_WITHIN_BUDGET, "severity": "critical", "depth": "batch"}
        self.ledger.record_checks(
            failed
            | {
                "passed": False,
                "first": batch,
                "last": batch,
                "batches": [batch],
                "value": float(touched),
                "pending": 0,
            }
            | {"cure": AGREEMENT}
            for batch, touched in sorted(found.rows.items())
        )
        raise FanOutError(
            f"{found}, and max_fan_out is {budget:,}",
            where=f"pipeline {self.spec.name}",
            why="its right rows were not applied",
            fix=f"correct what landed, or agree: fk-pipeline run {self.spec.file} --waive REASON",
        )

    def _first_state(self, rows: DataFrame, table: Table, counts: Counts, brought: int) -> Counts:
        """Writes the first rows of a state table, all of them inserted, and counts them in what was written."""
        if table.name == s.SUBSCRIPTION_STORE:
            self._index(rows, brought)
        if self.batches.first != self.batches.last:
            rows = clustered(rows, table.keys, brought)
        self.warehouse.append(rows, table, self.info)
        self._committed(table)
        for batch, found in Materialised.counted(self.warehouse.read(table), s.APPLIED_IN).items():
            counts.setdefault(batch, {})[INSERTED] = found[()]
        return counts

    def _index(self, rows: DataFrame, changed: int) -> None:
        """Adds to the index of a large store what the store is about to hold, before it holds it.

        So the index says too much after a crash, and never too little.
        """
        index, store = self.layout.subscribers, self.layout.subscription_store
        pairs = new_subscribers(rows, self.spec)
        if not self.warehouse.rows([index]):
            stored = self.warehouse.rows([store])
            if stored + changed < INDEXED_ROWS:
                return
            pairs = pairs.unionByName(new_subscribers(self._read(store), self.spec))
            changed += stored
        fks = [name for name, _ in s.fk_columns(self.spec)]
        self._append(clustered(pairs, fks, changed), index, changed)

    def _known(self, stage: str) -> bool:
        """The counts of a stage are those of what is stored: its last run for every batch was finished."""
        return stage == self.stage or all(self.ledger.state(stage, b).last_event == "succeeded" for b in self.known)

    def _responses(self) -> Counts:
        counts: Counts = {int(b): {} for b in self.known}
        upstream = (Stage.SUBSCRIPTION_STORE, Stage.RIGHT_TABLE)
        nothing_changed = all(self.ledger.never_did(up, self.known, INSERTED, APPLIED) for up in upstream)
        if nothing_changed and self.first_time:
            return counts
        subscriptions, right, at_most = self._answering()
        rows, table = responses(subscriptions, right, self.spec, self.batches), self.layout.responses
        if at_most <= materialised.SMALL:
            kept = self._materialise(rows, at_most)
            causes = kept.counts(s.BATCH, s.CAUSE)
            number = sum(sum(found.values()) for found in causes.values())
            self._replace_batches(kept.frame, table, number, local=kept.local)
        else:  # they are counted where they were written
            self._replace_batches(rows, table, at_most)
            written = self.warehouse.read(table, where=[Within(s.BATCH, self.batches)])
            causes = Materialised.counted(written, s.BATCH, s.CAUSE)
        for batch, found in causes.items():
            counts[batch] = {f"{cause}-driven": number for (cause,), number in found.items()}
        return counts

    def _answering(self) -> tuple[DataFrame, DataFrame, int]:
        """The subscriptions that the batches owe an answer, right rows that these refer to, and a bound of the answers.

        In a large store a batch with few changes finds both by their keys; otherwise the tables are joined whole.
        """
        store, right = self.layout.subscription_store, self.layout.right_table
        subscriptions, rights = self._read(store), self._read(right)
        asking, changing = self._announced(Stage.SUBSCRIPTION_STORE), self._announced(Stage.RIGHT_TABLE)
        if max(asking, changing) > self._choose(min(asking + changing, UNKNOWN), store):
            return subscriptions, rights, 2 * self.warehouse.rows([store])
        within = [Within(s.APPLIED_IN, self.batches)]
        asked = due_subscriptions(self._read(store, within), self.batches).select(*map(quote, self.subscription))
        asks = self._materialise(asked, asking)
        rows, at_most = asks.frame, asking
        versions = [*self.right_keys, s.HASH, s.APPLIED_IN, s.SEEN_BEFORE]
        answers = self._rows_of(right, asks, self.right_keys, needed=versions)
        news = due_rights(self._read(right, within), self.batches).select(*map(quote, versions))
        changed = self._materialise(news, changing)
        if changed.local is None or len(changed.local):
            # The store was opened first: the index has at least what this version of the store holds.
            hearing, more = self._subscribers_of(changed, {fk: name for name, fk in self.right_keys.items()})
            rows, at_most = rows.unionByName(hearing).dropDuplicates([*self.pks]), min(at_most + more, UNKNOWN)
            answers = answers.unionByName(changed.frame).dropDuplicates([*self.right_keys])
        few = asks.local is not None and changed.local is not None
        return rows, F.broadcast(answers) if few else answers, at_most

    def _resolved_join(self) -> Counts:
        counts: Counts = {int(b): {} for b in self.known}
        if self.first_time and self.ledger.never_did(Stage.RESPONSES, self.known, "left-driven", "right-driven"):
            return counts
        # What the ledger says of the answers, before they are looked at: later it may speak of other ones.
        answered, at_most = self._answered()
        due = self._read(self.layout.responses, [Within(s.BATCH, self.batches)])
        if self._choose(at_most, self.layout.resolved_join) >= at_most or self.careful:
            self._resolve_by_keys(due, answered, counts, at_most)
        else:
            self._resolve_whole(due, answered, counts, at_most)
        return counts

    def _resolve_by_keys(self, due: DataFrame, answered: Sequence[StageState], counts: Counts, at_most: int) -> None:
        """Decides about answers with both rows at hand, looked up by their keys; or carefully about any number."""
        answers = self._materialise(due, at_most)
        unchanged = self._as_answered(answered)
        store, right = self.layout.subscription_store, self.layout.right_table
        decided = resolver.decide(
            answers.frame,
            None if unchanged else self._rows_of(store, answers, self.pks, needed=[s.HASH, s.OWNER]),
            self._rows_of(right, answers, self.right_keys, needed=[s.HASH, *_names(self.spec.right.columns)]),
            self._left_rows(answers, unchanged),
            self._rows_of(self.layout.resolved_join, answers, self.pks, needed=[s.LEFT_HASH, s.RIGHT_HASH]),
            self.spec,
            carry=True,
        )
        kept = self._materialise(decided, at_most)
        writing = self._tally(kept.counts(s.BATCH, s.VERDICT), counts)
        nameable = self.warehouse.nameable(self.layout.resolved_join)
        if max(materialised.SMALL, 0) < writing <= nameable and not self.may_meet_bad_rows:
            self._tell(kept, counts)
            self._write_decided(kept, writing, self._once(counts, at_most))
            return
        changed: Materialised | None = None
        if writing:
            rows = resolver.writing(kept.frame, self.spec, self._once(counts, at_most))
            changed = self._materialise(resolver.changes(rows, self.spec, self.careful), writing)
        if self.careful and changed is not None:
            kept = self._materialise(resolver.refuse(kept.frame, changed.frame, self.spec), at_most)
            self._tally(kept.counts(s.BATCH, s.VERDICT), counts)
        if self.may_meet_bad_rows:
            if changed is not None:
                changed.compute()  # an expression that fails must fail before anything is committed
            refused = kept.frame.where(F.col(s.VERDICT).isin(*REFUSED)) if self.careful else None
            number = sum(c.get(verdict, 0) for c in counts.values() for verdict in REFUSED)
            self._quarantine(refused, number, "join")
        self._tell(kept, counts)
        if changed is not None:
            self._merge(changed, writing, self.layout.resolved_join, s.DELETED)

    def _write_decided(self, decided: Materialised, number: int, once: bool) -> None:
        """Writes the rows of many decided answers, computed while they are written: their keys are known before."""
        writing = resolver.writing(decided.frame, self.spec, once=True)
        rows = Materialised(resolver.changes(writing, self.spec), number, computed=True)
        rows.held = decided.held
        self._merge(rows, number, self.layout.resolved_join, s.DELETED, writing.select(*map(quote, self.pks)), once)

    def _once(self, counts: Counts, at_most: int) -> bool:
        """There is one answer per key: as `responses` gives them for one batch.

        A run that had lost its lease may have left answers twice: then they are more than the ledger knows of.
        """
        return len(self.known) == 1 and sum(sum(found.values()) for found in counts.values()) == at_most

    def _tell(self, decided: Materialised, counts: Counts) -> None:
        """Stores the verdicts that say more than their responses do.

        Before the result is written: after a crash between the two they are decided again, and the same way.
        """
        told = decided.but(s.VERDICT, *resolver.UNTOLD)
        number = sum(n for found in counts.values() for name, n in found.items() if name not in resolver.UNTOLD)
        self._replace_batches(told.frame, self.layout.verdicts, number, local=told.local)

    def _left_rows(self, answers: Materialised, owners_hold: bool) -> DataFrame:
        """The rows of the left changelog that answers are about, or more.

        Args:
            answers: the answers.
            owners_hold: their owners are the current ones: those among the batches lie in the files of these.
        """
        log, keys = self.layout.left_changelog, self.left_keys
        needed = [s.BATCH, s.HASH, *_names(self.spec.left.columns)]
        if not owners_hold:
            return self._rows_of(log, answers, keys, needed=needed)
        here = Within(s.BATCH, self.batches)
        brought = self._rows_of(log, answers, keys, [here], needed)
        older = self._older(answers)
        if older.local is not None and not len(older.local):
            return brought
        both = brought.unionByName(self._rows_of(log, older, keys, needed=needed).where(f"NOT ({here.sql()})"))
        return F.broadcast(both) if answers.local is not None else both

    def _older(self, answers: Materialised) -> Materialised:
        """Those whose left rows the batches did not bring."""
        if answers.local is not None:
            return answers.but(s.OWNER, *map(int, self.known))
        brought = F.coalesce(F.expr(Within(s.OWNER, self.batches).sql()), F.lit(False))
        older = self._materialise(answers.frame.where(~brought), None)
        older.at_most = min(older.at_most, answers.at_most)
        return older

    def _resolve_whole(self, due: DataFrame, answered: Sequence[StageState], counts: Counts, at_most: int) -> None:
        """Decides about answers on Spark, tables joined whole.

        A row on which an expression fails makes the stage start again with care; then it replaces these verdicts.
        """
        log, result = self.layout.left_changelog, self.layout.resolved_join
        right = self._read(self.layout.right_table)
        unchanged, readable = self._as_answered(answered), self._never_rewritten()
        first = unchanged and readable and self._only_versions()
        decided = resolver.decide(
            due,
            None if unchanged else self._read(self.layout.subscription_store),
            None if unchanged else right,
            None if readable else self._read(log),
            self._read(result),
            self.spec,
        )
        # Without a join to make, deciding again costs less than keeping what was decided.
        joins = not (unchanged and readable) or bool(self.warehouse.rows([result]))
        kept = self._materialise(decided, at_most) if joins else Materialised(decided, at_most, computed=True)
        writing = self._tally(kept.counts(s.BATCH, s.VERDICT), counts)
        if self.may_meet_bad_rows:
            self._quarantine(None, 0, "join")
        self._tell(kept, counts)
        if not writing:
            return
        chosen = resolver.writing(kept.frame, self.spec, self._once(counts, at_most))
        rows = (
            resolver.first_rows(self._read(log), right, self.spec) if first else self._with_rows(chosen, writing, right)
        )
        changes = resolver.changes(rows, self.spec)
        if first and self.warehouse.bytes(self.layout.right_table) > HELD_BYTES:
            # Spark has sorted the left rows by their foreign keys.
            changes = changes.sortWithinPartitions(*map(quote, self.pks))
        changed = Materialised(changes, writing, computed=True)
        self._merge(changed, writing, result, s.DELETED, None if first else chosen)

    def _with_rows(self, decided: DataFrame, at_most: int, right: DataFrame) -> DataFrame:
        """Decided answers with both rows; left rows that the batches brought are looked up in these batches only."""
        log, here = self.layout.left_changelog, Within(s.OWNER, self.batches)
        brought_none = self.ledger.never_did(Stage.LEFT_CHANGELOG, self.known, "rows")
        if brought_none and at_most > self.warehouse.rows([log]) // 2:
            return resolver.with_rows(decided, self._read(log), right, self.spec)
        brought = decided.where(here.sql())
        older = self._older(Materialised(decided, at_most, computed=True))
        needed = [s.BATCH, *_names(self.spec.left.columns)]
        stored = self._rows_of(log, older, self.left_keys, needed=needed)
        near = resolver.with_rows(brought, self._read(log, [Within(s.BATCH, self.batches)]), right, self.spec)
        return near.unionByName(resolver.with_rows(older.frame, stored, right, self.spec))

    def _as_answered(self, answered: Sequence[StageState]) -> bool:
        """Store and right table are as they were when the answers were computed: no answer is stale.

        The ledger says so, asked after the versions of both tables are fixed: no run of their stages has started since,
        and none was under way. The versions must be the same as well; that alone would not do (rule 8).

        Args:
            answered: what the ledger said of the answers before they were read; nothing when that is not all of them.
        """
        tables = [self.layout.subscription_store, self.layout.right_table]
        for table in tables:
            self._read(table)
        self.ledger.refresh()
        upstream = (Stage.SUBSCRIPTION_STORE, Stage.RIGHT_TABLE)
        return (
            bool(answered)
            and self.ledger.unchanged_since(upstream, min(state.started for state in answered))
            and all(
                state.versions.get(t.name) == self.versions.get(t.name)
                for state in answered
                if sum(state.counts.values())
                for t in tables
            )
        )

    def _never_rewritten(self) -> bool:
        """No partition of the left changelog was ever rewritten: a left row lies where its owner says.

        The ledger is asked after the version of the changelog is fixed, and says so before a partition is rewritten.
        """
        self._read(self.layout.left_changelog)
        self.ledger.refresh()
        return not self.ledger.generations(Stage.LEFT_CHANGELOG)

    def _only_versions(self) -> bool:
        """The batches are all there is, every left key has one version, and nothing has a result yet.

        One row per key in the store and as many in the changelog: every row of the changelog is the current one.
        """
        log, store = self.layout.left_changelog, self.layout.subscription_store
        states = [self.ledger.state(Stage.LEFT_CHANGELOG, b) for b in self.ledger.batches]
        if any(state.attempts != state.successes or state.totals.get("truncates") for state in states):
            return False
        brought = sum(self.ledger.state(Stage.LEFT_CHANGELOG, b).counts.get("rows", 0) for b in self.known)
        pinned = all(self.warehouse.version(t.name) == self.versions.get(t.name) for t in (log, store))
        rows = self.warehouse.rows([log])
        return (
            pinned
            and brought == rows == self.warehouse.rows([store])
            and not self.warehouse.rows([self.layout.resolved_join])
        )

    @staticmethod
    def _tally(decided: Mapping[int, Mapping[tuple[Any, ...], int]], counts: Counts) -> int:
        """Counts the verdicts per batch; returns how many of them change the result."""
        writing = 0
        for batch, found in decided.items():
            counts[batch] = {verdict: number for (verdict,), number in found.items()}
            writing += sum(counts[batch].get(verdict, 0) for verdict in resolver.WRITING)
        return writing


def _names(columns: Iterable[Column]) -> list[str]:
    return [column.name for column in columns]
