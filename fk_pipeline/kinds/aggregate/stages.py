"""The stages of an aggregate: functions from a reader to effects, which describe what the tables must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.state import state_effects
from fk_pipeline.blocks.versions import BEFORE, OUTCOME, apply_versions
from fk_pipeline.effects import Append, CountBy, Effect, History, Index, Reader, ReplaceBatches, RowSet, Upsert
from fk_pipeline.frames import join_by_key
from fk_pipeline.identity import APPLIED, INSERTED, BatchRange
from fk_pipeline.kinds.aggregate import tables as k
from fk_pipeline.kinds.aggregate.aggregated import DECISION, changes, outputs_of, spread
from fk_pipeline.kinds.aggregate.kind import (
    AT,
    ENTRY,
    EVERY_GROUP,
    GROUP,
    GROUP_ROWS,
    MEMBERS,
    NOTES,
    ONE_GROUP,
    SLICE,
    START,
    WRITTEN,
    AggregateStage,
)
from fk_pipeline.kinds.aggregate.spec import AggregateSpec
from fk_pipeline.kinds.aggregate.windows import Windows
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s
from fk_pipeline.store.sizes import UNKNOWN

_WAS = "_fk_was_"


def windows_of(spec: AggregateSpec, table_of: Callable[[str], Any]) -> Windows | None:
    """Returns the windows of a pipeline; None if it has none. `table_of` returns the declaration of a table."""
    if spec.window is None:
        return None
    return Windows.of(spec.window, dict(table_of(AggregateStage.GROUPING_STORE).columns)[AT])


def grouping_store(read: Reader) -> list[Effect]:
    """Returns the effects that note which groups the batches touch, and apply them to the store."""
    spec, keys = read.spec, k.input_key(read.spec)
    payload = [*k.placing_columns(spec), *(column.name for column in k.payload_columns(spec))]

    def make(
        log: DataFrame,
        state: DataFrame,
        _: Any,
        batches: BatchRange,
        generations: Mapping[int, int],
        truncated: bool = False,
    ) -> DataFrame:
        rows = apply_versions(log, state, keys, payload, batches, generations, truncated)
        was = [f"{BEFORE}.{quote(name)} AS {_WAS}{i}" for i, name in enumerate(k.placing_columns(spec))]
        return rows.selectExpr("*", *was, f"{BEFORE}.{s.HASH} IS NOT NULL AS {_WAS}there")

    def note(rows: RowSet) -> tuple[RowSet, list[Effect]]:
        return _noted(read, rows)

    return state_effects(
        read,
        AggregateStage.CHANGELOG,
        "changelog",
        AggregateStage.GROUPING_STORE,
        {key: key for key in keys},
        make,
        index=group_rows(spec),
        note=note,
    )


def _noted(read: Reader, rows: RowSet) -> tuple[RowSet, list[Effect]]:
    """Returns new rows of the store, and the effect that notes their groups before they are written.

    Where so much changes that the result is computed whole, the note says so, and no groups are named.
    """
    first = not read.rows(AggregateStage.GROUPING_STORE)
    if not first:
        rows = read.cached(rows.frame, None if rows.at_most >= UNKNOWN else rows.at_most)
        found = _notes(rows.frame, read.spec, read.history.started)
        notes = read.cached(found, None)
        if notes.local is not None:
            return rows, [Append(NOTES, notes)]
    every = [f"CAST({int(batch)} AS INT)" for batch in read.known]
    spec, table = read.spec, dict(read.table_of(NOTES).columns)
    nulls = [f"CAST(NULL AS {table[name]}) AS {quote(name)}" for name in k.placing_columns(spec)]
    one = rows.frame.sparkSession.range(1).selectExpr(
        f"EXPLODE(ARRAY({', '.join(every)})) AS {s.BATCH}",
        f"'{EVERY_GROUP}' AS {s.CAUSE}",
        *nulls,
        f"CAST({read.history.started} AS BIGINT) AS {ENTRY}",
    )
    return rows, [Append(NOTES, read.cached(one, len(every)))]


def _notes(rows: DataFrame, spec: AggregateSpec, entry: int) -> DataFrame:
    """Returns the notes of new rows of the store, by a run that started then: where each stood and where it stands."""
    names, batch = k.placing_columns(spec), F.col(s.APPLIED_IN).alias(s.BATCH)
    changed = rows.where(F.col(OUTCOME).isin(INSERTED, APPLIED))
    after = changed.where(f"{s.HASH} IS NOT NULL").select(batch, *map(quote, names))
    old = [F.col(f"{_WAS}{i}").alias(name) for i, name in enumerate(names)]
    before = changed.where(f"{_WAS}there").select(batch, *old)
    both = after.unionByName(before).distinct()
    return both.select(s.BATCH, F.lit(ONE_GROUP).alias(s.CAUSE), *map(quote, names), F.lit(entry).alias(ENTRY))


def group_rows(spec: AggregateSpec) -> Index:
    """Returns the index of a large store: it is sorted by time, in which batches are near, then by group."""
    columns = [*([] if spec.window is None else [SLICE]), GROUP]

    def entries(rows: DataFrame) -> DataFrame:
        if OUTCOME in rows.columns:
            rows = rows.where(F.col(OUTCOME).isin(INSERTED, APPLIED))
        rows = rows.where(f"{s.HASH} IS NOT NULL")
        if spec.window is not None:
            windows = Windows.of(spec.window, rows.schema[AT].dataType.simpleString())
            rows = rows.withColumn(SLICE, F.expr(windows.slice(windows.ticks(AT))))
        return rows.select(*map(quote, (*columns, *k.input_key(spec))))

    return Index(GROUP_ROWS, columns, entries)


def touched_groups(read: Reader) -> list[Effect]:
    """Returns the effects that write the groups, or windows of groups, that the batches touched."""
    if read.history.first_time and read.history.never_did(AggregateStage.GROUPING_STORE, INSERTED, APPLIED):
        return []
    spec, windows = read.spec, windows_of(read.spec, read.table_of)
    notes = read.of_batches(NOTES, s.BATCH).where(read.batches.predicate(s.BATCH)).where(_unresolved(read.history))
    rows = read.cached(messages_of(notes, spec, windows).distinct(), None)
    return [ReplaceBatches(AggregateStage.TOUCHED_GROUPS, rows, counted=CountBy(s.BATCH, s.CAUSE))]


def messages_of(notes: DataFrame, spec: AggregateSpec, windows: Windows | None) -> DataFrame:
    """Returns the messages that notes make, some of them twice: one per window in which a noted row counts."""
    columns = [s.BATCH, s.CAUSE, GROUP, *k.by_columns(spec)]
    found = notes.select(*map(quote, columns))
    if windows is None:
        return found
    of_one = spread(notes.where(F.col(s.CAUSE) == ONE_GROUP), windows).select(*map(quote, columns), START)
    of_all = found.where(F.col(s.CAUSE) == EVERY_GROUP).withColumn(START, F.lit(None).cast(windows.kind))
    return of_one.unionByName(of_all)


def _unresolved(history: History) -> str:
    """SQL condition on notes: the result does not stand for the run that wrote the note."""
    return by_entry(">", history.resolved(AggregateStage.GROUPING_STORE, AggregateStage.AGGREGATED), otherwise="TRUE")


def by_entry(comparison: str, entries: Mapping[int, int], *, otherwise: str) -> str:
    """SQL condition on notes: their entry compared with one per batch; `otherwise` for the notes of other batches."""
    cases = " ".join(f"WHEN {batch} THEN {ENTRY} {comparison} {entry}" for batch, entry in entries.items())
    return f"CASE {s.BATCH} {cases} ELSE {otherwise} END" if cases else otherwise


def aggregated(read: Reader) -> list[Effect]:
    """Returns the effects that write the groups which the batches touched, computed anew from their rows."""
    history, result = read.history, AggregateStage.AGGREGATED
    if history.first_time and history.never_did(AggregateStage.TOUCHED_GROUPS, ONE_GROUP, EVERY_GROUP):
        return []
    at_most = history.messages(AggregateStage.TOUCHED_GROUPS).at_most
    due = read.of_batches(AggregateStage.TOUCHED_GROUPS, s.BATCH).where(read.batches.predicate(s.BATCH))
    messages = read.cached(due, at_most)
    limit = read.lookup_limit(at_most, result)
    lacks = history.may_lack(AggregateStage.TOUCHED_GROUPS)
    if at_most <= limit and not lacks and not _name_every(messages):
        changed, bound = _of_some(read, messages), at_most
    else:
        changed, bound = _of_all(read)
    counted = CountBy(s.BATCH, DECISION, stored=s.BATCH, first=WRITTEN)
    together = () if read.spec.window is None else (START, GROUP)  # most rows of a batch are of few windows
    rows = read.planned(changed, bound)
    return [Upsert(result, rows, bound, delete_when=s.DELETED, counted=counted, together=together)]


def _name_every(messages: RowSet) -> bool:
    """Returns whether a message is about all groups."""
    return any((EVERY_GROUP,) in found for found in messages.counts(s.BATCH, s.CAUSE).values())


def _of_some(read: Reader, messages: RowSet) -> DataFrame:
    """Returns the changes of the groups that messages name."""
    spec, windows, keys = read.spec, windows_of(read.spec, read.table_of), k.group_key(read.spec)
    wanted = messages
    if read.batches.first != read.batches.last:
        distinct = messages.frame.groupBy(GROUP, *map(quote, keys)).agg(F.max(s.BATCH).alias(s.BATCH))
        wanted = read.cached(distinct, None)
    named = wanted.frame.select(*map(quote, keys))
    groups = outputs_of(_members(read, wanted, windows), spec, windows, named)
    every = join_by_key(wanted.frame.select(*map(quote, keys), s.BATCH), groups, keys, "left", nullable=True)
    there = None
    if read.rows(AggregateStage.AGGREGATED):
        by = [GROUP, *([] if windows is None else [START])]
        needed = [*keys, GROUP, MEMBERS, s.HASH]
        rows = read.with_keys(AggregateStage.AGGREGATED, wanted, {name: name for name in by}, needed=needed)
        there = join_by_key(rows.select(*map(quote, needed)), F.broadcast(named), keys, "left_semi", nullable=True)
    return changes(every, there, spec, int(read.batches.last))


def _members(read: Reader, wanted: RowSet, windows: Windows | None) -> DataFrame:
    """Returns at least the rows of some groups: in a large store they are found by its index, else by their times."""
    spec, stored = read.spec, AggregateStage.GROUPING_STORE
    whole = read.read(stored)  # a store is opened before its index, which then has all rows of this version
    if not read.rows(GROUP_ROWS):
        if windows is None or wanted.local is None:
            return whole
        return read.in_range(stored, AT, *windows.around(wanted.local[START]), {GROUP: wanted.local[GROUP]})
    columns = group_rows(spec).keys
    probes = wanted.frame.select(GROUP)
    if windows is not None:
        probes = wanted.frame.select(GROUP, F.explode(F.expr(windows.slices(START))).alias(SLICE))
    needed = [*k.placing_columns(spec), s.HASH, *(column.name for column in k.payload_columns(spec))]
    found, _ = read.through_index(
        GROUP_ROWS, stored, read.cached(probes.distinct(), None), {name: name for name in columns}, needed
    )
    return found


def _of_all(read: Reader) -> tuple[DataFrame, int]:
    """Returns the changes of all groups, and a bound of their number."""
    spec, windows = read.spec, windows_of(read.spec, read.table_of)
    stored = read.read(AggregateStage.GROUPING_STORE)
    groups = outputs_of(stored, spec, windows, batches=read.batches)
    if not read.rows(AggregateStage.AGGREGATED):
        per_row = 1 if windows is None else windows.per_row
        return changes(groups, None, spec, int(read.batches.last)), read.rows(AggregateStage.GROUPING_STORE) * per_row
    return changes(groups, read.read(AggregateStage.AGGREGATED), spec, int(read.batches.last)), UNKNOWN
