"""`result_key: both`: left key and right key identify a row, so that another foreign key is a delete and an insert."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.errors import PipelineFileError, StateError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from tests.any_order.subjects import WAYS
from tests.conftest import RowsPipeline

pytestmark = pytest.mark.spark

BOTH = {"more": "result_key: both\n", "select": "[id, fk, v, name]"}
LEFT: list[Any] = [(1, "a", "v"), (2, "b", "v"), (3, None, "v"), (4, "gone", "v"), (5, "a", "v")]
RIGHT: list[Any] = [("a", "A"), ("b", "B"), ("c", "C")]


def stored(pipeline: Pipeline) -> dict[tuple[int, str | None], tuple[str, str | None]]:
    """The result by its key, which no two rows have."""
    rows = pipeline.table("resolved_join").collect()
    found = {(row["_fk_pk_id"], row["_fk_fk_k"]): (row["v"], row["name"]) for row in rows}
    assert len(found) == len(rows)
    assert all((row["id"], row["fk"]) == (row["_fk_pk_id"], row["_fk_fk_k"]) for row in rows)
    return found


def changes(pipeline: Pipeline, batch: int) -> set[tuple[str, int, str | None]]:
    return {(row["_change_type"], row["id"], row["fk"]) for row in pipeline.changes(batch).collect()}


@pytest.mark.parametrize("way", [pytest.param(w, marks=pytest.mark.slow if w != "by the driver" else ()) for w in WAYS])
def test_a_row_with_another_foreign_key_is_another_row(rows_pipeline: Any, way: str) -> None:
    strategy = "{strategy: full}" if way == "whole tables" else "{}"
    made = rows_pipeline("left", WAYS[way], settings=strategy, **BOTH)
    pipeline = made.pipeline
    made.land(0, LEFT, RIGHT)
    pipeline.run()
    first = {(1, "a"): ("v", "A"), (2, "b"): ("v", "B"), (3, None): ("v", None), (4, "gone"): ("v", None)}
    assert stored(pipeline) == first | {(5, "a"): ("v", "A")}

    # moves to another row, to none, from none and from one that is not there; an update, a delete
    made.land(1, [(1, "b", "w"), (2, None, "w"), (3, "c", "w"), (4, "c", "w"), (5,)], [("a", "A2"), ("c", "C2")])
    pipeline.run()
    moved = {(1, "b"): ("w", "B"), (2, None): ("w", None), (3, "c"): ("w", "C2"), (4, "c"): ("w", "C2")}
    assert stored(pipeline) == moved
    olds, news = [(1, "a"), (2, "b"), (3, None), (4, "gone"), (5, "a")], [(1, "b"), (2, None), (3, "c"), (4, "c")]
    wanted = {("delete", *key) for key in olds} | {("insert", *key) for key in news}
    assert changes(pipeline, 1) == wanted

    made.land(2, [(1, "b", "x")], [("c",)])  # the same foreign key; a right row that goes
    pipeline.run()
    assert stored(pipeline) == moved | {(1, "b"): ("x", "B"), (3, "c"): ("w", None), (4, "c"): ("w", None)}
    assert changes(pipeline, 2) == {("update", 1, "b"), ("update", 3, "c"), ("update", 4, "c")}

    made.land(1, [(1, "c", "y")], [])  # batch 1 written anew with less in it
    pipeline.run()
    assert stored(pipeline) == {
        (1, "b"): ("x", "B"),
        (2, "b"): ("v", "B"),
        (3, None): ("v", None),
        (4, "gone"): ("v", None),
        (5, "a"): ("v", "A"),
    }
    for stage in Stage:
        found = violations(pipeline, stage).findings  # of the result: it is verified, too
        assert not [name for name, finding in found.items() if finding.value], stage


@pytest.mark.slow
def test_a_wrong_row_is_shown_with_both_keys(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", **BOTH)
    made.land(0, LEFT, RIGHT)
    made.pipeline.run()
    made.land(1, [(1, "b", "w")])
    made.pipeline.run("1", stages=[Stage.LEFT_CHANGELOG])
    report = made.pipeline.verify()
    assert (report.ok, report.pending) == (True, 2)  # the row that goes, and the one that comes
    made.pipeline.run()
    home = made.pipeline.spec.home
    made.pipeline.session.sql(f"UPDATE delta.`{home}/resolved_join` SET _fk_fk_k = 'a' WHERE id = 1")
    report = made.pipeline.verify()
    shown = {(row["key"]["id"], row["key"]["k"]): row["difference"] for row in report.sample}
    assert shown == {(1, "a"): "unexpected", (1, "b"): "missing"}


@pytest.mark.slow  # rebuilds of some stages: engine/test_rebuild.py
def test_another_result_key_rebuilds_the_result_alone(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", select="[id, fk, v, name]")
    made.land(0, LEFT, RIGHT)
    made.pipeline.run()
    made.file.write_text(made.file.read_text() + "result_key: both\n")
    edited = Pipeline(load_spec(made.file), made.pipeline.session)
    with pytest.raises(StateError, match="result_key was 'left', is 'both'") as refused:
        edited.run()
    assert "--from changelog --stages resolved_join" in refused.value.fix
    edited.rebuild("changelog", [Stage.RESOLVED_JOIN])
    made.land(1, [(1, "b", "w")])
    edited.run()
    assert stored(edited)[1, "b"] == ("w", "B")
    assert (1, "a") not in stored(edited)
    assert edited.verify().ok


@pytest.mark.slow
def test_a_result_key_of_ones_choice_identifies_rows_for_consumers(rows_pipeline: Any) -> None:
    """The key is (id modulo 10, foreign key): an update of the foreign key is a delete and an insert of that key."""
    key = "result_key: ['left.id % 10 AS short', 'COALESCE(right.k, ''none'') AS k']\n"
    made = rows_pipeline("left", more=key, select="[id, fk, v, name]")
    pipeline = made.pipeline
    made.land(0, LEFT, RIGHT)
    pipeline.run()

    def keys() -> set[tuple[int, str]]:
        rows = pipeline.table("resolved_join").collect()
        found = {(row["_fk_key_short"], row["_fk_key_k"]) for row in rows}
        assert len(rows) == len(LEFT)
        return found

    assert keys() == {(1, "a"), (2, "b"), (3, "none"), (4, "gone"), (5, "a")}
    made.land(1, [(1, "b", "w"), (2, "b", "w")])
    pipeline.run()
    told = {(r["_change_type"], r["_fk_key_short"], r["_fk_key_k"]) for r in pipeline.changes(1).collect()}
    assert told == {("delete", 1, "a"), ("insert", 1, "b"), ("update", 2, "b")}
    unique, computed = "result_key_is_unique", "result_key_is_that_of_the_row"

    def red(batches: BatchRange | None) -> dict[str, Any]:
        found = violations(pipeline, Stage.RESOLVED_JOIN, batches).findings
        return {name: finding.sample[0]["key"] for name, finding in found.items() if finding.value}

    assert red(None) == red(BatchRange.of(1)) == {}
    assert pipeline.verify().ok
    made.land(4, [(5, "b", "w")])
    made.land(5, [(5, "a", "x")])
    made.land(6, [(1, "a", "w")])
    pipeline.run("5..6")
    told = {(r["_change_type"], r["_fk_key_short"], r["_fk_key_k"]) for r in pipeline.changes(6).collect()}
    assert told == {("delete", 1, "b"), ("insert", 1, "a")}
    pipeline.run()
    made.land(2, [(4,), (12, "b", "w")])  # 2 and 12 have the same short key
    made.land(3, [(3, None, "x")])
    pipeline.run()
    assert {*red(None), *red(BatchRange.of(2))} == {unique}
    assert json.loads(red(None)[unique]) == {"_fk_key_short": 2, "_fk_key_k": "b"}
    assert red(BatchRange.of(3)) == {}
    home = pipeline.spec.home
    pipeline.session.sql(f"UPDATE delta.`{home}/resolved_join` SET _fk_key_short = 7 WHERE id = 12")
    assert {*red(None)} == {computed}


def test_a_result_key_is_made_of_keys_and_has_names(tmp_path: Path) -> None:
    for key, message in (
        ("[left.v AS v]", "'left.v AS v' reads left.v, which is no key column"),
        ("[left.id % 10]", "'left.id % 10' needs a name"),
        ("[left.id AS a, right.k AS A]", "two columns of the result are called 'A'"),
        ("[middle.x AS x]", "column 'middle' is in neither schema"),
    ):
        with pytest.raises(PipelineFileError, match=re.escape(message)):
            RowsPipeline(tmp_path, None, "left", more=f"result_key: {key}\n")


STEPS: list[tuple[list[Any], list[Any], set[tuple[str, int, str]]]] = [
    ([], [("A0", "v")], set()),
    ([], [("A1", "v")], set()),
    ([(0, "A2", "v")], [], set()),
    ([(1, "A2", "v")], [], set()),
    ([], [("A2", "v")], {("insert", 0, "A2"), ("insert", 1, "A2")}),
    ([(1,)], [], {("delete", 1, "A2")}),
    ([(3, "A0", "v")], [], {("insert", 3, "A0")}),
    ([], [("A2",)], {("delete", 0, "A2")}),
]
"""The rows of the table "Step by Step" in the original proposal of KIP-213, whose joined table has the key (A, B):
records of B (a number for each), records of A, and the changes of the joined table. There are as many B per A as refer
to it, so B is the left side here."""


UNCHANGED = (0, 1, 2, 3)
RANGES = (UNCHANGED, (4,), (5, 6, 7))
"""The steps that run together: those that change nothing, and those of different keys."""

BESIDE: dict[int, tuple[list[Any], list[Any]]] = {
    4: ([(11, "a", "v"), (12, "b", "v"), (15, "a", "v")], RIGHT),
    5: ([(11, "b", "w"), (12,)], []),
    6: ([(15, "c", "w")], []),
}
"""By the number of a step, rows of other keys that land with it."""


@pytest.fixture(scope="module")
def stepped(rows_pipeline: Any) -> tuple[Pipeline, dict[int, set[tuple[str, int, str | None]]]]:
    """Returns the pipeline that ran for all steps, and what changed by batch. It is only read."""
    made = rows_pipeline("inner", **BOTH)
    pipeline: Pipeline = made.pipeline
    for steps in RANGES:
        for step in steps:
            left, right, _ = STEPS[step]
            more_left, more_right = BESIDE.get(step, ([], []))
            made.land(step, left + more_left, right + more_right)
        pipeline.run()
        if steps == UNCHANGED:  # none of these steps has changed what has no rows; `changes` tells it of the last
            assert stored(pipeline) == {}
            assert pipeline.runner.warehouse.version("resolved_join") == 0
    told = {step: changes(pipeline, step) for step in range(UNCHANGED[-1], len(STEPS))}
    return pipeline, {step: told.get(step, set()) for step in range(len(STEPS))}


@pytest.mark.slow  # what changes with a foreign key: the first test
def test_the_steps_of_the_original_proposal(stepped: Any) -> None:
    pipeline, changed = stepped
    for step, (_, _, wanted) in enumerate(STEPS):
        assert {one for one in changed[step] if one[1] < 10} == wanted, f"step {step + 1}"
    assert {key: row for key, row in stored(pipeline).items() if key[0] < 10} == {(3, "A0"): ("v", "v")}


@pytest.mark.slow  # ranges: test_the_feed_names_the_batch_that_removed_a_row_... in kinds/table/test_table.py
def test_the_batches_of_a_range_have_the_rows_that_each_of_them_removed(stepped: Any) -> None:
    pipeline, changed = stepped
    told = [{one for one in changed[batch] if one[1] > 10} for batch in (5, 6)]
    assert told[0] == {("delete", 11, "a"), ("insert", 11, "b"), ("delete", 12, "b")}
    assert told[1] == {("delete", 15, "a"), ("insert", 15, "c")}
    assert pipeline.verify(0.5).ok


def test_a_row_whose_result_key_cannot_be_computed_is_rejected(rows_pipeline: Any) -> None:
    made = rows_pipeline("outer", more="result_key: [left.id AS id, CAST(right.k AS INT) AS number]\n")
    made.land(0, [(1, "1", "v"), (2, "x", "v"), (3, None, "v")], [("1", "A"), ("7", "B"), ("y", "C")])
    made.pipeline.run()
    rows = made.pipeline.table("resolved_join").collect()
    assert {(row["_fk_key_id"], row["_fk_key_number"]) for row in rows} == {(1, 1), (3, None), (None, 7)}
    assert made.pipeline.table("quarantine").where("_fk_side = 'join'").count() == 2
    assert made.pipeline.verify().ok
