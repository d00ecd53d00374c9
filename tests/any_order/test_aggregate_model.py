"""The rules of `kind: aggregate`, by their model: right in any order, and wrong without any of them."""

from __future__ import annotations

import pytest

from tests.any_order.aggregate_model import RULES, AggregateSchedule, wrong

RARE = {"a late commit stands for no version": 1200}
"""Per rule that few schedules need, the seed from which they are searched: one is near."""


@pytest.mark.parametrize("schedules", [500, pytest.param(2000, marks=pytest.mark.slow)])
def test_with_all_rules_every_schedule_ends_with_the_groups_of_the_last_writers(schedules: int) -> None:
    assert wrong(schedules) == 0


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_schedule_does_not(rule: str) -> None:
    first = RARE.get(rule, 0)
    assert any(not AggregateSchedule(seed, without=rule).is_right() for seed in range(first, first + 12_000))
