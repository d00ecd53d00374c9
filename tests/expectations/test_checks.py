"""The suites as Dagster asset checks: in a run over a range of batches, and alone."""

from __future__ import annotations

import json
from pathlib import Path

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


class NoSpark(FkSparkResource):
    """For checks of violations that are made up."""

    @property
    def spark_session(self) -> None:
        return None


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
    spec: PipelineSpec, spark: FkSparkResource, selection: AssetSelection, *, whole: bool = False, fails: bool = False
) -> ExecuteInProcessResult:
    """One run of what is selected; `whole` runs it for the range of both batches."""
    batches = [BatchId(0), BatchId(1)]
    tags = {
        "dagster/asset_partition_range_start": batches[0].key,
        "dagster/asset_partition_range_end": batches[1].key,
    }
    with DagsterInstance.ephemeral() as instance:
        add_partitions(instance, spec, batches)
        return materialize(
            [*assets_of(spec, declared_layout(spec)), *checks_of(spec)],
            selection=selection,
            instance=instance,
            resources={"spark": spark, "landing_zone": LandingZoneResource()},
            tags=tags if whole else None,
            raise_on_error=not fails,
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


def test_a_stale_row_is_an_error_that_shows_its_key(spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [one.name for one in suite_of(spec, Stage.RESOLVED_JOIN)]
    row = {"key": '{"id":1}', "found": "left 00, right 01", "expected": "left 00, right 02"}
    found = Violations(
        "resolved_join",
        rows=9,
        counts=dict.fromkeys(names, 0) | {"no_stale_row": 1},
        pending=dict.fromkeys(names, 0) | {"no_stale_row": 2},
        samples=dict.fromkeys(names, ()) | {"no_stale_row": (row,)},
    )
    monkeypatch.setattr("expectations.checks.violations", lambda *_: found)
    selection = AssetSelection.checks_for_assets(asset_key(spec, Stage.RESOLVED_JOIN))
    reported = evaluations(execute(spec, NoSpark(), selection))
    assert {name for (_, name), one in reported.items() if not one.passed} == {"no_stale_row"}
    stale = reported["resolved_join", "no_stale_row"]
    assert stale.severity is AssetCheckSeverity.ERROR
    assert stale.description == "1 row(s) violate it; 2 wait for work that is due"
    metadata = {name: stale.metadata[name].value for name in ("rows", "violations", "pending")}
    assert metadata == {"rows": 9, "violations": 1, "pending": 2}
    assert stale.metadata["seconds"].value >= 0
    assert [record.data for record in stale.metadata["sample"].records] == [row]


def test_a_check_that_could_not_run_fails_its_run_and_reports_no_result(
    spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Violations("resolved_join", rows=9, counts={"another_rule": 0}, pending={}, samples={})
    monkeypatch.setattr("expectations.checks.violations", lambda *_: found)
    result = execute(spec, NoSpark(), AssetSelection.checks(*checks_of(spec)), fails=True)
    assert not result.success
    assert evaluations(result) == {}


@pytest.mark.spark
def test_checks_run_beside_a_range_of_batches_and_alone(spec: PipelineSpec, spark: SparkSession) -> None:
    store = asset_key(spec, Stage.SUBSCRIPTION_STORE)
    stages = AssetSelection.assets(asset_key(spec, Stage.LEFT_CHANGELOG), store)
    found = evaluations(
        execute(spec, FkSparkResource().use(spark), stages | AssetSelection.checks_for_assets(store), whole=True)
    )
    assert {name for _, name in found} == {one.name for one in suite_of(spec, Stage.SUBSCRIPTION_STORE)}
    assert all(one.passed and one.metadata["rows"].value == 2 for one in found.values())

    missing = AssetCheckKey(asset_key(spec, Stage.RESOLVED_JOIN), "no_missing_row")
    alone = evaluations(execute(spec, FkSparkResource().use(spark), AssetSelection.checks(missing)))
    assert list(alone) == [("resolved_join", "no_missing_row")]
    assert alone["resolved_join", "no_missing_row"].passed
    assert alone["resolved_join", "no_missing_row"].metadata["pending"].value == 2
