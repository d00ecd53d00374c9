"""Stage `responses`: the responses due to a batch, without payload.

KIP-213's subscription join (a response to every subscription that requests one) and foreign-table join (a response to
every subscriber of a right row that changed). Architecture, rules 3 and 4.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kafka.instructions import PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.store import schemas as s

LEFT, RIGHT = "left", "right"


_CHANGED_IN, _PROPAGATED = "_fk_changed_in", "_fk_propagated"

PROPAGATED = f"({s.SEEN_BEFORE} OR {s.HASH} IS NOT NULL)"
"""SQL (BOOLEAN) over a right row: its change is propagated. A tombstone of a key that never had a row is not."""


def due_subscriptions(subscriptions: DataFrame, batches: BatchRange) -> DataFrame:
    """Returns the subscriptions whose message is due to the batches: those propagated for these batches."""
    return subscriptions.where(batches.predicate(s.APPLIED_IN)).where(F.col(k.INSTRUCTION).isNotNull())


def due_rights(right_table: DataFrame, batches: BatchRange) -> DataFrame:
    """Returns the right rows that changed for the batches and whose change must be propagated to subscribers."""
    return right_table.where(batches.predicate(s.APPLIED_IN)).where(PROPAGATED)


def responses(subscriptions: DataFrame, right_table: DataFrame, spec: PipelineSpec, batches: BatchRange) -> DataFrame:
    """Returns the responses due to the batches: one row per batch, left key and cause (see `tables.responses`).

    A subscriber that requests a response in the batch in which its right row changed gets one response: a second one
    would be equal.

    Args:
        subscriptions: the subscription store, or its rows that are due and those that refer to due right rows.
        right_table: the right table, or its rows that `subscriptions` refer to.
        spec: the pipeline.
        batches: the batches whose responses are due.
    """
    pks = [quote(name) for name, _ in k.pk_columns(spec)]
    fks = [name for name, _ in k.fk_columns(spec)]
    right = right_table.select(
        *[F.col(quote(c.name)).alias(k.fk(c.name)) for c in spec.right.key_columns],
        F.col(s.HASH).alias(k.RIGHT_HASH),
        F.col(s.APPLIED_IN).alias(_CHANGED_IN),
        F.expr(PROPAGATED).alias(_PROPAGATED),
    )
    both = subscriptions.join(right, fks, "left").select(
        *pks, *map(quote, fks), s.APPLIED_IN, k.INSTRUCTION, s.HASH, s.OWNER, k.RIGHT_HASH, _CHANGED_IN, _PROPAGATED
    )
    asks = (
        f"COALESCE({batches.predicate(s.APPLIED_IN)} AND {k.INSTRUCTION} IS NOT NULL "
        f"AND ({k.INSTRUCTION} <> '{PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE}' OR {k.RIGHT_HASH} IS NOT NULL), FALSE)"
    )
    news = f"COALESCE({batches.predicate(_CHANGED_IN)} AND {_PROPAGATED}, FALSE)"
    hears = f"{news} AND NOT ({asks} AND {s.APPLIED_IN} = {_CHANGED_IN})"
    asked = f"STRUCT({s.APPLIED_IN} AS batch, '{LEFT}' AS cause, {k.INSTRUCTION} AS instruction)"
    heard = f"STRUCT({_CHANGED_IN} AS batch, '{RIGHT}' AS cause, CAST(NULL AS STRING) AS instruction)"
    if batches.first == batches.last:  # one response per subscriber: cause `left` if it asked, otherwise `right`
        response = F.expr(f"IF({asks}, {asked}, {heard})")
    else:
        twice = f"WHEN {hears} THEN ARRAY({asked}, {heard})"
        response = F.explode(F.expr(f"CASE WHEN NOT {asks} THEN ARRAY({heard}) {twice} ELSE ARRAY({asked}) END"))
    return (
        both.where(f"{asks} OR {news}")
        .withColumn("_fk_response", response)
        .select(
            F.col("_fk_response.batch").alias(s.BATCH),
            *pks,
            *map(quote, fks),
            F.col("_fk_response.cause").alias(k.CAUSE),
            F.col("_fk_response.instruction").alias(k.INSTRUCTION),
            F.col(s.HASH).alias(k.LEFT_HASH),
            k.RIGHT_HASH,
            s.OWNER,
        )
    )
