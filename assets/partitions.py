"""One dynamic partition per CDC batch. Partitions are derived from the ledger, never the other way round."""

from __future__ import annotations

from collections.abc import Iterable

from dagster import DagsterInstance, DynamicPartitionsDefinition

from fk_pipeline.identity import BatchId
from fk_pipeline.spec import PipelineSpec


def batch_partitions(spec: PipelineSpec) -> DynamicPartitionsDefinition:
    """The partitions that all assets of a pipeline share: `b00000000`, `b00000001` ..."""
    return DynamicPartitionsDefinition(name=f"{spec.name}_batches")


def add_partitions(instance: DagsterInstance, spec: PipelineSpec, batches: Iterable[BatchId]) -> list[str]:
    """Adds the partitions that Dagster does not know yet, in the order of the batches; returns their keys."""
    name = f"{spec.name}_batches"
    known = set(instance.get_dynamic_partitions(name))
    new = [batch.key for batch in sorted(batches) if batch.key not in known]
    if new:
        instance.add_dynamic_partitions(name, new)
    return new
