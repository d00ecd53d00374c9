"""`result_key: both`: left key and right key identify a row, so that another foreign key is a delete and an insert."""

from __future__ import annotations

from typing import Any

import pytest

from expectations.violations import violations
from fk_pipeline.errors import StateError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store.sizes import MEASURED, Sizes

pytestmark = pytest.mark.spark

BOTH = {"more": "result_key: both\n", "select": "[id, fk, v, name]"}
LEFT: list[Any] = [(1, "a", "v"), (2, "b", "v"), (3, None, "v"), (4, "gone", "v"), (5, "a", "v")]
RIGHT: list[Any] = [("a", "A"), ("b", "B"), ("c", "C")]

WAYS = {
    "by the driver": MEASURED,
    "by MERGE": Sizes(small_rows=-1, rewritten_rows=-1, indexed_rows=1, driver_keys=-1),
    "whole tables": Sizes(driver_rows=-1, driver_keys=-1, sent_bytes=-1000, small_bytes=-1, broadcast_bytes=-1),
}


def stored(pipeline: Pipeline) -> dict[tuple[int, str | None], tuple[str, str | None]]:
    """The result by its key, which no two rows have."""
    rows = pipeline.table("resolved_join").collect()
    found = {(row["_fk_pk_id"], row["_fk_fk_k"]): (row["v"], row["name"]) for row in rows}
    assert len(found) == len(rows)
    assert all((row["id"], row["fk"]) == (row["_fk_pk_id"], row["_fk_fk_k"]) for row in rows)
    return found


def changes(pipeline: Pipeline, batch: int) -> set[tuple[str, int, str | None]]:
    return {(row["_change_type"], row["id"], row["fk"]) for row in pipeline.changes(batch).collect()}


@pytest.mark.parametrize("way", [pytest.param(w, marks=pytest.mark.slow if w == "whole tables" else ()) for w in WAYS])
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
    assert pipeline.verify().ok
    for stage in Stage:
        found = violations(pipeline, stage).findings
        assert not [name for name, finding in found.items() if finding.value], stage


def test_the_batches_of_a_range_have_the_rows_that_each_of_them_removed(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner", **BOTH)
    made.land(0, LEFT, RIGHT)
    made.pipeline.run()
    made.land(1, [(1, "b", "w"), (2,)])
    made.land(2, [(5, "c", "w")])
    made.pipeline.run()
    assert changes(made.pipeline, 1) == {("delete", 1, "a"), ("insert", 1, "b"), ("delete", 2, "b")}
    assert changes(made.pipeline, 2) == {("delete", 5, "a"), ("insert", 5, "c")}
    assert made.pipeline.verify(0.5).ok


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
