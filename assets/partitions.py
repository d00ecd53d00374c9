"""One dynamic partition per CDC batch. Partitions are derived from the ledger, never the ledger from partitions."""

from __future__ import annotations

from collections.abc import Iterable

from dagster import (
    AddDynamicPartitionsRequest,
    DagsterInstance,
    DeleteDynamicPartitionsRequest,
    DynamicPartitionsDefinition,
)

from fk_pipeline.identity import BatchId
from fk_pipeline.spec import PipelineSpec
from resources.names import partitions_name

Changes = list[AddDynamicPartitionsRequest | DeleteDynamicPartitionsRequest]


def batch_partitions(spec: PipelineSpec) -> DynamicPartitionsDefinition:
    """Returns the partitions that all assets of a pipeline share: `b00000000`, `b00000001` ..."""
    return DynamicPartitionsDefinition(name=partitions_name(spec))


def partition_requests(
    instance: DagsterInstance, spec: PipelineSpec, batches: Iterable[BatchId], reorder: bool = True
) -> tuple[Changes, list[str]]:
    """Returns the requests that give every batch its partition, in the order of the batches; and all partitions then.

    Dagster keeps dynamic partitions in the order in which they were added, and ranges follow that order. So the
    partitions that come after a new batch are deleted and added again: Dagster keeps their materialisations.

    Args:
        instance: the Dagster instance.
        spec: the pipeline.
        batches: the batches of the ledger.
        reorder: whether partitions may be reordered now: no run needs the partitions that come after a new one.
    """
    name = partitions_name(spec)
    known, new = _known_and_new(instance, name, batches)
    every = sorted([*known, *new])
    kept = next((i for i, (have, want) in enumerate(zip(known, every, strict=False)) if have != want), len(known))
    if not reorder:
        kept = len(known)
    changes: Changes = []
    if known[kept:]:
        changes.append(DeleteDynamicPartitionsRequest(name, known[kept:]))
    added = sorted([*known[kept:], *new])
    if added:
        changes.append(AddDynamicPartitionsRequest(name, added))
    return changes, [*known[:kept], *added]


def add_partitions(instance: DagsterInstance, spec: PipelineSpec, batches: Iterable[BatchId]) -> list[str]:
    """Adds the partitions that Dagster does not have yet, after those that it has; returns their keys."""
    name = partitions_name(spec)
    _, new = _known_and_new(instance, name, batches)
    if new:
        instance.add_dynamic_partitions(name, new)
    return new


def _known_and_new(instance: DagsterInstance, name: str, batches: Iterable[BatchId]) -> tuple[list[str], list[str]]:
    """Returns the partitions in the order of Dagster, and those that it lacks, in the order of the batches."""
    known = list(instance.get_dynamic_partitions(name))
    return known, sorted({batch.key for batch in batches} - set(known))
