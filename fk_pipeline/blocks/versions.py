"""The owner rule: updates a state table of current versions from its changelog, for some batches.

A state table has one row per key ever seen: the version that won, its owner (the batch that it was read in) and
`applied_in`, the batch whose processing last changed its content. `docs/architecture.md`, rules 1, 2, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import APPLIED, EXPIRED, INSERTED, LATE, SILENT, BatchRange
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

OUTCOME = "_fk_outcome"
COUNTED_IN = "_fk_counted_in"
"""The batch that an outcome counts for."""
BEFORE = "_fk_before"
"""Struct: the row of the state before the run; null for a key never seen."""

_VERSION = (s.SEQUENCE, s.BATCH, s.GENERATION, s.HASH)


@dataclass(frozen=True)
class Expiry:
    """Which versions come too late: those with a time before a horizon, of keys without a row that lives.

    Attributes:
        column: the column of the payload with the time.
        horizon: SQL, the horizon.
    """

    column: str
    horizon: str


def apply_versions(
    log: DataFrame,
    state: DataFrame,
    keys: Sequence[str],
    payload: Sequence[str],
    batches: BatchRange,
    generations: Mapping[int, int],
    truncated: bool = False,
    expiry: Expiry | None = None,
) -> DataFrame:
    """Computes the new state rows of the keys that the batches concern.

    Args:
        log: the changelog, every batch: `keys`, `payload`, sequence, batch, generation, hash. A row without keys is a
            truncate.
        state: the state table: `keys` and every other column of it, `payload` among them. Its rows with keys of the
            batches are enough if none of these batches was rewritten and nothing was truncated.
        keys: the key columns.
        payload: the columns that follow the winning version.
        batches: the batches on whose behalf the stage acts.
        generations: per batch whose partition was ever rewritten, its generation.
        truncated: whether there may be truncates in the log.
        expiry: which versions come too late (architecture, rule 13). Such a row has no hash and, besides its version,
            only its time; it was propagated if the key was before.

    Returns:
        One row per key that the batches read or own (with a truncate: every key): keys, payload and version columns as
        the state should have them, `_fk_outcome` (inserted, applied, silent, expired; late: the state stays as it is),
        `_fk_counted_in` and `_fk_before`.
    """
    if truncated:
        log, unseen = _with_truncates(log, state, keys, payload, batches)
    incoming = log.where(batches.predicate(s.BATCH)).selectExpr(*map(quote, keys), f"{_version(payload)} AS _fk_best")
    best = incoming if batches.is_single else _latest(incoming, keys, "_fk_best")
    if truncated:
        best = _latest(best.unionByName(unseen), keys, "_fk_best")
    others = ", ".join(quote(c) for c in state.columns if c not in keys)
    before = state.selectExpr(*map(quote, keys), f"STRUCT({others}) AS {BEFORE}")
    if truncated or any(batch in batches for batch in generations):
        rows = _with_lost_rows(best, before, incoming, log, keys, payload, batches, expiry)
    else:  # a partition that was never rewritten still has all rows that were read in its batch
        rows = best.join(before, list(keys), "left").selectExpr("*", "FALSE AS _fk_lost", "_fk_best AS _fk_winner")
    return _decide(rows, keys, payload, batches, generations, expiry)


def _with_truncates(
    log: DataFrame, state: DataFrame, keys: Sequence[str], payload: Sequence[str], batches: BatchRange
) -> tuple[DataFrame, DataFrame]:
    """Turns truncates into tombstones of every key that the batches concern (rule 1).

    Returns:
        The log of these keys, one row per key and batch; and for keys of the batches that the state does not have, as
        `_fk_best` the newest truncate of any other batch: a row that was truncated before it arrived is not inserted.
    """
    first, names = quote(keys[0]), [quote(key) for key in keys]
    truncates = log.where(f"{first} IS NULL").drop(*keys)
    log = log.where(f"{first} IS NOT NULL")
    own_truncates = truncates.where(batches.predicate(s.BATCH))
    own = log.where(batches.predicate(s.BATCH)).select(*names)
    all_keys = state.select(*names).crossJoin(F.broadcast(own_truncates.limit(1).select()))
    concerned = own.union(state.where(batches.predicate(s.OWNER)).select(*names)).union(all_keys).distinct()
    newest = last_of(truncates)
    spread = concerned.crossJoin(F.broadcast(own_truncates.union(newest).dropDuplicates([s.BATCH])))
    rows = log.join(concerned, list(keys), "left_semi").withColumn("_fk_row", F.lit(True))
    both = rows.unionByName(spread.withColumn("_fk_row", F.lit(False)))
    version = F.max_by(F.struct(*[quote(c) for c in log.columns]), F.struct(s.SEQUENCE, "_fk_row"))
    elsewhere = newest.where(f"NOT ({batches.predicate(s.BATCH)})")  # those of these batches are among the rows
    unseen = own.distinct().join(state.select(*names), list(keys), "left_anti").crossJoin(F.broadcast(elsewhere))
    return (
        both.groupBy(*names, s.BATCH).agg(version.alias("_fk_version")).select("_fk_version.*"),
        unseen.selectExpr(*names, f"{_version(payload)} AS _fk_best"),
    )


def last_of(truncates: DataFrame) -> DataFrame:
    """Returns the last of some truncates, as one row."""
    return truncates.orderBy(F.col(s.SEQUENCE).desc(), F.col(s.BATCH).desc()).limit(1)


def _version(payload: Sequence[str]) -> str:
    """Returns SQL (STRUCT) for one version of a key, in the order of last writer wins: by sequence, ties by batch."""
    return f"STRUCT({', '.join(map(quote, (*_VERSION, *payload)))})"


def order_of(sequence: str, batch: str) -> str:
    """Returns SQL (STRUCT) that orders the versions of a key: the last writer wins, by sequence, ties by batch."""
    return f"NAMED_STRUCT('sequence', {sequence}, 'batch', {batch})"


def _latest(versions: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
    """Returns one row per key: its newest version."""
    newest = F.expr(f"MAX_BY({name}, {order_of(f'{name}.{s.SEQUENCE}', f'{name}.{s.BATCH}')})")
    return versions.groupBy(*map(quote, keys)).agg(newest.alias(name))


def _with_lost_rows(
    best: DataFrame,
    before: DataFrame,
    incoming: DataFrame,
    log: DataFrame,
    keys: Sequence[str],
    payload: Sequence[str],
    batches: BatchRange,
    expiry: Expiry | None,
) -> DataFrame:
    """Adds the rows that their owner no longer has, each with the winner over the whole changelog (rule 2)."""
    on = list(keys)
    old = F.col(BEFORE)
    incoming_keys = best.select(*map(quote, keys), F.lit(True).alias("_fk_incoming"))
    hits = before.join(incoming_keys, on, "left").where(
        F.col("_fk_incoming") | F.expr(batches.predicate(f"{BEFORE}.{s.OWNER}"))
    )
    held = incoming.select(
        *map(quote, keys), F.col("_fk_best").alias("_fk_held"), F.col(f"_fk_best.{s.BATCH}").alias("_fk_by")
    )
    hits = hits.withColumn("_fk_by", old[s.OWNER]).join(held, [*on, "_fk_by"], "left")
    version = F.col("_fk_held")
    same = version[s.HASH].eqNullSafe(old[s.HASH])
    if expiry is not None:
        same |= old[s.HASH].isNull() & old[expiry.column].isNotNull()  # it had expired
    still = (
        version.isNotNull()
        & version[s.SEQUENCE].eqNullSafe(old[s.SEQUENCE])
        & same
        & (version[s.GENERATION] == old[s.GENERATION])
    )
    lost = F.expr(batches.predicate(f"{BEFORE}.{s.OWNER}")) & ~still
    hits = hits.select(*map(quote, keys), BEFORE, F.coalesce(lost, F.lit(False)).alias("_fk_lost"))
    versions = log.join(hits.where("_fk_lost").select(*map(quote, keys)), on, "left_semi")
    versions = versions.selectExpr(*map(quote, keys), f"{_version(payload)} AS _fk_winner")
    winners = _latest(versions, keys, "_fk_winner")
    rows = best.join(hits, on, "full").withColumn("_fk_lost", F.coalesce("_fk_lost", F.lit(False)))
    return rows.join(winners, on, "left")


def _decide(
    rows: DataFrame,
    keys: Sequence[str],
    payload: Sequence[str],
    batches: BatchRange,
    generations: Mapping[int, int],
    expiry: Expiry | None,
) -> DataFrame:
    """Applies the rules row by row: `_fk_best`, `_fk_before`, `_fk_lost`, `_fk_winner` -> the state as it should be.

    It is written in SQL: a small batch spends a good part of its time in calls that build columns one by one.
    """
    old, best, new = BEFORE, "_fk_best", "_fk_new"
    incoming, stored = (
        order_of(f"{best}.{s.SEQUENCE}", f"{best}.{s.BATCH}"),
        order_of(f"{old}.{s.SEQUENCE}", f"{old}.{s.OWNER}"),
    )
    newer = f"({best} IS NOT NULL AND ({old} IS NULL OR {old}.{s.SEQUENCE} IS NULL OR {incoming} > {stored}))"
    silent = f"({old} IS NOT NULL AND {new}.{s.HASH} <=> {old}.{s.HASH} AND NOT {_unread(generations)})"
    expired, values = "", {column: f"{new}.{quote(column)}" for column in (*payload, s.HASH)}
    if expiry is not None:
        old_time = f"COALESCE({new}.{quote(expiry.column)} < {expiry.horizon}, FALSE)"
        expired = f"({old_time} AND {new}.{s.HASH} IS NOT NULL AND {old}.{s.HASH} IS NULL)"
        values = {c: sql if c == expiry.column else f"IF(_fk_expires, NULL, {sql})" for c, sql in values.items()}
    expires = f"WHEN _fk_expires THEN '{EXPIRED}' " if expired else ""
    outcome = (
        f"CASE WHEN NOT _fk_takes THEN '{LATE}' {expires}WHEN {old} IS NULL THEN '{INSERTED}' "
        f"WHEN {silent} THEN '{SILENT}' ELSE '{APPLIED}' END"
    )
    of_new, of_best = (batches.predicate(f"{version}.{s.BATCH}") for version in (new, best))
    acting = f"CASE WHEN {of_new} THEN {new}.{s.BATCH} ELSE COALESCE({old}.{s.OWNER}, {int(batches.first)}) END"
    propagated = f"{OUTCOME} IN ('{INSERTED}', '{APPLIED}')"
    taken = rows.selectExpr(
        "*",
        f"(_fk_lost OR {newer}) AS _fk_takes",
        f"CASE WHEN _fk_lost THEN _fk_winner WHEN {newer} THEN {best} END AS {new}",
    )
    if expired:
        taken = taken.selectExpr("*", f"{expired} AS _fk_expires")
    return taken.selectExpr("*", f"{outcome} AS {OUTCOME}", f"{acting} AS _fk_acting").selectExpr(
        *map(quote, keys),
        *[f"{values[column]} AS {quote(column)}" for column in payload],
        f"{new}.{s.SEQUENCE} AS {s.SEQUENCE}",
        f"{new}.{s.BATCH} AS {s.OWNER}",
        f"COALESCE({new}.{s.GENERATION}, 0) AS {s.GENERATION}",
        f"CASE WHEN {propagated} THEN _fk_acting ELSE {old}.{s.APPLIED_IN} END AS {s.APPLIED_IN}",
        f"CASE WHEN {propagated} THEN {old} IS NOT NULL ELSE {old}.{s.SEEN_BEFORE} END AS {s.SEEN_BEFORE}",
        f"{values[s.HASH]} AS {s.HASH}",
        OUTCOME,
        # A propagated row counts only for the batch that is due by it, so that a later stage may leave out a batch.
        f"CASE WHEN NOT {propagated} AND {of_best} THEN {best}.{s.BATCH} ELSE _fk_acting END AS {COUNTED_IN}",
        BEFORE,
    )


def _unread(generations: Mapping[int, int]) -> str:
    """SQL (BOOLEAN): the version of a state row was rewritten since: its payload can no longer be read (rule 6)."""
    if not generations:
        return "FALSE"
    known = ", ".join(f"{int(batch)}, {int(number)}" for batch, number in generations.items())
    current = f"COALESCE(TRY_ELEMENT_AT(MAP({known}), {BEFORE}.{s.OWNER}), 0)"
    return f"({BEFORE}.{s.OWNER} IS NOT NULL AND {current} <> {BEFORE}.{s.GENERATION})"
