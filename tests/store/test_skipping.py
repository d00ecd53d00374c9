"""Conditions let every wanted row through, and leave something unread."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from fk_pipeline.identity import BatchRange
from fk_pipeline.store import skipping
from fk_pipeline.store.sizes import MEASURED, Sizes
from fk_pipeline.store.skipping import Among, Within, among, exactly, nameable

INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=700)
IN_BUCKETS = Sizes(listed_keys=1)
TEXTS = st.lists(st.text(max_size=12), max_size=400)


def covered(found: Among, value: Any) -> bool:
    return value in found.singles or any(low <= value <= high for low, high in found.intervals)


@given(st.one_of(INTEGERS, TEXTS), st.integers(0, 10_000))
def test_no_value_is_left_out(values: list[Any], width: int) -> None:
    found = Among.of("k", values, MEASURED, width)
    assert all(covered(found, value) for value in values)
    assert len(found.singles) <= MEASURED.listed_keys
    assert len(found.intervals) <= MEASURED.intervals
    assert all(found.may_meet(lambda _, value=value: (value, value)) for value in values)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(0, 1000), st.integers(0, 1000))
def test_a_file_is_read_exactly_if_a_value_lies_between_its_bounds(values: list[int], a: int, b: int) -> None:
    low, high = min(a, b), max(a, b)
    assert Among.of("k", values, MEASURED).may_meet(lambda _: (low, high)) == any(
        low <= value <= high for value in values
    )


def test_scattered_keys_are_named_and_close_ones_are_an_interval() -> None:
    newest = range(1_000_000, 1_001_000)
    found = Among.of("k", [*newest, 5, 70_000, 500_000], MEASURED, width=100)
    assert found.singles == (5, 70_000, 500_000)
    assert found.intervals == ((1_000_000, 1_000_999),)
    assert found.sql("t.") == "(t.`k` IN (5, 70000, 500000) OR t.`k` BETWEEN 1000000 AND 1000999)"


def test_keys_all_over_a_table_are_one_interval() -> None:
    found = Among.of("k", list(range(0, 1_000_000, 100)), MEASURED, width=200)
    assert (found.singles, found.intervals) == ((), ((0, 999_900),))
    uneven = [100 * i + i * 37 % 91 for i in range(10_000)]
    found = Among.of("k", uneven, MEASURED, width=50)
    assert (found.singles, found.intervals) == ((), ((uneven[0], uneven[-1]),))


def test_few_keys_of_many_pages_are_all_named_though_some_share_a_page() -> None:
    scattered = sorted({i * i * 7919 % 1_000_003 for i in range(900)})
    found = Among.of("k", scattered, MEASURED, width=100)  # of 10,000 pages a tenth at most
    assert (found.singles, found.intervals) == (tuple(scattered), ())
    assert Among.of("k", scattered, MEASURED, width=1_000).singles == ()  # 1,000 pages: there is nothing to leave out


def test_no_keys_meet_nothing() -> None:
    found = Among.of("k", [], MEASURED)
    assert found.sql() == "FALSE"
    assert not found.may_meet(lambda _: (0, 9))


def test_bounds_that_are_not_known_rule_nothing_out() -> None:
    assert Among.of("k", [1], MEASURED).may_meet(lambda _: None)
    assert Within("b", BatchRange.of(3, 4)).may_meet(lambda _: None)


@pytest.mark.parametrize(("bounds", "meets"), [((0, 2), False), ((0, 3), True), ((4, 9), True), ((5, 9), False)])
def test_a_range_of_batches(bounds: tuple[int, int], meets: bool) -> None:
    assert Within("b", BatchRange.of(3, 4)).may_meet(lambda _: bounds) is meets


def test_literals_are_escaped_and_nulls_are_wanted_nowhere() -> None:
    keys = pa.table({"a": ["x'y\\z", None], "n": [7, None], "f": [1.5, None]})
    texts, numbers = among(keys, {"k": "a", "number": "n", "other": "f"}, {}, MEASURED)
    assert texts.sql() == "(`k` IN ('x\\'y\\\\z'))"
    assert numbers.sql() == "(`number` IN (7))"


def test_keys_are_named_exactly_or_not_at_all() -> None:
    assert exactly(pa.table({"k": [2, 1]}), "k", MEASURED) == "`k` IN (2L, 1L)"
    assert exactly(pa.table({"k": pa.array([2], pa.int32())}), "k", MEASURED) == "`k` IN (2)"
    assert exactly(pa.table({"k": [1.5]}), "k", MEASURED) is None
    assert exactly(pa.table({"k": [1, None]}), "k", MEASURED) is None
    assert exactly(pa.table({"k": [1, 2, 1]}), "k", MEASURED) is None, "a MERGE says what is wrong"
    assert (
        exactly(pa.table({"k": pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())}), "k", MEASURED)
        is None
    )
    assert exactly(pa.table({"k": ["a${x}'"]}), "k", MEASURED) == "`k` IN ('a\\u0024{x}\\'')"
    short = Sizes(named_bytes=30)
    assert exactly(pa.table({"k": [1, 2]}), "k", short) is not None
    assert exactly(pa.table({"k": ["\\" * 3]}), "k", short) is None, "the log escapes them again"


def test_keys_of_one_column_that_is_not_sensitive_are_named() -> None:
    assert nameable([("k", "BIGINT")], (), MEASURED) > nameable([("k", "STRING")], (), MEASURED) > MEASURED.listed_keys
    assert nameable([("k", "BIGINT")], (), MEASURED, (-5, 10**18)) * 20 < MEASURED.named_bytes
    assert nameable([("k", "DOUBLE")], (), MEASURED) == nameable([("k", "INT"), ("l", "INT")], (), MEASURED) == 0
    assert nameable([("k", "BIGINT")], {"k"}, MEASURED) == 0


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["TINYINT", "SMALLINT", "INT", "BIGINT"])
def test_buckets_of_numbers_hold_for_their_rows_only(kind: str, spark: SparkSession) -> None:
    there = spark.sql(f"SELECT CAST(id AS {kind}) AS k FROM RANGE(-128, 128) UNION ALL SELECT NULL")
    if kind == "BIGINT":
        there = there.union(spark.sql(f"SELECT * FROM VALUES (-{2**63}L), ({2**63 - 1}L) AS t(k)"))
    keys = there.where("k % 7 IN (0, -3, 5) OR k > 1000 OR k < -1000").toArrow()
    assert len(keys) > 70
    wanted = sorted(keys["k"].to_pylist())
    condition = exactly(keys, "k", IN_BUCKETS)
    assert condition is not None
    assert condition.count("[") > 10
    assert sorted(row["k"] for row in there.where(condition).collect()) == wanted


@pytest.mark.spark
def test_buckets_of_texts_hold_for_their_rows_only(spark: SparkSession) -> None:
    texts = [
        "",
        " ",
        "a",
        "A",
        "ä",
        "a\u0308",
        "\U0001f600",
        "'",
        '"',
        "\\",
        "\\n",
        "\n",
        "\t",
        "\0",
        "${x}",
        "${env:HOME}",
    ]
    texts += ["],[", "null", "{}", "%", "_", "a" * 300, *[f"k{i}" for i in range(40)]]
    there = spark.createDataFrame(pa.table({"k": [*texts, None]}))
    for keys in (texts[::2], texts[1::2]):
        condition = exactly(pa.table({"k": keys}), "k", IN_BUCKETS)
        assert condition is not None
        assert sorted(row["k"] for row in there.where(condition).collect()) == sorted(keys)


def test_keys_at_any_distance_fall_into_all_buckets() -> None:
    for step in (1, 2, 10, 1000, 4096, 10_007):
        condition = skipping._in_buckets("k", [step * i for i in range(2_000)], MEASURED.keys_per_bucket)
        buckets = json.loads(condition.split("'")[1])
        assert max(map(len, buckets)) <= 2 * MEASURED.keys_per_bucket + 1
