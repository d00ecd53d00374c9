"""The Dagster assets of fk-pipeline: one per stage of a pipeline, with their partitions, jobs and sensor."""

from __future__ import annotations

from collections.abc import Callable

from dagster import AssetsDefinition

from assets.left_changelog import left_changelog_asset
from assets.resolved_join import resolved_join_asset
from assets.responses import responses_asset
from assets.right_table import right_table_asset
from assets.subscription_store import subscription_store_asset
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.stages.layout import Layout

_ASSETS: tuple[Callable[[PipelineSpec, Layout], AssetsDefinition], ...] = (
    left_changelog_asset,
    right_table_asset,
    subscription_store_asset,
    responses_asset,
    resolved_join_asset,
)


def assets_of(spec: PipelineSpec, layout: Layout) -> list[AssetsDefinition]:
    """The five assets of a pipeline, in running order."""
    return [make(spec, layout) for make in _ASSETS]
