"""The rules of `kind: query`, by their model: right in any history of the inputs, and wrong without any of them."""

from __future__ import annotations

import pytest

from tests.kinds.query.model import ABSENT, CLOCK, RULES, is_right


@pytest.mark.parametrize("clock", [False, True])
def test_with_all_rules_every_history_ends_with_what_the_query_says(clock: bool) -> None:
    assert [seed for seed in range(500) if not is_right(seed, clock=clock)] == []


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_history_does_not(rule: str) -> None:
    histories = 900 if rule == ABSENT else 300  # such queries are rare
    wrong = [seed for seed in range(histories) if not is_right(seed, rule, clock=rule == CLOCK)]
    assert len(wrong) > 2
