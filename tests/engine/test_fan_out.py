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
from fk_pipeline.store.sizes import MEASURED, Sizes

pytestmark = pytest.mark.spark

REGIONS = [("north", "N"), ("south", "S")]
SHOPS = [(1, "north", "a"), (2, "north", "b"), (3, "north", "c"), (4, "south", "d")]
NORTH = {1: ("a", "N2"), 2: ("b", "N2"), 3: ("c", "N2")}


@pytest.fixture
def made(request: pytest.FixtureRequest, rows_pipeline: Callable[..., Any]) -> Any:
    sizes = Sizes(indexed_rows=1) if getattr(request, "param", None) == "indexed" else MEASURED
    made = rows_pipeline("left", sizes, settings="{max_fan_out: 2}")
    made.land(0, SHOPS, REGIONS)
    made.pipeline.run()  # right rows that nobody refers to yet touch nobody
    return made


@pytest.mark.parametrize("made", [pytest.param("indexed", marks=pytest.mark.slow), "whole"], indirect=True)
def test_a_batch_beyond_the_budget_changes_nothing_until_somebody_agrees(made: Any) -> None:
    before = made.result()
    made.land(1, [(5, "south", "e")], [("north", "N2")])
    made.land(2, [], [("south", "S2")])
    stored = made.pipeline.table("right_table").where("k = 'north'").first()
    with pytest.raises(CheckFailedError, match=re.escape("batch 1 failed check fan_out_within_budget of right_table")):
        made.pipeline.run()
    # Batch 2 goes on, and its right row answers the left row of batch 1, whose own answers wait.
    assert made.result() == before | {4: ("d", "S2"), 5: ("e", "S2")}
    assert made.pipeline.table("right_table").where("k = 'north'").first() == stored
    error = made.pipeline.ledger().state(Stage.RIGHT_TABLE, 1).error
    assert error == "batch 1 would touch 3 rows of the result (most by north: 3), and max_fan_out is 2"
    [failed] = made.pipeline.ledger().checks.failed()
    assert (failed.batch, failed.value, failed.remedy) == (1, 3.0, "agreement")

    runs = made.pipeline.ledger().state(Stage.RIGHT_TABLE, 1).attempts
    with pytest.raises(CheckFailedError):  # it is not even tried
        made.pipeline.run()
    assert made.pipeline.ledger().state(Stage.RIGHT_TABLE, 1).attempts == runs

    made.pipeline.run(waive="the region was renamed")
    assert made.result() == NORTH | {4: ("d", "S2"), 5: ("e", "S2")}
    assert made.pipeline.ledger().checks.failed() == []
    assert made.pipeline.verify().ok


def test_a_batch_that_is_named_says_what_it_would_touch(made: Any) -> None:
    made.land(1, [], [("north",), ("south", "S2")])
    with pytest.raises(FanOutError, match=r"4 rows of the result \(most by north: 3, south: 1\)"):
        made.pipeline.run(batches="1")


@pytest.mark.slow
def test_other_right_rows_are_asked_about_again(made: Any) -> None:
    made.land(1, [], [("north", "N2")])
    with pytest.raises(CheckFailedError):
        made.pipeline.run()
    made.land(1, [], [("south", "S2")])
    made.pipeline.run()
    assert made.result()[4] == ("d", "S2")
    assert made.pipeline.ledger().checks.failed() == []

    made.land(1, [], [("north", "N2")])
    with pytest.raises(CheckFailedError):
        made.pipeline.run(waive="a reason given before anything was asked")
    made.pipeline.run(waive="now")
    made.land(1, [], [("north", "N3")])
    with pytest.raises(CheckFailedError):  # what somebody agreed with was another file
        made.pipeline.run()
    assert made.result()[1] == ("a", "N2")


@pytest.mark.slow
def test_every_batch_of_a_backlog_is_asked_about_and_a_larger_budget_lets_them_in(made: Any) -> None:
    made.land(1, [], [("north", "N1")])
    made.land(2, [(6, "south", "f")], [("north", "N2")])
    made.land(3, [], [("north", "N3"), ("west", "W")])
    with pytest.raises(CheckFailedError):
        made.pipeline.run()
    assert [one.batch for one in made.pipeline.ledger().checks.failed()] == [1, 2, 3]
    assert 6 not in made.result()  # the answers of a batch wait for its right rows
    for source in ("changelog", "landing"):
        made.pipeline.rebuild(source)  # nobody has agreed by that
        assert made.result()[1] == ("a", "N"), source
        assert [one.batch for one in made.pipeline.ledger().checks.failed()] == [1, 2, 3]
    made.file.write_text(made.file.read_text().replace("max_fan_out: 2", "max_fan_out: 3"))
    larger = Pipeline(load_spec(made.file), made.pipeline.session)
    larger.run()
    assert made.result()[1] == ("a", "N3")
    assert made.result()[6] == ("f", "S")
    assert larger.ledger().checks.failed() == []
    assert larger.verify().ok
