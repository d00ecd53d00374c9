"""Stage `right_table`: the current row of every right key, tombstones kept (KIP-213: the "other" KTable)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from fk_pipeline.blocks.versions import apply_versions
from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import PipelineSpec


def right_table(
    right_changelog: DataFrame,
    state: DataFrame,
    spec: PipelineSpec,
    batches: BatchRange,
    generations: Mapping[int, int],
    truncated: bool = False,
) -> DataFrame:
    """Applies the batches to the right table: see `versions.apply_versions`.

    The payload is the whole right row; it is replaced even when its hash is equal (rule 5).
    """
    keys = [c.name for c in spec.right.key_columns]
    payload = [c.name for c in spec.right.value_columns]
    return apply_versions(right_changelog, state, keys, payload, batches, generations, truncated)
