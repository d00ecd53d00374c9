"""The rules of `retention`, by their model: right in any order, and wrong without any of them."""

from __future__ import annotations

import pytest

from tests.any_order.model import JOINS
from tests.any_order.retention_model import RULES, RetentionSchedule, wrong

RARE = {
    "an expired row is remembered": 2_300,
    "an expired row stays expired": 10_500,
    "a removed row cannot be withdrawn": 500,
}
"""Per rule whose absence one of thousands of schedules notices, a seed from which on one soon does."""


def test_with_all_rules_every_schedule_ends_right() -> None:
    assert wrong(1000) == 0


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_schedule_does_not(rule: str) -> None:
    first = RARE.get(rule, 0)
    seeds = range(first, first + 6_000)
    assert any(not RetentionSchedule(seed, join=JOINS[seed // 2 % 3], without=rule).is_right() for seed in seeds)
