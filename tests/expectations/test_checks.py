"""The suites as Dagster asset checks: in a run over batches, alone, red, blocking, and when they could not run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckSeverity,
    AssetKey,
    DagsterInstance,
    Definitions,
    ExecuteInProcessResult,
)
from pyspark.sql import SparkSession

from fk_pipeline.assets.partitions import update_partitions
from fk_pipeline.assets.stage import asset_key
from fk_pipeline.definitions import definitions
from fk_pipeline.errors import CheckFailedError, PipelineFileError
from fk_pipeline.expectations.checking import NO_BATCH_FAILED
from fk_pipeline.expectations.checks import batches_of, checks_of
from fk_pipeline.identity import BatchId, BatchRange
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource, LandingZoneResource
from fk_pipeline.rules.suites import Depth, suite_of
from fk_pipeline.spec import load_spec
from tests.dagster.ticks import stage_of
from tests.expectations.world import make, mutated
from tests.mutations import Mutation, Update

OWN = """
expectations:
  left:
    - type: expect_column_values_to_be_in_set
      kwargs: {column: note, value_set: [n]}
  resolved_join:
    - {type: expect_column_values_to_not_be_null, kwargs: {column: name}, severity: warning}
    - {type: expect_nothing_that_is_known, name: unheard_of}
"""


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """Returns the folder of an inner join whose batches ran, and whose checks nobody has evaluated."""
    pipeline = make(tmp_path_factory.mktemp("ran"), spark)
    pipeline.run()
    return pipeline.spec.file.parent


def copied(ran: Path, folder: Path, session: SparkSession, more: str = "") -> Pipeline:
    """Returns a copy of it, with more in its pipeline file."""
    file = shutil.copytree(ran, folder / "own") / "pipeline.yaml"
    file.write_text(file.read_text() + more)
    return Pipeline(load_spec(file), session)


def execute(
    pipeline: Pipeline,
    instance: DagsterInstance,
    job: str = "checked_all_stages",
    batches: tuple[int, int] | None = None,
    only: list[AssetCheckKey] | None = None,
) -> ExecuteInProcessResult:
    """One run of a job; over a range of batches, if any."""
    defs = definitions([pipeline])
    resources = {"spark": FkSparkResource().use(pipeline.session), "landing_zone": LandingZoneResource()}
    with_session = Definitions(
        assets=defs.assets, asset_checks=defs.asset_checks, jobs=defs.jobs, executor=defs.executor, resources=resources
    )
    pipeline.discover()
    update_partitions(instance, pipeline.spec, pipeline.ledger())
    tags = None
    if batches is not None:
        first, last = (BatchId(b).key for b in batches)
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    made = with_session.resolve_job_def(job)
    if only:
        made = made.get_subset(asset_check_selection=set(only), asset_selection=set())
    return made.execute_in_process(instance=instance, tags=tags, raise_on_error=False)


def evaluations(result: ExecuteInProcessResult) -> dict[str, AssetCheckEvaluation]:
    """Stage and expectation -> what the check reported."""
    return {
        f"{stage_of(one.asset_key)}.{one.check_name}": one
        for one in result.get_asset_check_evaluations()
        if one.check_name != NO_BATCH_FAILED
    }


def materialised(result: ExecuteInProcessResult) -> set[str]:
    return {stage_of(event.materialization.asset_key) for event in result.get_asset_materialization_events()}


def test_the_checks_are_those_of_the_suites_and_critical_ones_block(tmp_path: Path) -> None:
    spec = make(tmp_path, None, more=OWN).spec
    specs = {one.key: one for checks in checks_of(spec) for one in checks.check_specs}
    own = {
        "left_changelog": {"own_column_values_to_be_in_set_note"},
        "resolved_join": {"own_column_values_to_not_be_null_name", "unheard_of"},
    }
    assert set(specs) == {
        AssetCheckKey(asset_key(spec, stage), name)
        for stage in Stage
        for name in {one.name for one in suite_of(spec, stage)} | own.get(stage.value, set()) | {NO_BATCH_FAILED}
    }
    of_result = AssetKey(["checked"])
    assert specs[AssetCheckKey(of_result, "no_stale_row")].blocking
    assert not specs[AssetCheckKey(of_result, "own_column_values_to_not_be_null_name")].blocking
    assert AssetCheckKey(of_result, "no_inner_row_without_match") in specs


def test_an_expectation_of_another_join_or_format_is_left_out(tmp_path: Path) -> None:
    spec = make(tmp_path, None, "left").spec
    names = {one.name for stage in Stage for one in suite_of(spec, stage)}
    assert not names & {"no_inner_row_without_match", "holes_are_filled", "changelog_holes_are_filled"}
    assert not names & {"columns_are_sent", "changelog_columns_are_sent"}  # JSON rows may leave out what is null


def test_a_job_plans_only_the_checks_that_can_be_told_at_its_depth(tmp_path: Path) -> None:
    pipeline = make(tmp_path, None)
    defs = definitions([pipeline])
    for job, depth in (("checked_all_stages", Depth.BATCH), ("checked_full_checks", Depth.FULL)):
        planned = defs.resolve_job_def(job).asset_layer.asset_graph.asset_check_keys
        wanted = {(stage.value, one.name) for stage in Stage for one in suite_of(pipeline.spec, stage, depth)}
        wanted |= {(stage.value, NO_BATCH_FAILED) for stage in Stage}
        assert {(stage_of(key.asset_key), key.name) for key in planned} == wanted


@pytest.mark.parametrize(
    ("tags", "batches"),
    [
        ({}, None),
        ({"dagster/partition": "b00000007"}, BatchRange.of(7)),
        (
            {
                "dagster/asset_partition_range_start": "b00000001",
                "dagster/asset_partition_range_end": "b00000003",
                "dagster/partition": "",
            },
            BatchRange.of(1, 3),
        ),
    ],
)
def test_a_run_with_partitions_looks_at_their_batches(tags: Mapping[str, str], batches: BatchRange | None) -> None:
    assert batches_of(tags) == batches


def test_a_range_of_partitions_goes_by_the_order_in_which_they_were_added() -> None:
    tags = {"dagster/asset_partition_range_start": "b00000005", "dagster/asset_partition_range_end": "b00000003"}
    assert batches_of(tags, ["b00000001", "b00000005", "b00000009", "b00000003"]) == BatchRange.of(3, 9)


def test_an_expectation_called_like_one_of_ours_is_refused(tmp_path: Path) -> None:
    more = "expectations: {left: [{type: expect_table_row_count_to_equal, name: no_null_key}]}"
    with pytest.raises(PipelineFileError, match="'no_null_key', as one of left_changelog is already"):
        checks_of(make(tmp_path, None, more=more).spec)


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_over_batches_checks_every_stage_before_the_next(
    tmp_path: Path, spark: SparkSession, instance: DagsterInstance
) -> None:
    made = make(tmp_path, spark)
    result = execute(made, instance, batches=(0, 2))
    assert result.success
    found = evaluations(result)
    batch_depth = {f"{st}.{one.name}" for st in Stage for one in suite_of(made.spec, st, Depth.BATCH)}
    assert set(found) == batch_depth
    assert all(one.passed for one in found.values())
    metadata = {name: value.value for name, value in found["subscription_store.no_missing_row"].metadata.items()}
    assert (metadata["depth"], metadata["batches"], metadata["violations"]) == ("batch", "0..2", 0)
    assert metadata["seconds"] > 0
    order = [event.step_key for event in result.all_events if event.event_type_value == "STEP_START"]
    assert order.index("checked__left_changelog__expectations") < order.index("checked__subscription_store")
    recorded = made.table("checks").where("depth = 'batch'").collect()
    assert sorted((row["stage"], row["name"]) for row in recorded) == sorted((stage.value, "") for stage in Stage)
    assert {(row["first"], row["last"], row["passed"]) for row in recorded} == {(0, 2, True)}
    assert sum(row["value"] for row in recorded) == len(batch_depth)


@pytest.mark.slow
@pytest.mark.spark
def test_a_full_check_alone_shows_a_stale_row_with_its_key(
    ran: Path, tmp_path: Path, spark: SparkSession, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = copied(ran, tmp_path, spark)
    stale: Mapping[str, Mutation] = {"resolved_join": Update("id = 3", {"_fk_right_hash": "NULL", "name": "'old'"})}
    with mutated(monkeypatch, stale):
        result = execute(made, instance, "checked_full_checks")
    found = evaluations(result)
    red = {name: one for name, one in found.items() if not one.passed}
    assert set(red) == {"resolved_join.no_stale_row", "resolved_join.rows_are_those_of_the_join"}
    one = red["resolved_join.no_stale_row"]
    assert one.severity is AssetCheckSeverity.ERROR
    assert one.description == "1 row(s) violate it"
    assert [json.loads(record.data["key"]) for record in one.metadata["sample"].value.records] == [{"id": 3}]
    assert one.metadata["depth"].value == "full"
    fix = f"fk-pipeline rebuild {made.spec.file} --stages resolved_join makes it anew"
    assert one.metadata["fix"].value.startswith(fix)
    assert "fix" not in found["resolved_join.no_missing_row"].metadata
    only_batches = AssetCheckKey(asset_key(made.spec, Stage.RESPONSES), "no_missing_answer")
    history = instance.event_log_storage.get_asset_check_execution_history(only_batches, limit=5)
    assert history == [], "it was not even planned: it would count as failed with its run"
    assert not materialised(result)
    assert [str(failed) for failed in made.ledger().checks.failed()] == [
        "the table failed check rows_are_those_of_the_join of resolved_join",
        "batch 1 failed check no_stale_row of resolved_join",
    ]
    of_result = [AssetCheckKey(asset_key(made.spec, Stage.RESOLVED_JOIN), name.split(".")[1]) for name in red]
    again = evaluations(execute(made, instance, "checked_full_checks", only=of_result))
    assert {name: one.passed for name, one in again.items()} == dict.fromkeys(red, True)
    assert made.ledger().checks.failed() == []


@pytest.mark.spark
def test_a_red_check_stops_what_comes_after_it_until_the_batch_ran_again(
    tmp_path: Path, spark: SparkSession, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make(tmp_path, spark, more=OWN.replace("value_set: [n]", "value_set: [m]"))
    wrong: Mapping[str, Mutation] = {"left_changelog": Update("id = 2", {"_fk_hash": "NULL"})}
    with mutated(monkeypatch, wrong):
        result = execute(pipeline, instance, batches=(0, 2))
    assert not result.success
    assert materialised(result) == {"left_changelog", "right_table"}
    red = {name for name, one in evaluations(result).items() if not one.passed}
    assert red == {
        "left_changelog.hash_is_that_of_the_row",
        "left_changelog.own_column_values_to_be_in_set_note",
    }
    # The verdict is in the ledger: no other run goes on either, whatever starts it.
    with pytest.raises(
        CheckFailedError, match="batch 1 failed check hash_is_that_of_the_row of left_changelog"
    ) as told:
        pipeline.run("1", ["subscription_store"])
    assert f"fk-pipeline run {pipeline.spec.file} --batches 1" in str(told.value)
    pipeline.run("1", ["left_changelog", "subscription_store"])
    assert {(one.name, one.batch) for one in pipeline.ledger().checks.failed()} == {
        ("own_column_values_to_be_in_set_note", 0),
        ("own_column_values_to_be_in_set_note", 2),
    }


@pytest.mark.spark
def test_what_could_not_be_evaluated_is_an_error_of_the_run_and_no_verdict(
    ran: Path, tmp_path: Path, spark: SparkSession, instance: DagsterInstance
) -> None:
    pipeline = copied(ran, tmp_path, spark, more=OWN)
    only = [AssetCheckKey(asset_key(pipeline.spec, Stage.RESOLVED_JOIN), n) for n in ("unheard_of", "no_missing_row")]
    result = execute(pipeline, instance, "checked_full_checks", only=only)
    assert not result.success
    assert {name: one.passed for name, one in evaluations(result).items()} == {"resolved_join.no_missing_row": True}
    [failure] = result.filter_events(lambda event: event.is_step_failure)
    assert "'unheard_of' could not be evaluated" in str(failure.event_specific_data)
    assert [(row["name"], row["passed"]) for row in pipeline.table("checks").collect()] == [("", False)]
