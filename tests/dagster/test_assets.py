"""The five stages as Dagster assets: definitions, single partitions and ranges in one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dagster import (
    AddDynamicPartitionsRequest,
    AssetKey,
    DagsterInstance,
    Definitions,
    SensorResult,
    build_sensor_context,
)

from assets.partitions import add_partitions
from fk_pipeline.definitions import definitions
from fk_pipeline.identity import BatchId, Stage
from resources import FkSparkResource, LandingZoneResource

STAGES = [stage.value for stage in Stage]


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


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


def take_over(instance: DagsterInstance, tick: SensorResult) -> None:
    """Does to the partitions what Dagster's daemon would do after a tick."""
    for change in tick.dynamic_partitions_requests or ():
        if isinstance(change, AddDynamicPartitionsRequest):
            instance.add_dynamic_partitions(change.partitions_def_name, list(change.partition_keys))
        else:
            for key in change.partition_keys:
                instance.delete_dynamic_partition(change.partitions_def_name, key)


def counts_of(result: Any, stage: str, batch: int) -> dict[str, Any]:
    """The metadata of one stage and batch."""
    for event in result.get_asset_materialization_events():
        materialization = event.materialization
        if materialization.asset_key.path[-1] == stage and materialization.partition == BatchId(batch).key:
            return {name: value.value for name, value in materialization.metadata.items()}
    raise AssertionError(f"{stage} has no materialization of batch {batch}")


def test_the_graph_of_assets_reads_like_the_design(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    repository = definitions([made.pipeline]).get_repository_def()
    graph = repository.asset_graph
    parents = {
        key.path[-1]: sorted(parent.path[-1] for parent in graph.get(key).parent_keys)
        for key in graph.get_all_asset_keys()
    }
    assert parents == {
        "left_changelog": [],
        "right_table": [],
        "subscription_store": ["left_changelog"],
        "responses": ["right_table", "subscription_store"],
        "resolved_join": ["responses"],
    }
    node = graph.get(AssetKey(["tested", "resolved_join"]))
    assert node.group_name == "tested"
    assert node.kinds == {"spark", "delta"}
    assert node.backfill_policy is not None
    assert node.backfill_policy.max_partitions_per_run is None
    columns = [c.name for c in node.metadata["dagster/column_schema"].columns]
    assert columns[-3:] == ["id", "v", "name"]


@pytest.mark.spark
def test_a_range_is_one_run_with_metadata_per_batch(rows_pipeline: Any, instance: DagsterInstance) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, "b", "v")], [("a", "A")])
    made.land(1, [(2, "a", "w")], [])
    made.pipeline.discover()
    keys = add_partitions(instance, made.pipeline.spec, made.pipeline.ledger().batches)
    assert keys == ["b00000000", "b00000001"]
    tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]}
    result = job_of(made).execute_in_process(instance=instance, tags=tags)
    assert result.success
    assert made.result() == {1: ("v", "A"), 2: ("w", "A")}
    assert made.pipeline.verify().counts()["due"] == 0
    assert counts_of(result, "left_changelog", 0)["rows"] == 2
    assert counts_of(result, "left_changelog", 1)["rows"] == 1
    last = counts_of(result, "resolved_join", 1)
    assert last["joined"] == 1
    assert last["batches in this run"] == "0..1"
    assert last["Delta version of resolved_join"] == made.pipeline.runner.warehouse.version("resolved_join")


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
    assert counts_of(result, "resolved_join", 9)["note"] == "batch 9 has no files: an empty batch"
    assert made.pipeline.verify().counts()["due"] == 0


@pytest.mark.spark
def test_a_lost_dagster_home_loses_nothing(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    sensor = definitions([made.pipeline]).resolve_sensor_def("tested_new_batches")
    resources = {"landing_zone": LandingZoneResource()}
    made.land(0, [(1, "a", "v")], [("a", "A")])
    with DagsterInstance.ephemeral() as first:
        take_over(first, sensor(build_sensor_context(instance=first, resources=resources)))
        assert job_of(made).execute_in_process(instance=first, partition_key="b00000000").success
    made.land(1, [(2, "a", "w")], [("a", "A1")])
    with DagsterInstance.ephemeral() as second:
        found = sensor(build_sensor_context(instance=second, resources=resources))
        take_over(second, found)
        (request,) = found.run_requests or []
        assert request.tags["dagster/asset_partition_range_start"] == "b00000001"
        assert second.get_dynamic_partitions("tested_batches") == ["b00000000", "b00000001"]
        assert job_of(made).execute_in_process(instance=second, tags=request.tags).success
        nothing = sensor(build_sensor_context(instance=second, resources=resources))
        assert not nothing.run_requests
    assert made.result() == {1: ("v", "A1"), 2: ("w", "A1")}
    assert made.pipeline.verify().ok


@pytest.mark.spark
def test_the_sensor_says_which_rebuild_an_edited_pipeline_file_needs(
    rows_pipeline: Any, instance: DagsterInstance
) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v")], [("a", "A")])
    made.pipeline.run()
    made.file.write_text(made.file.read_text().replace("join: left", "join: inner"))
    sensor = definitions([made.file]).resolve_sensor_def("tested_new_batches")
    context = build_sensor_context(instance=instance, resources={"landing_zone": LandingZoneResource()})
    refused = sensor(context)
    assert not refused.run_requests
    assert f"fk-pipeline rebuild {made.file} --from changelog" in refused.skip_reason.skip_message


def test_definitions_are_the_module_and_the_function() -> None:
    import fk_pipeline as fk

    assert isinstance(fk.definitions([]), Definitions)
    assert isinstance(fk.definitions.defs, Definitions)
