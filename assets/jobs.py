"""The jobs of a pipeline: all five stages for one batch or a range, checked; and the full checks."""

from __future__ import annotations

from dagster import AssetSelection, define_asset_job
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from fk_pipeline.spec import PipelineSpec


def batches_job(spec: PipelineSpec) -> UnresolvedAssetJobDefinition:
    """All five stages, in order, each with the checks of what the batches touched before the next."""
    return define_asset_job(
        f"{spec.name}_all_stages",
        selection=AssetSelection.groups(spec.name),
        description=f"All stages of {spec.name} for one batch or a range of them, checked.",
    )


def full_checks_job(spec: PipelineSpec) -> UnresolvedAssetJobDefinition:
    """All checks of the whole tables, and the proof of the result; for the night."""
    return define_asset_job(
        f"{spec.name}_full_checks",
        selection=AssetSelection.groups(spec.name) - AssetSelection.groups(spec.name).without_checks(),
        description=f"Every check of {spec.name}, of the whole tables, with the join computed anew.",
    )
