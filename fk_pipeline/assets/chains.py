"""The jobs of pipelines that read results of others: what feeds one before it, what reads its result after it."""

# No `from __future__ import annotations` here: Dagster reads the annotations of decorated functions.
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

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
from fk_pipeline.assets.shown import Log, renewing_report
from fk_pipeline.engine.failed_checks import check_failed
from fk_pipeline.engine.runner import StageRun
from fk_pipeline.errors import CheckFailedError, HeldBackError
from fk_pipeline.expectations.checks import evaluations
from fk_pipeline.expectations.validation import Validator, import_early
from fk_pipeline.identity import BatchId, BatchRange
from fk_pipeline.passes import finish, run_due
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource, LandingZoneResource
from fk_pipeline.resources.failures import failing
from fk_pipeline.resources.names import (
    RANGE_FIRST,
    RANGE_LAST,
    chain_job_name,
    chain_tag,
    pool_of,
    readers_job_name,
)
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.edited import with_known_types
from fk_pipeline.spec.project import results_read
from fk_pipeline.store.waiting import hearing

_BEFORE = "before"


@dataclass(frozen=True)
class _Ops:
    """The ops of pipelines, by their names. Jobs of one code location must share an op of one name.

    Attributes:
        first: run a pipeline before all others.
        then: run it after others.
        requested: run the batches of it that the tags of a run name.
    """

    first: Mapping[str, OpDefinition]
    then: Mapping[str, OpDefinition]
    requested: Mapping[str, OpDefinition]

    @classmethod
    def of(cls, specs: Sequence[PipelineSpec]) -> Self:
        """Returns the ops of some pipelines."""
        return cls(
            {spec.name: _run_of(spec, f"run_{spec.name}", waits=False) for spec in specs},
            {spec.name: _run_of(spec, f"then_run_{spec.name}", waits=True) for spec in specs},
            {spec.name: _run_of(spec, f"batches_of_{spec.name}", waits=False, by_tags=True) for spec in specs},
        )


def jobs_of_chains(specs: Sequence[PipelineSpec]) -> tuple[list[JobDefinition], dict[str, JobDefinition]]:
    """Returns the jobs of `_chain_jobs` and those of `_readers_jobs`."""
    ops = _Ops.of(specs)
    return _chain_jobs(specs, ops), _readers_jobs(specs, ops)


def _chain_jobs(specs: Sequence[PipelineSpec], ops: _Ops) -> list[JobDefinition]:
    """Returns a job per pipeline that reads, directly or not, the result of another of these pipelines."""
    feeding = _feeding(specs)
    run = {name: ops.then[name] if fed else ops.first[name] for name, fed in feeding.items()}
    jobs = []
    for spec in specs:
        fed_by = _closure(spec.name, feeding)
        if fed_by:
            about = f"All that is due of {', '.join(fed_by[::-1])} and {spec.name}, in this order, checked."
            jobs.append(_job(chain_job_name(spec), about, [spec.name, *fed_by], feeding, run))
    return jobs


def _readers_jobs(specs: Sequence[PipelineSpec], ops: _Ops) -> dict[str, JobDefinition]:
    """Returns, per pipeline whose result others of these read, the job that runs batches of it, and then all of them.

    The sensor requests it: whatever lands at the head of a chain is in every result behind it when the run ends.
    """
    feeding, jobs = _feeding(specs), {}
    read_by = {name: [other for other, fed in feeding.items() if name in fed] for name in feeding}
    for spec in specs:
        readers = _closure(spec.name, read_by)
        if readers:
            names = [spec.name, *readers]
            run = {name: ops.then[name] for name in readers} | {spec.name: ops.requested[spec.name]}
            within = {name: [other for other in feeding[name] if other in names] for name in readers} | {spec.name: []}
            about = (
                f"The batches of {spec.name} that are asked for, then all that is due of {', '.join(readers)}, checked."
            )
            jobs[spec.name] = _job(readers_job_name(spec), about, names, within, run)
    return jobs


def _feeding(specs: Sequence[PipelineSpec]) -> dict[str, list[str]]:
    """Returns, per pipeline, the names of those of these pipelines whose results it reads directly."""
    by_file = {spec.file.resolve(): spec.name for spec in specs}
    return {
        spec.name: list(dict.fromkeys(by_file[file] for file in results_read(spec) if file in by_file))
        for spec in specs
    }


def _closure(name: str, next_to: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns all names that can be reached from one, without it."""
    names = [name]
    for reached in names:
        names += [other for other in next_to[reached] if other not in names]
    return names[1:]


def _job(
    job_name: str,
    description: str,
    names: Sequence[str],
    feeding: Mapping[str, Sequence[str]],
    ops: Mapping[str, OpDefinition],
) -> JobDefinition:
    """Returns the job that runs some pipelines, each after those that feed it."""
    needed = {
        ops[name].name: {_BEFORE: FromAll([From(ops[other].name) for other in feeding[name]])}
        for name in names
        if feeding[name]
    }
    return GraphDefinition(
        name=job_name,
        description=description,
        node_defs=[ops[name] for name in names],
        dependencies=cast("Any", needed),
    ).to_job(executor_def=in_process_executor, tags={chain_tag(name): "" for name in names})


def _run_of(spec: PipelineSpec, name: str, *, waits: bool, by_tags: bool = False) -> OpDefinition:
    """Returns the op that runs what is due of a pipeline, and checks every stage before the next.

    Args:
        spec: the pipeline.
        name: the name of the op.
        waits: whether other pipelines run before it.
        by_tags: whether it runs only the batches that the tags of the run name, if they name any.
    """

    @op(
        name=name,
        ins={_BEFORE: In(Nothing)} if waits else {},
        out=Out(Nothing),
        pool=pool_of(spec),
        description=f"Discovers the batches of {spec.name} and runs all that is due.",
    )
    def run_due_stages(
        context: OpExecutionContext, spark: FkSparkResource, landing_zone: LandingZoneResource
    ) -> Iterator[AssetMaterialization | AssetObservation]:
        import_early()
        with failing():
            pipeline = Pipeline(with_known_types(spec), spark.spark_session, landing_zone.zone())
            yield from _run(context, pipeline, _range_of_tags(context) if by_tags else None)

    return run_due_stages


def _range_of_tags(context: OpExecutionContext) -> BatchRange | None:
    """Returns the range that the tags of a run name; None if it has none."""
    first, last = (context.run.tags.get(tag) for tag in (RANGE_FIRST, RANGE_LAST))
    return None if first is None or last is None else BatchRange(BatchId.from_key(first), BatchId.from_key(last))


def _run(
    context: OpExecutionContext, pipeline: Pipeline, requested: BatchRange | None
) -> Iterator[AssetMaterialization | AssetObservation]:
    """Runs what is due of a pipeline, or of some of its batches, and yields what Dagster shows of it.

    Raises:
        CheckFailedError, HeldBackError: batches were left out; the others ran.
    """
    stopped: CheckFailedError | HeldBackError | None = None
    log = Log(context)
    with hearing(log.warning), renewing_report(pipeline, log):
        if requested is not None:
            for notice in pipeline.discover().notices:
                log.info(str(notice))
            finish(pipeline)
        for stage in pipeline.spec.definition.stage_names:
            try:
                if requested is None:
                    done: Sequence[StageRun] = pipeline.run(stages=[stage], tell=log.info)
                else:
                    done = _run_among(pipeline, stage, requested)
            except (CheckFailedError, HeldBackError) as error:  # it left batches out; the others go on
                stopped, done = stopped or error, error.done
            for result in done:
                yield from _events(context, log, pipeline, result)
    if stopped is not None:
        raise stopped
    _refuse_red_result(pipeline)


def _run_among(pipeline: Pipeline, stage: str, requested: BatchRange) -> list[StageRun]:
    """Runs a stage for those batches of a range that are due.

    Raises:
        CheckFailedError: it left batches out.
    """
    done: list[StageRun] = []

    def run_if_due(_: str, batches: BatchRange) -> StageRun | None:
        result = pipeline.runner.run_due(stage, batches)
        done.extend([] if result is None else [result])
        return result

    refusing = run_due(
        pipeline, stage, run_if_due, [batch for batch in pipeline.ledger().batches if batch in requested]
    )
    if refusing:
        error = check_failed(refusing, pipeline.spec, pipeline.ledger())
        error.done = done
        raise error
    return done


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
