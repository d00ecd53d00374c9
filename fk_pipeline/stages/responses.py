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


def due_subscriptions(subscriptions: DataFrame, batches: BatchRange) -> DataFrame:
    """The subscriptions whose message is due to the batches: those that were announced on their behalf."""
    return subscriptions.where(batches.predicate(s.APPLIED_IN)).where(F.col(s.INSTRUCTION).isNotNull())


def due_rights(right_table: DataFrame, batches: BatchRange) -> DataFrame:
    """The right rows that changed on behalf of the batches and that subscribers have to hear of.

    A tombstone of a key that never had a row says nothing new.
    """
    told = F.col(s.SEEN_BEFORE) | F.col(s.HASH).isNotNull()
    return right_table.where(batches.predicate(s.APPLIED_IN)).where(told)


def responses(
    asking: DataFrame, right_table: DataFrame, subscriptions: DataFrame, changed: DataFrame, spec: PipelineSpec
) -> DataFrame:
    """The answers due: one row per batch, left key and cause (see `schemas.responses`).

    Args:
        asking: the due subscriptions.
        right_table: the right table, or its rows that `asking` refers to.
        subscriptions: the subscription store, or its rows that refer to `changed`.
        changed: the due right rows.
        spec: the pipeline.
    """
    pks = [quote(name) for name, _ in s.pk_columns(spec)]
    fks = [name for name, _ in s.fk_columns(spec)]
    as_fks = [F.col(quote(c.name)).alias(s.fk(c.name)) for c in spec.right.key_columns]
    by_left = (
        asking.join(right_table.select(*as_fks, F.col(s.HASH).alias(s.RIGHT_HASH)), fks, "left")
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
    news = changed.select(*as_fks, F.col(s.HASH).alias(s.RIGHT_HASH), F.col(s.APPLIED_IN).alias("_fk_changed_in"))
    by_right = subscriptions.join(news, fks).select(
        F.col("_fk_changed_in").alias(s.BATCH),
        *pks,
        *map(quote, fks),
        F.lit(RIGHT).alias(s.CAUSE),
        F.lit(None).cast("string").alias(s.INSTRUCTION),
        F.col(s.HASH).alias(s.LEFT_HASH),
        s.RIGHT_HASH,
    )
    return by_left.unionByName(by_right)
