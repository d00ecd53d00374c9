"""The rules of `kind: window`, by their model: right in any order, and wrong without any of them."""

from __future__ import annotations

import pytest

from tests.any_order.model import JOINS
from tests.any_order.window_model import RULES, WindowSchedule, wrong


@pytest.mark.parametrize("schedules", [375, pytest.param(1500, marks=pytest.mark.slow)])
def test_with_all_rules_every_schedule_ends_with_the_pairs_and_the_closed_rows(schedules: int) -> None:
    assert wrong(schedules) == 0


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_schedule_does_not(rule: str) -> None:
    assert any(not WindowSchedule(seed, join=JOINS[seed // 2 % 3], without=rule).is_right() for seed in range(12_000))
