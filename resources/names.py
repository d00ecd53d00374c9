"""What Dagster calls the things of a pipeline."""

from __future__ import annotations

from dagster import AssetKey

from fk_pipeline.identity import Stage
from fk_pipeline.spec import PipelineSpec


def asset_key(spec: PipelineSpec, stage: Stage) -> AssetKey:
    """The key of a stage's asset: pipeline, stage."""
    return AssetKey([spec.name, stage.value])


def partitions_name(spec: PipelineSpec) -> str:
    """The name of the dynamic partitions that all assets of a pipeline share."""
    return f"{spec.name}_batches"


def pool_of(spec: PipelineSpec) -> str:
    """The pool that lets one run of a pipeline go on at a time."""
    return f"fk_{spec.name}"
