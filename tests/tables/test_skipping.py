"""Conditions let every wanted row through, and leave something unread."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fk_pipeline.identity import BatchRange
from fk_pipeline.tables.skipping import INTERVALS, LISTED, Among, Within, among, exactly

INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=700)
TEXTS = st.lists(st.text(max_size=12), max_size=400)


def covered(found: Among, value: Any) -> bool:
    return value in found.singles or any(low <= value <= high for low, high in found.intervals)


@given(st.one_of(INTEGERS, TEXTS), st.integers(0, 10_000))
def test_no_value_is_left_out(values: list[Any], width: int) -> None:
    found = Among.of("k", values, width)
    assert all(covered(found, value) for value in values)
    assert len(found.singles) <= LISTED
    assert len(found.intervals) <= INTERVALS
    assert all(found.may_meet(lambda _, value=value: (value, value)) for value in values)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(0, 1000), st.integers(0, 1000))
def test_a_file_is_read_exactly_if_a_value_lies_between_its_bounds(values: list[int], a: int, b: int) -> None:
    low, high = min(a, b), max(a, b)
    assert Among.of("k", values).may_meet(lambda _: (low, high)) == any(low <= value <= high for value in values)


def test_scattered_keys_are_named_and_close_ones_are_an_interval() -> None:
    newest = range(1_000_000, 1_001_000)
    found = Among.of("k", [*newest, 5, 70_000, 500_000], width=100)
    assert found.singles == (5, 70_000, 500_000)
    assert found.intervals == ((1_000_000, 1_000_999),)
    assert found.sql("t.") == "(t.`k` IN (5, 70000, 500000) OR t.`k` BETWEEN 1000000 AND 1000999)"


def test_keys_all_over_a_table_are_one_interval() -> None:
    found = Among.of("k", list(range(0, 1_000_000, 100)), width=200)
    assert (found.singles, found.intervals) == ((), ((0, 999_900),))
    uneven = [100 * i + i * 37 % 91 for i in range(10_000)]
    found = Among.of("k", uneven, width=50)
    assert (found.singles, found.intervals) == ((), ((uneven[0], uneven[-1]),))


def test_few_keys_of_many_pages_are_all_named_though_some_share_a_page() -> None:
    scattered = sorted({i * i * 7919 % 1_000_003 for i in range(900)})
    found = Among.of("k", scattered, width=100)  # of 10,000 pages a tenth at most
    assert (found.singles, found.intervals) == (tuple(scattered), ())
    assert Among.of("k", scattered, width=1_000).singles == ()  # 1,000 pages: there is nothing to leave out


def test_no_keys_meet_nothing() -> None:
    found = Among.of("k", [])
    assert found.sql() == "FALSE"
    assert not found.may_meet(lambda _: (0, 9))


def test_bounds_that_are_not_known_rule_nothing_out() -> None:
    assert Among.of("k", [1]).may_meet(lambda _: None)
    assert Within("b", BatchRange.of(3, 4)).may_meet(lambda _: None)


@pytest.mark.parametrize(("bounds", "meets"), [((0, 2), False), ((0, 3), True), ((4, 9), True), ((5, 9), False)])
def test_a_range_of_batches(bounds: tuple[int, int], meets: bool) -> None:
    assert Within("b", BatchRange.of(3, 4)).may_meet(lambda _: bounds) is meets


def test_literals_are_escaped_and_nulls_are_wanted_nowhere() -> None:
    keys = pa.table({"a": ["x'y\\z", None], "n": [7, None], "f": [1.5, None]})
    texts, numbers = among(keys, {"k": "a", "number": "n", "other": "f"}, {})
    assert texts.sql() == "(`k` IN ('x\\'y\\\\z'))"
    assert numbers.sql() == "(`number` IN (7))"


def test_keys_are_named_exactly_or_not_at_all() -> None:
    assert exactly(pa.table({"k": [2, 1]}), "k") == "`k` IN (2L, 1L)"
    assert exactly(pa.table({"k": pa.array([2], pa.int32())}), "k") == "`k` IN (2)"
    assert exactly(pa.table({"k": [1.5]}), "k") is None
    assert exactly(pa.table({"k": [1, None]}), "k") is None
    assert exactly(pa.table({"k": list(range(5))}), "k", 4) is None
    assert exactly(pa.table({"k": ["a${x}'"]}), "k") == "`k` IN ('a\\u0024{x}\\'')"
