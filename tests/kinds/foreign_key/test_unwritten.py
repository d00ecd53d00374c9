"""Responses that concern most rows are not written: the result is computed with them (ADR 0062)."""

from __future__ import annotations

from typing import Any

import pytest

from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.store.sizes import Sizes
from tests.expectations.world import mutated
from tests.mutations import Delete, Update

pytestmark = pytest.mark.spark

UNWRITTEN = Sizes(
    driver_rows=-1, driver_keys=-1, sent_bytes=-1000, small_bytes=-1, broadcast_bytes=-1, unwritten_rows=-1
)
"""Few rows take the way of millions."""

BEFORE_RESULT = ["left_changelog", "right_table", "subscription_store", "responses"]
KEYS = {"select": "[id, fk, v, k, name]"}
LEFT: list[Any] = [(1, "a", "v"), (2, "b", "v"), (3, None, "v"), (4, "c", "v"), (6, "d", "v")]
RIGHT: list[Any] = [("a", "A"), ("b", "B"), ("d", "D")]
CHANGES: tuple[list[Any], list[Any]] = [(1, "b", "w"), (2,), (5, "a", "v")], [("b", "B2"), ("c", "C"), ("d",)]


def result(made: Any) -> list[tuple[Any, ...]]:
    """Returns the rows of the result, sorted as texts."""
    columns = ["id", "fk", "v", "k", "name"]
    return sorted(map(tuple, made.pipeline.table("resolved_join").select(*columns).collect()), key=str)


def written(made: Any) -> set[int]:
    """Returns the batches with stored responses."""
    return {row["_fk_batch"] for row in made.pipeline.table("responses").collect()}


def red(made: Any, batches: BatchRange | None) -> set[str]:
    """Returns the expectations that do not hold."""
    found = [violations(made.pipeline, stage, batches).findings for stage in Stage]
    return {name for findings in found for name, finding in findings.items() if finding.value}


@pytest.mark.parametrize("join", ["inner", pytest.param("left", marks=pytest.mark.slow), "outer"])
def test_the_result_is_that_of_written_responses(
    join: str, rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, plain = rows_pipeline(join, UNWRITTEN, **KEYS), rows_pipeline(join, **KEYS)
    for one in (made, plain):
        one.land(0, LEFT, RIGHT)
        one.pipeline.run()
        one.land(1, *CHANGES)
        one.pipeline.run()
    assert result(made) == result(plain)
    assert (written(made), written(plain)) == (set(), {0, 1})
    assert set(made.verdicts(1).values()) <= {"retracted", "unchanged"}
    assert made.pipeline.ledger().state(Stage.RESPONSES, 1).counts == {"unwritten": 2 + 1 + 6}
    told = made.pipeline.explain("1")
    assert (told.responses, told.unwritten) == ((), [0, 1])
    assert "Computed with the result, and not written: the responses of batch 0, 1" in told.protocol
    assert [red(made, batches) for batches in (None, BatchRange.of(0), BatchRange.of(1))] == [set()] * 3
    assert made.pipeline.verify().ok
    for mutation, name in [
        (Delete("id = 5"), "no_missing_row"),
        (Update("id = 1", {"_fk_right_hash": "UNHEX('00')"}), "no_stale_row"),
    ]:
        with mutated(monkeypatch, {"resolved_join": mutation}):
            assert name in red(made, BatchRange.of(1)), mutation


def test_a_range_may_have_written_and_unwritten_responses(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", UNWRITTEN, **KEYS)
    made.land(0, LEFT, RIGHT)
    made.pipeline.run("0", stages=BEFORE_RESULT)
    made.land(1, *CHANGES)
    Pipeline(made.pipeline.spec, made.pipeline.session).run("1", stages=BEFORE_RESULT)
    assert written(made) == {1}
    made.land(0, [*LEFT, (7, "a", "v")], RIGHT)
    made.pipeline.run("0", stages=BEFORE_RESULT)
    made.pipeline.run("0..1", stages=["resolved_join"])
    assert written(made) == {1}
    assert (7, "a", "v", "a", "A") in result(made)
    assert made.pipeline.verify().ok
    assert red(made, None) == set()


def test_a_range_with_a_batch_that_has_not_responded_resolves_the_others(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", UNWRITTEN, **KEYS)
    made.land(0, LEFT, RIGHT)
    made.pipeline.run("0", stages=BEFORE_RESULT)
    made.land(1, *CHANGES)
    made.pipeline.discover()
    made.pipeline.run("0..1", stages=["resolved_join"])
    assert (1, "a", "v", "a", "A") in result(made)
    made.pipeline.run()
    assert made.pipeline.verify().ok
    made.land(1, *CHANGES[:1])  # read anew, up to the store: the number of its responses was that of before
    made.pipeline.run("1", stages=["left_changelog", "right_table", "subscription_store"])
    made.pipeline.run("0..1", stages=["resolved_join"])
    made.pipeline.run()
    assert made.pipeline.verify().ok
    assert red(made, None) == set()


def test_a_row_on_which_an_expression_fails_is_quarantined(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", UNWRITTEN, select="[id, v, 1 / (LENGTH(name) - 1) AS half]")
    made.land(0, LEFT, [*RIGHT, ("c", "CC")])
    made.pipeline.run()
    rows = {row["id"]: row["half"] for row in made.pipeline.table("resolved_join").collect()}
    assert rows == {1: None, 2: None, 3: None, 4: 1.0, 6: None}
    assert {(key, verdict) for (key, _), verdict in made.verdicts(0).items()} == {
        (key, "half-quarantined") for key in (1, 2, 6)
    }
    made.land(1, [], [("a", "AAA")])
    made.pipeline.run()
    assert {row["id"]: row["half"] for row in made.pipeline.table("resolved_join").collect()}[1] == 0.5
    assert made.pipeline.verify().ok
    assert red(made, None) == set()
