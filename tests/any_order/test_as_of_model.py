"""The rules of `as_of`, by their model: right in any order, and wrong without any of them."""

from __future__ import annotations

import pytest

from tests.any_order.as_of_model import KINDS, RULES, AsOfSchedule, wrong

RARE = {"a truncate that went is told": 8_400}
"""Per rule whose absence one of thousands of schedules notices, a seed from which on one soon does."""


@pytest.mark.parametrize("schedules", [375, pytest.param(1500, marks=pytest.mark.slow)])
def test_with_all_rules_every_schedule_ends_with_the_as_of_join(schedules: int) -> None:
    assert wrong(schedules) == 0


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_schedule_does_not(rule: str) -> None:
    first, every = RARE.get(rule, 0), 2 if "truncate" in rule else 1  # the odd seeds are those of `as_of: batch`
    seeds = range(first + every - 1, first + 12_000, every)
    assert any(not AsOfSchedule(seed, join=KINDS[seed // 2 % 2], without=rule).is_right() for seed in seeds)
