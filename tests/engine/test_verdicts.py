"""Verdicts that are stored, and those that the responses tell (ADR 0021)."""

from __future__ import annotations

from typing import Any

import pytest

from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.store import faults
from tests.deaths import Killed, dies_at
from tests.engine.conftest import ALONE, BEGUN, LEFT, RIGHT

UP_TO_ANSWERS = ["left_changelog", "subscription_store", "right_table", "responses"]


@pytest.fixture
def made(begun: Any) -> Any:
    return begun("left")


@pytest.fixture(scope="module")
def changed(begun: Any) -> Any:
    """Batch 1 deletes a row and gives another one a match."""
    made = begun("left")
    made.land(1, [(1,), (10, "a", "w")])
    made.pipeline.run()
    return made


FIRST = {(key, "left"): "joined" for key in BEGUN} | {(10, "left"): "half-joined"}


def stored(made: Any) -> list[tuple[int, int, str]]:
    """(batch, id, verdict) of the table as it is on disk."""
    runner = made.pipeline.runner
    rows = runner.warehouse.read(runner.layout["verdicts"]).collect()
    return sorted((row["_fk_batch"], row["_fk_pk_id"], row["_fk_verdict"]) for row in rows)


def test_a_response_that_was_written_has_no_row(made: Any, changed: Any) -> None:
    assert made.pipeline.runner.warehouse.version("verdicts") is None, "there is nothing to say, and no commit"
    assert made.verdicts(0) == FIRST
    assert stored(changed) == [(1, 1, "retracted")]
    assert changed.verdicts(1) == {(1, "left"): "retracted", (10, "left"): "joined"}
    assert changed.verdicts(0) == FIRST
    columns = changed.pipeline.runner.layout["verdicts"].names
    assert changed.pipeline.table("verdicts").columns == columns


@pytest.mark.slow
def test_a_range_in_which_every_response_was_written_tells_its_changes(made: Any) -> None:
    made.land(1, [(1, "b", "w")])
    made.land(2, [(2, "a", "w"), (11, "a", "new")])
    made.pipeline.run()
    assert made.pipeline.runner.warehouse.version("verdicts") is None
    found = {batch: {row["id"] for row in made.pipeline.changes(batch).collect()} for batch in (1, 2)}
    assert found == {1: {1}, 2: {2, 11}}


def test_a_batch_tells_only_what_it_stored_until_it_is_resolved(changed: Any, copy_of: Any) -> None:
    made = copy_of(changed)
    made.land(1, [(1, "a", "again"), (10, "a", "x")])
    made.pipeline.run(None, UP_TO_ANSWERS)
    assert made.verdicts(1) == {(1, "left"): "retracted"}
    assert [(a.batch, a.verdict) for a in made.pipeline.explain("10").responses] == [(0, "half-joined"), (1, None)]
    made.pipeline.run()
    assert made.verdicts(1) == {(1, "left"): "joined", (10, "left"): "joined"}
    assert stored(made) == []
    assert made.result() == BEGUN | {1: ("again", "A"), 10: ("x", "A")}


@pytest.mark.slow
def test_a_death_after_the_responses_were_committed_tells_nothing_of_them(made: Any) -> None:
    made.land(0, [LEFT[0], (1, "nil", "again"), *LEFT[2:]], RIGHT)
    with faults.listening(dies_at("after commit of responses")), pytest.raises(Killed):
        made.pipeline.run()
    assert not made.pipeline.ledger().due.has(Stage.RESOLVED_JOIN, 0), "nothing says so yet"
    assert made.verdicts(0) == {}
    assert {one.verdict for one in made.pipeline.explain("1").responses} == {None}
    made.pipeline.run()
    assert made.verdicts(0)[1, "left"] == "half-joined"
    assert made.result() == BEGUN | ALONE | {1: ("again", None)}
