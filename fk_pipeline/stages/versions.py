"""The owner rule: updates a state table of current versions from its changelog, for some batches.

A state table has one row per key ever seen: the version that won, its owner (the batch that it was read in) and
`applied_in`, the batch whose processing last changed its content. `docs/architecture.md`, rules 1, 2, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import APPLIED, INSERTED, LATE, SILENT, BatchRange
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

OUTCOME = "_fk_outcome"
COUNTED_IN = "_fk_counted_in"
"""The batch that an outcome counts for."""
BEFORE = "_fk_before"
"""Struct: the row of the state before the run; null for a key never seen."""

_VERSION = (s.SEQUENCE, s.BATCH, s.GENERATION, s.HASH)


def apply_versions(
    log: DataFrame,
    state: DataFrame,
    keys: Sequence[str],
    payload: Sequence[str],
    batches: BatchRange,
    generations: Mapping[int, int],
    truncated: bool = False,
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

    Returns:
        One row per key that the batches read or own (with a truncate: every key): keys, payload and version columns as
        the state should have them, `_fk_outcome` (inserted, applied, silent; late: the state stays as it is),
        `_fk_counted_in` and `_fk_before`.
    """
    if truncated:
        log, unseen = _with_truncates(log, state, keys, payload, batches)
    incoming = log.where(batches.predicate(s.BATCH)).select(*map(quote, keys), _version(payload).alias("_fk_best"))
    best = incoming if batches.first == batches.last else _latest(incoming, keys, "_fk_best")
    if truncated:
        best = _latest(best.unionByName(unseen), keys, "_fk_best")
    before = state.select(
        *map(quote, keys), F.struct(*[quote(c) for c in state.columns if c not in keys]).alias(BEFORE)
    )
    if truncated or any(batch in batches for batch in generations):
        rows = _with_lost_rows(best, before, incoming, log, keys, payload, batches)
    else:  # a partition that was never rewritten still has all rows that were read in its batch
        rows = best.join(before, list(keys), "left").withColumns(
            {"_fk_lost": F.lit(False), "_fk_winner": F.col("_fk_best")}
        )
    return _decide(rows, keys, payload, batches, generations)


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
    here = truncates.where(batches.predicate(s.BATCH))
    own = log.where(batches.predicate(s.BATCH)).select(*names)
    all_keys = state.select(*names).crossJoin(F.broadcast(here.limit(1).select()))
    concerned = own.union(state.where(batches.predicate(s.OWNER)).select(*names)).union(all_keys).distinct()
    newest = truncates.orderBy(F.col(s.SEQUENCE).desc(), F.col(s.BATCH).desc()).limit(1)
    spread = concerned.crossJoin(F.broadcast(here.union(newest).dropDuplicates([s.BATCH])))
    rows = log.join(concerned, list(keys), "left_semi").withColumn("_fk_row", F.lit(True))
    both = rows.unionByName(spread.withColumn("_fk_row", F.lit(False)))
    version = F.max_by(F.struct(*[quote(c) for c in log.columns]), F.struct(s.SEQUENCE, "_fk_row"))
    elsewhere = newest.where(f"NOT ({batches.predicate(s.BATCH)})")  # those of these batches are among the rows
    unseen = own.distinct().join(state.select(*names), list(keys), "left_anti").crossJoin(F.broadcast(elsewhere))
    return (
        both.groupBy(*names, s.BATCH).agg(version.alias("_fk_version")).select("_fk_version.*"),
        unseen.select(*names, _version(payload).alias("_fk_best")),
    )


def _version(payload: Sequence[str]) -> Column:
    """Returns one version of a key as a struct, in the order of last writer wins: by sequence, ties by batch."""
    return F.struct(*map(quote, (*_VERSION, *payload)))


def order_of(sequence: Column, batch: Column) -> Column:
    """Returns the value by which versions of a key are compared: the last writer wins, by sequence, ties by batch."""
    return F.struct(sequence.alias("sequence"), batch.alias("batch"))


def _latest(versions: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
    """Returns one row per key: its newest version."""
    version = F.col(name)
    newest = F.max_by(version, order_of(version[s.SEQUENCE], version[s.BATCH]))
    return versions.groupBy(*map(quote, keys)).agg(newest.alias(name))


def _with_lost_rows(
    best: DataFrame,
    before: DataFrame,
    incoming: DataFrame,
    log: DataFrame,
    keys: Sequence[str],
    payload: Sequence[str],
    batches: BatchRange,
) -> DataFrame:
    """Adds the rows that their owner no longer has, each with the winner over the whole changelog (rule 2)."""
    on = list(keys)
    old = F.col(BEFORE)
    incoming_keys = best.select(*map(quote, keys), F.lit(True).alias("_fk_incoming"))
    hits = before.join(incoming_keys, on, "left").where(
        F.col("_fk_incoming") | old[s.OWNER].between(int(batches.first), int(batches.last))
    )
    held = incoming.select(
        *map(quote, keys), F.col("_fk_best").alias("_fk_held"), F.col(f"_fk_best.{s.BATCH}").alias("_fk_by")
    )
    hits = hits.withColumn("_fk_by", old[s.OWNER]).join(held, [*on, "_fk_by"], "left")
    version = F.col("_fk_held")
    still = (
        version.isNotNull()
        & version[s.SEQUENCE].eqNullSafe(old[s.SEQUENCE])
        & version[s.HASH].eqNullSafe(old[s.HASH])
        & (version[s.GENERATION] == old[s.GENERATION])
    )
    lost = old[s.OWNER].between(int(batches.first), int(batches.last)) & ~still
    hits = hits.select(*map(quote, keys), BEFORE, F.coalesce(lost, F.lit(False)).alias("_fk_lost"))
    versions = log.join(hits.where("_fk_lost").select(*map(quote, keys)), on, "left_semi")
    winners = _latest(versions.select(*map(quote, keys), _version(payload).alias("_fk_winner")), keys, "_fk_winner")
    rows = best.join(hits, on, "full").withColumn("_fk_lost", F.coalesce("_fk_lost", F.lit(False)))
    return rows.join(winners, on, "left")


def _decide(
    rows: DataFrame,
    keys: Sequence[str],
    payload: Sequence[str],
    batches: BatchRange,
    generations: Mapping[int, int],
) -> DataFrame:
    """Applies the rules row by row: `_fk_best`, `_fk_before`, `_fk_lost`, `_fk_winner` -> the state as it should be."""
    old, best, lost = F.col(BEFORE), F.col("_fk_best"), F.col("_fk_lost")
    newer = best.isNotNull() & (
        old.isNull()
        | old[s.SEQUENCE].isNull()
        | (order_of(best[s.SEQUENCE], best[s.BATCH]) > order_of(old[s.SEQUENCE], old[s.OWNER]))
    )
    new = F.col("_fk_new")
    rows = rows.withColumn("_fk_takes", lost | newer).withColumn(
        "_fk_new", F.when(lost, F.col("_fk_winner")).when(newer, best)
    )
    silent = old.isNotNull() & new[s.HASH].eqNullSafe(old[s.HASH]) & ~_unread(old, generations)
    outcome = F.when(~F.col("_fk_takes"), LATE).when(old.isNull(), INSERTED).when(silent, SILENT).otherwise(APPLIED)
    in_range = new[s.BATCH].between(int(batches.first), int(batches.last))
    acting = F.when(in_range, new[s.BATCH]).otherwise(F.coalesce(old[s.OWNER], F.lit(int(batches.first))))
    propagated = F.col(OUTCOME).isin(INSERTED, APPLIED)
    return (
        rows.withColumn(OUTCOME, outcome)
        .withColumn("_fk_acting", acting)
        .select(
            *map(quote, keys),
            *[new[p].alias(p) for p in payload],
            new[s.SEQUENCE].alias(s.SEQUENCE),
            new[s.BATCH].alias(s.OWNER),
            F.coalesce(new[s.GENERATION], F.lit(0)).alias(s.GENERATION),
            F.when(propagated, F.col("_fk_acting")).otherwise(old[s.APPLIED_IN]).alias(s.APPLIED_IN),
            F.when(propagated, old.isNotNull()).otherwise(old[s.SEEN_BEFORE]).alias(s.SEEN_BEFORE),
            new[s.HASH].alias(s.HASH),
            OUTCOME,
            # A propagated row counts only for the batch that is due by it, so that a later stage may leave out a batch.
            F.when(propagated, F.col("_fk_acting"))
            .when(best[s.BATCH].between(int(batches.first), int(batches.last)), best[s.BATCH])
            .otherwise(F.col("_fk_acting"))
            .alias(COUNTED_IN),
            BEFORE,
        )
    )


def _unread(old: Column, generations: Mapping[int, int]) -> Column:
    """Returns whether the version of a state row was rewritten since: its payload can no longer be read (rule 6)."""
    if not generations:
        return F.lit(False)
    known = F.create_map(*[F.lit(int(x)) for item in generations.items() for x in item])
    current = F.coalesce(F.try_element_at(known, old[s.OWNER]), F.lit(0))
    return old[s.OWNER].isNotNull() & (current != old[s.GENERATION])
