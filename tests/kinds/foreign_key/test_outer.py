"""Outer joins: a right row to which no left row refers stands alone, with nulls on the left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.store.settings import file_settings, settings
from fk_pipeline.store.sizes import MEASURED
from tests.any_order.subjects import WAYS
from tests.expectations.world import mutated
from tests.mutations import Copy, Delete, Update

pytestmark = pytest.mark.spark

OUTER = {"select": "[id, fk, v, k, name]"}
LEFT: list[Any] = [(1, "a", "v"), (2, "b", "v"), (3, None, "v"), (4, "gone", "v"), (5, "a", "v")]
RIGHT: list[Any] = [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]


def stored(pipeline: Pipeline) -> dict[tuple[int | None, str | None], tuple[str | None, str | None, str | None]]:
    """The result by left key and key of a right row alone, of which every row has one."""
    rows = pipeline.table("resolved_join").collect()
    found = {(r["_fk_pk_id"], r["_fk_alone_k"]): (r["v"], r["k"], r["name"]) for r in rows}
    assert len(found) == len(rows)
    assert all((left is None) != (right is None) for left, right in found)
    return found


@pytest.mark.slow  # outer joins after whatever happens: any_order/test_any_order.py
@pytest.mark.parametrize("way", WAYS)
def test_a_right_row_stands_alone_while_no_left_row_refers_to_it(rows_pipeline: Any, way: str) -> None:
    strategy = "{strategy: full}" if way == "whole tables" else "{}"
    made = rows_pipeline("outer", WAYS[way], settings=strategy, **OUTER)
    pipeline = made.pipeline
    made.land(0, LEFT, RIGHT)
    pipeline.run()
    first = {(1, None): ("v", "a", "A"), (2, None): ("v", "b", "B"), (3, None): ("v", None, None)}
    first |= {(4, None): ("v", None, None), (5, None): ("v", "a", "A")}
    assert stored(pipeline) == first | {(None, "c"): (None, "c", "C"), (None, "d"): (None, "d", "D")}

    # the last left row of b goes elsewhere, one of the two of a does; d changes; a left row comes to c
    made.land(1, [(1, "c", "w"), (2, "c", "w")], [("d", "D2"), ("gone", "G")])
    pipeline.run()
    second = {(1, None): ("w", "c", "C"), (2, None): ("w", "c", "C"), (3, None): ("v", None, None)}
    second |= {(4, None): ("v", "gone", "G"), (5, None): ("v", "a", "A")}
    assert stored(pipeline) == second | {(None, "b"): (None, "b", "B"), (None, "d"): (None, "d", "D2")}

    made.land(2, [(5,)], [("b",), ("c",)])  # the last left row of a is deleted; right rows go, alone and not
    pipeline.run()
    third = {(1, None): ("w", None, None), (2, None): ("w", None, None), (3, None): ("v", None, None)}
    third |= {(4, None): ("v", "gone", "G"), (None, "a"): (None, "a", "A"), (None, "d"): (None, "d", "D2")}
    assert stored(pipeline) == third

    made.land(1, [], [])  # batch 1 is written anew with nothing in it
    pipeline.run()
    fourth = {(1, None): ("v", "a", "A"), (2, None): ("v", None, None), (3, None): ("v", None, None)}
    assert stored(pipeline) == fourth | {(4, None): ("v", None, None), (None, "d"): (None, "d", "D")}
    assert pipeline.verify().ok


@pytest.mark.slow
def test_an_outer_join_is_checked_fed_and_shown(rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pipeline, many questions: change feed, verify of a share and of due work, checks, corrupted rows."""
    made = rows_pipeline("outer", **OUTER)
    pipeline = made.pipeline
    made.land(0, LEFT, RIGHT)
    pipeline.run()
    made.land(1, [(2, "d", "w")], [("c", "C2")])
    made.land(2, [(1, "c", "w")], [("e", "E")])
    pipeline.run("1..2", stages=[Stage.LEFT_CHANGELOG, Stage.RIGHT_TABLE])
    report = pipeline.verify()
    assert (report.ok, report.pending) == (True, 6)  # 1, 2, and the right rows alone: b comes, c and d go, e comes
    pipeline.run()
    told = {(r["_change_type"], r["id"], r["k"]) for r in pipeline.changes(1).collect()}
    gone = {("delete", None, "c"), ("delete", None, "d")}  # which of the batches took them away, is not recorded
    assert told == {("update", 2, "d"), ("insert", None, "b")} | gone
    told = {(r["_change_type"], r["id"], r["k"]) for r in pipeline.changes(2).collect()}
    assert told == {("update", 1, "c"), ("insert", None, "e")} | gone
    assert pipeline.verify(0.5).ok
    counts = pipeline.ledger().state(Stage.RESOLVED_JOIN, 2).counts
    assert (counts["alone"], counts.get("no longer alone", 0)) == (1, 1)
    assert [stage for stage in Stage if red(pipeline, None, stage)] == []
    assert red(pipeline, BatchRange.of(0)) == red(pipeline, BatchRange.of(1, 2)) == set()

    proof, missing, stale, twice = (
        "rows_are_those_of_the_join",
        "no_missing_row_alone",
        "no_stale_row_alone",
        "one_row_per_right_key_alone",
    )
    cases: list[tuple[Any, set[str]]] = [
        (Delete("_fk_alone_k = 'e'"), {missing, proof}),
        (Copy("_fk_alone_k = 'e'"), {twice, proof}),
        (Update("_fk_alone_k = 'e'", {"_fk_right_hash": "UNHEX('00')"}), {stale}),
        (Copy("_fk_alone_k = 'e'", {"_fk_alone_k": "'a'", "_fk_fk_k": "'a'"}), {stale, proof}),
        (Update("_fk_alone_k = 'e'", {"_fk_fk_k": "'x'"}), {stale, missing}),
    ]
    for mutation, wanted in cases:
        with mutated(monkeypatch, {"resolved_join": mutation}):
            assert red(pipeline, None) == wanted, mutation
            assert red(pipeline, BatchRange.of(2)) == wanted - {proof}, mutation


@pytest.mark.slow
def test_the_story_of_a_right_key_tells_why_it_stands_alone_or_not(rows_pipeline: Any, told_alike: Any) -> None:
    made = rows_pipeline("outer", **OUTER)
    pipeline = made.pipeline
    made.land(0, [(1, "a", "v"), (2, "a", "v")], [("a", "A"), ("b", "B"), ("c", "C")])
    made.land(1, [(1, "b", "w")], [("c",)])
    pipeline.run()
    told = {key: told_alike(pipeline, f"right.{key}") for key in ("a", "b", "k=c", "d")}
    assert all(story.as_expected for story in told.values())
    not_alone = "The right row does not stand alone in the result:"
    assert {key: story.sentences()[0] for key, story in told.items()} == {
        "a": f"{not_alone} left row 2 has the right row of batch 0.",
        "b": f"{not_alone} left row 1 has the right row of batch 0.",
        "k=c": f"{not_alone} batch 1 deletes the right row, and nothing newer has come.",
        "d": f"{not_alone} no batch has brought this right key.",
    }
    assert told["a"].heading == "Right row a"
    referred = "Left rows that refer to it: 1; rows of the result with it: 1, for example that of left row 2"
    assert told["a"].sentences()[-1] == referred
    assert [event[:3] for event in told["a"].events()] == [(0, "right row a *", "name=A, note=NULL")]
    left = told_alike(pipeline, "1")
    assert left.as_expected
    assert left.sentences()[0].endswith("the left row of batch 1 refers to right row b of batch 0.")

    assert [told_alike(pipeline, key, "impact").fan_out for key in "ac"] == [
        1,
        1,
    ]  # a left row; the row of the right row alone
    changes = made.folder / "changes.jsonl"
    lines = [{"op": "u", "k": key, "name": "new"} for key in "ade"]
    changes.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert pipeline.impact(changes=changes).fan_out == 3

    made.land(2, [(2,)])
    pipeline.run()
    story = told_alike(pipeline, "right.a")
    assert story.sentences()[0] == "The right row stands alone in the result: no left row has the right row of batch 0."
    assert story.as_json()["result"] == {"id": None, "fk": None, "v": None, "k": "a", "name": "A"}
    with settings(pipeline.session, file_settings(MEASURED)):
        pipeline.session.sql(f"DELETE FROM delta.`{pipeline.spec.home}/resolved_join` WHERE _fk_alone_k = 'a'")
    story = told_alike(pipeline, "right.a")
    assert not story.as_expected
    assert story.sentences()[0].startswith("WRONG: ")


def red(pipeline: Pipeline, batches: BatchRange | None, stage: Stage = Stage.RESOLVED_JOIN) -> set[str]:
    return {name for name, found in violations(pipeline, stage, batches).findings.items() if found.value}


@pytest.mark.slow
def test_a_right_row_alone_has_its_foreign_key_in_a_result_key_of_both(rows_pipeline: Any) -> None:
    made = rows_pipeline("outer", more="result_key: both\n", **OUTER)
    made.land(0, LEFT, RIGHT)
    made.pipeline.run()
    made.land(1, [(1, "b", "w"), (5, "c", "w")], [("d",)])
    made.pipeline.run()
    rows = made.pipeline.table("resolved_join").collect()
    keys = {(1, "b"), (2, "b"), (3, None), (4, "gone"), (5, "c"), (None, "a")}
    assert {(row["_fk_pk_id"], row["_fk_fk_k"]) for row in rows} == keys
    assert len(rows) == len(keys)
    told = {(r["_change_type"], r["id"], r["fk"] or r["k"]) for r in made.pipeline.changes(1).collect()}
    moved = {("delete", 1, "a"), ("insert", 1, "b"), ("delete", 5, "a"), ("insert", 5, "c")}
    assert told == moved | {("delete", None, "c"), ("delete", None, "d"), ("insert", None, "a")}
    assert made.pipeline.verify().ok
    assert red(made.pipeline, None) == red(made.pipeline, BatchRange.of(1)) == set()


@pytest.mark.slow  # beside the same for left joins in `tests/engine/test_refused_pairs.py`
def test_rows_on_which_select_fails_do_not_match(rows_pipeline: Any) -> None:
    """The right row `odd` fails beside left rows of value 0, `bad` also by itself; a left row of value x by itself."""
    fails = "right.name = ''bad'' OR (right.name = ''odd'' AND left.v = ''0'')"
    one = f"'IF({fails}, CAST(right.name AS INT), 1) AS one'"
    made = rows_pipeline("outer", select=f"[id, fk, v, k, {one}, CAST(left.v AS INT) AS number]")
    pipeline = made.pipeline
    made.land(
        0,
        [(1, "a", "0"), (2, "b", "0"), (3, "e", "x")],
        [("a", "odd"), ("b", "B"), ("c", "bad"), ("d", "D"), ("e", "E")],
    )
    pipeline.run()

    def check(expected: set[tuple[int | None, str | None]], refused: int, *batches: int) -> None:
        assert {(r["id"], r["k"]) for r in pipeline.table("resolved_join").collect()} == expected
        assert pipeline.table("quarantine").where("_fk_side = 'join'").count() == refused
        assert pipeline.verify().ok
        assert red(pipeline, None) == set()
        assert all(red(pipeline, BatchRange.of(batch)) == set() for batch in batches)

    check({(1, None), (2, "b"), (None, "a"), (None, "d"), (None, "e")}, 3, 0)
    counts = pipeline.ledger().state(Stage.RESOLVED_JOIN, 0).counts
    assert (counts["alone"], counts["alone quarantined"], counts.get("no longer alone")) == (3, 1, None)

    made.land(1, [(1, "a", "1")], [("c", "C"), ("d", "bad")])
    pipeline.run()
    check({(1, "a"), (2, "b"), (None, "c"), (None, "e")}, 4, 1)
    made.land(2, [(4, "d", "1")])
    made.land(3, [(4, "b", "1")])  # the last left row of d goes; d fails by itself, in this batch too
    pipeline.run("2")
    pipeline.run("3")
    check({(1, "a"), (2, "b"), (4, "b"), (None, "c"), (None, "e")}, 7, 3)
    pipeline.run("3", stages=[Stage.RESOLVED_JOIN])  # its record stays
    check({(1, "a"), (2, "b"), (4, "b"), (None, "c"), (None, "e")}, 7, 3)
