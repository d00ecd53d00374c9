"""Stage `responses`: the responses due to a batch, without payload.

KIP-213's subscription join (a response to every subscription that requests one) and foreign-table join (a response to
every subscriber of a right row that changed). Architecture, rules 3 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kafka.instructions import PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
from fk_pipeline.kinds.foreign_key.rights import (
    PROPAGATED,
    USUAL,
    Ends,
    answering,
    meeting,
    reached,
    right_hash,
    with_right,
)
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

LEFT, RIGHT = "left", "right"


_CHANGED_IN, _PROPAGATED = "_fk_changed_in", "_fk_propagated"


def due_subscriptions(subscriptions: DataFrame, batches: BatchRange) -> DataFrame:
    """Returns the subscriptions whose message is due to the batches: those propagated for these batches."""
    return subscriptions.where(batches.predicate(s.APPLIED_IN)).where(F.col(k.INSTRUCTION).isNotNull())


def due_rights(right_table: DataFrame, batches: BatchRange) -> DataFrame:
    """Returns the right rows that changed for the batches and whose change must be propagated to subscribers."""
    return right_table.where(batches.predicate(s.APPLIED_IN)).where(PROPAGATED)


def responses(
    subscriptions: DataFrame,
    right_table: DataFrame,
    spec: ForeignKeySpec,
    batches: BatchRange,
    ends: Ends = USUAL,
) -> DataFrame:
    """Returns the responses due to the batches: one row per batch, left key and cause (see `tables.responses`).

    A subscriber that requests a response in the batch in which its right row changed gets one response: a second one
    would be equal.

    Args:
        subscriptions: the subscription store, or its rows that are due and those that refer to due right rows.
        right_table: the right table, or its rows that `subscriptions` refer to; with `as_of` all versions of their
            keys.
        spec: the pipeline.
        batches: the batches whose responses are due.
        ends: what may have ended versions, with `as_of`.
    """
    pks, subscribed = [*map(quote, k.pk_names(spec))], [*map(quote, k.subscribed(spec))]
    right = [
        F.expr(right_hash(spec)).alias(s.RIGHT_HASH),
        F.col(s.APPLIED_IN).alias(_CHANGED_IN),
        F.expr(PROPAGATED).alias(_PROPAGATED),
    ]
    stored = subscriptions.select(*pks, *subscribed, s.APPLIED_IN, k.INSTRUCTION, s.HASH, s.OWNER)
    both = with_right(stored, answering(right_table, spec, ends), spec, right)
    asks = (
        f"COALESCE({batches.predicate(s.APPLIED_IN)} AND {k.INSTRUCTION} IS NOT NULL "
        f"AND ({k.INSTRUCTION} <> '{PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE}' OR {s.RIGHT_HASH} IS NOT NULL), FALSE)"
    )
    changed = f"COALESCE({batches.predicate(_CHANGED_IN)} AND {_PROPAGATED}, FALSE)"
    hears = f"{changed} AND NOT ({asks} AND {s.APPLIED_IN} = {_CHANGED_IN})"
    left_driven = f"STRUCT({s.APPLIED_IN} AS batch, '{LEFT}' AS cause, {k.INSTRUCTION} AS instruction)"
    right_driven = f"STRUCT({_CHANGED_IN} AS batch, '{RIGHT}' AS cause, CAST(NULL AS STRING) AS instruction)"
    if batches.is_single:  # one response per subscriber: cause `left` if it asked, otherwise `right`
        response = F.expr(f"IF({asks}, {left_driven}, {right_driven})")
    else:
        twice = f"WHEN {hears} THEN ARRAY({left_driven}, {right_driven})"
        response = F.explode(
            F.expr(f"CASE WHEN NOT {asks} THEN ARRAY({right_driven}) {twice} ELSE ARRAY({left_driven}) END")
        )
    due = both.where(f"{asks} OR {changed}").withColumn("_fk_response", response)
    more = [] if spec.as_of is None else reached(right_table, spec, batches, ends)
    if more:
        due = due.unionByName(_hearing(both, more, spec, asks, changed).select(*map(quote, due.columns)))
    return due.select(
        F.col("_fk_response.batch").alias(s.BATCH),
        *pks,
        *subscribed,
        F.col("_fk_response.cause").alias(s.CAUSE),
        F.col("_fk_response.instruction").alias(k.INSTRUCTION),
        F.col(s.HASH).alias(s.LEFT_HASH),
        s.RIGHT_HASH,
        s.OWNER,
    )


def _hearing(both: DataFrame, more: Sequence[DataFrame], spec: ForeignKeySpec, asks: str, changed: str) -> DataFrame:
    """Returns the subscriptions that get a response because another version than before, or none, answers them now.

    Args:
        both: the subscriptions with the right row that answers each.
        more: the times that the changes reach, as `reached` returns them.
        spec: the pipeline.
        asks: SQL (BOOLEAN) over `both`: the subscription requests a response.
        changed: SQL (BOOLEAN) over `both`: the version that answers changed.

    Returns:
        `both` with `_fk_response`, without those that get the same response anyway.
    """
    pks = k.pk_names(spec)
    answered = f"({asks} AND {s.APPLIED_IN} = {s.BATCH}) OR ({changed} AND {_CHANGED_IN} = {s.BATCH})"
    rows = meeting(both, more, spec).where(f"NOT ({answered})").dropDuplicates([*pks, s.BATCH])
    right_driven = f"STRUCT({s.BATCH} AS batch, '{RIGHT}' AS cause, CAST(NULL AS STRING) AS instruction)"
    return rows.withColumn("_fk_response", F.expr(right_driven))
