"""The Dagster assets of fk-pipeline: one per stage of a pipeline, with their partitions, jobs and sensor."""

from __future__ import annotations

from dagster import AssetsDefinition, AssetSpec

from fk_pipeline.assets.landed import input_asset, sources_of
from fk_pipeline.assets.stage import stage_asset
from fk_pipeline.resources.names import SourceKeys
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.layout import Layout

__all__ = ["assets_of", "sources_of"]


def assets_of(spec: PipelineSpec, layout: Layout, sources: SourceKeys) -> list[AssetsDefinition | AssetSpec]:
    """Returns the assets of a pipeline: what landed of each input, and one per stage, in running order."""
    stages = spec.definition.stages
    return [
        *(input_asset(spec, source.name, sources) for source in spec.definition.inputs),
        *(stage_asset(spec, stage, layout[stage.name]) for stage in stages),  # a stage has the name of its main table
    ]
