"""The suites as Dagster asset checks: one definition per asset, one check per expectation.

Checks belong to the asset, not to a partition: a state table has one state, and partitioned checks do not work in a run
over a range of batches. In a run over batches they check the rows that these touched; otherwise the whole tables.
"""

# No `from __future__ import annotations`: Dagster compares the annotation of a check's `context` with the class itself.
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    MetadataValue,
    TableColumn,
    TableRecord,
    TableSchema,
    multi_asset_check,
)

from fk_pipeline.errors import FkPipelineError, escaped
from fk_pipeline.expectations.checking import NO_BATCH_FAILED, Checked, CheckResult, check, fix_of, not_run, own_suite
from fk_pipeline.expectations.validation import Validator
from fk_pipeline.identity import BatchId, BatchRange
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource, LandingZoneResource
from fk_pipeline.resources.failures import failing
from fk_pipeline.resources.names import RANGE_FIRST, RANGE_LAST, asset_key, partitions_name, pool_of
from fk_pipeline.rules.scan import SAMPLE
from fk_pipeline.rules.suites import Depth, suite_of
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.edited import with_known_types
from fk_pipeline.store.ledger import Ledger

METADATA = {
    "rows": "",
    "violations": "",
    "share": "instead of `violations`",
    "pending": "",
    "depth": "",
    "batches": "",
    "seconds": "of the stage",
    "sample": "if it failed, up to 20 rows: `key`, `found`, `expected`, `batch`",
    "fix": "if it failed",
    "data docs": "with `settings.data_docs`",
}
"""The metadata of a check result, per name its meaning, or nothing. `docs/reference/dagster.md` shows it."""

CHECK_ID = "check id"
"""The metadata with the id of a check that did not run in Dagster."""

_SEVERITY = {"critical": AssetCheckSeverity.ERROR, "warning": AssetCheckSeverity.WARN}


def checks_of(spec: PipelineSpec) -> list[AssetChecksDefinition]:
    """Returns the checks of a pipeline's assets, one definition per asset."""
    return [_stage_checks(spec, stage) for stage in spec.definition.stage_names]


def _specs(spec: PipelineSpec, stage: str) -> list[AssetCheckSpec]:
    key = asset_key(spec, stage)
    built_in = [
        AssetCheckSpec(
            expectation.name,
            asset=key,
            description=expectation.description,
            blocking=expectation.severity == "critical",
        )
        for expectation in suite_of(spec, stage)
    ]
    own = [
        AssetCheckSpec(
            expectation.name,
            asset=key,
            description=expectation.description or expectation.type,
            blocking=expectation.severity == "critical",
        )
        for expectation in own_suite(spec, stage)
    ]
    failed = AssetCheckSpec(
        NO_BATCH_FAILED, asset=key, description="The last run of every batch succeeded, wherever it ran."
    )
    return [*built_in, *own, failed]


def _stage_checks(spec: PipelineSpec, stage: str) -> AssetChecksDefinition:
    @multi_asset_check(
        name=f"{spec.name}__{stage}__expectations",
        specs=_specs(spec, stage),
        description=f"What is expected of {stage}: of what a run's batches touched, or of the whole tables.",
        can_subset=True,
        pool=pool_of(spec),
    )
    def check_stage(
        context: AssetCheckExecutionContext, spark: FkSparkResource, landing_zone: LandingZoneResource
    ) -> Iterator[AssetCheckResult]:
        key = asset_key(spec, stage)
        chosen = {check_key.name for check_key in context.selected_asset_check_keys if check_key.asset_key == key}
        docs = None if spec.settings.data_docs is None else Path(spec.location(str(spec.settings.data_docs)))
        batches = batches_of(context.run.tags, context.instance.get_dynamic_partitions(partitions_name(spec)))
        validator = Validator(docs / stage if docs is not None and batches is None else None)
        with failing():
            pipeline = Pipeline(with_known_types(spec), spark.spark_session, landing_zone.zone())
            if NO_BATCH_FAILED in chosen:
                yield _result(failed_batches(spec, pipeline.ledger(), stage, pipeline.refusal()))
            if expected := chosen - {NO_BATCH_FAILED}:
                yield from map(_result, evaluations(pipeline, stage, batches, validator, context.run.run_id, expected))

    return check_stage


def _result(evaluation: AssetCheckEvaluation) -> AssetCheckResult:
    return AssetCheckResult(
        passed=evaluation.passed,
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        severity=evaluation.severity,
        description=evaluation.description,
        metadata=evaluation.metadata,
    )


def failed_batches(
    spec: PipelineSpec, ledger: Ledger, stage: str, refused: FkPipelineError | None = None
) -> AssetCheckEvaluation:
    """Returns the result of the check whether a batch of a stage failed in its last run, with the error of each.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        stage: the stage.
        refused: why nothing runs; that of the result is then red, with the fix.
    """
    if refused is not None and stage == spec.definition.result_stage:
        return AssetCheckEvaluation(
            passed=False,
            asset_key=asset_key(spec, stage),
            check_name=NO_BATCH_FAILED,
            severity=AssetCheckSeverity.ERROR,
            description=escaped(f"nothing runs: {refused.what}"),
            metadata={"why": escaped(refused.why or ""), "fix": escaped(refused.fix or "")},
        )
    failed = [(b, state) for b in ledger.batches if (state := ledger.state(stage, b)).last_event == "failed"]
    rows = [TableRecord({"batch": int(b), "times": state.failures, "error": state.error or ""}) for b, state in failed]
    schema = TableSchema([TableColumn("batch", "int"), TableColumn("times", "int"), TableColumn("error", "string")])
    first = f"; batch {failed[0][0]}: {failed[0][1].error}" if failed else ""
    return AssetCheckEvaluation(
        passed=not failed,
        asset_key=asset_key(spec, stage),
        check_name=NO_BATCH_FAILED,
        severity=AssetCheckSeverity.ERROR,
        description=escaped(f"{len(failed)} batch(es) failed{first}" if failed else "no batch failed"),
        metadata={"failed": MetadataValue.table(rows[:SAMPLE], schema)} if failed else {},
    )


def recorded(spec: PipelineSpec, ledger: Ledger, stage: str) -> Iterator[AssetCheckEvaluation]:
    """Yields what Dagster would show of the expectations of a stage in its last check that the ledger has.

    The ledger has those that failed, and how many held: if only some were asked for, those that held are not known.
    """
    last, whole = ledger.checks.last, ledger.checks.last.get((stage, ""))
    if whole is None or whole["check_id"] is None:
        return
    built_in = [
        (expectation.name, expectation.severity)
        for expectation in suite_of(spec, stage)
        if Depth(whole["depth"]) in expectation.depths
    ]
    severities = dict(
        [*built_in, *((expectation.name, expectation.severity) for expectation in own_suite(spec, stage))]
    )
    failed = {name: row for name in severities if (row := last.get((stage, name))) and _is_of(row, whole)}
    all_ran = len(failed) + whole["value"] == len(severities)
    for name in severities if all_ran else failed:
        row = failed.get(name, {"value": 0, "pending": 0})
        first, last_ = whole["first"], whole["last"]
        yield AssetCheckEvaluation(
            passed=name not in failed,
            asset_key=asset_key(spec, stage),
            check_name=name,
            severity=_SEVERITY[severities[name]],
            description=f"{row['value']:g} found" if name in failed else "it holds",
            metadata={
                CHECK_ID: whole["check_id"],
                "pending": MetadataValue.int(row["pending"] or 0),
                "depth": whole["depth"],
                "batches": "all" if first is None else str(BatchRange.of(first, last_)),
                "seconds": MetadataValue.float(round(whole["seconds"] or 0.0, 3)),
            },
        )


def _is_of(row: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    return row["check_id"] == whole["check_id"] and not row["passed"]


def id_of(evaluation: AssetCheckEvaluation, run_id: str) -> str:
    """Returns the id of the check whose result Dagster has: that of its run, or of a check outside Dagster."""
    check_id = evaluation.metadata.get(CHECK_ID)
    return str(check_id.value) if check_id is not None else run_id


def evaluations(
    pipeline: Pipeline,
    stage: str,
    batches: BatchRange | None,
    validator: Validator,
    run_id: str,
    only: Collection[str] | None = None,
) -> Iterator[AssetCheckEvaluation]:
    """Checks a stage, and yields what Dagster shows of each expectation.

    Args:
        pipeline: the pipeline.
        stage: the stage.
        batches: the batches whose rows are checked; None: the whole tables.
        validator: a context of Great Expectations.
        run_id: the id of the run in Dagster.
        only: the names of the expectations; default: all.

    Raises:
        ExpectationNotRunError: an expectation could not be evaluated; the others have been yielded.
    """
    key = asset_key(pipeline.spec, stage)
    checked = check(pipeline, stage, batches, only=only, validator=validator, check_id=run_id)
    for result in checked.results:
        if result.outcome.problem is None:
            fix = fix_of(result, stage, pipeline) if result.failed else None
            yield AssetCheckEvaluation(
                passed=result.outcome.passed,
                asset_key=key,
                check_name=result.name,
                severity=_SEVERITY[result.severity],
                description=_sentence(result),
                metadata=metadata_of(result, checked, validator.index, fix),
            )
    if checked.not_run:
        raise not_run(checked.not_run, f"pipeline {pipeline.spec.name}, stage {stage}")


def batches_of(tags: Mapping[str, str], partitions: Sequence[str] = ()) -> BatchRange | None:
    """Returns the smallest range with all batches of a run; None for a run without partitions.

    Args:
        tags: the tags of the run.
        partitions: all partitions in Dagster's order, which is the order in which they were added; a range of Dagster
            is a range in this order.
    """
    first = tags.get(RANGE_FIRST) or tags.get("dagster/partition")
    last = tags.get(RANGE_LAST) or first
    if not first or not last:
        return None
    keys = {first, last}
    if keys <= set(partitions):
        places = sorted(partitions.index(key) for key in keys)
        keys |= set(partitions[places[0] : places[-1] + 1])
    return BatchRange(BatchId.from_key(min(keys)), BatchId.from_key(max(keys)))


def metadata_of(
    result: CheckResult, checked: Checked, data_docs: Path | None, fix: str | None = None
) -> dict[str, Any]:
    """Returns the metadata of one expectation in a check of its stage, by the names of `METADATA`."""
    metadata: dict[str, Any] = {
        "rows": MetadataValue.int(checked.rows),
        "pending": MetadataValue.int(result.finding.pending),
        "depth": checked.depth.value,
        "batches": str(checked.batches) if checked.batches is not None else "all",
        "seconds": MetadataValue.float(round(checked.seconds, 3)),
    }
    if result.expectation.share:
        metadata["share"] = MetadataValue.float(float(result.finding.value))
    else:
        metadata["violations"] = MetadataValue.int(int(result.finding.value))
    if result.finding.sample and result.failed:
        metadata["sample"] = _sample_table(result.finding.sample)
    if fix is not None:
        metadata["fix"] = fix
    if data_docs is not None:
        metadata["data docs"] = MetadataValue.path(str(data_docs))
    return metadata


def _sample_table(rows: Sequence[Mapping[str, Any]]) -> MetadataValue:
    names = ("key", "found", "expected", "batch")
    return MetadataValue.table(
        records=[TableRecord({name: str(row[name]) for name in names}) for row in rows[:SAMPLE]],
        schema=TableSchema([TableColumn(name, "string") for name in names]),
    )


def _sentence(result: CheckResult) -> str:
    """Returns the description of the check result."""
    value, pending = result.finding.value, result.finding.pending
    if result.expectation.share:
        return f"a share of {value:.2%}"
    violating = f"{int(value)} row(s) violate it" if value else "no row violates it"
    return f"{violating}; {pending} wait for work that is due" if pending else violating
