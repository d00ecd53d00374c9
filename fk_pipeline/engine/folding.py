"""Folding: the changelog keeps only the winner per key among the versions of old batches (architecture, rule 2).

The winner among the folded batches is kept, also if it is a tombstone, and also if a newer batch supersedes it: the key
falls back to it when the newer batch is rewritten or withdrawn. The folded batches themselves can no longer be
rewritten or withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from fk_pipeline.blocks.holes import unpacked
from fk_pipeline.blocks.versions import order_of
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.identity import BatchId
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger


def foldable(ledger: Ledger, now: datetime, hours: float) -> list[BatchId]:
    """Returns the batches from the first on that were done at least `hours` ago, up to the first that was not.

    A batch is done when no stage is due for it and no failed check of it is in force.
    """
    done = frozenset(settled(ledger, ledger.batches))
    return [*takewhile(lambda batch: batch in done and is_old(ledger, batch, now, hours), ledger.batches)]


def is_old(ledger: Ledger, batch: int, now: datetime, hours: float) -> bool:
    """Returns whether the last run of every stage for a batch ended at least `hours` ago."""
    finished = [ledger.state(stage, batch).finished_at for stage in ledger.kind.stage_names]
    return all(at is not None and now - at >= timedelta(hours=hours) for at in finished)


def settled(ledger: Ledger, batches: Iterable[int]) -> list[BatchId]:
    """Returns those of some batches for which no stage is due and no failed check is in force."""
    failed = {check.batch for check in ledger.checks.failed()}
    due = {batch for stage in ledger.kind.stage_names for batch in ledger.due.of(stage)}
    return [] if None in failed else [BatchId(batch) for batch in sorted(batches) if batch not in failed | due]


def superseded(log: DataFrame, side: SideSpec, keys: Sequence[str], folded: str) -> DataFrame:
    """Returns the rows of a changelog that folding removes: `_fk_batch` and the key columns, one row per removed row.

    Truncates stay: they are few. All rows of a key stay if any of its rows lacks a value that its source did not send,
    and so do those of the key that such a row had before: the value is searched for among them (architecture, rule 9).

    Args:
        log: the changelog of a side.
        side: the side.
        keys: the columns of the changelog that identify a row of the state.
        folded: SQL (BOOLEAN): the row is of a folded batch.
    """
    is_row, order = F.col(quote(keys[0])).isNotNull(), F.expr(order_of(s.SEQUENCE, s.BATCH))
    old = log.where(folded)
    rows = old.where(is_row).select(*map(quote, keys), s.BATCH, order.alias("_fk_at"))
    truncated = old.where(~is_row).agg(F.max(order).alias("_fk_truncated"))
    newest = F.max("_fk_at").over(Window.partitionBy(*map(quote, keys)))
    lost = (F.col("_fk_at") < F.col("_fk_newest")) | F.coalesce(F.col("_fk_at") < F.col("_fk_truncated"), F.lit(False))
    removed = rows.withColumn("_fk_newest", newest).crossJoin(F.broadcast(truncated)).where(lost)
    if format_of(side).has_holes:
        removed = removed.join(searched(log, side), [c.name for c in side.key_columns], "left_anti")
    return removed.select(s.BATCH, *map(quote, keys))


def forgettable(log: DataFrame, state: DataFrame, keys: Mapping[str, str], old: Callable[[str], str]) -> DataFrame:
    """Returns the deleted keys of a state table that may be removed, because nothing else is known of them.

    Args:
        log: the changelog of a side.
        state: its state table.
        keys: per key column of the state, its name in the changelog.
        old: function of a column that returns SQL (BOOLEAN): its batch is folded, was done long enough ago, and is
            propagated.

    Returns:
        The key columns of the state and `_fk_owner`; one row per key whose version is a tombstone of an old batch (or
        was withdrawn), was propagated in an old batch, and is the only one in the changelog.
    """
    deleted = f"{s.HASH} IS NULL AND ({s.OWNER} IS NULL OR {old(s.OWNER)}) AND {old(s.APPLIED_IN)}"
    dead = state.where(deleted).select(*map(quote, keys), s.OWNER)
    named = [F.col(quote(name)).alias(f"_fk_of_{name}") for name in keys.values()]
    versions = log.select(*named, s.BATCH, s.DELETED)
    lives = ~versions[s.DELETED]  # a row that does not pass `where` comes back when that is edited
    same = [dead[quote(key)] == versions[quote(f"_fk_of_{name}")] for key, name in keys.items()]
    return dead.join(versions, [*same, lives | ~dead[s.OWNER].eqNullSafe(versions[s.BATCH])], "left_anti")


def searched(log: DataFrame, side: SideSpec) -> DataFrame:
    """Returns the keys among whose rows unavailable values are searched for."""
    keys = [c.quoted for c in side.key_columns]
    holed = unpacked(log.where(F.col(s.HOLES).isNotNull()), side)
    before = holed.where(F.col(s.OLD_KEY).isNotNull()).select(
        *[F.col(f"{s.OLD_KEY}.key")[c.name] for c in side.key_columns]
    )
    return holed.select(*keys).union(before).distinct()
