"""The new rows of a state table as effects: from its changelog, by look-up or full join, with the owner rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import with_content
from fk_pipeline.blocks.current import CurrentRows
from fk_pipeline.blocks.versions import BEFORE, COUNTED_IN, OUTCOME, Expiry, apply_versions, last_of
from fk_pipeline.cdc.reader import follows_batches
from fk_pipeline.effects import CountBy, Effect, Upsert
from fk_pipeline.identity import INSERTED, LATE, BatchRange, Side
from fk_pipeline.spec import quote
from fk_pipeline.spec.sql import text
from fk_pipeline.stage_input import Reader, RowSet
from fk_pipeline.store import schemas as s
from fk_pipeline.store.reader import keys_as
from fk_pipeline.store.sizes import UNKNOWN


class MakeState(Protocol):
    """Computes the new rows of a state: one row per key that the batches concern, as `versions.apply_versions` does."""

    def __call__(
        self,
        log: DataFrame,
        state: DataFrame,
        spec: Any,
        batches: BatchRange,
        generations: Mapping[int, int],
        truncated: bool = False,
        /,
    ) -> DataFrame: ...


def by_versions(
    keys: Sequence[str],
    payload: Sequence[str],
    *,
    expiry: Expiry | None = None,
    placed: Callable[[DataFrame], DataFrame] = lambda log: log,
) -> MakeState:
    """Returns what computes the new rows of a state that has the last version of each key (`apply_versions`).

    Args:
        keys: the key columns.
        payload: the columns that it has beside the key and those of a version.
        expiry: which versions come too late; None: none.
        placed: function of rows of the changelog that returns them with further columns of the payload.
    """

    def make(
        log: DataFrame,
        state: DataFrame,
        _: Any,
        batches: BatchRange,
        generations: Mapping[int, int],
        truncated: bool = False,
    ) -> DataFrame:
        return apply_versions(placed(log), state, keys, payload, batches, generations, truncated, expiry)

    return make


def current_effects(read: Reader, side: Side, number: str = "", expiry: Expiry | None = None) -> list[Effect]:
    """Returns the effects that apply the batches to the table of the current rows of an input.

    Args:
        read: reads its tables.
        side: the input.
        number: SQL over a row of its changelog, with the derived columns: the number that is made of the time.
        expiry: which versions come too late; None: none.
    """
    rows = CurrentRows.of(read.spec, side)

    def placed(log: DataFrame) -> DataFrame:
        return log.withColumn(rows.number, F.expr(number)) if rows.number else log

    payload = [*rows.placing, *(column.name for column in rows.payload)]
    make = by_versions(rows.keys, payload, expiry=expiry, placed=placed)
    same, first = {key: key for key in rows.keys}, INSERTED if expiry is None else ""
    return state_effects(read, rows.log_stage, rows.log, rows.name, same, make, first=first)


def state_effects(
    read: Reader,
    log_stage: str,
    log_name: str,
    name: str,
    keys: Mapping[str, str],
    make: MakeState,
    *,
    carries: Sequence[str] = (),
    first: str = INSERTED,
    check: Callable[[RowSet], RowSet] = lambda rows: rows,
    note: Callable[[RowSet], tuple[RowSet, list[Effect]]] = lambda rows: (rows, []),
) -> list[Effect]:
    """Returns the effects of a stage with a state.

    Args:
        read: reads its tables.
        log_stage: the stage that writes its changelog.
        log_name: the changelog.
        name: the state.
        keys: per key column of the state, its name in the changelog.
        make: computes the new rows of the state.
        carries: columns of the changelog that the new rows have besides those of the state.
        first: the count of the first rows of the state, if all of them have the same outcome; else empty.
        check: checks the new rows before anything is committed; may raise.
        note: function of the new rows that returns them, computed or not, and effects that come before their own.
    """
    history = read.history
    if history.read_nothing(log_stage):
        return []
    first_key, side = next(iter(keys.values())), read.spec.definition.table(name).of
    assert side is not None
    truncated = is_truncated(read, log_stage, log_name, first_key)
    truncates = truncated and (history.may_be_truncated(log_stage) is None or bool(history.truncated(log_stage)))
    if truncated and not truncates and follows_batches(read.spec.side(side)):
        last = history.last_truncate(log_stage)
        truncated = last is None or last > int(read.batches.first)
    batches_suffice = not truncates and not history.was_rewritten(log_stage) and history.is_finished(log_stage)
    at_most = UNKNOWN
    if batches_suffice:
        at_most = history.rows_read(log_stage)
        log, state = _of_batches(read, side, log_name, name, keys, at_most, carries)
        if truncated:  # by another batch: a row that is older than its truncate, and not in the state, is not inserted
            whole = with_content(read.read(log_name), read.spec, side, read.evaluator)
            newest = last_of(whole.where(F.col(quote(first_key)).isNull()))
            log = log.unionByName(newest.select(*map(quote, log.columns)))
    else:
        log = with_content(read.read(log_name), read.spec, side, read.evaluator)
        state = read.read(name)
    rows = make(log, state, read.spec, read.batches, history.generations(log_stage), truncated).drop(BEFORE)
    all_new = text(first) if first else ""
    counted = CountBy(COUNTED_IN, OUTCOME, stored=s.APPLIED_IN, first=all_new, new=(INSERTED,), unwritten=(LATE,))
    noted, first_effects = note(check(read.frames.planned(rows, at_most)))
    return [*first_effects, Upsert(name, noted, counted=counted)]


def _of_batches(
    read: Reader, side: Side, log_name: str, name: str, keys: Mapping[str, str], at_most: int, carries: Sequence[str]
) -> tuple[DataFrame, DataFrame]:
    """Returns the batches' rows of a changelog with their content, and at least the rows of a state with their keys."""
    rows, looks_up = read.of_batches(log_name, s.BATCH), at_most <= read.limits.lookup_limit(at_most, name)
    known = read.frames.known(rows) if looks_up and {*keys.values()} <= {*rows.columns} else None
    if known is not None:  # they are looked up as they are: what follows from them is computed once, with the state
        return with_content(known.frame, read.spec, side, read.evaluator), read.with_keys(name, known, keys)
    rows = with_content(rows, read.spec, side, read.evaluator)
    needed = {*keys.values(), *read.about(name).declared.names, *carries, s.BATCH}
    rows = rows.select(*[quote(column) for column in rows.columns if column in needed])
    if looks_up:
        incoming = read.frames.cached(rows, at_most)
        return incoming.frame, read.with_keys(name, incoming, keys)
    return rows, read.read(name).join(keys_as(rows, keys), list(keys), "left_semi")


def is_truncated(read: Reader, stage: str, log: str, key: str) -> bool:
    """Returns whether a changelog may have truncates. It is read only if an unfinished run may have written one.

    Args:
        read: reads the changelog.
        stage: the stage that writes it.
        log: its name.
        key: its first key column, null in the row of a truncate.
    """
    known = read.history.may_be_truncated(stage)
    return not read.read(log).where(F.col(quote(key)).isNull()).isEmpty() if known is None else known
