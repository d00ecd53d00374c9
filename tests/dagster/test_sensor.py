"""The sensor against a landing zone in memory and a real ledger: what it asks for, what it waits for, and why."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterEvent, DagsterEventType, DagsterInstance, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test

from fk_pipeline.assets import partitions, sensors
from fk_pipeline.errors import LandingError
from fk_pipeline.kinds.foreign_key.kind import Stage
from tests.dagster.world import JOB, ZONE, World

pytestmark = pytest.mark.usefixtures("empty_zone")


@pytest.fixture
def world(tmp_path: Path, instance: DagsterInstance) -> World:
    return World(tmp_path, instance, "{}")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The sensor's clock; `clock(60)` is a minute from now."""

    class Clock(datetime):
        ahead = 0.0

        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=cls.ahead)

    monkeypatch.setattr(sensors, "datetime", Clock)
    return lambda seconds: setattr(Clock, "ahead", seconds)


def test_without_files_there_is_nothing_to_do(world: World) -> None:
    assert world.tick() == (None, ["nothing is due: no new or changed landing files"])
    assert world.partitions() == []


def test_new_files_are_one_run_over_their_range_and_then_nothing(world: World) -> None:
    ZONE.put("left", 3)
    ZONE.put("right", 4)
    assert world.tick() == ("3..4", [])
    assert world.partitions() == [3, 4]
    world.do(3, 4)
    assert world.tick()[1] == ["nothing is due: no new or changed landing files"]


def test_a_tick_that_is_lost_is_asked_again_under_the_same_key_and_a_changed_file_under_another(world: World) -> None:
    ZONE.put("left", 0)
    keys = []
    for _ in range(2):
        world.tick()
        keys.append(world.request.run_key)
    assert keys[0] == keys[1], "the daemon starts it once, although it died between asking and noting it down"
    ZONE.put("left", 0, "2")
    world.tick()
    assert world.request.run_key != keys[0]


def test_an_active_run_of_the_pipeline_is_waited_for(world: World) -> None:
    ZONE.put("left", 0)
    ZONE.put("left", 1)
    backfill = create_run_for_test(
        world.instance,
        job_name="__ASSET_JOB",
        status=DagsterRunStatus.STARTED,
        asset_selection=frozenset({AssetKey(["tested", "responses"])}),
    )
    create_run_for_test(
        world.instance,
        job_name="__ASSET_JOB",
        status=DagsterRunStatus.STARTED,
        asset_selection=frozenset({AssetKey(["another", "responses"])}),
    )
    assert world.tick() == (None, [f"run {backfill.run_id} is active", "2 batches wait for it"])
    assert world.partitions() == [0, 1], "what is there to backfill is shown all the same"


def test_a_batch_that_comes_late_gets_its_place_among_the_partitions(world: World) -> None:
    for batch in (1, 5, 6):
        ZONE.put("left", batch)
    world.tick()
    world.do(1, 5, 6)
    ZONE.put("left", 3)
    assert world.tick() == ("3..3", [])
    assert world.partitions() == [1, 3, 5, 6]


def test_a_batch_within_the_range_of_an_active_run_gets_its_partition_after_it(world: World) -> None:
    for batch in (1, 5):
        ZONE.put("left", batch)
    world.tick()
    run_id = world.dagster_run(DagsterRunStatus.STARTED)
    for batch in (0, 3, 7):
        ZONE.put("left", batch)
    assert world.tick()[0] is None
    assert world.partitions() == [0, 1, 5, 7], "that run would show batch 3 as done"
    world.instance.delete_run(run_id)
    world.do(5)
    assert world.tick() == ("0..3", [])
    assert world.partitions() == [0, 1, 3, 5, 7]


@pytest.mark.parametrize(
    ("batches", "shift"),
    [(3, 0), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((3, 2), (4, 0), (4, 1), (4, 2), (4, 3)))],
)
def test_batches_land_in_any_order_while_runs_wait_work_fail_and_end(
    tmp_path: Path, clock: Any, batches: int, shift: int
) -> None:
    """Every order of the batches; at each landing the run of what was asked for before is in another state."""
    states = [DagsterRunStatus.QUEUED, DagsterRunStatus.STARTED, DagsterRunStatus.FAILURE, DagsterRunStatus.SUCCESS]
    for number, order in enumerate(permutations(range(1, batches + 1))):
        folder = tmp_path / str(number)
        folder.mkdir()
        with DagsterInstance.ephemeral() as instance:
            world = World(folder, instance, "{}")
            ZONE.files = {"left": {}, "right": {}}
            clock(0)
            asked: list[int] = []
            for place, batch in enumerate(order):
                ZONE.put("left" if batch % 2 else "right", batch)
                state = states[(place + number + shift) % 4]
                if place and state is DagsterRunStatus.FAILURE:
                    world.dagster_run(state)
                elif place:
                    if state is not DagsterRunStatus.SUCCESS:
                        run_id, before = world.dagster_run(state), world.partitions()
                        assert world.tick()[0] is None, "it waits for the run"
                        inside = before and min(asked) < batch < max(asked)
                        assert world.partitions() == (before if inside else sorted([*before, batch]))
                        instance.delete_run(run_id)
                    world.do(*asked)
                world.tick()
                asked = world.asked()
                assert batch in asked
                assert world.partitions() == sorted(order[: place + 1])
            world.do(*asked)
            clock(1e4)
            while world.tick()[0] is not None:
                world.do(*world.asked())
            assert not any(world.pipeline.due().values())
            assert world.partitions() == sorted(order)


def test_partitions_are_in_order_while_a_backfill_goes_on_and_it_misses_none(world: World) -> None:
    """Every read of the partitions by another thread sees all that were there before."""
    for batch in range(2, 40):
        ZONE.put("left", batch)
    world.tick()
    known, seen, ended = {*world.partitions()}, [], threading.Event()

    def read() -> None:
        while not ended.is_set():
            seen.append({*world.partitions()})

    reader = threading.Thread(target=read)
    reader.start()
    for batch in (1, 0):
        ZONE.put("left", batch)
        world.tick()
    ended.set()
    reader.join()
    assert world.partitions() == [*range(40)]
    assert seen
    assert all(known <= one for one in seen)


def test_without_an_sql_storage_partitions_wait_for_runs_and_a_death_loses_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "SqlEventLogStorage", str)
    for batch in (3, 4, 5):
        ZONE.put("left", batch)
    world.tick()
    run_id = world.dagster_run(DagsterRunStatus.STARTED)
    ZONE.put("left", 1)
    world.tick()
    assert world.partitions() == [3, 4, 5, 1]
    world.instance.delete_run(run_id)
    left = 2
    add = world.instance.add_dynamic_partitions

    def dies(name: str, keys: list[str]) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        add(name, keys)

    with monkeypatch.context() as patch:
        patch.setattr(world.instance, "add_dynamic_partitions", dies)
        with pytest.raises(KeyboardInterrupt):
            world.tick()
    assert len(world.partitions()) == 3
    world.tick()
    assert world.partitions() == [1, 3, 4, 5]


def test_a_run_covers_at_most_so_many_batches(tmp_path: Path, instance: DagsterInstance) -> None:
    world = World(tmp_path, instance, "{max_batches_per_run: 2}")
    for batch in range(5):
        ZONE.put("left", batch)
    assert world.tick() == ("0..1", [])
    world.do(0, 1)
    assert world.tick() == ("2..3", [])
    world.do(2, 3)
    assert world.tick() == ("4..4", [])


def test_a_failed_batch_is_tried_again_after_a_pause_that_doubles(world: World, clock: Any) -> None:
    ZONE.put("left", 0)
    world.tick()
    keys = {world.request.run_key}
    for failures, pause in ((1, 30), (2, 60), (3, 120), (4, 240)):
        world.do(0, stages=(Stage.LEFT_CHANGELOG,), error="the disk is full")
        clock(pause - 2)
        times = "once" if failures == 1 else f"{failures} times"
        asked, reasons = world.tick()
        assert asked is None
        assert reasons[0] == f"left_changelog of batch 0 failed {times}: the disk is full"
        assert reasons[1].startswith("the next try is in ")
        clock(pause + 1)
        assert world.tick() == ("0..0", [])
        assert world.request.run_key not in keys
        keys.add(world.request.run_key)
    world.do(0, stages=(Stage.LEFT_CHANGELOG,), error="the disk is full")
    clock(1e6)
    asked, reasons = world.tick()
    assert asked is None
    assert "failed 5 times" in reasons[0]
    assert "start 'fk-pipeline run' once" in reasons[0]
    world.do(0)
    ZONE.put("left", 0, "2")
    assert world.tick() == ("0..0", []), "a success makes up for all failures"


def test_a_run_that_died_before_the_ledger_heard_of_it_is_tried_again_too(world: World, clock: Any) -> None:
    ZONE.put("left", 0)
    world.tick()
    first = world.request.run_key
    run_id = world.dagster_run(DagsterRunStatus.FAILURE)
    asked, reasons = world.tick()
    assert asked is None
    assert reasons[0] == f"the last run for batches 0 failed, the last is {run_id}"
    clock(31)
    assert world.tick() == ("0..0", [])
    assert world.request.run_key != first
    for _ in range(4):
        world.dagster_run(DagsterRunStatus.CANCELED)
    clock(1e6)
    assert "the last 5 runs for batches 0 failed" in world.tick()[1][0]


def test_a_run_that_did_its_batches_and_failed_at_what_reads_the_result_is_no_failure_of_theirs(world: World) -> None:
    ZONE.put("left", 0)
    world.tick()
    run_id = world.dagster_run(DagsterRunStatus.STARTING)
    world.instance.report_dagster_event(DagsterEvent(DagsterEventType.RUN_START.value, job_name=JOB), run_id)
    world.do(0)
    run = world.instance.get_run_by_id(run_id)
    assert run is not None
    world.instance.report_run_failed(run)
    ZONE.put("left", 0, "2")
    assert world.tick() == ("0..0", []), "it does not wait"


def test_a_range_that_was_mended_by_hand_is_asked_for_again(world: World, clock: Any) -> None:
    ZONE.put("left", 0)
    world.tick()
    for _ in range(5):
        world.dagster_run(DagsterRunStatus.FAILURE)
    clock(1e6)
    assert world.tick()[0] is None
    world.do(0)
    ZONE.put("left", 0, "2")
    assert world.tick() == ("0..0", [])


def test_after_a_range_failed_its_batches_are_tried_one_by_one(world: World, clock: Any) -> None:
    for batch in range(4):
        ZONE.put("left", batch)
    assert world.tick() == ("0..3", [])
    world.do(0, 1, 2, 3, stages=(Stage.LEFT_CHANGELOG,), error="one of them cannot be read")
    ZONE.put("left", 4)
    assert world.tick() == ("4..4", [])
    world.do(4)
    clock(31)
    assert world.tick() == ("0..0", [])
    world.do(0)
    world.do(1, stages=(Stage.LEFT_CHANGELOG,), error="this one")
    assert world.tick() == ("2..2", []), "batch 1 waits longer now"
    world.do(2)
    assert world.tick() == ("3..3", [])


def test_batches_that_wait_keep_nobody_else_from_running(world: World) -> None:
    for batch in range(4):
        ZONE.put("left", batch)
    world.tick()
    world.do(1, stages=(Stage.LEFT_CHANGELOG,), error="a poisoned file")
    assert world.tick() == ("0..0", [])
    world.do(0)
    assert world.tick() == ("2..3", [])
    world.do(2, 3)
    assert world.tick()[1][0] == "left_changelog of batch 1 failed once: a poisoned file"


def test_a_failed_check_is_told_and_its_batch_left_out(world: World) -> None:
    ZONE.put("left", 0)
    ZONE.put("left", 1)
    world.tick()
    world.do(0, 1, stages=(Stage.LEFT_CHANGELOG,))
    same = {"severity": "critical", "depth": "batch", "first": 0, "last": 0, "value": 2.0, "cure": "run"}
    world.pipeline.ledger().checks.record(
        [{"stage": "left_changelog", "name": "hash_is_current", "passed": False, "batches": [0], **same}]
    )
    assert world.tick() == ("0..1", []), "its right table may run"
    world.do(0, 1, stages=(Stage.RIGHT_TABLE,))
    assert world.tick() == ("1..1", [])
    world.do(1, stages=(Stage.SUBSCRIPTION_STORE, Stage.RESPONSES, Stage.RESOLVED_JOIN))
    asked, reasons = world.tick()
    assert asked is None
    assert "hash_is_current" in reasons[0]
    assert "batch 0" in reasons[0]
    assert reasons[1].startswith("mend or waive it: 'fk-pipeline run ")


def test_a_new_batch_of_one_side_waits_for_the_other_when_asked_to(
    tmp_path: Path, instance: DagsterInstance, clock: Any
) -> None:
    world = World(tmp_path, instance, "{settle_seconds: 60}")
    ZONE.put("left", 0)
    ZONE.put("left", 1)
    ZONE.put("right", 1)
    assert world.tick() == ("1..1", []), "both sides of batch 1 are there"
    world.do(1)
    asked, reasons = world.tick()
    assert asked is None
    assert reasons[0].startswith("batch 0 waits another ")
    assert reasons[0].endswith(" s for a file of the right side")
    clock(61)
    assert world.tick() == ("0..0", [])
    clock(0)
    ZONE.put("right", 0)
    assert world.tick() == ("0..0", [])
    world.do(0)
    ZONE.put("left", 0, "2")
    assert world.tick() == ("0..0", []), "a batch that ran is not new"


def test_a_lost_dagster_home_changes_nothing(world: World) -> None:
    ZONE.put("left", 0)
    ZONE.put("left", 1)
    world.tick()
    world.do(0)
    with DagsterInstance.ephemeral() as another:
        world.instance = another
        assert world.tick() == ("1..1", [])
        assert world.partitions() == [0, 1]


def test_another_discovery_is_not_waited_for_longer_than_a_tick_lasts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fk_pipeline.store.lease import lease

    monkeypatch.setattr(sensors, "LEASE_SECONDS", 0.1)
    with lease(world.pipeline.spec.home, "discovery"):
        asked, reasons = world.tick()
    assert asked is None
    assert "another run has held discovery" in reasons[0]


def test_a_landing_zone_that_cannot_be_listed_fails_the_tick(world: World) -> None:
    ZONE.broken = True
    with pytest.raises(LandingError, match="the bucket is not there"):
        world.tick()


def test_the_interval_is_the_pipelines(tmp_path: Path, instance: DagsterInstance) -> None:
    sensor = World(tmp_path, instance, "{sensor_seconds: 5}").defs.resolve_sensor_def("tested_new_batches")
    assert sensor.minimum_interval_seconds == 5
    assert World(tmp_path, instance, "{}").defs.resolve_sensor_def("tested_new_batches").minimum_interval_seconds == 15
