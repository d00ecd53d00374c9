"""Stage `right_table`: the current row of every right key, tombstones kept (KIP-213: the "other" KTable)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from fk_pipeline.blocks.versions import apply_versions
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s


def right_table(
    right_changelog: DataFrame,
    state: DataFrame,
    spec: ForeignKeySpec,
    batches: BatchRange,
    generations: Mapping[int, int],
    truncated: bool = False,
) -> DataFrame:
    """Applies the batches to the right table: see `versions.apply_versions`.

    The payload is the whole right row; it is replaced even when its hash is equal (rule 5). With `as_of` a row is a
    version of a right key. With `as_of: batch` a truncate stays in the changelog: it ends versions, and changes none.
    """
    keys = k.keys_of(spec, k.RIGHT_TABLE).keys
    payload = [*([] if spec.as_of is None else [s.DELETED]), *(c.name for c in spec.right.value_columns)]
    if spec.as_of_batch and truncated:
        right_changelog, truncated = right_changelog.where(f"{quote(keys[0])} IS NOT NULL"), False
    return apply_versions(right_changelog, state, keys, payload, batches, generations, truncated)
