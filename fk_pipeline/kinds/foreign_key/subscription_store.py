"""Stage `subscription_store`: the right key and the hash with which each left row subscribes.

It does KIP-213's subscription send and subscription receive in one step: the rows with `_fk_applied_in = n` are the
subscription messages of batch n. `DELETE_KEY_NO_PROPAGATE`, which unsubscribes from the old foreign key, is implied by
`_fk_previous_fk_*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.versions import BEFORE, OUTCOME, apply_versions
from fk_pipeline.identity import APPLIED, INSERTED, BatchRange
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kafka.instructions import instruction_sql
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s


def subscription_store(
    left_changelog: DataFrame,
    state: DataFrame,
    spec: ForeignKeySpec,
    batches: BatchRange,
    generations: Mapping[int, int],
    truncated: bool = False,
) -> DataFrame:
    """Applies the batches to the subscription store: `versions.apply_versions` with the message that is sent.

    Returns:
        One row per left key that the batches read or own. `_fk_instruction` and `_fk_previous_fk_*` describe the
        message of `_fk_applied_in`; an unchanged row keeps those of its last message.
    """
    renamed = k.left_keys(spec)
    fks, times = [c.name for c in spec.right.key_columns], [name for name, _ in k.time_columns(spec, k.AS_OF)]
    log = left_changelog.select(
        *[F.col(quote(name)).alias(new) for name, new in renamed.items()],
        s.SEQUENCE,
        s.BATCH,
        s.GENERATION,
        s.HASH,
        *[quote(k.fk(name)) for name in fks],
        *times,
    )
    pks, payload = list(renamed.values()), [*(k.fk(n) for n in fks), *times]
    rows = apply_versions(log, state, pks, payload, batches, generations, truncated)
    propagated, old = F.col(OUTCOME).isin(INSERTED, APPLIED), F.col(BEFORE)

    def before(name: str) -> Column:
        return old[name]

    first = k.fk(fks[0])
    message = F.expr(
        instruction_sql(
            seen=s.SEEN_BEFORE,
            deleted=f"{s.HASH} IS NULL",
            fk_null=f"{quote(first)} IS NULL",
            had_fk=f"{BEFORE}.{quote(first)} IS NOT NULL",
            inner=spec.inner,
        )
    )
    return rows.withColumns(
        {
            k.INSTRUCTION: F.when(propagated, message).otherwise(before(k.INSTRUCTION)),
            **{k.previous_fk(n): F.when(propagated, before(k.fk(n))).otherwise(before(k.previous_fk(n))) for n in fks},
        }
    )


def new_subscribers(rows: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Returns the pairs of foreign key and left key that are new in the store; they go to `subscribers` before it.

    With `as_of` these are triples with the time, and some are not new.

    Args:
        rows: the rows that `subscription_store` returns, or the store itself for all pairs.
        spec: the pipeline.
    """
    pairs = [quote(name) for name in (*k.subscribed(spec), *k.pk_names(spec))]
    if OUTCOME in rows.columns:
        rows = rows.where(F.col(OUTCOME).isin(INSERTED, APPLIED))
        unchanged = [
            F.col(quote(k.fk(c.name))).eqNullSafe(F.col(quote(k.previous_fk(c.name)))) for c in spec.right.key_columns
        ]
        if spec.as_of is None:  # else the store does not remember the time of before
            rows = rows.where(~reduce(and_, unchanged))
    return rows.where(F.col(quote(k.subscribed(spec)[0])).isNotNull()).select(*pairs)
