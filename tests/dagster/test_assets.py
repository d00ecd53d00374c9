"""The five stages as Dagster assets: definitions, single partitions and ranges in one process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, Definitions, Failure
from dagster.components.testing import create_defs_folder_sandbox

from fk_pipeline.assets.current import observed
from fk_pipeline.assets.partitions import update_partitions
from fk_pipeline.definitions import definitions
from fk_pipeline.identity import BatchId
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY, Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource, LandingZoneResource
from fk_pipeline.resources.names import asset_key
from fk_pipeline.spec import load_spec
from tests.dagster.ticks import evaluated, figures, plotted, stage_of

STAGES = [stage.value for stage in Stage]


def job_of(made: Any) -> Any:
    defs = definitions([made.pipeline])
    with_session = Definitions(
        assets=defs.assets,
        jobs=defs.jobs,
        executor=defs.executor,
        resources={
            "spark": FkSparkResource().use(made.pipeline.session),
            "landing_zone": LandingZoneResource(),
        },
    )
    return with_session.resolve_job_def("tested_all_stages")


def counts_of(result: Any, stage: str, batch: int) -> dict[str, Any]:
    """What is shown of one stage and batch."""
    for event in result.get_asset_materialization_events():
        materialization = event.materialization
        if stage_of(materialization.asset_key) == stage and materialization.partition == BatchId(batch).key:
            return figures(materialization)
    raise AssertionError(f"{stage} has no materialization of batch {batch}")


def test_the_graph_of_assets_reads_like_the_design(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    repository = definitions([made.pipeline]).get_repository_def()
    graph = repository.asset_graph
    parents = {
        stage_of(key): sorted(stage_of(parent) for parent in graph.get(key).parent_keys)
        for key in graph.get_all_asset_keys()
        if key.path[0] == "tested"
    }
    assert parents == {
        "left": ["left"],
        "right": ["right"],
        "left_changelog": ["left"],
        "right_table": ["right"],
        "subscription_store": ["left_changelog"],
        "responses": ["right_table", "subscription_store"],
        "resolved_join": ["responses"],
    }
    node = graph.get(AssetKey(["tested"]))
    assert node.group_name == "tested"
    assert node.kinds == {"spark", "delta"}
    assert node.backfill_policy is not None
    assert node.backfill_policy.max_partitions_per_run is None
    columns = node.metadata["dagster/column_schema"].columns
    assert [c.name for c in columns[-3:]] == ["id", "v", "name"]


def test_every_column_says_what_it_is(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", select='[id, "UPPER(name) || v AS shout"]')
    graph = definitions([made.pipeline]).get_repository_def().asset_graph
    told = {}
    for stage in Stage:
        columns = graph.get(asset_key(made.pipeline.spec, stage)).metadata["dagster/column_schema"].columns
        told |= {column.name: column.description for column in columns}
    assert all(told.values())
    assert {name for name, text in told.items() if text == "as in the source"} == {"id", "fk", "v", "k", "name", "note"}
    assert told["shout"] == "UPPER(name) || v AS shout"
    assert told["_fk_pk_id"] == "component of the left row's key"


def test_what_a_pipeline_brings_to_dagster(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    repository = definitions([made.pipeline]).get_repository_def()
    assert {job.name for job in repository.get_all_jobs() if not job.name.startswith("__")} == {
        "tested_all_stages",
        "tested_full_checks",
        "tested_maintenance",
        "fk_full_checks",
        "fk_maintenance",
    }
    schedules = {schedule.name: schedule for schedule in repository.schedule_defs}
    assert set(schedules) == {"fk_nightly_full_checks", "fk_weekly_maintenance"}
    assert schedules["fk_nightly_full_checks"].cron_schedule == "0 2 * * *"
    assert [sensor.name for sensor in repository.sensor_defs] == ["tested_new_batches"]
    assert all(each.default_status.value != "RUNNING" for each in (*schedules.values(), *repository.sensor_defs))


def test_columns_come_from_where_the_selection_reads_them(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", select='[id, "UPPER(name) || v AS shout", name]')
    graph = definitions([made.pipeline]).get_repository_def().asset_graph
    lineage = graph.get(AssetKey(["tested"])).metadata["dagster/column_lineage"].deps_by_column
    found = {name: {(stage_of(d.asset_key), d.column_name) for d in deps} for name, deps in lineage.items()}
    assert found["id"] == {("left_changelog", "id")}
    assert found["shout"] == {("right_table", "name"), ("left_changelog", "v")}
    assert found["name"] == {("right_table", "name")}
    assert found["_fk_right_hash"] == {("responses", "_fk_right_hash")}


SAID = """\
description: Who pays what.
owners: [team:ops, ann@example.com]
tags: {domain: sales}
group: shop/joins
meta: {sla: 6, contract: {version: 3}}
descriptions: {id: which one}
"""


def test_the_assets_say_what_the_pipeline_file_says_of_the_data(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    text = made.file.read_text().replace("right:\n", "right:\n  descriptions: {name: of the payer}\n", 1)
    made.file.write_text(SAID + text)
    defs = definitions([made.file])
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    keys = [key for key in graph.get_all_asset_keys() if key.path[0] == "tested"]
    for node in map(graph.get, keys):
        assert node.group_name == "shop/joins"
        assert [*node.owners] == ["team:ops", "ann@example.com"]
        assert node.tags["domain"] == "sales"
    result = graph.get(AssetKey(["tested"]))
    assert str(result.description).startswith("Who pays what.\n\n")
    assert "Who pays" not in str(graph.get(AssetKey(["tested", "responses"])).description)
    assert result.metadata["sla"] == 6
    assert result.metadata["contract"] == {"version": 3}
    columns = {column.name: column.description for column in result.metadata["dagster/column_schema"].columns}
    assert (columns["id"], columns["name"], columns["v"]) == ("which one", "of the payer", "as in the source")
    stages = {asset_key(made.pipeline.spec, stage) for stage in STAGES}
    job, full = map(defs.resolve_job_def, ("tested_all_stages", "tested_full_checks"))
    assert job.asset_layer.selected_asset_keys == stages
    assert not full.asset_layer.selected_asset_keys
    for each in (job, full):
        assert {key.asset_key for key in each.asset_layer.asset_graph.asset_check_keys} == stages


def test_two_pipelines_of_two_calls_are_merged_when_one_brings_the_resources(rows_pipeline: Any) -> None:
    first, second = rows_pipeline("left"), rows_pipeline("inner")
    second.file.write_text(second.file.read_text().replace("name: tested", "name: another", 1))
    merged = Definitions.merge(definitions([first.file]), definitions([second.file], resources=False))
    keys = {key.path[0] for key in merged.get_repository_def().asset_graph.get_all_asset_keys()}
    assert {"tested", "another"} <= keys


@pytest.mark.filterwarnings("ignore")  # what Dagster says of its own components: much of that is in beta
def test_a_component_is_its_pipeline_files(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "joins"
        folder.mkdir(parents=True)
        (folder / "tested.yaml").write_text(made.file.read_text())
        (folder / "defs.yaml").write_text(
            "type: fk_pipeline.FkJoinComponent\nattributes:\n  pipelines: [tested.yaml]\n  resources: true\n"
        )
        with sandbox.build_all_defs() as defs:
            keys = {stage_of(key) for key in defs.get_repository_def().asset_graph.get_all_asset_keys()}
            assert keys == {*STAGES, "left", "right"}
            assert defs.resolve_sensor_def("tested_new_batches")


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_may_choose_its_strategy(rows_pipeline: Any, instance: DagsterInstance) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v")], [("a", "A")])
    instance.add_dynamic_partitions("tested_batches", ["b00000000"])
    config = {"ops": {"tested": {"config": {"strategy": "full"}}}}
    result = job_of(made).execute_in_process(instance=instance, partition_key="b00000000", run_config=config)
    assert result.success
    assert str(counts_of(result, "resolved_join", 0)["strategy"]).startswith("full: ")
    config = {"ops": {"tested": {"config": {"strategy": "fastest"}}}}
    with pytest.raises(Failure, match="strategy"):
        job_of(made).execute_in_process(instance=instance, partition_key="b00000000", run_config=config)


@pytest.mark.spark
def test_a_batch_shows_every_number_of_its_stage_and_adds_the_partitions_that_are_missing(
    rows_pipeline: Any, instance: DagsterInstance
) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, "b", "v")], [("a", "A")])
    made.land(1, [(2, "a", "w")])
    instance.add_dynamic_partitions("tested_batches", ["b00000000"])
    result = job_of(made).execute_in_process(instance=instance, partition_key="b00000000")
    assert result.success
    assert instance.get_dynamic_partitions("tested_batches") == ["b00000000", "b00000001"]
    for stage in FOREIGN_KEY.stages:
        assert stage.counts
        assert set(stage.counts) <= set(counts_of(result, stage.name, 0)), stage
    assert counts_of(result, "left_changelog", 0)["files"] == 1
    assert counts_of(result, "responses", 0)["responses"] == 2
    shown = counts_of(result, "resolved_join", 0)
    assert {name: shown[name] for name in ("joined", "half-joined", "stale dropped")} == {
        "joined": 1,
        "half-joined": 1,
        "stale dropped": 0,
    }
    [page] = {event.materialization.metadata["report"].value for event in result.get_asset_materialization_events()}
    assert "Up to date" not in Path(str(page)).read_text(), "the other batch is due"


@pytest.mark.spark
def test_a_range_is_one_run_with_metadata_per_batch(rows_pipeline: Any, instance: DagsterInstance) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, "b", "v")], [("a", "A")])
    made.land(1, [(2, "a", "w")], [])
    made.pipeline.discover()
    keys = update_partitions(instance, made.pipeline.spec, made.pipeline.ledger())
    assert keys == ["b00000000", "b00000001"]
    tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]}
    result = job_of(made).execute_in_process(instance=instance, tags=tags)
    assert result.success
    assert made.result() == {1: ("v", "A"), 2: ("w", "A")}
    assert not any(made.pipeline.due().values())
    assert counts_of(result, "left_changelog", 0)["rows"] == 2
    assert counts_of(result, "left_changelog", 1)["rows"] == 1
    last = counts_of(result, "resolved_join", 1)
    assert last["joined"] == 1
    assert last["batches of the run"] == "0..1"
    assert last["Delta version of resolved_join"] == made.pipeline.runner.warehouse.version("resolved_join")
    [record] = instance.fetch_observations(AssetKey("tested"), limit=9).records
    seen = record.asset_observation
    assert seen is not None
    shown = figures(seen)
    assert plotted(seen) == {"dagster/row_count": 2}
    assert (seen.partition, shown["dagster/row_count"], "preview" in last) == ("b00000001", 2, False)
    assert shown["bytes of the result"] > 0
    assert sorted((one.data for one in shown["preview"].records), key=lambda row: row["id"]) == [
        {"id": 1, "v": "v", "name": "A"},
        {"id": 2, "v": "w", "name": "A"},
    ]
    assert counts_of(result, "left_changelog", 0)["dagster/partition_row_count"] == 2
    made.file.write_text(made.file.read_text().replace("left:\n", "left:\n  sensitive: [v]\n", 1))
    secret = observed(load_spec(made.file), [BatchId(1)])
    assert secret is not None
    assert [set(one.data) for one in secret.metadata["preview"].value.records] == [{"id", "name"}] * 2
    Path(made.pipeline.spec.home, "resolved_join", "_delta_log", f"{0:020}.json").unlink()
    assert observed(load_spec(made.file), [BatchId(1)]) is None


@pytest.mark.slow  # one partition: test_a_batch_shows_every_number; an empty one: test_commands.py
@pytest.mark.spark
def test_single_partitions_an_empty_one_included(rows_pipeline: Any, instance: DagsterInstance) -> None:
    made = rows_pipeline("inner")
    made.land(0, [(1, "a", "v"), (2, "b", "v")], [("a", "A")])
    made.land(1, [], [("b", "B"), ("a",)])
    job = job_of(made)
    instance.add_dynamic_partitions("tested_batches", ["b00000000", "b00000001", "b00000009"])
    for key in ("b00000000", "b00000001", "b00000009"):
        result = job.execute_in_process(instance=instance, partition_key=key)
        assert result.success
    assert made.result() == {2: ("v", "B")}
    assert counts_of(result, "resolved_join", 9)["note"] == "it has no files"
    assert made.pipeline.verify().counts()["due"] == 0


@pytest.mark.slow
@pytest.mark.spark
def test_a_lost_dagster_home_loses_nothing(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    defs, resources = definitions([made.pipeline]), {"landing_zone": LandingZoneResource()}
    made.land(0, [(1, "a", "v")], [("a", "A")])
    with DagsterInstance.ephemeral() as first:
        assert evaluated(defs, "tested", first, resources).run_requests
        assert job_of(made).execute_in_process(instance=first, partition_key="b00000000").success
    made.land(1, [(2, "a", "w")], [("a", "A1")])
    with DagsterInstance.ephemeral() as second:
        (request,) = evaluated(defs, "tested", second, resources).run_requests or []
        assert request.tags["dagster/asset_partition_range_start"] == "b00000001"
        assert second.get_dynamic_partitions("tested_batches") == ["b00000000", "b00000001"]
        assert job_of(made).execute_in_process(instance=second, tags=request.tags).success
        assert not evaluated(defs, "tested", second, resources).run_requests
    assert made.result() == {1: ("v", "A1"), 2: ("w", "A1")}


@pytest.mark.spark
def test_a_run_of_the_sensor_leaves_what_is_done_and_one_of_a_person_does_it(
    rows_pipeline: Any, instance: DagsterInstance
) -> None:
    made, first = rows_pipeline("left"), AssetKey(["tested", "left_changelog"])
    made.land(0, [(1, "a", "v"), (2, "b", "w")])
    tick = evaluated(definitions([made.pipeline]), "tested", instance, {"landing_zone": LandingZoneResource()})
    (request,) = tick.run_requests or []
    made.pipeline.run(stages=["left_changelog"])  # another daemon, or somebody at the command

    def ran(tags: dict[str, str]) -> tuple[int, dict[str, Any]]:
        done = job_of(made).execute_in_process(instance=instance, tags=tags, asset_selection=[first])
        assert done.success
        return made.pipeline.ledger().state("left_changelog", 0).attempts, counts_of(done, "left_changelog", 0)

    number, shown = ran(request.tags)
    assert (number, shown["rows"], "note" in shown) == (1, 2, False)
    made.land(0, [(1, "a", "v")])
    number, shown = ran(request.tags)
    assert (number, shown["rows"], "note" in shown) == (2, 1, False)
    number, shown = ran({name: value for name, value in request.tags.items() if "partition" in name})
    assert (number, shown["rows"], "did the same work again" in shown["note"]) == (3, 1, True)


@pytest.mark.slow  # held back: engine/test_moved.py; one by one: test_sensor.py
@pytest.mark.spark
def test_a_file_that_is_held_back_stops_no_other_batch(rows_pipeline: Any, instance: DagsterInstance) -> None:
    made = rows_pipeline("left", settings="{retry_seconds: 1, max_failures: 2}")
    landed = made.folder / "landing/left"
    for batch in (3, 4, 5, 6):
        made.land(batch, [(batch, "a", "v")])
    made.pipeline.run("3", stages=["left_changelog"])
    for batch in (3, 5):  # the one was read, the other was not
        (landed / f"{batch:08d}.jsonl").rename(landed / f"late-{batch}.jsonl")
    defs, asked = definitions([made.pipeline]), []
    for _ in range(20):
        tick = evaluated(defs, "tested", instance, {"landing_zone": LandingZoneResource()})
        for request in tick.run_requests or []:
            ends = [int(request.tags[f"dagster/asset_partition_range_{end}"][1:]) for end in ("start", "end")]
            done = job_of(made).execute_in_process(instance=instance, tags=request.tags, raise_on_error=False)
            asked.append((*ends, done.success))
        if "the next try is in" not in (tick.skip_message or "") and not tick.run_requests:
            break
        time.sleep(0.2)
    assert asked[0] == (3, 6, False)
    assert sorted(asked[1:]) == [(3, 3, True), (4, 4, True), (5, 5, False), (6, 6, True)]
    assert "left_changelog of batch 5 failed 2 times: the landing file is gone" in str(tick.skip_message)
    assert made.result() == dict.fromkeys((3, 4, 6), ("v", None))
    with pytest.raises(Failure, match=r"late-3\.jsonl is not read: without .*/00000003\.jsonl"):
        job_of(made).execute_in_process(instance=instance, partition_key="b00000003")
    assert made.pipeline.ledger().state("left_changelog", 3).attempts == 2, "a run of a person does what it can first"


@pytest.mark.spark
def test_sensor_and_run_say_which_rebuild_an_edited_pipeline_file_needs(
    rows_pipeline: Any, instance: DagsterInstance
) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v")], [("a", "A")])
    made.pipeline.run()
    made.file.write_text(made.file.read_text().replace("join: left", "join: inner"))
    refused = evaluated(definitions([made.file]), "tested", instance, {"landing_zone": LandingZoneResource()})
    assert not refused.run_requests
    assert f"fk-pipeline rebuild {made.file} --from changelog" in str(refused.skip_message)
    made.pipeline = Pipeline(load_spec(made.file), made.pipeline.session)
    instance.add_dynamic_partitions("tested_batches", ["b00000000"])
    with pytest.raises(Failure, match="join was 'left', is 'inner'") as failure:
        job_of(made).execute_in_process(instance=instance, partition_key="b00000000")
    assert f"\n  Fix: undo the edit, or: fk-pipeline rebuild {made.file}" in str(failure.value), "before any trace"


def test_definitions_are_the_module_and_the_function() -> None:
    import fk_pipeline as fk

    assert isinstance(fk.definitions([]), Definitions)
    assert isinstance(fk.definitions.defs, Definitions)
