"""The rules of `retention`, by their model: right in any order, and wrong without any of them."""

from __future__ import annotations

import pytest

from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from tests.any_order.model import JOINS, Content
from tests.any_order.retention_model import RULES, RetentionModel, RetentionSchedule, wrong

WAS_THERE = "a row that was there does not expire"
RARE = {"an expired row is remembered": 400, WAS_THERE: 31_400}
"""Per rule whose absence one of thousands of schedules notices, a seed from which on one soon does."""


@pytest.mark.parametrize("schedules", [250, pytest.param(1000, marks=pytest.mark.slow)])
def test_with_all_rules_every_schedule_ends_right(schedules: int) -> None:
    assert wrong(schedules) == 0


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_schedule_does_not(rule: str) -> None:
    first = RARE.get(rule, 0)
    seeds = range(first, first + 6_000)
    assert any(not RetentionSchedule(seed, join=JOINS[seed // 2 % 3], without=rule).is_right() for seed in seeds)


@pytest.mark.parametrize("without", [None, WAS_THERE])
def test_a_withdrawn_row_and_an_older_version_of_it_land_in_any_order(without: str | None) -> None:
    nothing: Content = {Side.LEFT: [], Side.RIGHT: []}
    young: Content = {Side.LEFT: [], Side.RIGHT: [("c", 2, ("x", 14, 0))]}
    old: Content = {Side.LEFT: [], Side.RIGHT: [("c", 1, ("x", 4, 0))]}
    found = []
    for order in [[(6, nothing), (8, old)], [(8, old), (6, nothing)]]:
        model = RetentionModel(join="outer", seed=1, without=without)
        model.run(Stage.RIGHT_TABLE, 6, young)
        model.horizon = 13
        for batch, content in order:
            model.run(Stage.RIGHT_TABLE, batch, content)
        found.append(model.live(Side.RIGHT))
    assert (found == [{"c": ("x", 4, 0)}] * 2) is (without is None)
