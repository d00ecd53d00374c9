"""How old the newest batch may be: what the pipeline file says, as Dagster's daemon evaluates it. No Spark."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView
from dagster._core.definitions.data_version import DATA_VERSION_TAG, CachingStaleStatusResolver, StaleStatus
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy
from dagster._core.definitions.freshness_evaluator import TimeWindowFreshnessPolicyEvaluator
from dagster._core.loader import LoadingContextForTest

from fk_pipeline.assets.reports import sync
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.spec import load_spec
from tests.dagster.world import ZONE, World

pytestmark = pytest.mark.usefixtures("empty_zone")

LEFT, RIGHT, RESULT = AssetKey(["tested", "left"]), AssetKey(["tested", "right"]), AssetKey(["tested"])
DAILY = "{freshness: {warn_after: 6 hours, error_after: 1 day}}"


def state(world: World, key: AssetKey, hours: float = 0, *, monkeypatch: pytest.MonkeyPatch) -> str:
    """The state of an asset in so many hours, as the daemon finds it."""
    node = world.defs.get_repository_def().asset_graph.get(key)
    now = (datetime.now(UTC) + timedelta(hours=hours)).timestamp()
    with monkeypatch.context() as patch:
        patch.setattr("dagster._core.definitions.freshness_evaluator.get_current_timestamp", lambda: now)
        found = TimeWindowFreshnessPolicyEvaluator().evaluate_freshness(LoadingContextForTest(world.instance), node)
        return asyncio.run(found).value


def land(world: World, batch: int, hours_ago: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch lands on the left, so long ago by the ledger."""
    at = datetime.now(UTC) - timedelta(hours=hours_ago)
    ZONE.put("left", batch)
    with monkeypatch.context() as patch:
        patch.setattr("fk_pipeline.store.ledger.entries.datetime", type("Then", (), {"now": lambda _: at}))
        world.pipeline.discover()


def test_a_late_source_stays_late_whoever_tells_dagster_of_its_old_batches(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, instance, DAILY)
    for batch, hours_ago in ((1, 80), (2, 30)):
        land(world, batch, hours_ago, monkeypatch)
    world.do(1, 2)
    assert sync(instance, world.pipeline, {}).complete
    assert state(world, LEFT, monkeypatch=monkeypatch) == "FAIL"
    assert state(world, RIGHT, monkeypatch=monkeypatch) == "UNKNOWN"
    assert state(world, RESULT, monkeypatch=monkeypatch) == "PASS", "Dagster counts the time of the report"
    world.do(1)
    world.tick()
    assert state(world, LEFT, monkeypatch=monkeypatch) == "FAIL", "nothing landed"

    land(world, 3, 1, monkeypatch)
    world.tick()
    assert state(world, LEFT, monkeypatch=monkeypatch) == "PASS"
    assert state(world, LEFT, 5.5, monkeypatch=monkeypatch) == "WARN", "it landed an hour ago"
    assert state(world, LEFT, 23.5, monkeypatch=monkeypatch) == "FAIL"
    [newest] = instance.fetch_materializations(LEFT, limit=1).records
    assert newest.partition_key == "b00000003"
    before = len(instance.fetch_materializations(LEFT, limit=9).records)
    world.do(1, 2, 3)
    world.tick()
    assert len(instance.fetch_materializations(LEFT, limit=9).records) == before == 2, "told once per landing"


def test_what_a_policy_counts_makes_no_result_stale(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def versions(instance: DagsterInstance, kind: str) -> list[str | None]:
        """The data version of the newest event of what landed, as a run notes it."""
        [record] = getattr(instance, f"fetch_{kind}s")(LEFT, limit=1).records
        return [(getattr(record, f"asset_{kind}").tags or {}).get(DATA_VERSION_TAG)]

    def stale(world: World) -> dict[str, StaleStatus]:
        graph = world.defs.get_repository_def().asset_graph
        view = AssetGraphView.for_test(world.defs, instance)
        resolver = CachingStaleStatusResolver(instance, graph, view)
        keys = [AssetKey(["tested", "left_changelog"]), RESULT]
        return {key.path[-1]: resolver.get_status(key, "b00000001") for key in keys}

    monkeypatch.setattr("fk_pipeline.assets.sensors.REPORT_SECONDS", 60)  # else a slow tick leaves some to the next
    world = World(tmp_path, instance, DAILY)
    land(world, 1, 1, monkeypatch)
    world.do(1)
    for _ in range(2):
        world.tick()
        assert versions(instance, "materialization") == versions(instance, "observation") != [None]
        assert set(stale(world).values()) == {StaleStatus.FRESH}, stale(world)
    ZONE.put("left", 1, "2")  # another file is another version
    world.tick()
    assert stale(world)["left_changelog"] is StaleStatus.STALE


def test_no_policy_unless_the_pipeline_file_has_one_and_none_of_shared_folders(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    def windows(settings: str) -> dict[str, tuple[timedelta, timedelta | None]]:
        graph = World(tmp_path, instance, settings).defs.get_repository_def().asset_graph
        policies = {key.to_user_string(): graph.get(key).freshness_policy for key in graph.get_all_asset_keys()}
        return {
            key: (one.fail_window.to_timedelta(), one.warn_window.to_timedelta() if one.warn_window else None)
            for key, one in policies.items()
            if isinstance(one, TimeWindowFreshnessPolicy)
        }

    assert windows("{}") == {}
    assert windows("{freshness: 1 day}") == dict.fromkeys(
        ("tested", "tested/left", "tested/right"), (timedelta(days=1), None)
    )
    assert windows(DAILY)["tested"] == (timedelta(days=1), timedelta(hours=6))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("soon", "settings.freshness.error_after: 'soon' is no span of time"),
        ("30 seconds", "settings.freshness.error_after: the shortest span that Dagster can watch is 1 minute"),
        ("{warn_after: 1 hour}", "settings.freshness.error_after"),
        ("{warn_after: 2 days, error_after: 1 day}", "settings.freshness.warn_after: it must be shorter than"),
        ("{warn_after: 1 hour, error_afer: 1 day}", "settings.freshness.error_afer"),
    ],
)
def test_a_freshness_that_cannot_be_is_refused_with_its_line(tmp_path: Path, written: str, message: str) -> None:
    file = tmp_path / "tested.yaml"
    file.write_text(
        "name: tested\njoin: left\n"
        "left: {path: in/left, format: rows, schema: 'id BIGINT, fk STRING', key: id, foreign_key: fk}\n"
        "right: {path: in/right, format: rows, schema: 'k STRING, name STRING', key: k}\n"
        f"settings:\n  freshness: {written}\n"
    )
    with pytest.raises(PipelineFileError) as refused:
        load_spec(file)
    assert message in str(refused.value)
    assert "tested.yaml:6" in str(refused.value)
