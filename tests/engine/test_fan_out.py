"""The fan-out budget: a batch whose right rows would touch too much waits for somebody to agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fk_pipeline.errors import CheckFailedError, FanOutError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store.sizes import Sizes
from tests.engine.conftest import LEFT, RIGHT

pytestmark = pytest.mark.spark

RENAMED = dict.fromkeys(range(0, 10, 2), ("v", "A2"))


@pytest.fixture
def made(request: pytest.FixtureRequest, begun: Callable[..., Any], rows_pipeline: Callable[..., Any]) -> Any:
    """Five left rows refer to each of a and b, one to a right row that is not there."""
    budget = "{max_fan_out: 2}"  # right rows that nobody refers to yet touch nobody
    if getattr(request, "param", None) != "indexed":
        return begun("left", settings=budget)
    made = rows_pipeline("left", Sizes(indexed_rows=1), settings=budget)
    made.land(0, LEFT, RIGHT)
    made.pipeline.run()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("made", ["indexed", "whole"], indirect=True)
def test_a_batch_beyond_the_budget_changes_nothing_until_somebody_agrees(made: Any) -> None:
    before = made.result()
    made.land(1, [(11, "none", "e")], [("a", "A2")])
    made.land(2, [], [("none", "N")])
    stored = made.pipeline.table("right_table").where("k = 'a'").first()
    with pytest.raises(CheckFailedError, match=re.escape("batch 1 failed check fan_out_within_budget of right_table")):
        made.pipeline.run()
    # Batch 2 goes on, and its right row answers the left row of batch 1, whose own answers wait.
    assert made.result() == before | {10: ("v", "N"), 11: ("e", "N")}
    assert made.pipeline.table("right_table").where("k = 'a'").first() == stored
    error = made.pipeline.ledger().state(Stage.RIGHT_TABLE, 1).error
    assert error == "batch 1 would touch 5 rows of the result (most by a: 5), and max_fan_out is 2"
    [failed] = made.pipeline.ledger().checks.failed()
    assert (failed.batch, failed.value, failed.remedy) == (1, 5.0, "agreement")

    runs = made.pipeline.ledger().state(Stage.RIGHT_TABLE, 1).attempts
    with pytest.raises(CheckFailedError):  # it is not even tried
        made.pipeline.run()
    assert made.pipeline.ledger().state(Stage.RIGHT_TABLE, 1).attempts == runs

    made.pipeline.run(waive="the region was renamed")
    assert made.result() == before | RENAMED | {10: ("v", "N"), 11: ("e", "N")}
    assert made.pipeline.ledger().checks.failed() == []
    assert made.pipeline.verify().ok


def test_a_batch_that_is_named_says_what_it_would_touch(made: Any) -> None:
    made.land(1, [], [("a",), ("none", "N")])
    with pytest.raises(FanOutError, match=r"6 rows of the result \(most by a: 5, none: 1\)"):
        made.pipeline.run(batches="1")


@pytest.mark.slow
def test_other_right_rows_are_asked_about_again(made: Any) -> None:
    made.land(1, [], [("a", "A2")])
    with pytest.raises(CheckFailedError):
        made.pipeline.run()
    made.land(1, [], [("none", "N")])
    made.pipeline.run()
    assert made.result()[10] == ("v", "N")
    assert made.pipeline.ledger().checks.failed() == []

    made.land(1, [], [("a", "A2")])
    with pytest.raises(CheckFailedError):
        made.pipeline.run(waive="a reason given before anything was asked")
    made.pipeline.run(waive="now")
    made.land(1, [], [("a", "A3")])
    with pytest.raises(CheckFailedError):  # what somebody agreed with was another file
        made.pipeline.run()
    assert made.result()[2] == ("v", "A2")


@pytest.mark.slow
def test_every_batch_of_a_backlog_is_asked_about_and_a_larger_budget_lets_them_in(made: Any) -> None:
    made.land(1, [], [("a", "A1")])
    made.land(2, [(11, "b", "f")], [("a", "A2")])
    made.land(3, [], [("a", "A3"), ("c", "C")])
    with pytest.raises(CheckFailedError):
        made.pipeline.run()
    assert [one.batch for one in made.pipeline.ledger().checks.failed()] == [1, 2, 3]
    assert 11 not in made.result()  # the answers of a batch wait for its right rows
    for source in ("changelog", "landing"):
        made.pipeline.rebuild(source)  # nobody has agreed by that
        assert made.result()[2] == ("v", "A"), source
        assert [one.batch for one in made.pipeline.ledger().checks.failed()] == [1, 2, 3]
    made.file.write_text(made.file.read_text().replace("max_fan_out: 2", "max_fan_out: 5"))
    larger = Pipeline(load_spec(made.file), made.pipeline.session)
    larger.run()
    assert made.result()[2] == ("v", "A3")
    assert made.result()[11] == ("f", "B")
    assert larger.ledger().checks.failed() == []
    assert larger.verify().ok
