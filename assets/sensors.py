"""The sensor of a pipeline: finds new and changed landing files and due work, without Spark, and requests runs."""

# No `from __future__ import annotations` here: Dagster reads the annotations of decorated functions.
from dagster import (
    DagsterRun,
    DefaultSensorStatus,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from assets.partitions import add_partitions
from fk_pipeline.errors import StateError
from fk_pipeline.identity import BatchId, Stage, contiguous
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import PipelineSpec
from resources import LandingZoneResource

MAX_FAILURES = 3
"""A stage that failed this often is not asked for again."""

ACTIVE = ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")


def _touches(run: DagsterRun, spec: PipelineSpec) -> bool:
    """A backfill or a materialisation by hand of assets of the pipeline."""
    return any(key.path[0] == spec.name for key in run.asset_selection or ())


def _failed_for(run: DagsterRun, span: dict[str, str]) -> bool:
    """A run that failed, over the same range of batches."""
    return run.is_failure and all(run.tags.get(name) == value for name, value in span.items())


def batches_sensor(spec: PipelineSpec, job: UnresolvedAssetJobDefinition) -> SensorDefinition:
    """Adds the partition of every batch, and requests one run over the first range of batches with work due."""

    @sensor(
        name=f"{spec.name}_new_batches",
        job=job,
        minimum_interval_seconds=15,
        default_status=DefaultSensorStatus.STOPPED,
        description=f"Runs {spec.name} for new and changed landing files.",
    )
    def new_batches(context: SensorEvaluationContext, landing_zone: LandingZoneResource) -> SensorResult | SkipReason:
        from dagster import DagsterRunStatus, RunsFilter

        pipeline = Pipeline(spec, zone=landing_zone.zone())
        try:
            pipeline.check_fingerprints()
        except StateError as error:
            return SkipReason(str(error))
        pipeline.discover()
        ledger = pipeline.ledger()
        add_partitions(context.instance, spec, ledger.batches)
        work = {stage: ledger.due(stage) for stage in Stage}
        allowed = {stage: ledger.not_refused(stage, batches) for stage, batches in work.items()}
        refused = [failed for _, refusing in allowed.values() for failed in refusing]
        due: set[BatchId] = {batch for batches, _ in allowed.values() for batch in batches}
        if ledger.open_rebuild is not None:  # any run swaps in the rest
            due |= set(ledger.batches[:1])
        if not due and refused:
            return SkipReason(f"{refused[0]}; mend or waive it: 'fk-pipeline run {spec.file}' says how")
        if not due:
            return SkipReason("nothing is due: no new or changed landing files")
        failed = [
            f"{stage} of batch {int(b)} failed {state.failures} times: {state.error}"
            for stage in Stage
            for b in work[stage]
            if (state := ledger.state(stage, b)).last_event == "failed" and state.failures >= MAX_FAILURES
        ]
        if failed:
            return SkipReason(f"{failed[0]}. Mend it and start 'fk-pipeline run' once; the sensor then goes on")
        runs = context.instance.get_runs(RunsFilter(statuses=[DagsterRunStatus(status) for status in ACTIVE]))
        active = [run for run in runs if run.job_name == job.name or _touches(run, spec)]
        if active:
            return SkipReason(f"run {active[0].run_id} is active; {len(due)} batches wait for it")
        first = next(contiguous(due, ledger.batches))
        span = {
            "dagster/asset_partition_range_start": first.first.key,
            "dagster/asset_partition_range_end": first.last.key,
        }
        last = context.instance.get_runs(RunsFilter(job_name=job.name), limit=MAX_FAILURES)
        if len(last) == MAX_FAILURES and all(_failed_for(run, span) for run in last):
            return SkipReason(
                f"the last {MAX_FAILURES} runs for batches {first} failed, the last is {last[0].run_id}: "
                "mend what it says and start one by hand; the sensor then goes on"
            )
        attempts = sum(ledger.state(stage, b).attempts for stage in Stage for b in ledger.batches if b in first)
        lists = sum(row["version"] for (b, _), row in ledger.lists.items() if b in first)
        return SensorResult(
            run_requests=[
                RunRequest(
                    run_key=f"{first.first.key}..{first.last.key} lists {lists} attempts {attempts}",
                    tags=span,
                )
            ]
        )

    return new_batches
