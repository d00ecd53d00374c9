"""The suites as Dagster asset checks: in a run over a range of batches, and alone."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckSeverity,
    AssetKey,
    AssetSelection,
    DagsterInstance,
    ExecuteInProcessResult,
    materialize,
)
from pyspark.sql import SparkSession

from assets import assets_of
from assets.partitions import add_partitions
from assets.stage import asset_key
from expectations.checks import checks_of
from expectations.suites import suite_of
from expectations.violations import Violations
from fk_pipeline.identity import BatchId, Stage
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.stages.layout import declared_layout
from resources import FkSparkResource, LandingZoneResource

CHECKED = (Stage.SUBSCRIPTION_STORE, Stage.RESOLVED_JOIN)


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    """A left join of two batches, landed and not run."""
    (tmp_path / "pipeline.yaml").write_text(
        "name: checked\njoin: left\n"
        'left: {path: left, format: rows, schema: "id INT, ref STRING", key: id, foreign_key: ref}\n'
        'right: {path: right, format: rows, schema: "k STRING, name STRING", key: k}\n'
    )
    for side, rows in {
        "left": [{"id": 1, "ref": "a"}, {"id": 2, "ref": "unmatched"}],
        "right": [{"k": "a", "name": "first"}, {"k": "b", "name": "second"}],
    }.items():
        (tmp_path / side).mkdir()
        for batch, row in enumerate(rows):
            (tmp_path / side / f"{batch}.jsonl").write_text(json.dumps(row) + "\n")
    return load_spec(tmp_path / "pipeline.yaml")


def execute(
    spec: PipelineSpec, spark: SparkSession, selection: AssetSelection | None = None, *, raise_on_error: bool = True
) -> ExecuteInProcessResult:
    """Materialises both batches in one run, with the checks; or only what is selected."""
    with DagsterInstance.ephemeral() as instance:
        add_partitions(instance, spec, [BatchId(0), BatchId(1)])
        whole = {
            "dagster/asset_partition_range_start": BatchId(0).key,
            "dagster/asset_partition_range_end": BatchId(1).key,
        }
        return materialize(
            [*assets_of(spec, declared_layout(spec)), *checks_of(spec)],
            selection=selection,
            instance=instance,
            resources={"spark": FkSparkResource().use(spark), "landing_zone": LandingZoneResource()},
            tags=None if selection else whole,
            raise_on_error=raise_on_error,
        )


def evaluations(result: ExecuteInProcessResult) -> dict[tuple[str, str], AssetCheckEvaluation]:
    """(table, expectation) -> what the check reported."""
    return {(one.asset_key.path[-1], one.check_name): one for one in result.get_asset_check_evaluations()}


def test_the_checks_are_those_of_the_suites_and_belong_to_the_assets(spec: PipelineSpec) -> None:
    keys = {key for checks in checks_of(spec) for key in checks.check_keys}
    assert keys == {
        AssetCheckKey(asset_key(spec, stage), one.name) for stage in CHECKED for one in suite_of(spec, stage)
    }
    assert AssetCheckKey(AssetKey(["checked", "resolved_join"]), "no_inner_row_without_match") not in keys


@pytest.mark.spark
def test_checks_are_green_in_a_range_run_and_red_alone_when_a_row_is_stale(
    spec: PipelineSpec, spark: SparkSession
) -> None:
    green = evaluations(execute(spec, spark))
    assert len(green) == sum(len(suite_of(spec, stage)) for stage in CHECKED)
    assert all(one.passed for one in green.values())
    assert green["resolved_join", "no_stale_row"].metadata["rows"].value == 2

    spark.sql(f"UPDATE delta.`{spec.home}/resolved_join` SET _fk_right_hash = UNHEX(MD5('x'))")
    chosen = AssetCheckKey(asset_key(spec, Stage.RESOLVED_JOIN), "no_stale_row")
    found = evaluations(execute(spec, spark, AssetSelection.checks(chosen)))
    assert list(found) == [("resolved_join", "no_stale_row")]
    stale = found["resolved_join", "no_stale_row"]
    assert (stale.passed, stale.severity) == (False, AssetCheckSeverity.ERROR)
    assert stale.metadata["violations"].value == 2
    assert stale.metadata["pending"].value == 0
    assert [record.data["key"] for record in stale.metadata["sample"].records] == ['{"id":1}', '{"id":2}']


@pytest.mark.spark
def test_a_check_that_could_not_run_fails_its_run_and_reports_no_result(
    spec: PipelineSpec, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Violations, "frame", lambda found: pd.DataFrame([{"rows": found.rows}]))
    result = execute(spec, spark, AssetSelection.checks(*checks_of(spec)), raise_on_error=False)
    assert not result.success
    assert evaluations(result) == {}
