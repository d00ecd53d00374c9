"""The job of a pipeline that reads results of others: these run first, each to its end, then the pipeline itself."""

# No `from __future__ import annotations` here: Dagster reads the annotations of decorated functions.
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from dagster import (
    AssetMaterialization,
    AssetObservation,
    GraphDefinition,
    In,
    JobDefinition,
    Nothing,
    OpDefinition,
    OpExecutionContext,
    Out,
    in_process_executor,
    op,
)
from dagster import DependencyDefinition as From
from dagster import MultiDependencyDefinition as FromAll

from fk_pipeline.assets.current import observed
from fk_pipeline.assets.partitions import update_partitions
from fk_pipeline.assets.reports import REPORT_SECONDS, report_landed, successes
from fk_pipeline.assets.shown import Log
from fk_pipeline.engine.failed_checks import check_failed
from fk_pipeline.engine.runner import StageRun
from fk_pipeline.errors import CheckFailedError, HeldBackError
from fk_pipeline.expectations.checks import evaluations
from fk_pipeline.expectations.validation import Validator, import_early
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource, LandingZoneResource
from fk_pipeline.resources.failures import failing
from fk_pipeline.resources.names import chain_job_name, chain_tag, pool_of
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.load import results_read, with_known_types
from fk_pipeline.store.waiting import hearing

_BEFORE = "before"


def chain_jobs(specs: Sequence[PipelineSpec]) -> list[JobDefinition]:
    """Returns a job per pipeline that reads, directly or not, the result of another of these pipelines."""
    by_file = {spec.file.resolve(): spec for spec in specs}
    feeding = {spec.name: _feeding(spec, by_file) for spec in specs}
    ops = {spec.name: _run_of(spec, bool(feeding[spec.name])) for spec in specs}
    return [_job(spec, feeding, ops) for spec in specs if feeding[spec.name]]


def _feeding(spec: PipelineSpec, by_file: dict[Path, PipelineSpec]) -> list[str]:
    """Returns the names of the pipelines whose results a pipeline reads directly."""
    return list(dict.fromkeys(by_file[file].name for file in results_read(spec) if file in by_file))


def _job(spec: PipelineSpec, feeding: dict[str, list[str]], ops: dict[str, OpDefinition]) -> JobDefinition:
    names = [spec.name]
    for name in names:
        names += [other for other in feeding[name] if other not in names]
    needed = {
        ops[name].name: {_BEFORE: FromAll([From(ops[other].name) for other in feeding[name]])}
        for name in names
        if feeding[name]
    }
    return GraphDefinition(
        name=chain_job_name(spec),
        description=f"All that is due of {', '.join(names[:0:-1])} and {spec.name}, in this order, checked.",
        node_defs=[ops[name] for name in names],
        dependencies=cast("Any", needed),
    ).to_job(executor_def=in_process_executor, tags={chain_tag(name): "" for name in names})


def _run_of(spec: PipelineSpec, waits: bool) -> OpDefinition:
    """Returns the op that runs what is due of a pipeline, and checks every stage before the next."""

    @op(
        name=f"run_{spec.name}",
        ins={_BEFORE: In(Nothing)} if waits else {},
        out=Out(Nothing),
        pool=pool_of(spec),
        description=f"Discovers the batches of {spec.name} and runs all that is due.",
    )
    def run_due(
        context: OpExecutionContext, spark: FkSparkResource, landing_zone: LandingZoneResource
    ) -> Iterator[AssetMaterialization | AssetObservation]:
        import_early()
        with failing():
            pipeline = Pipeline(with_known_types(spec), spark.spark_session, landing_zone.zone())
            yield from _run(context, pipeline)

    return run_due


def _run(context: OpExecutionContext, pipeline: Pipeline) -> Iterator[AssetMaterialization | AssetObservation]:
    """Runs what is due of a pipeline, and yields what Dagster shows of it.

    Raises:
        CheckFailedError, HeldBackError: batches were left out; the others ran.
    """
    stopped: CheckFailedError | HeldBackError | None = None
    log = Log(context)
    with hearing(log.warning):
        for stage in pipeline.spec.definition.stage_names:
            try:
                done: Sequence[StageRun] = pipeline.run(stages=[stage], tell=log.info)
            except (CheckFailedError, HeldBackError) as error:  # it left batches out; the others go on
                stopped, done = stopped or error, error.done
            for result in done:
                yield from _events(context, log, pipeline, result)
    if stopped is not None:
        raise stopped
    _refuse_red_result(pipeline)


def _refuse_red_result(pipeline: Pipeline) -> None:
    """Raises an error if the result, which others read, failed a critical check that is not waived.

    Raises:
        CheckFailedError: it did; of other stages the run itself raises it.
    """
    ledger = pipeline.ledger()
    failed = ledger.checks.of_table(pipeline.spec.definition.result_stage)
    if failed:
        raise check_failed(failed, pipeline.spec, ledger)


def _events(
    context: OpExecutionContext, log: Log, pipeline: Pipeline, result: StageRun
) -> Iterator[AssetMaterialization | AssetObservation]:
    """Yields what Dagster shows of a pass of a stage: its asset materialised per batch, and its checks.

    A critical check that fails is in the ledger: the stages after it leave these batches out.
    """
    spec, ledger, stage = pipeline.spec, pipeline.ledger(), result.stage
    update_partitions(context.instance, spec, ledger)
    log.ran(result)
    ran = [batch for batch in ledger.batches if batch in result.batches]
    report_landed(context.instance, spec, ledger, ran, REPORT_SECONDS)
    yield from successes(context.instance, spec, ledger, stage, ran)
    if stage == spec.definition.result_stage and (now := observed(spec, ran)) is not None:
        yield now
    for evaluation in evaluations(pipeline, stage, result.batches, Validator(), context.run_id):
        yield cast("Any", evaluation)  # Dagster takes it from an op too; its annotations do not have it
