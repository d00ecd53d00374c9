"""The Dagster assets of fk-pipeline: one per stage of a pipeline, with their partitions, jobs and sensor."""

from __future__ import annotations

from importlib import import_module

from dagster import AssetsDefinition

from assets.stage import stage_asset
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.layout import Layout


def assets_of(spec: PipelineSpec, layout: Layout) -> list[AssetsDefinition]:
    """The assets of a pipeline, one per stage, in running order. The module of a stage's name has its description."""
    tables = layout.of(*spec.definition.stage_names)  # a stage is called like its main table
    return [stage_asset(spec, table.name, import_module(f"assets.{table.name}").DESCRIPTION, table) for table in tables]
