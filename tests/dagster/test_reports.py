"""Dagster shows what the ledger has, whoever did the work: figures, checks, what is stale and what is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster import AssetCheckKey, AssetKey, AssetMaterialization, DagsterEventType, DagsterInstance, Definitions
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from fk_pipeline.assets.reports import DATA_VERSION, report
from fk_pipeline.cli.status_text import print_status
from fk_pipeline.definitions import definitions
from fk_pipeline.engine.fingerprints import fingerprints
from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.resources.names import asset_key, source_key, source_keys
from tests.dagster.ticks import figures, plotted
from tests.dagster.world import ZONE, World

pytestmark = pytest.mark.usefixtures("empty_zone", "_all_at_once")


@pytest.fixture
def _all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a tick report all that it has to report, however busy the machine is."""
    monkeypatch.setattr("fk_pipeline.assets.sensors.REPORT_SECONDS", 60)


@pytest.fixture
def world(tmp_path: Path, instance: DagsterInstance) -> World:
    """Batches 1 and 2, which a command has done."""
    made = World(tmp_path, instance, "{}")
    for batch in (1, 2):
        ZONE.put("left", batch)
        ZONE.put("right", batch)
    made.pipeline.discover()
    made.do(1, 2, rows=7)
    return made


def shown(world: World, stage: str) -> dict[int, dict[str, Any]]:
    """What is shown of the newest materialisation of each batch of a stage."""
    key, found = asset_key(world.pipeline.spec, stage), {}
    for record in reversed(world.instance.fetch_materializations(key, limit=1000).records):
        made = record.asset_materialization
        assert made is not None
        assert made.partition is not None
        found[int(made.partition[1:])] = figures(made)
    return found


def number(world: World) -> int:
    """The number of events of all stages in Dagster."""
    keys = [asset_key(world.pipeline.spec, stage) for stage in Stage]
    return sum(len(world.instance.fetch_materializations(key, limit=1000).records) for key in keys)


def stale(world: World, batch: int) -> set[str]:
    """The stages that Dagster shows as stale for a batch."""
    resolver = CachingStaleStatusResolver(
        world.instance, world.defs.get_repository_def().asset_graph, LoadingContextForTest(world.instance)
    )
    spec = world.pipeline.spec
    found = {stage: resolver.get_status(asset_key(spec, stage), f"b{batch:08d}") for stage in Stage}
    return {str(stage) for stage, status in found.items() if status is StaleStatus.STALE}


def test_what_a_command_did_is_shown_once_by_the_next_tick(world: World) -> None:
    world.tick()
    assert world.partitions() == [1, 2]
    for stage in Stage:
        found = shown(world, stage)
        assert {batch: one["rows"] for batch, one in found.items()} == {1: 7, 2: 7}
        assert found[1]["batches of the run"] == "1..2"
    before = number(world)
    assert before == 2 * len(Stage)
    for _ in range(2):
        world.tick()
    assert number(world) == before
    assert not any(stale(world, batch) for batch in (1, 2))


def test_a_lost_instance_is_told_everything_again(world: World, tmp_path: Path) -> None:
    world.tick()
    with DagsterInstance.ephemeral() as other:
        world.instance = other
        world.tick()
        assert world.partitions() == [1, 2]
        assert number(world) == 2 * len(Stage)


def test_a_batch_that_landed_again_is_stale_until_it_ran(world: World) -> None:
    world.tick()
    ZONE.put("left", 1, "2")
    world.tick()
    assert stale(world, 1) == {"left_changelog"}
    assert not stale(world, 2)
    world.do(1, stages=(Stage.LEFT_CHANGELOG,), rows=9)
    world.tick()
    assert stale(world, 1) == {"subscription_store"}
    world.do(1, stages=tuple(Stage)[1:], rows=9)
    world.tick()
    assert not stale(world, 1)
    assert shown(world, Stage.RESOLVED_JOIN)[1]["rows"] == 9


def test_work_that_is_done_again_leaves_the_figures(world: World) -> None:
    world.tick()
    before = {stage: shown(world, stage) for stage in Stage}
    world.do(1, 2, rows=0)
    world.tick()
    assert number(world) == 4 * len(Stage), "the run is told"
    for stage in Stage:
        for batch, told in shown(world, stage).items():
            assert "did the same work again" in told.pop("note")
            assert told == before[stage][batch]
    ZONE.put("left", 2, "2")
    world.tick()
    world.do(2, rows=3)
    world.tick()
    assert {batch: one["rows"] for batch, one in shown(world, Stage.RESOLVED_JOIN).items()} == {1: 7, 2: 3}


def test_a_batch_that_was_withdrawn_is_gone_once_its_rows_are(world: World) -> None:
    world.tick()
    for side in ("left", "right"):
        del ZONE.files[side]["00000001.jsonl"]
    world.pipeline.ledger().files.remove(1)
    world.tick()
    assert world.partitions() == [1, 2], "its rows are still there"
    assert stale(world, 1) == {"left_changelog", "right_table"}
    world.do(1, rows=0)
    world.tick()
    assert world.partitions() == [2]


def test_a_batch_that_failed_outside_dagster_is_a_red_check_with_its_error(world: World) -> None:
    world.tick()
    assert world.failed(Stage.LEFT_CHANGELOG).passed
    ZONE.put("left", 3)
    world.tick()
    world.do(3, stages=(Stage.LEFT_CHANGELOG,), error="the disk is full")
    world.tick()
    found = world.failed(Stage.LEFT_CHANGELOG)
    assert not found.passed
    assert found.description == "1 batch(es) failed; batch 3: the disk is full"
    [row] = found.metadata["failed"].records
    assert (row.data["batch"], row.data["times"]) == (3, 1)
    world.do(3)
    world.tick()
    assert world.failed(Stage.LEFT_CHANGELOG).passed


def test_a_tick_reports_for_a_second_and_the_next_one_goes_on(world: World) -> None:
    world.tick()
    with DagsterInstance.ephemeral() as other:
        spec, ledger = world.pipeline.spec, world.pipeline.ledger()
        world.instance = other
        other.add_dynamic_partitions("tested_batches", ["b00000001", "b00000002"])
        parts = []
        while not (done := report(other, spec, ledger, {}, seconds=0.0)).complete:
            parts.append(done.events)
            assert len(parts) < 100
        assert sum(parts) + done.events == 2 * len(SIDES) + 2 * len(Stage) + len(SIDES) + len(Stage)
        assert len(parts) > 1
        assert report(other, spec, ledger, {}).events == 0


def test_what_landed_is_told_with_its_files(world: World) -> None:
    world.tick()
    records = world.instance.fetch_observations(AssetKey(["tested", "left"]), limit=9).records
    told = {record.asset_observation.partition: record.asset_observation for record in records}
    assert {*told} == {"b00000001", "b00000002"}
    one = told["b00000001"]
    assert plotted(one) == {"files": 1}
    assert figures(one)["bytes"] == 1
    assert one.metadata["first files"].records[0].data["file"] == "in/left/00000001.jsonl"
    versions = world.instance.event_log_storage.get_latest_tags_by_partition(
        AssetKey(["tested", "left"]), DagsterEventType.ASSET_OBSERVATION, [DATA_VERSION]
    )
    assert len({tags[DATA_VERSION] for tags in versions.values()}) == 2


def test_a_folder_that_two_pipelines_read_is_one_source_with_its_newest_batch(world: World) -> None:
    other = world.beside("another")
    defs = definitions([world.pipeline.spec, other.pipeline.spec])
    sources = source_keys([world.pipeline.spec, other.pipeline.spec])
    key = source_key(world.pipeline.spec, Side.LEFT, sources)
    assert key == source_key(other.pipeline.spec, Side.LEFT, sources) == source_key(other.pipeline.spec, Side.LEFT, {})
    graph = defs.get_repository_def().asset_graph
    assert {child.to_user_string() for child in graph.get(key).child_keys} == {"tested/left", "another/left"}
    Definitions.merge(world.defs, definitions([other.pipeline.spec], resources=False)).get_repository_def()

    def told() -> list[Any]:
        found = [one.asset_materialization for one in world.instance.fetch_materializations(key, limit=9).records]
        return [one.metadata["batch"].value for one in reversed(found) if one is not None]

    for one in (world, other):
        one.tick()
    assert told() == [2]
    ZONE.put("left", 3)
    other.tick()
    world.tick()
    assert told() == [2, 3]
    newest = world.instance.get_latest_materialization_event(key)
    assert newest is not None
    assert newest.asset_materialization is not None
    assert plotted(newest.asset_materialization) == {"batch": 3}
    assert figures(newest.asset_materialization)["files"] == 1


def test_two_folders_that_end_alike_are_two_sources_in_any_order(tmp_path: Path, instance: DagsterInstance) -> None:
    worlds = []
    for name, place in (("one", "a/shop/landing"), ("two", "b/shop/landing"), ("three", "c/shop/landing")):
        (tmp_path / place).mkdir(parents=True)
        worlds.append(World(tmp_path / place, instance, "{}", name))
    last = worlds[2].file  # its folders end in the same letters, apart from what no key has
    last.write_text(last.read_text().replace("in/left", f"{tmp_path}/a/shop/landing/inéleft"))
    worlds[2].reload()
    specs = [world.pipeline.spec for world in worlds]
    found = [source_keys(some) for some in (specs, specs[::-1], [specs[1], specs[2], specs[0]])]
    assert found[0] == found[1] == found[2]
    keys = {spec.name: source_key(spec, Side.LEFT, found[0]) for spec in specs}
    assert len({*found[0].values()}) == 6
    assert keys["two"].path == ["source", "b", "shop", "landing", "in", "left"]
    assert keys["one"].path[:-1] == ["source", *tmp_path.parts[1:], "a", "shop", "landing", "in", "left"]
    graph = definitions(specs).get_repository_def().asset_graph
    assert {name: graph.get(AssetKey([name, "left"])).parent_keys for name in keys} == {n: {k} for n, k in keys.items()}
    ZONE.put("left", 3)
    worlds[1].defs = definitions(specs)
    worlds[1].tick()
    assert instance.get_latest_materialization_event(keys["two"]) is not None
    assert instance.get_latest_materialization_event(source_key(specs[1], Side.LEFT, {})) is None


def test_a_batch_that_landed_again_before_dagster_heard_of_its_run_is_stale(world: World) -> None:
    ZONE.put("left", 1, "2")
    world.tick()
    assert shown(world, Stage.LEFT_CHANGELOG)[1]["rows"] == 7
    assert stale(world, 1) == {"left_changelog"}
    assert not stale(world, 2)


def test_a_stage_that_has_not_followed_the_one_before_it_is_stale(world: World) -> None:
    world.do(1, stages=(Stage.LEFT_CHANGELOG,), rows=7)
    world.tick()
    assert stale(world, 1) == {"subscription_store"}


def test_what_dagster_heard_of_after_a_run_has_read_it_makes_nothing_stale(world: World) -> None:
    """A run by hand between two ticks: Dagster notes nothing of what it reads, as it has not heard of it."""
    spec, ledger = world.pipeline.spec, world.pipeline.ledger()
    world.instance.add_dynamic_partitions("tested_batches", ["b00000001", "b00000002"])
    for batch in ledger.batches:
        for stage in Stage:
            run = ledger.state(stage, batch).last
            assert run is not None
            tags = {DATA_VERSION: run.run_id, "dagster/code_version": "a run of Dagster"}
            for up in [*spec.definition.stage(stage).upstream, *filter(None, [spec.definition.side_of(stage)])]:
                key = f"tested/{up}"
                tags |= {f"dagster/input_data_version/{key}": "INITIAL", f"dagster/input_event_pointer/{key}": "NULL"}
            made = AssetMaterialization(asset_key(spec, stage), partition=batch.key, tags=tags)
            world.instance.report_runless_asset_event(made)
    world.tick()
    assert not any(stale(world, batch) for batch in (1, 2))
    ZONE.put("right", 2, "2")
    world.tick()
    assert stale(world, 2) == {"right_table"}
    assert not stale(world, 1)


def test_a_rebuild_has_figures_of_its_own(world: World) -> None:
    world.tick()
    ledger = world.pipeline.ledger()
    ledger.start(Stage.RESOLVED_JOIN, [1, 2], "rebuilt", {})
    ledger.runs.succeed({batch: {"rows": 4} for batch in (1, 2)}, {}, 0.1)  # its versions are not taken over
    world.tick()
    assert {batch: one["rows"] for batch, one in shown(world, Stage.RESOLVED_JOIN).items()} == {1: 4, 2: 4}
    world.do(1, stages=(Stage.RESOLVED_JOIN,), rows=0)
    world.tick()
    assert shown(world, Stage.RESOLVED_JOIN)[1]["rows"] == 4


def test_a_tick_tells_of_failures_first(world: World) -> None:
    ZONE.put("left", 3)
    world.pipeline.discover()
    world.do(3, stages=(Stage.LEFT_CHANGELOG,), error="the disk is full")
    report(world.instance, world.pipeline.spec, world.pipeline.ledger(), {}, seconds=0.0)
    assert "the disk is full" in str(world.failed(Stage.LEFT_CHANGELOG).description)


def test_a_pipeline_that_needs_a_rebuild_is_red_until_the_edit_is_undone(world: World) -> None:
    world.pipeline.ledger().record_fingerprints(fingerprints(world.pipeline.spec))
    world.tick()
    file, stage = world.pipeline.spec.file, Stage.RESOLVED_JOIN
    text = file.read_text()
    file.write_text(text.replace("key: id", "key: fk"))
    world.reload()
    ZONE.put("left", 3)
    assert world.failed(stage).passed
    found = [world.tick()[1][0], world.failed(stage)]
    assert "the stored tables were made with another pipeline file" in found[0]
    assert not found[1].passed
    assert found[1].description.startswith("nothing runs: the stored tables were made with another pipeline file")
    assert "left.key was 'id', is 'fk'" in found[1].description
    assert f"fk-pipeline rebuild {file} --from landing" in found[1].metadata["fix"].value
    key = AssetCheckKey(asset_key(world.pipeline.spec, stage), "no_batch_failed")
    history = world.instance.event_log_storage.get_asset_check_execution_history
    told = len(history(key, limit=10))
    world.tick()
    assert len(history(key, limit=10)) == told, "once per refusal"
    assert world.failed(Stage.LEFT_CHANGELOG).passed
    file.write_text(text)
    world.reload()
    assert world.tick()[0] == "3..3"
    assert world.failed(stage).passed


def test_status_says_that_nothing_runs_and_what_mends_it(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.pipeline.ledger().record_fingerprints(fingerprints(world.pipeline.spec))
    assert world.pipeline.status()["refused"] is None
    file = world.pipeline.spec.file
    file.write_text(file.read_text().replace("key: id", "key: fk"))
    world.reload()
    found = world.pipeline.status()
    assert found["refused"]["mended_by"].endswith(f"fk-pipeline rebuild {file} --from landing")
    print_status(found, file)
    assert "nothing runs: the stored tables were made with another pipeline file" in capsys.readouterr().out
