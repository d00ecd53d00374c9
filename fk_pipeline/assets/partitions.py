"""One dynamic partition per CDC batch. Partitions are derived from the ledger, never the ledger from partitions."""

from __future__ import annotations

from collections.abc import Iterable

from dagster import DagsterInstance, DynamicPartitionsDefinition

from fk_pipeline.identity import BatchId
from fk_pipeline.resources.names import partitions_name
from fk_pipeline.spec import PipelineSpec


def batch_partitions(spec: PipelineSpec) -> DynamicPartitionsDefinition:
    """Returns the partitions that all assets of a pipeline share: `b00000000`, `b00000001` ..."""
    return DynamicPartitionsDefinition(name=partitions_name(spec))


def add_partitions(instance: DagsterInstance, spec: PipelineSpec, batches: Iterable[BatchId]) -> list[str]:
    """Adds the partitions that Dagster does not have yet, after those that it has; returns their keys."""
    name = partitions_name(spec)
    new = sorted({batch.key for batch in batches} - set(instance.get_dynamic_partitions(name)))
    if new:
        instance.add_dynamic_partitions(name, new)
    return new


def sort_partitions(instance: DagsterInstance, spec: PipelineSpec) -> None:
    """Brings the partitions into the order of the batches.

    Dagster keeps dynamic partitions in the order in which they were added, and a range of partitions follows that
    order. So the partitions that belong behind a late batch are deleted and added again; Dagster keeps their
    materialisations. A sensor's result must not do that: Dagster refuses one that deletes and adds the same partition.
    The partitions are moved one by one. If the process dies, at most one is missing, and the next tick adds it.
    """
    name = partitions_name(spec)
    known = list(instance.get_dynamic_partitions(name))
    ordered = sorted(known)
    in_place = next((i for i, (have, want) in enumerate(zip(known, ordered, strict=True)) if have != want), len(known))
    for key in ordered[in_place:]:
        instance.delete_dynamic_partition(name, key)
        instance.add_dynamic_partitions(name, [key])
