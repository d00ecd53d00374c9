"""The stages of a windowed join: functions from a reader to effects, which describe what the tables must hold.

This module decides which rows a stage needs; `responses` and `resolved_join` compute with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.horizon import sql_of, ticks_of
from fk_pipeline.blocks.outputs import quarantined_pairs
from fk_pipeline.blocks.state import state_effects
from fk_pipeline.blocks.versions import OUTCOME, Expiry, apply_versions
from fk_pipeline.effects import CountBy, Counts, Effect, Index, Reader, Reject, ReplaceBatches, Report, RowSet, Upsert
from fk_pipeline.errors import StateError
from fk_pipeline.identity import APPLIED, INSERTED, OF_PAIRS, QUARANTINED, SIDES, BatchRange, Side
from fk_pipeline.kinds.window import resolved_join as resolver
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.clock import CLOCK, CLOCK_KIND, OPEN, time_text
from fk_pipeline.kinds.window.kind import BUCKET, LEFT_ALONE, MATCHED, PAIRED, PARTED, TIME, WindowStage, on_columns
from fk_pipeline.kinds.window.responses import PAIR, needed
from fk_pipeline.kinds.window.responses import responses as due_responses
from fk_pipeline.kinds.window.spans import GREATEST, LEAST, Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s
from fk_pipeline.store.sizes import UNKNOWN

_UPSTREAM = (WindowStage.SUBSCRIPTION_STORE, WindowStage.RIGHT_TABLE)


def right_table(read: Reader) -> list[Effect]:
    """Returns the effects that apply the batches, which are in the right changelog, to the right table."""
    return [] if read.spec.single_store else _state(read, Side.RIGHT)


def subscription_store(read: Reader) -> list[Effect]:
    """Returns the effects that apply the batches to the subscription store."""
    return _state(read, Side.LEFT)


def _state(read: Reader, side: Side) -> list[Effect]:
    spec, keys = read.spec, _keys(read.spec, side)
    payload = [*on_columns(spec), TIME, *(c.name for c in k.payload_columns(spec, side))]
    stage = spec.definition.input(side).stage
    known = read.history.horizon(stage)
    if known is not None:
        _refuse_other_times(read, side, known)
    horizon = sql_of(known)
    expiry = None if horizon is None else Expiry(TIME, horizon)

    def make(
        log: DataFrame,
        state: DataFrame,
        _: Any,
        batches: BatchRange,
        generations: Mapping[int, int],
        truncated: bool = False,
    ) -> DataFrame:
        return apply_versions(log, state, keys, payload, batches, generations, truncated, expiry)

    index = left_times(spec) if side == Side.LEFT else right_times(spec)
    own = {key: key for key in keys}
    first = INSERTED if expiry is None else ""
    return state_effects(read, stage, k.LOG_OF[side], k.STATE_OF[side], own, make, index=index, first=first)


def _refuse_other_times(read: Reader, side: Side, horizon: str) -> None:
    """Refuses times of another type than those by which a horizon was moved.

    Raises:
        StateError: the types differ.
    """
    kind = dict(read.table_of(k.STATE_OF[side]).columns)[TIME].upper()
    if (kind == "TIMESTAMP") != ("T" in horizon):
        raise StateError(
            f"{side}.time is {kind}, and the pipeline goes back to {horizon}, a time of another type",
            where=str(read.spec.file),
            why="retention has removed older events by it; nothing was changed",
            fix=f"undo the edit; or, if the files are still there: fk-pipeline rebuild {read.spec.file} --from landing",
        )


def left_times(spec: WindowSpec) -> Index:
    """Returns the index of a large subscription store: it is sorted by the values of `on`, then by time."""
    return _times(spec, Side.LEFT)


def right_times(spec: WindowSpec) -> Index:
    """Returns the index of a large right table: it is sorted by the values of `on`, then by time."""
    return _times(spec, Side.RIGHT)


def _times(spec: WindowSpec, side: Side) -> Index:
    keys = _keys(spec, side)

    def entries(rows: DataFrame) -> DataFrame:
        if OUTCOME in rows.columns:
            rows = rows.where(F.col(OUTCOME).isin(INSERTED, APPLIED))
        spans = Spans.of(spec, rows.schema[TIME].dataType.simpleString())
        return spans.placed(rows, spec).select(*map(quote, (*on_columns(spec), BUCKET, *keys)))

    return Index(k.TIMES_OF[side], [*on_columns(spec), BUCKET], entries)


def _spans(read: Reader) -> Spans:
    return Spans.of_state(read.spec, read.table_of(k.STATE_OF[Side.LEFT]))


def responses(read: Reader) -> list[Effect]:
    """Returns the effects that write the messages due to the batches."""
    spec = read.spec
    nothing_changed = all(read.history.never_did(up, INSERTED, APPLIED) for up in _UPSTREAM)
    if read.history.first_time and nothing_changed:
        return []
    lefts, rights, few = _responding(read)
    found = due_responses(lefts, rights, spec, read.batches, _spans(read))
    rows = read.cached(found, None) if few else read.planned(found, UNKNOWN)
    return [ReplaceBatches(WindowStage.RESPONSES, rows, counted=CountBy(s.BATCH, s.CAUSE))]


def _responding(read: Reader) -> tuple[DataFrame, DataFrame, bool]:
    """Returns the rows of both states that messages are made of, and whether they were looked up.

    A batch with few changes finds the other rows of pairs in large states by key and span of time; otherwise whole
    states are returned.
    """
    spec = read.spec
    # A state is opened before its index, which then has all rows of this version of the state.
    whole = {source: read.read(k.STATE_OF[source]) for source in k.sources(spec)}
    changes = min(sum(map(read.history.propagated, _UPSTREAM)), UNKNOWN)
    if changes > read.lookup_limit(changes, k.STATE_OF[Side.LEFT]):
        return whole[Side.LEFT], whole[k.source(spec, Side.RIGHT)], False
    news = {}
    for source in k.sources(spec):
        own = read.of_batches(k.STATE_OF[source], s.APPLIED_IN).where(read.batches.predicate(s.APPLIED_IN))
        news[source] = read.cached(own.select(*map(quote, (*_keys(spec, source), *needed(spec)))), changes)
    rows = {}
    for source in k.sources(spec):
        keys = _keys(spec, source)
        found = _meeting(read, source, news).select(*map(quote, [*keys, *needed(spec)]))
        rows[source] = news[source].frame.unionByName(found).dropDuplicates(keys)
    return rows[Side.LEFT], rows[k.source(spec, Side.RIGHT)], True


def _keys(spec: WindowSpec, side: Side) -> list[str]:
    return [c.name for c in spec.side(side).key_columns]


def _meeting(read: Reader, source: Side, news: Mapping[Side, RowSet]) -> DataFrame:
    """Returns at least the rows of a state that match changed rows.

    Args:
        read: reads the states and their indexes.
        source: the side that the state is named for; it may serve both sides.
        news: per state, the changed rows.
    """
    spec, columns = read.spec, [*on_columns(read.spec), BUCKET]
    if not read.rows(k.TIMES_OF[source]):
        return read.read(k.STATE_OF[source])
    probes = []
    for side in SIDES:  # its rows match rows of a state that serves the other side
        if k.source(spec, k.other(side)) == source:
            changed = news[k.source(spec, side)].frame
            probes.append(_spans(read).spread(changed, side, spec).select(*map(quote, columns)))
    wanted = read.cached(resolver.union(probes).distinct(), None)
    names = {name: name for name in columns}
    found, _ = read.through_index(k.TIMES_OF[source], k.STATE_OF[source], wanted, names, needed(spec))
    return found


def resolved_join(read: Reader) -> list[Effect]:
    """Returns the effects that write the pairs and the rows alone that the batches concern."""
    history = read.history
    if history.first_time and history.never_did(WindowStage.RESPONSES, "left", "right", PAIR):
        return []
    messages = history.messages(WindowStage.RESPONSES)
    return _Resolving(read, messages.at_most).effects()


class _Resolving:
    """One run of the stage: reads what the messages of the batches are about, and decides."""

    def __init__(self, read: Reader, at_most: int) -> None:
        self.read, self.spec, self.spans = read, read.spec, _spans(read)
        self.clock = _Clock.of(read, self.spans) if self.spec.waits else None
        due = read.of_batches(WindowStage.RESPONSES, s.BATCH).where(read.batches.predicate(s.BATCH))
        limit = read.lookup_limit(at_most, WindowStage.RESOLVED_JOIN)
        everything = self.clock is not None and self.clock.was is None and bool(read.rows(WindowStage.RESOLVED_JOIN))
        self.by_keys = at_most <= limit and not everything
        self.messages = read.cached(due, at_most)
        self.alone_on = k.alone_on(self.spec)
        self.is_empty = not read.rows(WindowStage.RESOLVED_JOIN)

    def effects(self) -> list[Effect]:
        """Returns the effects."""
        read, spec = self.read, self.spec
        closing = {side: self._closing(side) for side in self.alone_on}
        asked = self._asked()
        states = self._states(self._told(asked))
        older = self._older(asked, states) if self.by_keys else asked
        result = None if self.is_empty else self._result(asked, older, closing)
        standing = resolver.stood(result, older, spec) if result is not None and older else None
        pairs = read.cached(resolver.candidates(self.messages.frame, standing, spec), None)
        if result is not None and self.by_keys:
            if standing is not None:
                states = self._with_partner_rows(states, pairs.frame)
                result = self._with_partners(result, pairs)
            result = read.cached(result, None).frame
        rows, heard = self._rows(states, closing, few=pairs.local is not None), self._heard(states, closing)
        decided = resolver.decide_pairs(pairs.frame, rows, heard, result, spec, self.spans)
        failed: list[DataFrame] = []
        if read.evaluator.isolating:
            failed.append(read.cached(resolver.failing(decided, rows, spec), None).frame)
            decided = resolver.refused(decided, failed[-1], PARTED, spec)
        kept = read.cached(decided, None)
        parts = [kept.frame]
        for side in self.alone_on:
            alone = self._alone(side, asked, pairs.frame, closing, rows, heard, kept.frame, result)
            if read.evaluator.isolating:
                failed.append(read.cached(resolver.failing(alone, rows, spec), None).frame)
                alone = resolver.refused(alone, failed[-1], MATCHED, spec)
            parts.append(alone)
        changed, counts = self._changed(kept, parts, rows)
        number = sum(sum(found.values()) for found in counts.values())
        effects: list[Effect] = []
        if spec.computes:
            changed.compute()  # an expression that fails must fail before anything is committed
            rejected = read.cached(quarantined_pairs(resolver.union(failed)), None) if failed else None
            refused = {} if rejected is None else rejected.counts(s.BATCH)
            for batch, found in refused.items():
                counts.setdefault(batch, {})[QUARANTINED] = found[()]
            lost = sum(found[()] for found in refused.values())
            effects.append(Reject(None if rejected is None else rejected.frame, lost, OF_PAIRS))
        secret = spec.is_secret_time()  # then every run asks all rows
        notes = [] if self.clock is None or secret else [f"the clock is {time_text(self.clock.now, self.spans.kind)}"]
        effects.append(Report(counts, notes=notes))
        if number:
            told = {} if self.clock is None or secret else self._standing(self.clock)
            effects.append(Upsert(WindowStage.RESOLVED_JOIN, changed, number, delete_when=s.DELETED, metadata=told))
        return effects

    def _standing(self, clock: _Clock) -> dict[str, Any]:
        """Returns what the result will stand for: its clock, and the number of rows whose close has not come.

        These are rows of sides that may stand alone; a row that serves both sides counts once.
        """
        since: dict[Side, int] = {}
        for side in self.alone_on:
            source, closed = k.source(self.spec, side), self.spans.closed_at(side, clock.now)
            since[source] = min(closed, since.get(source, closed))
        is_open = 0
        for source, first in since.items():
            rows = self.read.in_range(k.STATE_OF[source], TIME, None if first <= LEAST else first, None)
            is_open += rows.where(f"{s.HASH} IS NOT NULL").count()
        return {CLOCK: clock.now, CLOCK_KIND: self.spans.kind, OPEN: is_open}

    def _changed(
        self, pairs: RowSet, parts: Sequence[DataFrame], rows: Mapping[Side, DataFrame]
    ) -> tuple[RowSet, Counts]:
        """Returns the rows to write, and the counts per batch.

        Args:
            pairs: the decisions about pairs.
            parts: all decisions.
            rows: the living rows that decisions are about.
        """
        read, spec = self.read, self.spec
        if self.by_keys and pairs.local is not None:
            changed = read.cached(resolver.rows_changed(resolver.union(parts), rows, spec), None)
            return changed, _counted(changed)
        # Many rows are computed only while they are written.
        whole = pairs if len(parts) == 1 else read.cached(resolver.union(parts), None)
        counts = _counted(whole)
        number = sum(sum(found.values()) for found in counts.values())
        found = resolver.rows_changed(whole.frame, rows, spec)
        return read.cached(found, number) if spec.computes else read.planned(found, number), counts

    def _asked(self) -> dict[Side, DataFrame]:
        """Returns, per side, the keys of the rows that changed, and of rows that these batches refused before."""
        read, spec = self.read, self.spec
        asked = {}
        before = None
        if spec.computes and not read.history.first_time:
            records = read.of_batches(s.QUARANTINE, s.BATCH).where(read.batches.predicate(s.BATCH))
            before = resolver.quarantined_keys(records.where(F.col(s.SIDE) == OF_PAIRS), spec)
        for side in SIDES:
            changed = self.messages.frame.where(F.col(s.CAUSE) == side)
            keys = [*k.parts(spec, side), s.BATCH]
            rows = changed.select(*map(quote, keys))
            if before is not None:
                rows = rows.unionByName(before.select(*map(quote, keys)))
            asked[side] = resolver.keys_in(rows, side, spec)
        return asked

    def _closing(self, side: Side) -> DataFrame:
        """Returns the living rows of a side whose close lies between the clock of the result and the new one."""
        read, spec = self.read, self.spec
        state = k.STATE_OF[k.source(spec, side)]
        if self.clock is None:
            return resolver.living(read.read(state), side, spec).limit(0)
        if self.clock.was is None:
            return resolver.living(read.read(state), side, spec)
        rows = resolver.living(read.in_range(state, TIME, *self.clock.between(side)), side, spec)
        return read.cached(rows, None).frame

    def _told(self, asked: Mapping[Side, DataFrame]) -> dict[Side, DataFrame]:
        """Returns, per side, the keys of the rows that messages are about."""
        pairs = self.messages.frame.where(F.col(s.CAUSE) == PAIR)
        names = {side: [*map(quote, k.parts(self.spec, side))] for side in SIDES}
        return {side: pairs.select(*names[side]).unionByName(asked[side].select(*names[side])) for side in SIDES}

    def _states(self, keys: Mapping[Side, DataFrame]) -> dict[Side, DataFrame]:
        """Returns, per state, its rows with some keys, given per side, or the whole state."""
        read, spec = self.read, self.spec
        states: dict[Side, DataFrame] = {}
        for source in k.sources(spec):
            if not self.by_keys:
                states[source] = read.read(k.STATE_OF[source])
                continue
            own = _keys(spec, source)
            found = [of_side.toDF(*own) for side, of_side in keys.items() if k.source(spec, side) == source]
            wanted = read.cached(resolver.union(found).distinct(), None)
            states[source] = read.with_keys(k.STATE_OF[source], wanted, {key: key for key in own})
        return states

    def _older(self, asked: Mapping[Side, DataFrame], states: Mapping[Side, DataFrame]) -> dict[Side, DataFrame]:
        """Returns those of the changed rows of which older versions were told; only they may have older pairs."""
        older = {}
        for side, keys in asked.items():
            rows = self.read.cached(
                resolver.told_before(keys, states[k.source(self.spec, side)], side, self.spec), None
            )
            if rows.local is None or len(rows.local):
                older[side] = rows.frame
        return older

    def _result(
        self, asked: Mapping[Side, DataFrame], older: Mapping[Side, DataFrame], closing: Mapping[Side, DataFrame]
    ) -> DataFrame:
        """Returns the rows of the result with keys of messages and closing rows, or the whole result.

        Args:
            asked: per side, the keys of the rows that changed.
            older: those that may have older pairs; a side without any may be left out.
            closing: the rows whose close may have come.
        """
        names = resolver.result_columns(self.spec)
        if not self.by_keys:
            return self.read.read(WindowStage.RESOLVED_JOIN).select(*map(quote, names))
        keys = {}
        for side in SIDES:
            own = [*map(quote, k.parts(self.spec, side))]
            found = [older[side].select(*own)] if side in older else []
            if side in self.alone_on:
                found += [asked[side].select(*own), closing[side].select(*own)]
            if side == Side.LEFT or side in self.alone_on:
                found.append(self.messages.frame.where(F.col(s.CAUSE) == PAIR).select(*own))
            if found:
                keys[side] = resolver.union(found).distinct()
        return self._with_keys(keys)

    def _with_keys(self, keys: Mapping[Side, DataFrame]) -> DataFrame:
        read, names = self.read, resolver.result_columns(self.spec)
        found = []
        for side, of_side in keys.items():
            columns = {name: name for name in k.parts(self.spec, side)}
            looked = read.cached(of_side, None)
            if looked.local is not None and not len(looked.local):
                continue
            found.append(
                read.with_keys(WindowStage.RESOLVED_JOIN, looked, columns, needed=names).select(*map(quote, names))
            )
        if not found:
            return read.read(WindowStage.RESOLVED_JOIN).select(*map(quote, names)).limit(0)
        return resolver.union(found).dropDuplicates(k.parts(self.spec, *SIDES))

    def _with_partners(self, result: DataFrame, pairs: RowSet) -> DataFrame:
        """Returns rows of the result, and those with keys of pairs that stood."""
        more = {side: pairs.frame.select(*map(quote, k.parts(self.spec, side))).distinct() for side in self.alone_on}
        found = self._with_keys(more)
        return result.unionByName(found).dropDuplicates(k.parts(self.spec, *SIDES))

    def _with_partner_rows(self, states: Mapping[Side, DataFrame], pairs: DataFrame) -> dict[Side, DataFrame]:
        """Returns rows of the states, and those of pairs that stood."""
        more = self._states({side: pairs.select(*map(quote, k.parts(self.spec, side))) for side in SIDES})
        return {
            source: rows.unionByName(more[source]).dropDuplicates(_keys(self.spec, source))
            for source, rows in states.items()
        }

    def _rows(
        self, states: Mapping[Side, DataFrame], closing: Mapping[Side, DataFrame], *, few: bool
    ) -> dict[Side, DataFrame]:
        """Returns, per side, the living rows that decisions are about, or all; `few`: they are kept in the driver."""
        read, spec = self.read, self.spec
        rows = {side: resolver.living(states[k.source(spec, side)], side, spec) for side in SIDES}
        if not self.by_keys:
            return rows
        for side, more in closing.items():
            rows[side] = rows[side].unionByName(more).dropDuplicates(k.parts(spec, side))
        if few:
            rows = {side: read.cached(of_side, None).frame for side, of_side in rows.items()}
        return rows

    def _heard(self, states: Mapping[Side, DataFrame], closing: Mapping[Side, DataFrame]) -> dict[Side, DataFrame]:
        """Returns, per side, the keys of which the states tell; empty without a horizon: then they tell of all."""
        spec = self.spec
        if all(self.read.history.horizon(k.log_stage(spec, source)) is None for source in k.sources(spec)):
            return {}
        heard = {side: resolver.heard(states[k.source(spec, side)], side, spec) for side in SIDES}
        for side, more in closing.items() if self.by_keys else ():
            heard[side] = heard[side].unionByName(resolver.told(more, side, spec)).distinct()
        return heard

    def _alone(
        self,
        side: Side,
        asked: Mapping[Side, DataFrame],
        pairs: DataFrame,
        closing: Mapping[Side, DataFrame],
        rows: Mapping[Side, DataFrame],
        heard: Mapping[Side, DataFrame],
        decided: DataFrame,
        result: DataFrame | None,
    ) -> DataFrame:
        """Decides which rows of a side stand alone, of those that changed, their partners and those that close."""
        spec, names = self.spec, [*map(quote, k.parts(self.spec, side)), s.BATCH]
        last = F.lit(max(map(int, self.read.known))).alias(s.BATCH)
        keys = [asked[side].select(*names), pairs.select(*names), closing[side].select(*names[:-1], last)]
        if result is not None and self.clock is not None and self.clock.was is None:
            keys.append(result.where(f"NOT ({resolver.is_pair(spec)})").select(*names[:-1], last))
        wanted = resolver.keys_in(resolver.union(keys), side, spec)
        paired = resolver.paired_keys(side, decided, result, spec)
        closed = "TRUE" if self.clock is None else self.clock.closed(side)
        return resolver.decide_alone(side, wanted, rows[side], heard.get(side), paired, result, spec, closed)


class _Clock:
    """The clock that the result stands for, and the new one; None if it is not known.

    Attributes:
        was: the clock of the result, in units of the times.
        now: the greatest time of all living rows.
    """

    def __init__(self, was: int | None, now: int, spans: Spans) -> None:
        self.was, self.now, self._spans = was, now, spans

    @classmethod
    def of(cls, read: Reader, spans: Spans) -> _Clock:
        """Returns the clock of the result and the one that both states, as they are read, stand for."""
        spec = read.spec
        found = [at for side in k.sources(spec) if (at := _greatest(read, side, spans)) is not None]
        was = read.metadata(WindowStage.RESOLVED_JOIN).get(CLOCK)
        return cls(was, max(found, default=LEAST), spans)

    def between(self, side: Side) -> tuple[int | None, int | None]:
        """Returns the times, from and to, of rows whose close lies between the clocks, in either direction."""
        assert self.was is not None
        low, high = min(self.was, self.now), max(self.was, self.now)
        first, last = (self._spans.closed_at(side, clock) for clock in (low, high))
        return None if first <= LEAST else first, None if last >= GREATEST else last

    def closed(self, side: Side) -> str:
        """SQL (BOOLEAN) over a living row: the clock has passed its close."""
        before = self._spans.closed_at(side, self.now)
        return "FALSE" if before <= LEAST else f"({TIME} < {self._spans.literal(before)})"


def _greatest(read: Reader, side: Side, spans: Spans) -> int | None:
    """Returns the greatest time of the living rows of a state; None if there are none."""
    at, horizon = read.greatest(k.STATE_OF[side], TIME), read.history.horizon(k.log_stage(read.spec, side))
    if at is None or horizon is None or at >= ticks_of(horizon):
        return at
    # Rows that expired have a time, but do not live.
    rows = read.read(k.STATE_OF[side]).where(f"{s.HASH} IS NOT NULL").select(F.expr(spans.ticks(TIME)).alias("at"))
    [[living]] = rows.agg(F.max("at")).collect()
    return None if living is None else int(living)


def _counted(decided: RowSet) -> Counts:
    """Returns per batch how many rows the result gains and loses."""
    wanted = (PAIRED, PARTED, LEFT_ALONE, MATCHED)
    found = decided.counts(s.BATCH, resolver.ACTION)
    return {
        batch: {action: number for (action,), number in groups.items() if action in wanted}
        for batch, groups in found.items()
    }
