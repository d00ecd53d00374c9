"""Stage `resolved_join`: decides responses, by look-ups of their keys or by joins of whole tables.

resolved_join = resolved_join ▷ current + (current ⋈ left_changelog ⟕ right_table)

where `current` is the rows of responses[n] whose hashes are those of the current rows of both sides. Responses that
their stage has not written are computed here, by the same formula, from both states as they are now (ADR 0062).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.blocks.outputs import FAILED, quarantined_pairs
from fk_pipeline.effects import Effect, Reject, ReplaceBatches, Report
from fk_pipeline.identity import APPLIED, INSERTED, UNMATCHED_QUARANTINED, UNWRITTEN, Side
from fk_pipeline.kinds.foreign_key import resolved_join as resolver
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key import unmatched_rights
from fk_pipeline.kinds.foreign_key.kind import NO_LONGER_UNMATCHED, REFUSED, RIGHT_UNMATCHED, Stage
from fk_pipeline.kinds.foreign_key.responses import responses as due_responses
from fk_pipeline.kinds.foreign_key.rights import answering, validity
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.stages.reading import UPSTREAM, ends_of, never_rewritten, unchanged_since
from fk_pipeline.spec import Column, quote
from fk_pipeline.stage_input import Counts, Messages, Reader, RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.sizes import UNKNOWN

_TABLES = (k.SUBSCRIPTION_STORE, k.RIGHT_TABLE)


def touched_by_resolving(read: Reader) -> int:
    """Returns an upper bound of the rows of the result that the responses, and right rows that stand alone, concern."""
    rights = read.history.propagated(Stage.RIGHT_TABLE) if read.spec.outer else 0
    return min(read.history.messages(Stage.RESPONSES).at_most + rights, UNKNOWN)


def resolved_join(read: Reader) -> list[Effect]:
    """Returns the effects that write the verdicts on the due responses, and the rows of the result that they change."""
    history = read.history
    nothing_unmatched = not read.spec.outer or history.never_did(Stage.RIGHT_TABLE, INSERTED, APPLIED)
    counted = "left-driven", "right-driven", UNWRITTEN
    if history.first_time and nothing_unmatched and history.never_did(Stage.RESPONSES, *counted):
        return []
    # The ledger's numbers are read before the responses: later the ledger may describe other responses.
    messages = history.messages(Stage.RESPONSES)
    due = _due(read, messages)
    if read.limits.lookup_limit(due.at_most, k.RESOLVED_JOIN) >= due.at_most or read.evaluator.isolating:
        return _resolve_by_keys(read, due)
    return _resolve_whole(read, due)


@dataclass(frozen=True)
class _Due:
    """The responses that are due.

    Attributes:
        rows: the responses.
        at_most: an upper bound of their number.
        once: whether there is surely one per left key.
        computed: whether all are computed by this run, from the states as it reads them.
        messages: the ledger's knowledge of them.
    """

    rows: DataFrame
    at_most: int
    once: bool
    computed: bool
    messages: Messages

    def is_current(self, read: Reader) -> bool:
        """Returns whether both states are known to be those that the responses were computed from."""
        return self.computed or unchanged_since(read, self.messages, UPSTREAM, _TABLES)


def _due(read: Reader, messages: Messages) -> _Due:
    """Returns the responses that are due: those that are written, and those that are not, computed (ADR 0062)."""
    stored, unwritten = read.of_batches(k.RESPONSES, s.BATCH), messages.unwritten
    if not unwritten:
        return _Due(stored, messages.at_most, False, False, messages)
    states = read.read(k.SUBSCRIPTION_STORE), read.read(k.RIGHT_TABLE)
    computed = due_responses(*states, read.spec, read.batches, ends_of(read))
    # The ledger's number bounds the responses by the states of then.
    at_most = messages.at_most if unchanged_since(read, messages, UPSTREAM, _TABLES) else UNKNOWN
    if len(unwritten) == len(read.history.known):
        return _Due(computed, at_most, read.batches.is_single, True, messages)
    among = f"{s.BATCH} IN ({', '.join(map(str, unwritten))})"
    rows = stored.where(f"NOT {among}").unionByName(computed.where(among))
    return _Due(rows, at_most, False, False, messages)


def _resolve_by_keys(read: Reader, due: _Due) -> list[Effect]:
    """Decides few responses, or any number with row-error isolation, with the rows of both sides read by their keys."""
    spec, at_most = read.spec, due.at_most
    responses_due = read.frames.cached(due.rows, at_most)
    unchanged = due.is_current(read)
    pks, result_fk = {name: name for name in k.pk_names(spec)}, k.stands_by(spec)
    # The store is opened before the changelog, which then has every row that the store points to.
    store = None if unchanged else read.with_keys(k.SUBSCRIPTION_STORE, responses_due, pks, needed=[s.HASH, s.OWNER])
    needed = [s.HASH, *validity(spec), *_names(spec.right.columns)]
    right = read.with_keys(k.RIGHT_TABLE, responses_due, k.right_keys(spec), needed=needed)
    right = answering(right, spec, ends_of(read))
    left = with_content(_left_rows(read, responses_due, unchanged), spec, Side.LEFT, read.evaluator)
    decided = resolver.decide(
        responses_due.frame,
        store,
        right,
        left,
        read.with_keys(k.RESOLVED_JOIN, responses_due, pks, needed=[s.LEFT_HASH, s.RIGHT_HASH, *result_fk]),
        spec,
        carry=True,
    )
    verdicts = read.frames.cached(decided, at_most)
    counts, writing = _tally(verdicts, spec)
    if read.limits.names_keys(k.RESOLVED_JOIN, writing) and not spec.computes:
        # Many rows are computed only while they are written; their keys are known before that.
        chosen = resolver.rows_to_write(verdicts.frame, spec, once=True)
        keys, unique, rows = (
            unmatched_rights.result_key(chosen, spec),
            _once(read, counts, due),
            resolver.rows_changed(chosen, spec),
        )
        planned = read.frames.planned(rows, writing, cached=verdicts.cached, keys=keys, unique=unique)
        unmatched = unmatched_rights.by_keys(read, verdicts) if spec.outer else None
        unmatched_counts = _unmatched_counts(unmatched)
        return [
            Report(_with(counts, unmatched_counts)),
            _stored_verdicts(verdicts, counts),
            *unmatched_rights.written(read, planned, unmatched, _total(unmatched_counts)),
        ]
    effects: list[Effect] = []
    changed: RowSet | None = None
    if writing:
        chosen = resolver.rows_to_write(verdicts.frame, spec, _once(read, counts, due))
        changed = read.frames.cached(resolver.rows_changed(chosen, spec, read.evaluator), _rows_of(spec) * writing)
    if read.evaluator.isolating and changed is not None:
        verdicts = read.frames.cached(resolver.refused_pairs(verdicts.frame, changed.frame, spec), at_most)
        counts, _ = _tally(verdicts, spec)
    unmatched = unmatched_rights.by_keys(read, verdicts) if spec.outer else None
    unmatched_counts = _unmatched_counts(unmatched)
    if spec.computes:
        if changed is not None:
            changed.compute()  # an expression that fails must fail before anything is committed
        effects.append(_refused(read, verdicts, counts, unmatched, unmatched_counts))
    effects += [Report(_with(counts, unmatched_counts)), _stored_verdicts(verdicts, counts)]
    return [*effects, *unmatched_rights.written(read, changed, unmatched, _total(unmatched_counts))]


def _unmatched_counts(unmatched: RowSet | None) -> Counts:
    """Returns per batch how many right rows came to stand alone, no longer do, or are refused."""
    if unmatched is None:
        return {}
    isolating = FAILED in unmatched.frame.columns
    by_batch: Counts = {}
    for batch, groups in unmatched.counts(s.BATCH, s.DELETED, *([FAILED] if isolating else [])).items():
        counts = by_batch.setdefault(batch, {})
        for (gone, *reason), number in groups.items():
            name = UNMATCHED_QUARANTINED if any(reason) else NO_LONGER_UNMATCHED if gone else RIGHT_UNMATCHED
            counts[name] = counts.get(name, 0) + number
    return by_batch


def _with(counts: Counts, more: Counts) -> Counts:
    """Returns both counts together."""
    return {batch: counts.get(batch, {}) | more.get(batch, {}) for batch in counts.keys() | more.keys()}


def _total(counts: Counts) -> int:
    """Returns the sum of all counts."""
    return sum(sum(groups.values()) for groups in counts.values())


def _refused(
    read: Reader, decided: RowSet, counts: Counts, unmatched: RowSet | None, unmatched_counts: Counts
) -> Effect:
    """Returns the effect that puts pairs, and right rows alone, on which an expression fails into the quarantine."""
    if not read.evaluator.isolating:
        return Reject(None, 0, "join")
    number = sum(groups.get(verdict, 0) for groups in counts.values() for verdict in REFUSED)
    columns = [s.BATCH, s.FILE, s.LINE, s.REASON, s.RAW]
    rows = [decided.frame.where(F.col(k.VERDICT).isin(*REFUSED)).select(*columns)] if number else []
    more = sum(groups.get(UNMATCHED_QUARANTINED, 0) for groups in unmatched_counts.values())
    if unmatched is not None and more:
        rows, number = [*rows, quarantined_pairs(unmatched.frame)], number + more
    return Reject(reduce(DataFrame.unionByName, rows) if rows else None, number, "join")


def _resolve_whole(read: Reader, due: _Due) -> list[Effect]:
    """Decides responses on Spark by joins of whole tables.

    If an expression fails on a row, the stage starts again with row-error isolation and then replaces these verdicts.
    """
    spec, at_most, right = read.spec, due.at_most, read.read(k.RIGHT_TABLE)
    ends = ends_of(read)
    right = answering(right, spec, ends)
    unchanged = due.is_current(read)
    readable = never_rewritten(read, Stage.LEFT_CHANGELOG, k.LEFT_CHANGELOG)
    closed = ends.horizon is not None
    first = unchanged and readable and not closed and _is_first_result(read)
    log = read.read(k.LEFT_CHANGELOG)
    decided = resolver.decide(
        due.rows,
        None if unchanged else read.read(k.SUBSCRIPTION_STORE),
        None if unchanged and not closed else right,
        None if readable else with_content(log, spec, Side.LEFT),
        read.read(k.RESOLVED_JOIN),
        spec,
    )
    # Where no join is needed, or only to count, deciding again costs less than caching the decisions.
    joins = not (unchanged and readable) or bool(read.about(k.RESOLVED_JOIN).rows) or (due.computed and not first)
    verdicts = read.frames.cached(decided, at_most) if joins else read.frames.planned(decided, at_most)
    counts, writing = _tally(verdicts, spec)
    unmatched = unmatched_rights.of_all(read, verdicts.frame, right) if spec.outer else None
    unmatched_counts = _unmatched_counts(unmatched)
    effects: list[Effect] = [Report(_with(counts, unmatched_counts))]
    if spec.computes:
        effects.append(Reject(None, 0, "join"))
    effects.append(_stored_verdicts(verdicts, counts))
    if not writing:
        return [*effects, *unmatched_rights.written(read, None, unmatched, _total(unmatched_counts))]
    chosen = resolver.rows_to_write(verdicts.frame, spec, _once(read, counts, due))
    if first:
        rows = resolver.first_rows(with_content(log, spec, Side.LEFT), right, spec)
    else:
        rows = _with_rows(read, chosen, writing, right)
    changes = resolver.rows_changed(rows, spec)
    if first and not read.limits.fits_memory(k.RIGHT_TABLE):
        # Spark has sorted the left rows by their foreign keys; they are written in the order of their own keys.
        changes = changes.sortWithinPartitions(*map(quote, k.pk_names(spec)))
    most = 1 if first else _rows_of(spec)
    keys = None if first or most > 1 else unmatched_rights.result_key(chosen, spec)
    planned = read.frames.planned(changes, most * writing, keys=keys)
    return [*effects, *unmatched_rights.written(read, planned, unmatched, _total(unmatched_counts))]


def _rows_of(spec: ForeignKeySpec) -> int:
    """Returns the largest number of rows of the result that one response changes: a new one, and the one of before."""
    return 2 if k.paired_columns(spec) else 1


def _left_rows(read: Reader, responses_due: RowSet, owners_hold: bool) -> DataFrame:
    """Returns at least the rows of the left changelog that responses are about.

    Args:
        read: reads the changelog.
        responses_due: the responses.
        owners_hold: whether the owners in the responses are current; then left rows owned by the batches are looked up
            only in the files of the batches.
    """
    spec, log = read.spec, k.LEFT_CHANGELOG
    holes = [s.HOLES] if s.HOLES in read.about(log).declared.names else []
    needed = [s.BATCH, s.DELETED, s.HASH, *holes, *_names(spec.left.columns)]
    if not owners_hold:
        return read.with_keys(log, responses_due, k.left_keys(spec), needed=needed)
    of_these = read.with_keys(log, responses_due, k.left_keys(spec), s.BATCH, needed)
    older = _older(read, responses_due)
    if older.local is not None and not len(older.local):
        return of_these
    elsewhere = f"NOT ({read.batches.predicate(s.BATCH)})"
    both = of_these.unionByName(read.with_keys(log, older, k.left_keys(spec), needed=needed).where(elsewhere))
    return F.broadcast(both) if responses_due.local is not None else both


def _older(read: Reader, responses_due: RowSet) -> RowSet:
    """Returns the responses about left rows that other batches own."""
    if responses_due.local is not None:
        return responses_due.but(s.OWNER, *map(int, read.history.known))
    of_these = F.coalesce(F.expr(read.batches.predicate(s.OWNER)), F.lit(False))
    older = read.frames.cached(responses_due.frame.where(~of_these), None)
    older.at_most = min(older.at_most, responses_due.at_most)
    return older


def _with_rows(read: Reader, decided: DataFrame, at_most: int, right: DataFrame) -> DataFrame:
    """Returns decided responses with both rows; left rows that the batches own are looked up only in these batches."""
    spec, log = read.spec, k.LEFT_CHANGELOG
    if read.history.never_did(Stage.LEFT_CHANGELOG, "rows") and at_most > read.about(log).rows // 2:
        return resolver.with_rows(decided, read.read(log), right, spec)
    of_these = decided.where(read.batches.predicate(s.OWNER))
    older = _older(read, read.frames.planned(decided, at_most))
    stored = read.with_keys(log, older, k.left_keys(spec), needed=[s.BATCH, *_names(spec.left.columns)])
    near = resolver.with_rows(of_these, read.of_batches(log, s.BATCH), right, spec)
    return near.unionByName(resolver.with_rows(older.frame, stored, right, spec))


def _is_first_result(read: Reader) -> bool:
    """Returns whether every row of the left changelog is the current one of its key and the result is still empty.

    So it is if the changelog has the rows of these batches only, as many as the store has keys, and no truncate.
    """
    tables = read.about(k.LEFT_CHANGELOG), read.about(k.SUBSCRIPTION_STORE)
    if not read.history.has_every_row(Stage.LEFT_CHANGELOG) or not all(table.is_newest for table in tables):
        return False
    log, store = (table.rows for table in tables)
    return read.history.rows_read(Stage.LEFT_CHANGELOG) == log == store and not read.about(k.RESOLVED_JOIN).rows


def _once(read: Reader, counts: Counts, due: _Due) -> bool:
    """Returns whether there is one response per key, as `responses` returns them for one batch.

    A run that had lost its lease may have written responses twice; then there are more than the ledger counts.
    """
    return due.once or (len(read.history.known) == 1 and _total(counts) == due.at_most)


def _stored_verdicts(decided: RowSet, counts: Counts) -> Effect:
    """Returns the effect that writes the verdicts that are not implied by their responses.

    It precedes the write of the result: after a crash between the two, the same verdicts are decided again.
    """
    number = sum(n for groups in counts.values() for name, n in groups.items() if name not in resolver.IMPLIED)
    return ReplaceBatches(k.VERDICTS, decided.but(k.VERDICT, *resolver.IMPLIED).bounded(number))


def _tally(decided: RowSet, spec: ForeignKeySpec) -> tuple[Counts, int]:
    """Returns the counts of verdicts per batch, and how many verdicts change the result."""
    tallied, changing = decided.counts(s.BATCH, k.VERDICT), resolver.writing(spec)
    counts = {batch: {verdict: number for (verdict,), number in groups.items()} for batch, groups in tallied.items()}
    return counts, sum(groups.get(verdict, 0) for groups in counts.values() for verdict in changing)


def _names(columns: Iterable[Column]) -> list[str]:
    return [column.name for column in columns]
