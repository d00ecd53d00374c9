"""Windowed joins with `retention`: old events leave the states, late ones expire, and what was answered stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.errors import PipelineFileError, StateError
from fk_pipeline.identity import EXPIRED, BatchId
from fk_pipeline.kinds.window.kind import EXPIRED_ROW, TIME
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults
from tests.any_order.subjects import WAYS
from tests.deaths import Killed, dies_at
from tests.kinds.window.near import FILE, SELECT, Near

KEPT = "retention: 20 milliseconds"
FOLDING = "{fold_after_hours: 0, retention_hours: 0}"


def times(of: Near, table: str) -> list[Any]:
    """The times of the rows of a state."""
    return sorted(row[0] for row in of.pipeline.table(table).select(TIME).collect())


def expired(of: Near, batch: int) -> int:
    stages = of.pipeline.spec.definition.stage_names
    return sum(of.pipeline.ledger().state(stage, batch).counts.get(EXPIRED, 0) for stage in stages)


def settled(of: Near) -> None:
    """Runs what is due, then maintenance; the result must be proved and nothing may be red."""
    of.pipeline.run()
    of.pipeline.compact()
    report = of.pipeline.verify()
    assert report.ok, report
    assert of.red() == set()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("way", "time"),
    [
        ("by the driver", "TIMESTAMP"),
        *[(way, "BIGINT") for way in WAYS],
    ],
)
def test_old_events_leave_the_states_and_what_the_result_has_of_them_stays(
    near: Callable[..., Near], way: str, time: str
) -> None:
    of = near(WAYS[way], options=KEPT, settings=FOLDING, time=time)
    at = (lambda ms: ms) if time == "BIGINT" else (lambda ms: f"1970-01-01T00:00:00.{ms:03}Z")
    of.land(0, left=[("x", at(10)), ("y", at(10))], right=[("x", at(12)), ("z", at(30))])
    of.land(1, left=[("x", at(40))], right=[("x", at(43))])
    settled(of)
    before = of.result()
    assert len(before) == 4
    assert {user for user, _, _ in before} == {"x", "y", "z"}  # the pairs of x, and y and z alone
    assert len(times(of, "left_table")) == 1  # 10 lies before 43 - 20 - 3
    assert len(times(of, "right_table")) == 2
    assert of.pipeline.table("left_changelog").count() == 1
    assert of.pipeline.table("right_changelog").count() == 2

    of.land(2, left=[("x", at(11)), ("z", at(29))], right=[("y", at(11))])  # two are older than the horizon
    settled(of)
    after = of.result()
    assert expired(of, 2) == 2
    assert [row for row in after if row[0] != "z"] == [row for row in before if row[0] != "z"]
    assert [(user, left is not None, right is not None) for user, left, right in after if user == "z"] == [
        ("z", True, True)
    ]
    for stage in of.pipeline.spec.definition.stage_names:  # nothing is taken away by a stage that runs again
        of.pipeline.run("0..2", stages=[stage])
    of.pipeline.run()
    assert of.result() == after
    assert of.red() == set()


@pytest.mark.slow
@pytest.mark.spark
def test_rows_whose_close_comes_with_a_later_batch_stand_alone(near: Callable[..., Near]) -> None:
    of = near(options=KEPT, settings=FOLDING)
    wanted: list[Any] = []
    for batch, at in enumerate(range(0, 60, 10)):
        of.land(batch, left=[("l", at)], right=[("r", at + 1)])
        of.pipeline.run()
        assert of.result() == sorted(wanted, key=str)
        wanted += [("l", at, None), ("r", None, at + 1)]
    settled(of)
    of.land(6, left=[("l", 60)])
    settled(of)
    assert of.result() == sorted(wanted, key=str)


@pytest.mark.slow
@pytest.mark.spark
def test_a_compaction_that_dies_between_state_and_changelog_takes_nothing_from_the_result(
    near: Callable[..., Near],
) -> None:
    of = near(options=KEPT, settings=FOLDING)
    of.land(0, left=[("x", 10), ("y", 10)], right=[("x", 12)])
    of.land(1, right=[("z", 60)])
    of.pipeline.run()
    before = of.result()
    with faults.listening(dies_at("before commit of left_changelog")), pytest.raises(Killed):
        of.pipeline.compact()
    assert times(of, "left_table") == []
    assert of.pipeline.table("left_changelog").count() == 2
    of.pipeline.run("0", stages=["left_table"])
    of.pipeline.run()
    assert times(of, "left_table") == [10, 10]  # they have expired
    assert of.result() == before
    assert of.red() == set()
    settled(of)
    assert times(of, "left_table") == []
    assert of.pipeline.table("left_changelog").count() == 0
    assert of.result() == before


@pytest.mark.slow
@pytest.mark.spark
def test_what_may_be_withdrawn_stays_and_is_corrected_and_a_stream_joined_to_itself_has_one_store(
    near: Callable[..., Near],
) -> None:
    of = near(join="left", options=KEPT, settings="{fold_after_hours: 1, retention_hours: 0}", right="left")
    of.land(0, left=[("x", 10), ("x", 12), ("y", 10)])
    of.land(1, left=[("z", 60)])
    settled(of)
    assert len(times(of, "left_table")) == 4
    of.land(0, left=[("x", 10), ("y", 10)])
    settled(of)
    assert of.result() == [("x", 10, 10), ("y", 10, 10), ("z", 60, 60)]


@pytest.mark.slow
@pytest.mark.spark
def test_what_is_kept_stays_when_its_partner_is_corrected_and_when_retention_is_taken_out(
    near: Callable[..., Near], told_alike: Callable[..., Any]
) -> None:
    of = near(options=KEPT, settings="{fold_after_hours: 1000, retention_hours: 0}")
    of.land(0, right=[("x", 37), ("z", 60)])
    of.pipeline.run()
    of.land(1, left=[("x", 37), ("y", 37)])
    of.pipeline.run()
    of.pipeline.ledger().folds.record([BatchId(0)])
    settled(of)
    assert times(of, "right_table") == [60]  # 37 lies before 60 - 20 - 2
    assert times(of, "left_table") == [37, 37]
    kept = ("x", 37, 37)
    assert of.result() == [kept, ("y", 37, None)]

    [[place]] = of.pipeline.table("left_table").where("user = 'x'").select("event").collect()
    assert told_alike(of.pipeline, place).as_expected
    of.land(1, left=[("y", 37)])  # without its left row
    settled(of)
    assert kept in of.result()

    of.file.write_text(of.file.read_text().replace(KEPT, ""))
    without = Near.again(of)
    without.land(2, left=[("w", 61)])
    settled(without)
    assert kept in without.result()


@pytest.mark.spark
@pytest.mark.slow
def test_a_rebuild_says_what_it_forgets_and_times_of_another_type_are_refused(near: Callable[..., Near]) -> None:
    of = near(options=KEPT, settings=FOLDING)
    of.land(0, left=[("x", 10), ("y", 60)], right=[("x", 11), ("y", 61)])
    settled(of)
    with pytest.raises(StateError, match="would leave these rows without them"):
        of.pipeline.rebuild("changelog")
    of.pipeline.rebuild("changelog", forget=True)
    assert of.result() == [("y", 60, 61)]
    assert of.pipeline.verify().ok
    of.file.write_text(of.file.read_text().replace("time: at", "time: TIMESTAMP_MILLIS(at)"))
    edited = Near.again(of)
    with pytest.raises(StateError, match=r"is TIMESTAMP, and the pipeline goes back to 4\d, a time of another type"):
        edited.pipeline.rebuild("changelog", forget=True)
    edited.pipeline.rebuild("landing")
    assert edited.result() == [("x", 10, 11), ("y", 60, 61)]


@pytest.mark.slow
@pytest.mark.spark
def test_explain_tells_an_event_that_expired_and_one_that_is_not_kept(
    near: Callable[..., Near], told_alike: Callable[..., Any]
) -> None:
    of = near(join="left", options=KEPT, settings=FOLDING)
    of.land(0, left=[("x", 10)])
    of.land(1, left=[("z", 60)])
    settled(of)
    of.land(2, left=[("y", 20)])
    of.pipeline.run()
    [[place]] = of.pipeline.table("left_table").where(EXPIRED_ROW).select("event").collect()
    told = told_alike(of.pipeline, place)
    assert told.as_expected
    assert told.sentences()[:2] == [
        "The result does not have it, as it should.",
        "It expired: it happened at 20, and events before 40 are not joined any more.",
    ]
    [[place]] = of.pipeline.table("resolved_join").where("l = 10").select("_fk_pk_event").collect()
    told = told_alike(of.pipeline, place)
    conclusion, why, *_ = told.sentences()
    assert conclusion.startswith("The result has it without a match since batch ")
    assert why == "It is older than the pipeline goes back, to 40: what the result has of it stays."
    with pytest.raises(StateError, match="are not kept any more: the pipeline goes back to 40"):
        of.pipeline.rebuild()
    of.pipeline.rebuild("landing")
    assert [row[0] for row in of.result()] == ["x", "y"]
    assert of.pipeline.ledger().folds.horizon("left_changelog") is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("contents: events, ", "key: [user], ", "retention is for events; this side has contents: changes"),
        (KEPT, "retention: 500 microseconds", "no span of time"),
        ("grace: 1 milliseconds", "grace: 1 days", "retention, 20 milliseconds, is shorter than grace, 1 days"),
        ("on: user, time", "on: user, sensitive: [at], time", "these are sensitive"),
    ],
)
def test_a_retention_that_does_not_fit_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    parts = {"join": "left", "time": "BIGINT", "right": "right", "select": SELECT, "settings": "{}"}
    text = FILE.format(options=KEPT, **parts)
    assert old in text
    (tmp_path / "pipeline.yaml").write_text(text.replace(old, new))
    with pytest.raises(PipelineFileError, match=message):
        load_spec(tmp_path / "pipeline.yaml")
