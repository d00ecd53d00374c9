"""The jobs of a pipeline: all stages for one batch or a range, with checks; the full checks; the upkeep; schedules."""

# No `from __future__ import annotations` here: Dagster reads the annotations of decorated functions.
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from operator import or_
from typing import Any, TypeAlias

from dagster import (
    AssetCheckKey,
    AssetKey,
    AssetSelection,
    DefaultScheduleStatus,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    TableColumn,
    TableRecord,
    TableSchema,
    define_asset_job,
    in_process_executor,
    job,
    op,
    schedule,
)

# The type that `define_asset_job` returns: Dagster does not export it.
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from fk_pipeline.errors import FkPipelineError, UsageError
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource
from fk_pipeline.resources.failures import failing
from fk_pipeline.resources.names import asset_key, batches_job_name
from fk_pipeline.rules.suites import Depth, suite_of
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.edited import with_known_types
from fk_pipeline.spec.settings import Settings

SHARED = "fk"
"""Begins the names of what the pipelines of a code location have together."""

PIPELINE_TAG = "fk_pipeline/pipeline"
"""The tag of a run that a shared schedule requests: the pipeline that it is of."""

AssetJob: TypeAlias = UnresolvedAssetJobDefinition
"""A job whose assets and checks Dagster looks up when it has all definitions."""


class _ThoseOf(AssetSelection):
    """The checks that exist among some: a user who takes the assets without the checks gets a job without checks.

    The type of the graph is private to Dagster.
    """

    def __init__(self, keys: list[AssetCheckKey]) -> None:
        self._keys = frozenset(keys)

    def resolve_inner(self, asset_graph: Any, allow_missing: bool) -> AbstractSet[AssetKey]:  # noqa: ARG002
        """Returns no assets."""
        return frozenset()

    def resolve_checks_inner(self, asset_graph: Any, allow_missing: bool) -> AbstractSet[AssetCheckKey]:  # noqa: ARG002
        """Returns the keys of the checks that exist; here checks may always be missing."""
        return self._keys.intersection(asset_graph.asset_check_keys)

    def to_serializable_asset_selection(self, asset_graph: Any) -> AssetSelection:
        """Returns the same selection as a class of Dagster, for a process that shows the jobs."""
        return AssetSelection.checks(*sorted(self.resolve_checks(asset_graph)))


def _evaluated_only_at(spec: PipelineSpec, depth: Depth) -> AssetSelection:
    """Returns the checks that only one depth can evaluate: in a run of the other depth, they would fail."""
    keys = [
        AssetCheckKey(asset_key(spec, stage), expectation.name)
        for stage in spec.definition.stage_names
        for expectation in suite_of(spec, stage)
        if expectation.depths == (depth,)
    ]
    return _ThoseOf(keys)


def _stages(spec: PipelineSpec) -> AssetSelection:
    """Returns the assets of all stages with their checks, in whatever group they are."""
    return AssetSelection.key_prefixes([spec.name])


def batches_job(spec: PipelineSpec) -> AssetJob:
    """Returns the job of all stages, in order; the rows that the batches touched are checked before the next stage."""
    return define_asset_job(
        batches_job_name(spec),
        selection=_stages(spec) - _evaluated_only_at(spec, Depth.FULL),
        description=f"All stages of {spec.name} for one batch or a range of them, checked.",
    )


def _full_checks(spec: PipelineSpec) -> AssetSelection:
    """Returns the checks that can be evaluated of whole tables."""
    return _stages(spec) - _stages(spec).without_checks() - _evaluated_only_at(spec, Depth.BATCH)


def full_checks_job(spec: PipelineSpec) -> AssetJob:
    """Returns the job of all checks of the whole tables and the proof of the result; meant to run at night."""
    return define_asset_job(
        f"{spec.name}_full_checks",
        selection=_full_checks(spec),
        description=f"Every check of {spec.name}, of the whole tables, with the join computed anew.",
    )


def _compact(context: OpExecutionContext, spec: PipelineSpec, spark: FkSparkResource) -> None:
    """Folds and packs the tables of a pipeline, and shows what came of it as metadata of the step."""
    with failing():
        pipeline = Pipeline(with_known_types(spec), spark.spark_session)
        done = pipeline.compact(lambda name: context.log.info("%s", name))
    sizes = ("files before", "files after", "bytes before", "bytes after", "stored before", "stored after")
    names = ("table", *sizes, "rows removed")
    rows = [
        (
            upkeep.table,
            upkeep.before.files, upkeep.after.files,
            upkeep.before.bytes, upkeep.after.bytes,
            upkeep.before.stored, upkeep.after.stored,
            upkeep.removed,
        )
        for upkeep in done
    ]  # fmt: skip
    table = MetadataValue.table(
        [TableRecord(dict(zip(names, row, strict=True))) for row in rows],
        TableSchema([TableColumn(name, "string" if name == "table" else "int") for name in names]),
    )
    context.add_output_metadata({"tables": table, "bytes stored": sum(upkeep.after.stored for upkeep in done)})


def upkeep_job(spec: PipelineSpec) -> JobDefinition:
    """Returns the job that folds old batches, packs small files and removes old ones.

    It may run at the same time as batches, which wait for it table by table.
    """

    @op(name=f"{spec.name}_compact", description="Folding, OPTIMIZE and VACUUM of every table, and of the ledger.")
    def compact_tables(context: OpExecutionContext, spark: FkSparkResource) -> None:
        _compact(context, spec, spark)

    @job(
        name=f"{spec.name}_maintenance",
        description=f"Upkeep of the tables of {spec.name}; versions of {spec.settings.retention_hours:g} hours stay.",
        executor_def=in_process_executor,
    )
    def maintenance() -> None:
        compact_tables()

    return maintenance


def _has_result(spec: PipelineSpec) -> bool:
    """Returns whether a run of a pipeline has made its result: without it, every full check fails.

    If the ledger cannot be read, the checks are to say so.
    """
    try:
        ledger = Pipeline(spec).ledger()
    except FkPipelineError:
        return True
    return any(ledger.state(spec.definition.result_stage, batch).succeeded is not None for batch in ledger.batches)


def _nothing_to_check(specs: Sequence[PipelineSpec]) -> SkipReason:
    """Returns why a schedule requests no run."""
    return SkipReason(
        f"no run of {', '.join(spec.name for spec in specs)} has succeeded yet: there is nothing to check"
    )


def full_checks_schedule(spec: PipelineSpec) -> ScheduleDefinition:
    """Returns the schedule of the full checks of one pipeline."""

    @schedule(
        name=f"{spec.name}_nightly_full_checks",
        job_name=f"{spec.name}_full_checks",
        cron_schedule=spec.settings.full_checks_cron,
        default_status=_status([spec]),
        description=f"Every check of {spec.name} on the whole tables, and the proof of the result.",
    )
    def nightly() -> RunRequest | SkipReason:
        return RunRequest() if _has_result(spec) else _nothing_to_check([spec])

    return nightly


def upkeep_schedule(spec: PipelineSpec) -> ScheduleDefinition:
    """Returns the schedule of the upkeep of one pipeline."""
    return ScheduleDefinition(
        name=f"{spec.name}_weekly_maintenance",
        job_name=f"{spec.name}_maintenance",
        cron_schedule=spec.settings.maintenance_cron,
        default_status=_status([spec]),
        description=f"Packs the small files of {spec.name} and removes old ones.",
    )


def _status(specs: Sequence[PipelineSpec]) -> DefaultScheduleStatus:
    """Returns whether a schedule of pipelines is on from the start: if one of them has `automation`."""
    on = any(spec.settings.automation == "on" for spec in specs)
    return DefaultScheduleStatus.RUNNING if on else DefaultScheduleStatus.STOPPED


def shared_full_checks(specs: Sequence[PipelineSpec]) -> ScheduleDefinition:
    """Returns one schedule, with its job, of the full checks of pipelines with the default time.

    It requests a run per pipeline: none fails by the checks of another, or has its tables in memory. Dagster lets a
    schedule request runs of one job only, so each is over the part of that job which is the pipeline's.
    """
    every = reduce(or_, map(_full_checks, specs))

    @schedule(
        job=define_asset_job(
            f"{SHARED}_full_checks", selection=every, description="Every check of all pipelines, of the whole tables."
        ),
        name=f"{SHARED}_nightly_full_checks",
        cron_schedule=specs[0].settings.full_checks_cron,
        default_status=_status(specs),
        description="Every check on the whole tables, and the proof of the result: one run per pipeline.",
    )
    def nightly(context: ScheduleEvaluationContext) -> list[RunRequest] | SkipReason:
        assert context.repository_def is not None
        graph = context.repository_def.asset_graph
        parts = {spec.name: sorted(_full_checks(spec).resolve_checks(graph)) for spec in specs if _has_result(spec)}
        if not parts:
            return _nothing_to_check(specs)
        return [
            RunRequest(_run_key(context, name), asset_selection=[], asset_check_keys=checks, tags={PIPELINE_TAG: name})
            for name, checks in parts.items()
            if checks
        ]

    return nightly


def shared_upkeep(specs: Sequence[PipelineSpec]) -> ScheduleDefinition:
    """Returns one schedule, with its job, of the upkeep of pipelines with the default time: a run per pipeline."""
    known, name = {spec.name: spec for spec in specs}, f"{SHARED}_compact"

    @op(
        name=name,
        config_schema={"pipeline": str},
        description="Folding, OPTIMIZE and VACUUM of every table of a pipeline, and of its ledger.",
    )
    def compact_tables(context: OpExecutionContext, spark: FkSparkResource) -> None:
        requested = context.op_config["pipeline"]
        with failing():
            if requested not in known:
                raise UsageError(f"there is no pipeline {requested!r} here", fix=f"name one of {', '.join(known)}")
        _compact(context, known[requested], spark)

    @job(
        name=f"{SHARED}_maintenance",
        description="Upkeep of the tables of the pipeline that its configuration names.",
        executor_def=in_process_executor,
    )
    def maintenance() -> None:
        compact_tables()

    @schedule(
        job=maintenance,
        name=f"{SHARED}_weekly_maintenance",
        cron_schedule=specs[0].settings.maintenance_cron,
        default_status=_status(specs),
        description="Packs small files and removes old ones: one run per pipeline.",
    )
    def weekly(context: ScheduleEvaluationContext) -> list[RunRequest]:
        return [
            RunRequest(
                _run_key(context, pipeline),
                run_config={"ops": {name: {"config": {"pipeline": pipeline}}}},
                tags={PIPELINE_TAG: pipeline},
            )
            for pipeline in known
        ]

    return weekly


def _run_key(context: ScheduleEvaluationContext, pipeline: str) -> str:
    """Returns what tells apart the runs that one tick requests."""
    return f"{pipeline} {context.scheduled_execution_time.isoformat()}"


def schedules(specs: Sequence[PipelineSpec], *, shared: bool) -> list[ScheduleDefinition]:
    """Returns the schedules of the full checks, every night, and of the upkeep, every week.

    Args:
        specs: the pipelines.
        shared: whether pipelines with the default times have one schedule of each; else every pipeline has its own.
    """
    made = []
    shared = shared and all(spec.name != SHARED for spec in specs)  # its own schedules would have the same names
    for cron, of_one, of_all in (
        ("full_checks_cron", full_checks_schedule, shared_full_checks),
        ("maintenance_cron", upkeep_schedule, shared_upkeep),
    ):
        usual = Settings.model_fields[cron].default
        together = [spec for spec in specs if shared and getattr(spec.settings, cron) == usual]
        made += [of_all(together)] if together else []
        made += [of_one(spec) for spec in specs if spec not in together]
    return made
