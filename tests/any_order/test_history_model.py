"""The rules of `history`, by their model: right in any order, and wrong without any of them."""

from __future__ import annotations

import pytest

from tests.any_order.as_of_model import KINDS
from tests.any_order.history_model import RULES, HistorySchedule, wrong

RARE = {
    "a time may close before the response is applied": 7900,
    "nothing is due": 5400,
    "a truncate takes both": 3800,
    "what ended by the horizon does not answer": 1000,
}
"""Per rule whose absence one of thousands of schedules notices, a seed from which on one soon does."""


@pytest.mark.parametrize("schedules", [375, pytest.param(1500, marks=pytest.mark.slow)])
def test_with_all_rules_no_schedule_ends_wrong(schedules: int) -> None:
    assert wrong(schedules) == 0


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_schedule_does(rule: str) -> None:
    first = RARE.get(rule, 0)
    seeds = range(first, first + 12_000)
    assert any(not HistorySchedule(seed, join=KINDS[seed // 4 % 2], without=rule).is_right() for seed in seeds)
