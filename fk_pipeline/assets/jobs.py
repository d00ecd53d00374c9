"""The jobs of a pipeline: all stages for one batch or a range, with checks; the full checks; the upkeep."""

# No `from __future__ import annotations` here: Dagster reads the annotations of decorated functions.
from collections.abc import Set as AbstractSet
from typing import Any

from dagster import (
    AssetCheckKey,
    AssetSelection,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    ScheduleDefinition,
    TableColumn,
    TableRecord,
    TableSchema,
    define_asset_job,
    in_process_executor,
    job,
    op,
)
from dagster._core.definitions.asset_selection import AssetCheckKeysSelection
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource
from fk_pipeline.resources.failures import failing
from fk_pipeline.resources.names import asset_key, batches_job_name
from fk_pipeline.rules.suites import Depth, suite_of
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.load import with_known_types


class _ThoseOf(AssetCheckKeysSelection):
    """The checks that exist among some: a user who takes the assets without the checks gets a job without checks."""

    def resolve_checks_inner(
        self,
        asset_graph: Any,  # Dagster's base class and the one above differ in its type
        allow_missing: bool,  # noqa: ARG002  here checks may always be missing
    ) -> AbstractSet[AssetCheckKey]:
        """Returns the keys of the checks that exist."""
        return super().resolve_checks_inner(asset_graph, allow_missing=True)

    def to_serializable_asset_selection(self, asset_graph: BaseAssetGraph[Any]) -> AssetSelection:
        """Returns the same selection as a class of Dagster, for a process that shows the jobs."""
        return AssetSelection.checks(*sorted(self.resolve_checks(asset_graph)))


def _told_only_at(spec: PipelineSpec, depth: Depth) -> AssetSelection:
    """Returns the checks that only one depth can evaluate: in a run of the other depth, they would fail."""
    keys = [
        AssetCheckKey(asset_key(spec, stage), one.name)
        for stage in spec.definition.stage_names
        for one in suite_of(spec, stage)
        if one.depths == (depth,)
    ]
    return _ThoseOf(selected_asset_check_keys=keys)


def _stages(spec: PipelineSpec) -> AssetSelection:
    """Returns the assets of all stages with their checks, in whatever group they are."""
    return AssetSelection.assets(*(asset_key(spec, stage) for stage in spec.definition.stage_names))


def batches_job(spec: PipelineSpec) -> UnresolvedAssetJobDefinition:
    """Returns the job of all stages, in order; the rows that the batches touched are checked before the next stage."""
    return define_asset_job(
        batches_job_name(spec),
        selection=_stages(spec) - _told_only_at(spec, Depth.FULL),
        description=f"All stages of {spec.name} for one batch or a range of them, checked.",
    )


def full_checks_job(spec: PipelineSpec) -> UnresolvedAssetJobDefinition:
    """Returns the job of all checks of the whole tables and the proof of the result; meant to run at night."""
    return define_asset_job(
        f"{spec.name}_full_checks",
        selection=_stages(spec) - _stages(spec).without_checks() - _told_only_at(spec, Depth.BATCH),
        description=f"Every check of {spec.name}, of the whole tables, with the join computed anew.",
    )


def upkeep_job(spec: PipelineSpec) -> JobDefinition:
    """Returns the job that folds old batches, packs small files and removes old ones.

    It may run at the same time as batches, which wait for it table by table.
    """

    @op(name=f"{spec.name}_compact", description="Folding, OPTIMIZE and VACUUM of every table, and of the ledger.")
    def compact_tables(context: OpExecutionContext, spark: FkSparkResource) -> None:
        with failing():
            pipeline = Pipeline(with_known_types(spec), spark.spark_session)
            done = pipeline.compact(lambda name: context.log.info("%s", name))
        sizes = ("files before", "files after", "bytes before", "bytes after", "stored before", "stored after")
        names = ("table", *sizes, "rows removed")
        rows = [
            (
                one.table,
                one.before.files, one.after.files,
                one.before.bytes, one.after.bytes,
                one.before.stored, one.after.stored,
                one.removed,
            )
            for one in done
        ]  # fmt: skip
        table = MetadataValue.table(
            [TableRecord(dict(zip(names, row, strict=True))) for row in rows],
            TableSchema([TableColumn(name, "string" if name == "table" else "int") for name in names]),
        )
        context.add_output_metadata({"tables": table, "bytes stored": sum(one.after.stored for one in done)})

    @job(
        name=f"{spec.name}_maintenance",
        description=f"Upkeep of the tables of {spec.name}; versions of {spec.settings.retention_hours:g} hours stay.",
        executor_def=in_process_executor,
    )
    def maintenance() -> None:
        compact_tables()

    return maintenance


def schedules(spec: PipelineSpec) -> list[ScheduleDefinition]:
    """Returns the schedules: the full checks every night, the upkeep every week; both start switched off."""
    settings = spec.settings
    return [
        ScheduleDefinition(
            name=f"{spec.name}_nightly_full_checks",
            job_name=f"{spec.name}_full_checks",
            cron_schedule=settings.full_checks_cron,
            description=f"Every check of {spec.name} on the whole tables, and the proof of the result.",
        ),
        ScheduleDefinition(
            name=f"{spec.name}_weekly_maintenance",
            job_name=f"{spec.name}_maintenance",
            cron_schedule=settings.maintenance_cron,
            description=f"Packs the small files of {spec.name} and removes old ones.",
        ),
    ]
