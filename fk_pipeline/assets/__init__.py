"""The Dagster assets of fk-pipeline: one per stage of a pipeline, with their partitions, jobs and sensor."""

from __future__ import annotations

from dagster import AssetsDefinition

from fk_pipeline.assets.stage import stage_asset
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.layout import Layout


def assets_of(spec: PipelineSpec, layout: Layout) -> list[AssetsDefinition]:
    """Returns the assets of a pipeline, one per stage, in running order."""
    stages = spec.definition.stages
    return [stage_asset(spec, stage, layout[stage.name]) for stage in stages]  # a stage has the name of its main table
