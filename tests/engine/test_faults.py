"""Whatever breaks in the middle of a stage: nothing wrong is left, the error says what to do, the next run mends it."""

from __future__ import annotations

import errno
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from fk_pipeline.errors import LeaseLostError, StageError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.store import faults
from fk_pipeline.store.sizes import Sizes
from tests.deaths import Killed
from tests.engine.conftest import BEGUN, LEFT, RIGHT

pytestmark = pytest.mark.spark


@pytest.fixture
def made(begun: Any) -> Any:
    return begun("inner")


def test_a_full_disk_is_one_sentence_and_the_next_run_goes_on(made: Any) -> None:
    met = []

    def fail(point: str) -> None:
        if point in ("before entry in runs", "before commit of subscription_store"):
            met.append(point)
            if len(met) > 4:
                raise OSError(errno.ENOSPC, "No space left on device")

    made.land(1, [(0, "b", "w")], [("b", "B1")])
    with faults.listening(fail), pytest.raises(StageError) as refused:
        made.pipeline.run()
    assert "No space left on device" in refused.value.what
    assert "the batches stay due" in refused.value.why
    assert made.pipeline.due()[Stage.RESOLVED_JOIN] == [1]
    made.pipeline.run()
    assert made.result() == {key: ("v", ("A", "B1")[key % 2]) for key in BEGUN} | {0: ("w", "B1")}
    assert not any(made.pipeline.due().values())


def test_after_a_conflict_of_the_driver_the_whole_stage_is_computed_again(made: Any) -> None:
    path, attempts = made.pipeline.runner.warehouse.path("subscription_store"), []

    def listen(point: str) -> None:
        if point == "before commit of subscription_store":
            attempts.append(point)
            if len(attempts) == 1:
                DeltaTable(path).update(updates={"_fk_instruction": "_fk_instruction"})

    made.land(1, [(4, "b", "w")], [])
    with faults.listening(listen):
        made.pipeline.run()
    assert len(attempts) == 2
    assert made.result() == BEGUN | {4: ("w", "B")}


@pytest.mark.slow
@pytest.mark.connect
def test_after_a_conflict_the_whole_stage_is_computed_again_from_what_is_there_now(rows_pipeline: Any) -> None:
    """Somebody else rewrites files of the table for as long as the first attempt of Spark goes on."""
    made = rows_pipeline("inner", Sizes(rewritten_rows=-1, scanned_bytes=-1))
    made.land(0, LEFT, RIGHT)
    made.pipeline.run(stages=[Stage.LEFT_CHANGELOG, Stage.SUBSCRIPTION_STORE])
    path = made.pipeline.runner.warehouse.path("subscription_store")
    attempts: list[str] = []
    stop, written = threading.Event(), threading.Event()

    def write() -> None:
        until = time.monotonic() + 60
        while not stop.is_set() and time.monotonic() < until:
            with suppress(CommitFailedError):  # the stage may be first as well
                DeltaTable(path).update(updates={"_fk_instruction": "_fk_instruction"})
                written.set()

    writer = threading.Thread(target=write)

    def listen(point: str) -> None:
        if point == "before commit of subscription_store":
            attempts.append(point)
            if len(attempts) == 1:
                writer.start()
                assert written.wait(60)
            else:
                stop.set()
                writer.join()

    made.land(1, [(1, "a", "w")], [])
    before = made.pipeline.ledger().state(Stage.SUBSCRIPTION_STORE, 1).attempts
    with faults.listening(listen):
        made.pipeline.run(stages=[Stage.LEFT_CHANGELOG, Stage.SUBSCRIPTION_STORE])
    stop.set()
    writer.join()
    assert len(attempts) == 2
    state = made.pipeline.ledger().state(Stage.SUBSCRIPTION_STORE, 1)
    assert (state.attempts - before, state.successes, state.failures) == (2, 1, 0)
    made.pipeline = Pipeline(made.pipeline.spec, made.pipeline.session)  # the driver does the rest
    made.pipeline.run()
    assert made.result() == BEGUN | {1: ("w", "A")}


def test_a_run_that_lost_its_lease_commits_nothing_more(made: Any) -> None:
    file = Path(made.pipeline.spec.home, "leases", "resolved_join.lease")

    def steal(point: str) -> None:
        if point == "after commit of verdicts":
            file.unlink()

    made.land(1, [(2, "b", "w"), (1,)], [])
    version = made.pipeline.runner.warehouse.version("resolved_join")
    with faults.listening(steal), pytest.raises(LeaseLostError):
        made.pipeline.run()
    assert made.pipeline.runner.warehouse.version("resolved_join") == version
    made.pipeline.run()
    assert made.result() == {key: row for key, row in BEGUN.items() if key != 1} | {2: ("w", "B")}


@pytest.mark.slow
@pytest.mark.parametrize("join", ["inner", "left"])
def test_a_death_at_every_point_around_every_commit(rows_pipeline: Any, join: str) -> None:
    """A batch is restated, and the run dies at the first point; then another time, at the second; and so on."""
    made = rows_pipeline(join)
    made.land(0, [(i, "abc"[i % 3], "v") for i in range(9)], [("a", "A"), ("b", "B")])
    made.land(1, [(0, "b", "w"), (1,), (2, "a", "w"), (20, "c", "w")], [("c", "C"), ("b",)])
    made.pipeline.run()
    points: set[str] = set()
    for number in range(1, 200):
        if number % 2:
            made.land(
                1, [(0, "c", "x"), (1, "a", "x"), '{"op": "t"}', (3, "a", f"x{number}")], [("b", "B1"), "no json"]
            )
        else:
            made.land(1, [(0, "b", f"w{number}"), (1,), (21, "c", "w")], [("c", "C"), ("b",)])
        met: list[str] = []

        def die(point: str, met: list[str] = met, number: int = number) -> None:
            met.append(point)
            if len(met) == number:
                raise Killed

        try:
            with faults.listening(die):
                made.pipeline.run()
        except Killed:
            points.add(f"{len(met)} {met[-1]}")
        else:
            break
        finally:
            made.pipeline = Pipeline(made.pipeline.spec, made.pipeline.session)
    assert len(points) > 30
    made.pipeline.run()
    report = made.pipeline.verify()
    assert (report.ok, report.due, report.pending) == (True, 0, 0)
    made.land(1, [(0, "b", "last")], [("b", "B2"), ("a", "A2")])
    made.pipeline.run()
    everything = {i: ("v", {"a": "A2", "b": "B2"}.get("abc"[i % 3])) for i in range(9)} | {0: ("last", "B2")}
    assert made.result() == {k: row for k, row in everything.items() if row[1] is not None or join == "left"}
