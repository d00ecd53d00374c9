"""The sensor of a pipeline: finds new and changed landing files and due work, without Spark, and requests runs."""

# No `from __future__ import annotations` here: Dagster reads the annotations of decorated functions.
from datetime import UTC, datetime

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunRecord,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)

from fk_pipeline.assets.due import due_now, ranges, why_not_again
from fk_pipeline.assets.partitions import active_runs, update_partitions
from fk_pipeline.assets.reports import REPORT_SECONDS, report, report_landed, report_refusal
from fk_pipeline.assets.shown import Log
from fk_pipeline.cdc.notices import HELD_BACK
from fk_pipeline.cdc.zone import LandingZone
from fk_pipeline.errors import LeaseTakenError, PipelineFileError, StateError, escaped
from fk_pipeline.identity import BatchRange
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import LandingZoneResource
from fk_pipeline.resources.names import DUE_TAG, FILE_TAG, RANGE_FIRST, RANGE_LAST, SourceKeys, partitions_name
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.edited import as_it_is_now, edited_files, text_of
from fk_pipeline.spec.project import results_read
from fk_pipeline.store.ledger import Ledger

ENDED_BADLY = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
LOOKED_AT = 50
"""The largest number of runs over the same batches that are read, the newest first."""

LEASE_SECONDS = 20.0
"""Seconds that a tick waits for another discovery; Dagster ends a tick after 60 seconds."""


def _ended(record: RunRecord) -> datetime:
    return datetime.fromtimestamp(record.end_time or record.update_timestamp.timestamp(), UTC)


class _Tries:
    """The earlier runs over a range of batches that Dagster has: a run may die before it writes to the ledger."""

    def __init__(self, instance: DagsterInstance, job_name: str, batches: BatchRange, ledger: Ledger) -> None:
        self.tags = {
            RANGE_FIRST: batches.first.key,
            RANGE_LAST: batches.last.key,
        }
        same = RunsFilter(job_name=job_name, tags=self.tags)
        self.number = instance.get_runs_count(same)
        self._failed = []
        states = [state for (_, b), state in ledger.runs.stages.items() if b in batches]
        done = [state.finished_at for state in states if state.finished_at]
        all_done = bool(done) and all(state.last_event == "succeeded" for state in states)
        for record in instance.get_run_records(same, limit=LOOKED_AT):
            if record.dagster_run.status not in ENDED_BADLY or (done and _ended(record) < max(done)):
                break
            if all_done and record.start_time and record.start_time <= min(done).timestamp():
                break  # it did these batches, and failed at something else: a pipeline that reads the result
            self._failed.append(record)

    def why_not_again(self, spec: PipelineSpec, batches: BatchRange, now: datetime) -> str | None:
        if not self._failed:
            return None
        last, count = self._failed[0], len(self._failed)
        runs = "the last run" if count == 1 else f"the last {count} runs"
        what = f"{runs} for batches {batches} failed, the last is {last.dagster_run.run_id}"
        return why_not_again(spec.settings, what, count, _ended(last), now)


def _show(
    context: SensorEvaluationContext, spec: PipelineSpec, ledger: Ledger, sources: SourceKeys, *, report_all: bool
) -> None:
    """Brings Dagster's partitions in line with the ledger, and reports what the ledger has, unless a tick has before.

    The cursor has the versions of the ledger's tables of which all was reported, and the hour: once an hour everything
    is compared, as somebody may have taken events away from Dagster.
    """
    for key in update_partitions(context.instance, spec, ledger):
        context.log.info("partition %s is new", key)
    now = f"{ledger.identity}: {ledger.entries.versions}, {datetime.now(UTC):%Y-%m-%d %H} h"
    if not report_all or context.cursor == now:
        return
    done = report(context.instance, spec, ledger, sources, REPORT_SECONDS)
    if done.events:
        context.log.info("%d events of the ledger were reported to Dagster", done.events)
    if done.complete:
        context.update_cursor(now)


def _tick(
    context: SensorEvaluationContext, spec: PipelineSpec, zone: LandingZone, job_name: str, sources: SourceKeys
) -> SensorResult:
    """Returns the run over the first range of batches with work due that may run now, or why there is none."""
    instance, now = context.instance, datetime.now(UTC)
    log = Log(context)
    pipeline = Pipeline(spec, zone=zone)
    running = next(iter(active_runs(instance, spec)), None)
    if running is not None and results_read(spec):  # which may run these, too: their checks have not ended
        return SensorResult(skip_reason=f"run {running.run_id} is active")
    refused = pipeline.refusal()
    if refused is not None:
        return _refused(context, pipeline, refused)
    try:
        discovery = pipeline.discover(LEASE_SECONDS)
    except (StateError, LeaseTakenError) as error:
        return SensorResult(skip_reason=str(error))
    for notice in discovery.notices if discovery.batches else ():
        log.info(notice.text)
    ledger = pipeline.ledger()
    _show(context, spec, ledger, sources, report_all=running is None)

    def skip(*reasons: str) -> SensorResult:
        return SensorResult(skip_reason=escaped("; ".join(reasons)))

    due = due_now(spec, ledger, now)
    if not due.batches:
        held = [str(notice) for notice in discovery.notices if notice.kind == HELD_BACK]
        return skip(*[*due.waiting, *held][:3] or ["nothing is due: no new or changed landing files"])
    if running is not None:
        count = f"{len(due.batches)} batches wait" if len(due.batches) > 1 else f"batch {due.batches[0]} waits"
        return skip(f"run {running.run_id} is active; {count} for it")
    waiting = list(due.waiting)
    partitions = instance.get_dynamic_partitions(partitions_name(spec))
    for batches in ranges(due.batches, partitions, spec.settings.max_batches_per_run, separate=due.failed):
        tries = _Tries(instance, job_name, batches, ledger)
        why = tries.why_not_again(spec, batches, now)
        if why is None:
            tags = {DUE_TAG: str(batches), FILE_TAG: text_of(spec)}
            for reason in waiting:
                log.warning(reason)
            report_landed(instance, spec, ledger, [b for b in due.batches if b in batches], REPORT_SECONDS)
            lists = sum(row["version"] for (b, _), row in ledger.files.lists.items() if b in batches)
            attempts = sum(state.attempts for (_, b), state in ledger.runs.stages.items() if b in batches)
            key = f"{batches.first.key}..{batches.last.key} lists {lists} attempts {attempts} runs {tries.number}"
            return SensorResult(run_requests=[RunRequest(run_key=key, tags=tries.tags | tags)])
        waiting.append(why)
    return skip(*waiting[:3])


def _refused(
    context: SensorEvaluationContext, pipeline: Pipeline, refused: PipelineFileError | StateError
) -> SensorResult:
    """Returns why nothing runs, and shows it at the result, unless a run is active, which may be what mends it."""
    if not active_runs(context.instance, pipeline.spec):
        report_refusal(context.instance, pipeline.spec, pipeline.ledger(), refused)
        context.update_cursor("")  # the tick after the refusal compares everything
    return SensorResult(skip_reason=escaped(str(refused), keep="\n"))


def batches_sensor(spec: PipelineSpec, job_name: str, sources: SourceKeys) -> SensorDefinition:
    """Returns the sensor that adds the partition of every batch and requests a run over the first range that is due.

    The warehouse has the due work, so a lost cursor or a lost Dagster home changes nothing.

    Args:
        spec: the pipeline.
        job_name: the job that it requests runs of: all stages, or these and then the pipelines that read the result.
        sources: the keys of the assets of what pipelines read.
    """

    @sensor(
        name=f"{spec.name}_new_batches",
        job_name=job_name,
        minimum_interval_seconds=spec.settings.sensor_seconds,
        default_status=DefaultSensorStatus.RUNNING if spec.settings.automation == "on" else DefaultSensorStatus.STOPPED,
        description=f"Runs {spec.name} for new and changed landing files.",
    )
    def new_batches(context: SensorEvaluationContext, landing_zone: LandingZoneResource) -> SensorResult:
        try:
            now = as_it_is_now(spec)
        except (PipelineFileError, StateError) as error:
            return _refused(context, Pipeline(spec, zone=landing_zone.zone()), error)
        if text_of(now) != text_of(spec):
            files = ", ".join(map(str, edited_files(spec)))
            context.log.info(
                "%s, edited after Dagster had loaded it, is used as it is now: text %s", files, text_of(now)
            )
        return _tick(context, now, landing_zone.zone(), job_name, sources)

    return new_batches
