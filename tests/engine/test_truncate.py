"""A truncate is a tombstone for every key at its sequence, also for keys that arrive later with an older one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fk_pipeline.expectations.violations import violations
from fk_pipeline.kinds.foreign_key.kind import Stage

pytestmark = pytest.mark.spark

TRUNCATE = '{"op": "truncate"}'


def left(ident: int, sequence: int, value: str, foreign_key: str = "a") -> str:
    return json.dumps({"op": "u", "id": ident, "fk": foreign_key, "v": value, "note": f"{sequence:02d}"})


def truncate(sequence: int) -> str:
    return json.dumps({"op": "t", "note": f"{sequence:02d}"})


@pytest.mark.slow
@pytest.mark.parametrize("join", ["inner", "left"])
def test_by_order_of_arrival_what_came_before_goes_and_what_comes_after_stays(rows_pipeline: Any, join: str) -> None:
    made = rows_pipeline(join)
    made.land(0, [(1, "a", "v"), (2, "b", "v")], [("a", "A"), ("b", "B")])
    made.pipeline.run()
    made.land(1, [(1, "a", "gone"), (3, "a", "gone"), TRUNCATE, (2, "b", "kept"), (4, "a", "new")])
    counts = made.pipeline.run()[0].counts[1]
    assert counts == {"read": 5, "events": 4, "truncates": 1, "rows": 3, "superseded": 2}
    assert made.result() == {2: ("kept", "B"), 4: ("new", "A")}
    made.land(2, (), [TRUNCATE, ("b", "B2")])
    made.pipeline.run()
    assert made.result() == ({2: ("kept", "B2")} | ({4: ("new", None)} if join == "left" else {}))
    assert made.pipeline.verify().ok
    for stage in (Stage.SUBSCRIPTION_STORE, Stage.RESOLVED_JOIN):
        found = violations(made.pipeline, stage).findings
        assert not [n for n, one in found.items() if one.value and not n.endswith("share_is_low")]


SEQUENCED = {"left_extra": "  sequence_by: note\n"}
BATCHES = {
    0: [left(1, 10, "old"), left(2, 30, "newer"), left(3, 11, "old")],
    1: [truncate(20), left(3, 21, "after"), left(6, 19, "before, in the same batch")],
    2: [left(4, 15, "late"), left(1, 12, "late"), left(5, 25, "new"), truncate(5)],
}
WHOLE = {2: ("newer", "A"), 3: ("after", "A"), 5: ("new", "A")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        pytest.param("2,1,0", marks=pytest.mark.slow),
        pytest.param(
            "1,0,2,1",
            marks=[pytest.mark.slow],
        ),
        "0..2",
    ],
)
def test_by_sequence_any_order_gives_the_same(rows_pipeline: Any, order: str) -> None:
    made = rows_pipeline("left", **SEQUENCED)
    for batch, rows in BATCHES.items():
        made.land(batch, rows, [("a", "A")] if batch == 0 else ())
    made.pipeline.run(order)
    made.pipeline.run()
    assert made.result() == WHOLE
    assert made.pipeline.verify().ok


@pytest.mark.slow
def test_a_truncate_that_is_taken_back_gives_everything_back(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner", **SEQUENCED)
    for batch, rows in BATCHES.items():
        made.land(batch, rows, [("a", "A")] if batch == 0 else ())
    made.pipeline.run()
    assert made.result() == WHOLE
    made.land(1, [left(3, 21, "after")])
    made.pipeline.run("1", ["left_changelog"])
    report = made.pipeline.verify()
    assert report.ok
    assert report.pending > 0
    made.pipeline.run()
    assert made.result() == WHOLE | {1: ("late", "A"), 4: ("late", "A")}
    assert made.pipeline.verify().ok
    made.pipeline.remove_batch(1)
    made.pipeline.run()
    assert made.result() == {1: ("late", "A"), 2: ("newer", "A"), 3: ("old", "A"), 4: ("late", "A"), 5: ("new", "A")}
    assert made.pipeline.verify().ok
