"""The rules of `as_of`, by their model: right in any order, and wrong without any of them."""

from __future__ import annotations

import pytest

from tests.any_order.as_of_model import KINDS, RULES, AsOfSchedule, wrong


def test_with_all_rules_every_schedule_ends_with_the_as_of_join() -> None:
    assert wrong(1500) == 0


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_schedule_does_not(rule: str) -> None:
    seeds = range(1 if "truncate" in rule else 0, 12_000, 2 if "truncate" in rule else 1)
    assert any(not AsOfSchedule(seed, join=KINDS[seed // 2 % 2], without=rule).is_right() for seed in seeds)
