"""What a file would do to the rows of an input if it landed as the next batch, before it does. Records nothing."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import changelog, evaluate, mark_last, with_content
from fk_pipeline.blocks.versions import order_of
from fk_pipeline.cdc.endings import is_of_format
from fk_pipeline.cdc.names import as_utf8, linked, strange
from fk_pipeline.cdc.reader import read_records
from fk_pipeline.cdc.records import BAD
from fk_pipeline.cdc.unreadable import remove_copies
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import MAX_BATCH, BatchId, LandedFile, Side
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.failing import ISOLATING
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.sizes import UNKNOWN

EFFECT = "_fk_effect"
ADDED, CHANGED, REMOVED = "added", "changed", "removed"
UNCHANGED, LATE = "nothing: no selected column differs", "nothing: it is older than what is there"
TOUCHING = (ADDED, CHANGED, REMOVED)
"""Effects on a row of the input that reach the result."""


def log_of_file(
    read: TableReader, spec: PipelineSpec, side: Side, named: str, ledger: Ledger, file: Path, cleanup: ExitStack
) -> tuple[DataFrame, int]:
    """Returns the changelog rows of a file, with their content, and the number of its records that cannot be used.

    Args:
        read: computes the rows.
        spec: the pipeline with the input.
        side: the input.
        named: the input in the words of a message.
        ledger: the ledger of that pipeline.
        file: a file in the format of the input.
        cleanup: frees what the rows need, at its end.

    Raises:
        UsageError: the file does not exist, or is not of that format.
    """
    format_ = spec.side(side).format
    if format_ == "delta" or not is_of_format(str(file), spec.side(side)):
        raise UsageError(f"{file}: {named}'s format is {format_}", fix="write the changes as it does")
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    batch = min(max(ledger.batches, default=-1) + 1, MAX_BATCH)
    size, path = file.stat().st_size, str(file.absolute())
    landed = LandedFile(as_utf8(path), side, BatchId(batch), size, "", "")
    folder = f"{read.warehouse.home}/readable/{uuid.uuid4().hex[:12]}"
    links = linked(strange([path]), folder)
    if links:
        cleanup.callback(remove_copies, folder)
    lines = read_records(read.warehouse.session, {batch: [landed]}, spec, side, {}, {}, links)
    marked = mark_last(evaluate(lines.parsed, spec, side, ISOLATING), spec, side)
    cleanup.callback(read.release)
    records = read.frames.cached(marked, None if size <= read.limits.sizes.small_bytes else UNKNOWN)
    quarantined = records.counts("batch", "kind").get(batch, {}).get((BAD,), 0)
    return with_content(changelog(records.frame, spec, side, {}), spec, side), quarantined


def effects_on(log: DataFrame, state: DataFrame, keys: list[str]) -> DataFrame:
    """Returns the effect of a batch on each row of an input: the key columns, and `_fk_effect`.

    Args:
        log: the changelog rows of the batch; a truncate has no key.
        state: the state of the input.
        keys: its key columns.
    """
    stored = state.select(
        *map(quote, keys), F.expr(order_of(s.SEQUENCE, s.OWNER)).alias("_at"), F.col(s.HASH).alias("_hash")
    )
    first = F.col(quote(keys[0]))
    order = F.expr(order_of(s.SEQUENCE, s.BATCH))
    new = log.where(first.isNotNull()).select(
        *map(quote, keys), order.alias("_new_at"), F.col(s.HASH).alias("_new"), F.col(s.DELETED).alias("_gone")
    )
    effect = (
        F.when(F.col("_at") > F.col("_new_at"), LATE)
        .when(F.col("_hash").eqNullSafe(F.col("_new")), UNCHANGED)
        .when(F.col("_gone") & (F.col("_hash").isNotNull() | F.col("_new").isNotNull()), REMOVED)
        .when(F.col("_hash").isNull(), ADDED)
        .otherwise(CHANGED)
    )
    rows = new.join(stored, keys, "left").select(*map(quote, keys), effect.alias(EFFECT))
    truncate = log.where(first.isNull()).select(order.alias("_truncated"))
    gone = stored.join(new.select(*map(quote, keys)), keys, "left_anti").crossJoin(F.broadcast(truncate))
    gone = gone.where("_hash IS NOT NULL AND _truncated > _at")
    return rows.unionByName(gone.select(*map(quote, keys), F.lit(REMOVED).alias(EFFECT)))
