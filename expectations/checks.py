"""The suites as Dagster asset checks: one scan per table, one check per expectation.

Checks belong to the asset, not to a partition: a state table has one state, and partitioned checks do not work in a run
over a range of batches.
"""

# No `from __future__ import annotations`: Dagster compares the annotation of a check's `context` with the class itself.
import time
from collections.abc import Iterator, Sequence

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    MetadataValue,
    TableColumn,
    TableRecord,
    TableSchema,
    multi_asset_check,
)

from expectations.suites import SUITES, TableExpectation, suite_of, validate
from expectations.violations import SAMPLE, Violations, violations
from fk_pipeline.identity import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import PipelineSpec
from resources import FkSparkResource

_SEVERITY = {"critical": AssetCheckSeverity.ERROR, "warning": AssetCheckSeverity.WARN}


def checks_of(spec: PipelineSpec) -> list[AssetChecksDefinition]:
    """The checks of a pipeline's assets, one definition per checked asset."""
    return [_table_checks(spec, stage) for stage in SUITES]


def _table_checks(spec: PipelineSpec, stage: Stage) -> AssetChecksDefinition:
    key = AssetKey([spec.name, stage.value])
    suite = suite_of(spec, stage)

    @multi_asset_check(
        name=f"{spec.name}__{stage}__expectations",
        specs=[AssetCheckSpec(one.name, asset=key, description=one.description) for one in suite],
        description=f"What is expected of {stage} as it is now, whatever batches a run covers.",
        can_subset=True,
        pool=f"fk_{spec.name}",
    )
    def check_table(context: AssetCheckExecutionContext, spark: FkSparkResource) -> Iterator[AssetCheckResult]:
        started = time.monotonic()
        chosen = {key.name for key in context.selected_asset_check_keys}
        wanted = [one for one in suite if one.name in chosen]
        found = violations(Pipeline(spec, spark.spark_session), stage)
        holds = validate(found.frame(), wanted, where=f"pipeline {spec.name}, table {stage}")
        seconds = time.monotonic() - started
        for one in wanted:
            yield _result(key, one, found, holds[one.name], seconds)

    return check_table


def _result(
    key: AssetKey, wanted: TableExpectation, found: Violations, passed: bool, seconds: float
) -> AssetCheckResult:
    """The result of one expectation; `seconds` is what all of the table took together."""
    metadata: dict[str, MetadataValue] = {
        "rows": MetadataValue.int(found.rows),
        "violations": MetadataValue.int(found.counts[wanted.name]),
        "pending": MetadataValue.int(found.pending[wanted.name]),
        "seconds": MetadataValue.float(round(seconds, 3)),
    }
    if found.samples[wanted.name]:
        metadata["sample"] = _sample_table(found.samples[wanted.name])
    return AssetCheckResult(
        passed=passed,
        asset_key=key,
        check_name=wanted.name,
        severity=_SEVERITY[wanted.severity],
        description=_sentence(found.counts[wanted.name], found.pending[wanted.name]),
        metadata=metadata,
    )


def _sample_table(rows: Sequence[dict[str, str]]) -> MetadataValue:
    names = ("key", "found", "expected")
    return MetadataValue.table(
        records=[TableRecord({name: row[name] for name in names}) for row in rows[:SAMPLE]],
        schema=TableSchema([TableColumn(name, "string") for name in names]),
    )


def _sentence(violated: int, pending: int) -> str:
    """What a reader of the check sees first."""
    violating = f"{violated} row(s) violate it" if violated else "no row violates it"
    return f"{violating}; {pending} wait for work that is due" if pending else violating
