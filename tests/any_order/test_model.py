"""The rules, by their model: right in any order, and wrong without any of them."""

from __future__ import annotations

import pytest

from tests.any_order.model import JOINS, RULES, Schedule, wrong

RARE = {"a folded batch stays folded": 4_400, "a refused right row is asked again": 3_400}
"""Per rule whose absence one of thousands of schedules notices, a seed from which on one soon does."""


@pytest.mark.parametrize("schedules", [375, pytest.param(1500, marks=pytest.mark.slow)])
def test_with_all_rules_every_schedule_ends_with_the_join(schedules: int) -> None:
    assert wrong(schedules) == 0


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_schedule_does_not(rule: str) -> None:
    first = RARE.get(rule, 0)
    seeds = range(first, first + 9000)
    assert any(not Schedule(seed, join=JOINS[seed % 3], without=rule).is_right() for seed in seeds)


def test_the_schedules_do_what_may_go_wrong() -> None:
    schedules = [Schedule(seed, join="inner") for seed in range(100)]
    for schedule in schedules:
        schedule.is_right()
    assert sum(schedule.folds > 0 for schedule in schedules) > 50
    assert sum(schedule.declared for schedule in schedules) > 20
    assert sum(len(old) > 1 for schedule in schedules for old in schedule.history.values()) > 50
    assert sum(schedule.late > 0 for schedule in schedules) > 10
