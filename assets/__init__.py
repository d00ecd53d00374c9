"""The Dagster assets of fk-pipeline: one per stage of a pipeline, with their partitions, jobs and sensor."""

from __future__ import annotations

from importlib import import_module

from dagster import AssetsDefinition

from assets.stage import stage_asset
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.layout import Layout


def assets_of(spec: PipelineSpec, layout: Layout) -> list[AssetsDefinition]:
    """Returns the assets of a pipeline, one per stage, in running order.

    The description of a stage is in the module with its name.
    """
    tables = layout.of(*spec.definition.stage_names)  # a stage has the name of its main table
    return [stage_asset(spec, table.name, import_module(f"assets.{table.name}").DESCRIPTION, table) for table in tables]
