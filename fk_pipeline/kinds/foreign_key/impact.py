"""The impact of a change of the right side before it is made: the rows of the result that it would touch (fan-out)."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.identity import MAX_BATCH, BatchId, LandedFile, Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.fan_out import SUBSCRIBER_COUNT, referring
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.failing import ISOLATING
from fk_pipeline.spec.keys import is_key, parse_key, shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.sizes import UNKNOWN

_EFFECT = "_fk_effect"
ADDED, CHANGED, REMOVED = "added", "changed", "removed"
UNCHANGED, LATE = "nothing: no selected column differs", "nothing: it is older than what is there"
TOUCHING = (ADDED, CHANGED, REMOVED)
"""Effects on a right row that are propagated to its subscribers."""


@dataclass(frozen=True)
class Impact:
    """The impact of a change.

    Attributes:
        fan_out: number of left rows that refer to right rows which would be added, changed or removed; in an outer join
            also of those of these right rows to which none refers, because such a row stands alone.
        right_rows: number of right rows, by the effect on them.
        quarantined: number of records of the file that cannot be used.
        keys: the right keys with the most left rows: `key`, `subscribers`, `effect`.
    """

    fan_out: int
    right_rows: dict[str, int]
    quarantined: int
    keys: tuple[dict[str, Any], ...]

    def as_json(self) -> dict[str, Any]:
        """Returns the impact as a JSON object."""
        return asdict(self)

    def table(self) -> list[list[str]]:
        """Returns the right keys as a table for people, its header first."""
        rows = [[row["key"], f"{row['subscribers']:,}", row["effect"]] for row in self.keys]
        return [["right key", "left rows that refer to it", "what it would do"], *rows]

    def sentences(self) -> list[str]:
        """Returns the numbers in sentences."""
        lines = [f"{number:,} right row(s) {what}" for what, number in self.right_rows.items()]
        if self.quarantined:
            lines.append(f"{self.quarantined:,} record(s) of the file cannot be used")
        return [*lines, f"{self.fan_out:,} rows of the result would be written or taken out."]


def impact(
    read: TableReader, spec: PipelineSpec, ledger: Ledger, right_key: str | None, changes: Path | None, limit: int
) -> Impact:
    """Returns the impact of any change of one right row, or of the changes in a file.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline.
        ledger: its ledger.
        right_key: the key of a right row; or
        changes: a file as it would land.
        limit: the largest number of right keys to report.

    Raises:
        UsageError: it is neither or both, not a key of the right side, or not a file in its format.
    """
    if right_key is not None and changes is None:
        return of_key(read, spec, right_key)
    if changes is not None and right_key is None:
        return of_changes(read, spec, ledger, changes, limit)
    raise UsageError(
        "impact needs a right key, or a file of changes", fix="--right-key KEY, or --changes FILE; not both"
    )


def of_key(read: TableReader, spec: PipelineSpec, said: str) -> Impact:
    """Returns the impact of any change of one right row.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline.
        said: the key, as `parse_key` takes it.

    Raises:
        UsageError: it is not a key of the right side.
    """
    side = spec.right
    key = parse_key(said, side, "--right-key")
    name = shown(key_row(read.warehouse.session, key, side))
    there = read.read(k.RIGHT_TABLE).where(is_key(key, side)).where(f"{s.HASH} IS NOT NULL")
    effect = ADDED if there.isEmpty() else f"{CHANGED} or {REMOVED}"
    fan_out = _referring(read, spec).where(is_key(key, side, k.fk)).count()
    touched = max(fan_out, 1) if spec.outer else fan_out
    return Impact(touched, {effect: 1}, 0, ({"key": name, "subscribers": fan_out, "effect": effect},))


def of_changes(read: TableReader, spec: PipelineSpec, ledger: Ledger, file: Path, limit: int) -> Impact:
    """Returns the impact of the changes in a file if it landed as the next batch of the right side.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline.
        ledger: its ledger.
        file: a file in the right side's format.
        limit: the largest number of right keys to report.

    Raises:
        UsageError: the file does not exist, or is not of that format.
    """
    side = spec.right
    if side.format == "delta" or not is_of_format(str(file), side):
        raise UsageError(f"{file}: the right side's format is {side.format}", fix="write the changes as it does")
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    batch = min(max(ledger.batches, default=-1) + 1, MAX_BATCH)
    size = file.stat().st_size
    path = str(file.absolute())
    landed = LandedFile(as_utf8(path), Side.RIGHT, BatchId(batch), size, "", "")
    keys = [c.name for c in side.key_columns]
    with ExitStack() as kept:
        folder = f"{read.warehouse.home}/readable/{uuid.uuid4().hex[:12]}"
        links = linked(strange([path]), folder)
        if links:
            kept.callback(remove_copies, folder)
        lines = read_records(read.warehouse.session, {batch: [landed]}, spec, Side.RIGHT, {}, {}, links)
        marked = mark_last(evaluate(lines.parsed, spec, Side.RIGHT, ISOLATING), spec, Side.RIGHT)
        kept.callback(read.release)
        records = read.cached(marked, None if size <= read.sizes.small_bytes else UNKNOWN)
        quarantined = records.counts("batch", "kind").get(batch, {}).get((BAD,), 0)
        log = with_content(changelog(records.frame, spec, Side.RIGHT, {}), spec, Side.RIGHT)
        state = read.read(k.RIGHT_TABLE)
        subscribers = _subscribers(read, spec).toDF(*keys, SUBSCRIBER_COUNT)
        touched = (
            _effects(log, state, keys)
            .join(subscribers, keys, "left")
            .select(*map(quote, keys), _EFFECT, F.coalesce(SUBSCRIBER_COUNT, F.lit(0)).alias(SUBSCRIBER_COUNT))
            .persist()
        )
        kept.callback(touched.unpersist)
        rows = F.greatest(SUBSCRIBER_COUNT, F.lit(1)) if spec.outer else F.col(SUBSCRIBER_COUNT)
        groups = touched.groupBy(_EFFECT).agg(F.count("*"), F.sum(rows)).collect()
        most = touched.orderBy(F.col(_EFFECT).isin(*TOUCHING).desc(), F.col(SUBSCRIBER_COUNT).desc(), *map(quote, keys))
        listed = json_rows(most.limit(limit))
    return Impact(
        sum(row[2] for row in groups if row[0] in TOUCHING),
        {row[0]: row[1] for row in sorted(groups)},
        quarantined,
        tuple(
            {"key": shown({k: row[k] for k in keys}), "subscribers": row[SUBSCRIBER_COUNT], "effect": row[_EFFECT]}
            for row in listed
        ),
    )


def _referring(read: TableReader, spec: PipelineSpec) -> DataFrame:
    return referring(read.read(k.SUBSCRIPTION_STORE), spec)


def _subscribers(read: TableReader, spec: PipelineSpec) -> DataFrame:
    """Returns, per foreign key, the number of left rows that refer to it."""
    fks = [quote(name) for name, _ in k.fk_columns(spec)]
    return _referring(read, spec).groupBy(*fks).agg(F.count("*").alias(SUBSCRIBER_COUNT))


def _effects(log: DataFrame, state: DataFrame, keys: list[str]) -> DataFrame:
    """Returns the effect of a batch on each right row: the key columns, and `_fk_effect`.

    Args:
        log: the changelog rows of the batch; a truncate has no key.
        state: the right table.
        keys: its key columns.
    """
    there = state.select(
        *map(quote, keys), F.expr(order_of(s.SEQUENCE, s.OWNER)).alias("_at"), F.col(s.HASH).alias("_hash")
    )
    first = F.col(quote(keys[0]))
    order = F.expr(order_of(s.SEQUENCE, s.BATCH))
    new = log.where(first.isNotNull()).select(*map(quote, keys), order.alias("_new_at"), F.col(s.HASH).alias("_new"))
    effect = (
        F.when(F.col("_at") > F.col("_new_at"), LATE)
        .when(F.col("_hash").eqNullSafe(F.col("_new")), UNCHANGED)
        .when(F.col("_hash").isNull(), ADDED)
        .when(F.col("_new").isNull(), REMOVED)
        .otherwise(CHANGED)
    )
    rows = new.join(there, keys, "left").select(*map(quote, keys), effect.alias(_EFFECT))
    truncate = log.where(first.isNull()).select(order.alias("_truncated"))
    gone = there.join(new.select(*map(quote, keys)), keys, "left_anti").crossJoin(F.broadcast(truncate))
    gone = gone.where("_hash IS NOT NULL AND _truncated > _at")
    return rows.unionByName(gone.select(*map(quote, keys), F.lit(REMOVED).alias(_EFFECT)))
