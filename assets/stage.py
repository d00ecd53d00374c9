"""What the five assets have in common: an asset around one engine stage, with metadata per batch."""

# No `from __future__ import annotations` here: Dagster reads the annotations of decorated functions.
from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    BackfillPolicy,
    MetadataValue,
    TableColumn,
    TableSchema,
    asset,
)

from assets.partitions import add_partitions, batch_partitions
from expectations.validation import preload
from fk_pipeline.identity import UPSTREAM, BatchId, Stage, contiguous
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.stages.runner import StageRun
from fk_pipeline.tables.schemas import Table
from resources import FkSparkResource, LandingZoneResource


def asset_key(spec: PipelineSpec, stage: Stage) -> AssetKey:
    """The key of a stage's asset: pipeline, stage."""
    return AssetKey([spec.name, stage.value])


def stage_asset(spec: PipelineSpec, stage: Stage, description: str, table: Table) -> AssetsDefinition:
    """The asset of one stage: partitioned by batch, a range of batches is one run and one Spark pass.

    Args:
        spec: the pipeline.
        stage: the stage that a materialisation runs.
        description: what the stage does and by which rule.
        table: its main table, for the column schema.
    """

    @asset(
        key=asset_key(spec, stage),
        deps=[asset_key(spec, upstream) for upstream in UPSTREAM[stage]],
        partitions_def=batch_partitions(spec),
        backfill_policy=BackfillPolicy.single_run(),
        group_name=spec.name,
        kinds={"spark", "delta"},
        pool=f"fk_{spec.name}",
        description=description,
        metadata={
            "dagster/column_schema": TableSchema([TableColumn(name, kind) for name, kind in table.columns]),
            "path": MetadataValue.path(f"{spec.home}/{table.name}"),
            "pipeline file": MetadataValue.path(str(spec.file)),
        },
    )
    def materialise(context: AssetExecutionContext, spark: FkSparkResource, landing_zone: LandingZoneResource) -> None:
        if context.run.asset_check_selection != frozenset():  # None: all checks of the run's assets
            preload()
        pipeline = Pipeline(spec, spark.spark_session, landing_zone.zone())
        pipeline.discover()
        keys = list(context.partition_keys)
        wanted = [BatchId.from_key(key) for key in keys]
        known = pipeline.ledger().batches
        add_partitions(context.instance, spec, known)
        for batches in contiguous(wanted, known):
            result = pipeline.runner.run(stage, batches)
            context.log.info("%s, batch %s: %.1f s", stage, batches, result.seconds)
            for batch in (b for b in wanted if b in batches):
                _report(context, result, batch)

    return materialise


def _report(context: AssetExecutionContext, result: StageRun, batch: BatchId) -> None:
    """The counts of one batch, and what the whole run took, as metadata of its partition."""
    metadata: dict[str, object] = dict(result.counts.get(batch, {}))
    metadata["seconds"] = round(result.seconds, 3)
    metadata["batches in this run"] = str(result.batches)
    metadata["run id"] = result.run_id
    for name, version in result.versions.items():
        if name.endswith(" written"):
            metadata[f"Delta version of {name.removesuffix(' written')}"] = version
    if result.choice:
        metadata["strategy"] = f"{result.choice.strategy}: {result.choice.reason}"
    if result.notes:
        metadata["note"] = "; ".join(result.notes)
    context.add_asset_metadata(metadata, partition_key=batch.key)
