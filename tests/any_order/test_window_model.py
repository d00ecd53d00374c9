"""The rules of `kind: window`, by their model: right in any order, and wrong without any of them."""

from __future__ import annotations

import pytest

from tests.any_order.model import JOINS
from tests.any_order.window_model import RULES, WindowSchedule, wrong

RARE = {
    "the clock is part of the commit": 53_800,
    "the result tells who is alone": 1_100,
    "a clock of a late commit does not count": 53_800,
}
"""Per rule whose absence one of thousands of schedules notices, a seed from which on one soon does."""


def test_with_all_rules_every_schedule_ends_with_the_pairs_and_the_closed_rows() -> None:
    assert wrong(1500) == 0


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_schedule_does_not(rule: str) -> None:
    first = RARE.get(rule, 0)
    seeds = range(first, first + 12_000)
    assert any(not WindowSchedule(seed, join=JOINS[seed // 2 % 3], without=rule).is_right() for seed in seeds)
