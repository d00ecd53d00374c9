"""The stages of the semi join: functions from a reader to effects."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F

from fk_pipeline.blocks.state import by_versions, state_effects
from fk_pipeline.contract import Role
from fk_pipeline.effects import Effect, Reject, Report, Upsert
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.failing import ISOLATING
from fk_pipeline.stage_input import Reader
from fk_pipeline.store import schemas as s
from tests.kinds.semi_join.kind import LEFT_ROWS, MATCHED_ROWS, RIGHT_KEYS, reference
from tests.kinds.semi_join.tables import key, keys_of, payload

_LIVES, _THERE, _REASON = "_fk_lives", "_fk_there", "_fk_failed"


def left_rows(read: Reader) -> list[Effect]:
    """Applies the batches to the left rows."""
    return _state(read, LEFT_ROWS, read.spec.left, [name for name, _ in payload(read.spec)])


def right_keys(read: Reader) -> list[Effect]:
    """Applies the batches to the right keys."""
    return _state(read, RIGHT_KEYS, read.spec.right, [])


def _state(read: Reader, stage: str, side: SideSpec, values: Sequence[str]) -> list[Effect]:
    """Applies the batches to a state: the current version of every key of a side, with some values."""
    keys = [column.name for column in side.key_columns]

    (log,) = [table.name for table in read.spec.definition.tables if (table.stage, table.role) == (stage, Role.LOG)]
    return state_effects(read, stage, log, stage, {key: key for key in keys}, by_versions(keys, values))


def matched_rows(read: Reader) -> list[Effect]:
    """Writes the rows with a match among the left rows that batches concern, and removes the others.

    A batch concerns the left rows that it changed, and those that refer to right rows which it changed.
    """
    spec, batches = read.spec, read.batches
    keys, refers = [c.name for c in spec.left.key_columns], [reference(c.name) for c in spec.right.key_columns]
    news = f"IF({batches.predicate(s.APPLIED_IN)}, {s.APPLIED_IN}, NULL)"
    rights = read.read(RIGHT_KEYS).select(
        *[F.col(quote(c.name)).alias(reference(c.name)) for c in spec.right.key_columns],
        F.expr(f"{s.HASH} IS NOT NULL").alias(_LIVES),
        F.expr(news).alias("_fk_right_news"),
    )
    there = read.read(MATCHED_ROWS).select(*map(quote, keys_of(spec, MATCHED_ROWS).keys), F.col(s.HASH).alias(_THERE))
    there = there.toDF(*keys, _THERE)
    rows = read.read(LEFT_ROWS).join(rights, refers, "left")
    rows = rows.withColumn(s.BATCH, F.expr(f"COALESCE({news}, _fk_right_news)")).where(f"{s.BATCH} IS NOT NULL")
    gone = f"NOT ({s.HASH} IS NOT NULL AND COALESCE({_LIVES}, FALSE))"
    rows = rows.join(there, keys, "left").withColumn(s.DELETED, F.expr(gone))
    left = f"STRUCT({', '.join(c.quoted for c in spec.left.columns)}) AS left"
    outputs = [output.sql for output in spec.outputs]
    isolating, number = read.evaluator.isolating, read.about(LEFT_ROWS).rows
    rows = rows.selectExpr("*", left)
    reason = ISOLATING.reason((f"NOT {s.DELETED}", sql, "select") for sql in outputs) if isolating else "NULL"
    rows = rows.selectExpr("*", f"CAST({reason} AS STRING) AS {_REASON}")
    failing = read.frames.cached(rows.where(f"{_REASON} IS NOT NULL"), number) if isolating else None
    rows = rows.withColumn(s.DELETED, F.expr(f"{s.DELETED} OR {_REASON} IS NOT NULL"))
    rows = rows.where(f"IF({s.DELETED}, {_THERE} IS NOT NULL, NOT ({_THERE} <=> {s.HASH}))")
    renamed = [F.col(quote(name)).alias(key(name)) for name in keys]
    values = [F.when(~F.col(s.DELETED), F.expr(output.sql)).alias(output.name) for output in spec.outputs]
    now = F.current_timestamp().alias(s.CHANGED_AT)
    changed = read.frames.cached(rows.select(*renamed, s.HASH, s.BATCH, now, s.DELETED, *values), number)
    changed.compute()
    counts: dict[int, dict[str, int]] = {}
    for batch, groups in changed.counts(s.BATCH, s.DELETED).items():
        counts[batch] = {"removed" if removed else "written": n for (removed,), n in groups.items()}
    rejected = None
    if failing is not None:
        pair = F.to_json(F.struct("left"))
        rejected = failing.frame.select(
            s.BATCH, F.lit(None).cast("string").alias(s.FILE), F.lit(None).cast("bigint").alias(s.LINE),
            F.col(_REASON).alias(s.REASON), pair.alias(s.RAW),
        )  # fmt: skip
    refused = 0 if rejected is None else rejected.count()
    return [
        Reject(rejected if refused else None, refused, "join"),
        Report(counts),
        Upsert(MATCHED_ROWS, changed, delete_when=s.DELETED),
    ]
