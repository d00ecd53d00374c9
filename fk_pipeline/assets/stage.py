"""The asset of a stage, the same for all stages: it runs one engine stage and adds metadata per batch."""

# No `from __future__ import annotations` here: Dagster reads the annotations of decorated functions.
from collections.abc import Mapping, Sequence

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    BackfillPolicy,
    Config,
    DataVersion,
    asset,
)
from pydantic import Field

from fk_pipeline.assets.current import observed
from fk_pipeline.assets.freshness import freshness_policy
from fk_pipeline.assets.partitions import batch_partitions, update_partitions
from fk_pipeline.assets.shown import Log, of_batch, of_definition, renewing_report
from fk_pipeline.blocks.meaning import description_of
from fk_pipeline.cdc.notices import HELD_BACK
from fk_pipeline.contract import StageDef
from fk_pipeline.engine.discovery import refuse_waiting
from fk_pipeline.engine.failed_checks import check_failed
from fk_pipeline.engine.runner import StageRun
from fk_pipeline.expectations.validation import import_early
from fk_pipeline.identity import BatchId, BatchRange, passes
from fk_pipeline.passes import finish, run_due
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource, LandingZoneResource
from fk_pipeline.resources.failures import failing
from fk_pipeline.resources.names import DUE_TAG, FILE_TAG, asset_key, group_of, input_key, pool_of
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.edited import text_of, with_known_types
from fk_pipeline.spec.load import with_settings
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.waiting import hearing


class StageConfig(Config):
    """The settings of one run of a stage in the launchpad."""

    strategy: str | None = Field(
        default=None,
        description="incremental, full or auto: how this run changes its tables; default: what the pipeline file says",
    )

    def applied_to(self, spec: PipelineSpec) -> PipelineSpec:
        """Returns the pipeline with the settings of this run."""
        return spec if self.strategy is None else with_settings(spec, strategy=self.strategy)


def stage_asset(spec: PipelineSpec, definition: StageDef, table: Table) -> AssetsDefinition:
    """Returns the asset of one stage, partitioned by batch; a range of batches is one run and one Spark pass.

    Args:
        spec: the pipeline.
        definition: the stage that a materialisation runs.
        table: its main table, for the column schema.
    """
    stage = definition.name
    inputs = spec.definition.inputs_of(stage)

    @asset(
        key=asset_key(spec, stage),
        deps=_deps(spec, stage),
        partitions_def=batch_partitions(spec),
        backfill_policy=BackfillPolicy.single_run(),
        group_name=group_of(spec),
        owners=spec.owners,
        tags=spec.tags,
        kinds={"spark", "delta"},
        pool=pool_of(spec),
        description=description_of(spec, definition.name),
        metadata=of_definition(spec, stage, table),
        freshness_policy=freshness_policy(spec) if stage == spec.definition.result_stage else None,
    )
    def materialise(
        context: AssetExecutionContext, config: StageConfig, spark: FkSparkResource, landing_zone: LandingZoneResource
    ) -> None:
        if context.run.asset_check_selection != frozenset():  # None: all checks of the run's assets
            import_early()
        log = Log(context)
        with failing(), hearing(log.warning):
            _tell_text(log, context.run.tags, spec)
            pipeline = Pipeline(config.applied_to(with_known_types(spec)), spark.spark_session, landing_zone.zone())
            materialise_batches(context, log, pipeline)

    def materialise_batches(context: AssetExecutionContext, log: Log, pipeline: Pipeline) -> None:
        discovery = pipeline.discover()
        for notice in discovery.notices:
            if notice.side in inputs:
                (log.warning if notice.kind == HELD_BACK else log.info)(notice.text)
        requested = [BatchId.from_key(key) for key in context.partition_keys]
        update_partitions(context.instance, spec, pipeline.ledger())
        with renewing_report(pipeline, log, always=stage == spec.definition.result_stage):
            _run(context, log, pipeline, stage, requested)
        ledger = pipeline.ledger()
        for batch in requested:
            context.add_asset_metadata(of_batch(spec, ledger, stage, batch), partition_key=batch.key)
        if stage == spec.definition.result_stage and (now := observed(spec, requested)) is not None:
            context.log_event(now)
        last = ledger.state(stage, requested[-1]).last
        if last is not None:  # one run of the ledger, unless it was cut (`max_batches_per_pass`): reports mend that
            context.set_data_version(context.asset_key, DataVersion(last.run_id))
        if inputs and not _is_of_sensor(context):
            refuse_waiting(discovery, spec, [BatchRange.of(batch) for batch in requested])

    return materialise


def _tell_text(log: Log, tags: Mapping[str, str], spec: PipelineSpec) -> None:
    """Logs that the pipeline file was edited between the tick of the sensor and the run that it requested."""
    seen = tags.get(FILE_TAG)
    if seen is not None and seen != text_of(spec):
        what = f"the sensor requested this run with text {seen}, and the pipeline file was edited since"
        log.warning(f"{spec.file}: {what}: the run uses text {text_of(spec)}, as it was when the run began")  # noqa: G004


def _is_of_sensor(context: AssetExecutionContext) -> bool:
    """Returns whether the sensor asked for this run, and nobody started it, or started it again."""
    return DUE_TAG in context.run.tags and context.run.parent_run_id is None


def _run(
    context: AssetExecutionContext, log: Log, pipeline: Pipeline, stage: str, requested: Sequence[BatchId]
) -> None:
    """Runs a stage for some batches: in a run that the sensor asked for, those that are due; otherwise all of them.

    Somebody who starts a run, starts it again or backfills wants these batches computed, whatever the ledger says.

    Raises:
        CheckFailedError: a batch failed a check; the others ran.
    """

    def ran(result: StageRun) -> StageRun:
        log.ran(result)
        return result

    if not _is_of_sensor(context):
        size = pipeline.spec.settings.max_batches_per_pass
        for batches in passes(requested, pipeline.ledger().batches, size):
            ran(pipeline.runner.run(stage, batches))
        return

    def run_if_due(_: str, batches: BatchRange) -> StageRun | None:
        result = pipeline.runner.run_due(stage, batches)
        if result is None:
            context.log.info("%s, batch %s: another run has done this meanwhile, or a part of it", stage, batches)
        return result and ran(result)

    finish(pipeline)
    refusing = run_due(pipeline, stage, run_if_due, frozenset(requested))
    if refusing:
        raise check_failed(refusing, pipeline.spec, pipeline.ledger())


def _deps(spec: PipelineSpec, stage: str) -> list[AssetKey]:
    """Returns the stages upstream, and what landed of the inputs that the stage reads."""
    kind = spec.definition
    upstream = [asset_key(spec, up) for up in kind.stage(stage).upstream]
    return [*upstream, *(input_key(spec, side) for side in kind.inputs_of(stage))]
