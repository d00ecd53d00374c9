"""The join on real batches: every kind of change, inner and left, in order and out of order.

Each test runs one pipeline over many keys, one key per case, because a Spark pass costs the same for one key and many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fk_pipeline.errors import StateError, UsageError
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from tests.engine.conftest import ALONE, BEGUN, LEFT, RIGHT

pytestmark = pytest.mark.spark

Verdicts = dict[tuple[int, str], str]

RIGHT_ROWS = [("a", "A"), ("b", "B"), ("gone", "G"), ("same", "S"), ("changed", "C1")]

# Every kind of left change (KIP-213 and the transitions that Kafka got wrong at first), and of right change.
# id: what the case is, the row before, the row after, (inner result, left result); None is no row.
CASES: list[tuple[int, str, tuple[Any, ...] | None, tuple[Any, ...] | None, Any, Any]] = [
    (1, "new row that matches", None, (1, "a", "v"), ("v", "A"), ("v", "A")),
    (2, "new row without match", None, (2, "none", "v"), None, ("v", None)),
    (3, "new row with null foreign key", None, (3, None, "v"), None, ("v", None)),
    (4, "unchanged row", (4, "a", "v"), (4, "a", "v"), ("v", "A"), ("v", "A")),
    (5, "value changes, same foreign key", (5, "a", "v"), (5, "a", "w"), ("w", "A"), ("w", "A")),
    (6, "foreign key changes to a match", (6, "a", "v"), (6, "b", "v"), ("v", "B"), ("v", "B")),
    (7, "foreign key changes to no match", (7, "a", "v"), (7, "none", "v"), None, ("v", None)),
    (8, "foreign key changes from no match", (8, "none", "v"), (8, "a", "v"), ("v", "A"), ("v", "A")),
    (9, "unmatched to unmatched", (9, "none", "v"), (9, "nil", "w"), None, ("w", None)),
    (10, "foreign key becomes null", (10, "a", "v"), (10, None, "v"), None, ("v", None)),
    (11, "foreign key was null", (11, None, "v"), (11, "a", "v"), ("v", "A"), ("v", "A")),
    (12, "null to null, value changes", (12, None, "v"), (12, None, "w"), None, ("w", None)),
    (13, "deleted", (13, "a", "v"), (13,), None, None),
    (14, "deleted, never matched", (14, "none", "v"), (14,), None, None),
    (15, "deleted, foreign key null", (15, None, "v"), (15,), None, None),
    (16, "delete of a row never seen", None, (16,), None, None),
    (17, "right row deleted", (17, "gone", "v"), None, None, ("v", None)),
    (18, "right row changes", (18, "changed", "v"), None, ("v", "C2"), ("v", "C2")),
    (19, "right row is sent again unchanged", (19, "same", "v"), None, ("v", "S"), ("v", "S")),
    (20, "right row arrives after its left row", (20, "late", "v"), None, ("v", "L"), ("v", "L")),
    (21, "both sides change", (21, "changed", "v"), (21, "changed", "w"), ("w", "C2"), ("w", "C2")),
    (22, "moves away from a right row that is deleted", (22, "gone", "v"), (22, "a", "v"), ("v", "A"), ("v", "A")),
    (23, "foreign key '' is a key like any other", None, (23, "", "v"), None, ("v", None)),
]
RIGHT_CHANGES = [("gone",), ("changed", "C2"), ("same", "S"), ("late", "L"), ("unheard",)]


@pytest.fixture(
    scope="module",
    params=[pytest.param("inner", marks=pytest.mark.connect), pytest.param("left", marks=pytest.mark.slow)],
)
def joined(request: pytest.FixtureRequest, rows_pipeline: Callable[..., Any]) -> Any:
    made = rows_pipeline(request.param)
    made.land(0, [before for _, _, before, _, _, _ in CASES if before], RIGHT_ROWS)
    made.land(1, [after for _, _, _, after, _, _ in CASES if after], RIGHT_CHANGES)
    made.pipeline.run("0")
    made.pipeline.run("1")
    return made


@pytest.fixture(scope="module")
def result(joined: Any) -> dict[int, Any]:
    return joined.result()


@pytest.fixture(scope="module")
def found(joined: Any) -> Verdicts:
    """The verdicts of the second batch."""
    return joined.verdicts(1)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[1])
def test_every_kind_of_change_gives_the_row_of_the_batch_join(
    joined: Any, result: dict[int, Any], case: tuple[Any, ...]
) -> None:
    wanted = case[4] if joined.pipeline.spec.inner else case[5]
    assert result.get(case[0]) == wanted


def test_nothing_but_the_cases_is_in_the_result_and_verify_agrees(joined: Any, result: dict[int, Any]) -> None:
    inner = joined.pipeline.spec.inner
    assert set(result) == {c[0] for c in CASES if (c[4] if inner else c[5]) is not None}
    report = joined.pipeline.verify()
    assert report.ok
    assert report.counts() == {
        "rows": len(result), "missing": 0, "stale": 0, "unexpected": 0, "pending": 0, "due": 0,
    }  # fmt: skip


def test_every_response_has_the_verdict_that_its_case_deserves(joined: Any, found: Verdicts) -> None:
    inner = joined.pipeline.spec.inner
    matched, unmatched = "joined", "unchanged" if inner else "half-joined"
    wanted = {
        (1, "left"): matched,
        (3, "left"): "half-joined",
        (2, "left"): "half-joined",
        (5, "left"): matched,
        (6, "left"): matched,
        (7, "left"): "retracted" if inner else "half-joined",
        (8, "left"): matched,
        (9, "left"): unmatched,
        (10, "left"): "retracted" if inner else "half-joined",
        (11, "left"): matched,
        (12, "left"): unmatched,
        (13, "left"): "retracted",
        (14, "left"): "unchanged" if inner else "retracted",
        (15, "left"): "unchanged" if inner else "retracted",
        (17, "right"): "retracted" if inner else "half-joined",
        (18, "right"): "joined",
        (20, "right"): "joined",
        (21, "left"): "joined",
        (22, "left"): "joined",
        (23, "left"): "half-joined",
    }
    if inner:  # a key never seen before asks for an answer only if there is a match
        for silent in ((2, "left"), (3, "left"), (23, "left")):
            del wanted[silent]
    assert found == wanted


def test_unchanged_rows_and_deletes_of_unknown_rows_are_silent(found: Verdicts) -> None:
    assert not [key for key in found if key[0] in (4, 16, 19)]


def test_a_left_row_that_asked_in_the_batch_of_its_right_row_is_answered_once(
    found: Verdicts,
) -> None:
    assert [cause for key, cause in found if key == 21] == ["left"]


def test_an_unsubscribed_right_row_tells_nobody(found: Verdicts) -> None:
    assert (22, "right") not in found


def test_counts_in_the_ledger_add_up(joined: Any, found: Verdicts) -> None:
    ledger = joined.pipeline.ledger()
    left = ledger.state("left_changelog", 1).counts
    store = ledger.state("subscription_store", 1).counts
    responses = ledger.state("responses", 1).counts
    verdicts = ledger.state("resolved_join", 1).counts
    assert left["read"] == left["rows"] == sum(1 for c in CASES if c[3])
    assert store["inserted"] + store["applied"] + store["silent"] == left["rows"]
    assert store["silent"] == 1
    assert sum(verdicts.values()) == responses["left-driven"] + responses["right-driven"] == len(found)


@pytest.mark.parametrize("joined", ["inner", pytest.param("left", marks=pytest.mark.slow)], indirect=True)
def test_running_a_batch_again_changes_nothing(joined: Any, result: dict[int, Any], copy_of: Any) -> None:
    made = copy_of(joined)
    again = {r.stage: r.counts for r in made.pipeline.run("1")}
    assert made.result() == result
    assert set(again["resolved_join"][1]) == {"unchanged"}
    assert not any(made.pipeline.due().values())


def test_an_edited_pipeline_file_is_refused(joined: Any) -> None:
    file = joined.folder / "edited.yaml"
    file.write_text(joined.file.read_text().replace("[id, v, name]", "[id, v]"))
    with pytest.raises(StateError, match="select was 'id; v; name', is 'id; v'"):
        Pipeline(load_spec(file), joined.pipeline.session).run()


HISTORY: list[tuple[list[Any], list[Any]]] = [
    ([(1, "a", "v0"), (2, "a", "v0"), (3, "b", "v0"), (4, "x", "v0"), (6, "a", "v0")], [("a", "A0"), ("b", "B0")]),
    ([(1, "b", "v1"), (2, "a", "v0"), (4, None, "v1"), (5, "late", "v1")], [("b",), ("a", "A1")]),
    (
        [(1, "a", "v0"), (3,), (4, "b", "v2"), (6, "b", "v2"), (6, "a", "v0")],
        [("late", "L2"), ("b", "B2"), ("x", "X2")],
    ),
    ([(3, "x", "v3"), (5,), (2, "x", "v3")], [("late",), ("a", "A0")]),
]
FINAL_LEFT = {1: ("v0", "A0"), 2: ("v3", "X2"), 3: ("v3", "X2"), 4: ("v2", "B2"), 6: ("v0", "A0")}

slow = pytest.mark.slow
ORDERS = [
    pytest.param(["0..3"], id="one range", marks=slow),
    pytest.param(["3,1,2,1,0"], id="backwards, one twice", marks=slow),
    pytest.param(["0,2,2,1,0,3,1"], id="single batches, some twice", marks=slow),
    pytest.param(["1..2", "0", "3"], id="a range in the middle first", marks=slow),
]


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_batches_gives_the_join_of_the_last_writers(rows_pipeline: Any, order: list[str]) -> None:
    made = rows_pipeline("left")
    for batch, (left, right) in enumerate(HISTORY):
        made.land(batch, left, right)
    for batches in order:
        made.pipeline.run(batches)
    assert made.result() == FINAL_LEFT
    assert made.pipeline.verify().ok


def test_stages_in_any_order_and_before_their_upstream(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner")
    for batch, (left, right) in enumerate(HISTORY):
        made.land(batch, left, right)
    run = made.pipeline.run
    run("1", ["resolved_join"])
    run("0..3", ["subscription_store", "left_changelog"])
    run("2", ["responses"])
    run("0,1", ["right_table", "subscription_store"])
    half = made.pipeline.verify()
    assert half.ok
    assert half.pending > 0
    assert half.due > 0
    run()
    assert made.result() == FINAL_LEFT
    assert not any(made.pipeline.due().values())


@slow
def test_a_corrected_file_becomes_what_it_would_have_been(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v0"), (2, "a", "v0"), (3, "a", "v0")], [("a", "A0"), ("b", "B0")])
    made.land(1, [(1, "b", "v1"), (3, "b", "v1")], [("a", "A1")])
    made.pipeline.run()
    made.land(1, [(2, "b", "w1"), (3, "b", "v1")], [("b", "B1")])
    assert [r.stage for r in made.pipeline.run("1", ["left_changelog"])] == ["left_changelog"]
    made.pipeline.run()
    assert made.result() == {1: ("v0", "A0"), 2: ("w1", "B1"), 3: ("v1", "B1")}
    assert made.pipeline.verify().ok
    made.land(1, [], [])
    made.pipeline.run()
    assert made.result() == {1: ("v0", "A0"), 2: ("v0", "A0"), 3: ("v0", "A0")}
    made.land(1, [(1, "b", "v1"), (3, "b", "v1")], [("a", "A1")])
    made.pipeline.run()
    assert made.result() == {1: ("v1", "B0"), 2: ("v0", "A1"), 3: ("v1", "B0")}
    assert made.pipeline.verify().ok


def test_a_vanished_file_changes_nothing_and_its_batch_can_be_run_again(begun: Any) -> None:
    made = begun("left")
    tables = ("left_changelog", "right_changelog", "right_table")
    before = [sorted(made.pipeline.table(name).collect()) for name in tables]
    for side in ("left", "right"):
        (made.folder / "landing" / side / "00000000.jsonl").unlink()
    assert made.pipeline.run() == []
    runs = made.pipeline.run("0", ["left_changelog", "right_table"])
    assert [run.counts[0]["rows"] for run in runs] == [len(LEFT), len(RIGHT)]
    for run in runs:
        assert "is gone; the stored partition was kept" in run.notes[0]
    assert [sorted(made.pipeline.table(name).collect()) for name in tables] == before


def test_expressions_and_arrival_order(rows_pipeline: Any) -> None:
    made = rows_pipeline(
        "left", foreign_key="upper(trim(fk))", select="['lower(v) AS w', left.id AS number, name AS n]"
    )
    made.land(0, [(1, " a ", "v"), (1, "b", "w"), (2, " A", "x")], [("A", "one"), ("B", "two")])
    made.pipeline.run()
    rows = {(r["w"], r["number"], r["n"]) for r in made.pipeline.table("resolved_join").collect()}
    assert rows == {("w", 1, "two"), ("x", 2, "one")}


def test_a_batch_in_which_nothing_landed_is_passed_over(begun: Any) -> None:
    made = begun("left")
    made.land(2, [(1, "b", "w")])
    told: list[str] = []
    made.pipeline.run("2,1", ["left_changelog"], tell=told.append)
    made.pipeline.run()
    assert made.pipeline.ledger().batches == [0, 2]
    empty = "batch 1 is empty: no landing file has this number; there is nothing to do for it"
    made.pipeline.remove_batch(1, tell=told.append)
    assert (told.count(empty), made.pipeline.ledger().files.removed) == (2, set())
    assert made.result() == BEGUN | ALONE | {1: ("w", "B")}
    assert not any(made.pipeline.due().values())


@slow
@pytest.mark.parametrize("join", ["inner", "left"])
def test_a_withdrawn_batch_leaves_the_result_and_comes_back(rows_pipeline: Any, join: str) -> None:
    made = rows_pipeline(join)
    made.land(0, [(1, "a", "v"), (2, "a", "v"), (3, "a", "v")], [("a", "A")])
    made.land(1, [(1, "b", "w"), (2,), (4, "b", "new"), "{bad"], [("b", "B"), ("a", "A1")])
    made.land(2, [(4, "a", "newer")])
    made.pipeline.run()
    whole = {1: ("w", "B"), 3: ("v", "A1"), 4: ("newer", "A1")}
    assert made.result() == whole
    due = made.pipeline.remove_batch(1)
    assert {stage: batches for stage, batches in due.items() if batches} == {
        "left_changelog": [1],
        "right_table": [1],
    }
    assert made.pipeline.verify().ok
    made.pipeline.run()
    assert made.result() == {1: ("v", "A"), 2: ("v", "A"), 3: ("v", "A"), 4: ("newer", "A")}
    assert made.pipeline.table("quarantine").isEmpty()
    assert made.pipeline.verify().ok
    made.pipeline.run("0..2")
    assert made.result()[1] == ("v", "A"), "a range leaves a withdrawn batch alone"
    with pytest.raises(UsageError, match="withdrawn already"):
        made.pipeline.remove_batch(1)
    with pytest.raises(UsageError, match="there is no batch 9"):
        made.pipeline.remove_batch(9)
    assert (made.pipeline.has_files(9), made.pipeline.ledger().files.removed) == (False, {1})
    file = made.folder / "landing" / "left" / "00000001.jsonl"
    content = file.read_text()
    file.unlink()
    with pytest.raises(UsageError, match="cannot be brought back"):
        made.pipeline.run("1")
    file.write_text(content)
    assert made.pipeline.ledger().files.removed == {1}
    made.pipeline.run("1")
    made.pipeline.run()
    assert made.result() == whole
    assert made.pipeline.verify().ok


@slow  # test_stages_in_any_order has the rule, this its longest way
def test_a_row_that_falls_back_to_another_batch_is_announced_where_it_is_due(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", select="[id, fk, 'name AS v', name]", left_extra="  sequence_by: v\n")
    made.land(3, [(1, "a", "7")], [("a", "A"), ("b", "B"), ("c", "C")])
    made.land(4, [(1, "c", "8")])
    made.land(5, [(1, "b", "5")])
    made.land(6, [(1, "a", "9")])
    made.pipeline.run("3,5")
    made.pipeline.run("6", ["left_changelog", "right_table", "subscription_store"])  # newer, of the same content
    made.pipeline.run("4")  # overtaken
    assert made.result() == {1: ("A", "A")}
    made.land(6, [])
    made.pipeline.run("6", ["left_changelog", "right_table"])
    made.pipeline.run("5..6", ["subscription_store"])
    made.pipeline.run("6", ["responses", "resolved_join"])  # for the first time
    made.pipeline.run()
    assert made.result() == {1: ("C", "C")}
    assert made.pipeline.verify().ok
