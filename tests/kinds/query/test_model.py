"""The rules of `kind: query`, by their model: right in any history of the inputs, and wrong without any of them."""

from __future__ import annotations

import pytest

from tests.kinds.query.model import PASSED_ABSENT, RULES, is_right

RARE = {PASSED_ABSENT: 480}
"""Per rule whose absence few of a thousand histories notice, a seed from which on some soon do."""


def test_with_all_rules_every_history_ends_with_what_the_query_says() -> None:
    assert [seed for seed in range(100) if not is_right(seed)] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 2100, 500))
def test_so_does_every_one_of_many(first: int) -> None:
    assert [seed for seed in range(first, first + 500) if not is_right(seed)] == []


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_history_does_not(rule: str) -> None:
    first = RARE.get(rule, 0)
    wrong = (seed for seed in range(first, first + 1500) if not is_right(seed, rule))
    assert [next(wrong, None) for _ in range(3)].count(None) == 0
