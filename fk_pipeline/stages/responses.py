"""Stage `responses`: the answers that a batch owes, without payload.

KIP-213's subscription join (an answer to every subscription that asks for one) and foreign-table join (an answer to
every subscriber of a right row that changed). Architecture, rules 3 and 4.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import BatchRange
from fk_pipeline.protocol.instructions import PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.tables import schemas as s

LEFT, RIGHT = "left", "right"


def responses(subscriptions: DataFrame, right_table: DataFrame, spec: PipelineSpec, batches: BatchRange) -> DataFrame:
    """The answers due to the batches: one row per batch, left key and cause (see `schemas.responses`).

    Args:
        subscriptions: the subscription store.
        right_table: the right table.
        spec: the pipeline.
        batches: the batches whose answers are due.
    """
    due = batches.predicate(s.APPLIED_IN)
    pks = [quote(name) for name, _ in s.pk_columns(spec)]
    fks = [name for name, _ in s.fk_columns(spec)]
    right = right_table.select(
        *[F.col(quote(c.name)).alias(s.fk(c.name)) for c in spec.right.key_columns],
        F.col(s.HASH).alias(s.RIGHT_HASH),
        F.col(s.APPLIED_IN).alias("_fk_right_applied_in"),
        (F.col(s.SEEN_BEFORE) | F.col(s.HASH).isNotNull()).alias("_fk_right_told"),
    )
    asked = subscriptions.where(due).where(F.col(s.INSTRUCTION).isNotNull())
    by_left = (
        asked.join(right.select(*map(quote, fks), s.RIGHT_HASH), fks, "left")
        .where((F.col(s.INSTRUCTION) != PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE) | F.col(s.RIGHT_HASH).isNotNull())
        .select(
            F.col(s.APPLIED_IN).alias(s.BATCH),
            *pks,
            *map(quote, fks),
            F.lit(LEFT).alias(s.CAUSE),
            s.INSTRUCTION,
            F.col(s.HASH).alias(s.LEFT_HASH),
            s.RIGHT_HASH,
        )
    )
    changed = right.where(batches.predicate("_fk_right_applied_in")).where("_fk_right_told")
    by_right = subscriptions.join(changed, fks).select(
        F.col("_fk_right_applied_in").alias(s.BATCH),
        *pks,
        *map(quote, fks),
        F.lit(RIGHT).alias(s.CAUSE),
        F.lit(None).cast("string").alias(s.INSTRUCTION),
        F.col(s.HASH).alias(s.LEFT_HASH),
        s.RIGHT_HASH,
    )
    return by_left.unionByName(by_right)
