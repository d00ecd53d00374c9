"""The rules of `kind: window`, by their model: right in any order, and wrong without any of them."""

from __future__ import annotations

import pytest

from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from tests.any_order.model import JOINS, Content, Event
from tests.any_order.window_model import RULES, WindowModel, WindowSchedule, wrong

IN_COMMIT, LATE = "the clock is part of the commit", "a clock of a late commit does not count"
RARE = {"the result tells who is alone": 1_100}
"""Per rule whose absence one of thousands of schedules notices, a seed from which on one soon does."""


def test_with_all_rules_every_schedule_ends_with_the_pairs_and_the_closed_rows() -> None:
    assert wrong(1500) == 0


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in (IN_COMMIT, LATE)])
def test_without_a_rule_some_schedule_does_not(rule: str) -> None:
    first = RARE.get(rule, 0)
    seeds = range(first, first + 12_000)
    assert any(not WindowSchedule(seed, join=JOINS[seed // 2 % 3], without=rule).is_right() for seed in seeds)


def content(left: list[Event], right: list[Event]) -> Content:
    return {Side.LEFT: left, Side.RIGHT: right}


NOTHING, CLOCK = content([], []), content([], [("r", 9, ("z", 15, 0))])
EARLY = {0: content([("b", 1, ("y", 0, 0))], []), 2: content([("a", 2, ("x", 0, 0))], [])}


def model_of(without: str | None) -> WindowModel:
    """Returns a left join with two early rows, and no row alone so far."""
    model = WindowModel(join="left", seed=1, without=without)
    for batch, landed in EARLY.items():
        for stage in Stage:
            model.run(stage, batch, landed)
    assert model.result == {}
    return model


def run(model: WindowModel, batch: int, landed: Content, *but: Stage) -> None:
    for stage in Stage:
        if stage not in but:
            model.run(stage, batch, landed)


@pytest.mark.parametrize("without", [None, IN_COMMIT])
def test_a_run_that_dies_shows_no_row_of_a_clock_that_nobody_knows(without: str | None) -> None:
    model = model_of(without)
    run(model, 1, CLOCK, Stage.RESOLVED_JOIN)
    for commit in model.commits(Stage.RESOLVED_JOIN, 1, CLOCK)[:-1]:
        commit()  # and the run dies
    run(model, 1, NOTHING)  # the batch is withdrawn
    assert (model.result == {}) is (without is None)


@pytest.mark.parametrize("without", [None, LATE])
def test_a_run_that_commits_late_leaves_no_clock(without: str | None) -> None:
    model = model_of(without)
    [late] = model.commits(Stage.RESOLVED_JOIN, 0, EARLY[0])  # it falls asleep
    run(model, 1, CLOCK)
    assert {key for key, _ in model.result} == {"a", "b"}
    late()
    run(model, 1, NOTHING)
    model.run(Stage.RESOLVED_JOIN, 0, EARLY[0])  # the late commit was noticed
    assert (model.result == {}) is (without is None)
