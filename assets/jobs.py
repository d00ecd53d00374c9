"""The job that materialises all five stages of a pipeline for one batch or a range."""

from __future__ import annotations

from dagster import AssetSelection, define_asset_job
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from fk_pipeline.spec import PipelineSpec


def batches_job(spec: PipelineSpec) -> UnresolvedAssetJobDefinition:
    """All five stages, in order; the checks look at whole tables and are run apart."""
    return define_asset_job(
        f"{spec.name}_all_stages",
        selection=AssetSelection.groups(spec.name).without_checks(),
        description=f"All stages of {spec.name} for one batch or a range of them.",
    )
