"""Conditions let every wanted row through, and leave something unread."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from fk_pipeline.identity import BatchRange
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import MEASURED, Sizes
from fk_pipeline.store.skipping import Among, Either, Within, among, exactly, nameable

INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=700)
IN_BUCKETS = Sizes(listed_keys=1)
ONE = Table("one", (("k", "BIGINT"),), keys=("k",))
PARTS = Table("parts", (("l", "BIGINT"), ("r", "STRING")), keys=("l", "r"), either=(("l",), ("r",)))
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
    assert exactly(pa.table({"k": [2, 1]}), ONE, MEASURED) == "`k` IN (2L, 1L)"
    assert exactly(pa.table({"k": pa.array([2], pa.int32())}), ONE, MEASURED) == "`k` IN (2)"
    assert exactly(pa.table({"k": [1.5]}), ONE, MEASURED) is None
    assert exactly(pa.table({"k": [1, None]}), ONE, MEASURED) is None
    assert exactly(pa.table({"k": [1, 2, 1]}), ONE, MEASURED) is None, "a MERGE says what is wrong"
    assert (
        exactly(pa.table({"k": pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())}), ONE, MEASURED)
        is None
    )
    assert exactly(pa.table({"k": ["a${x}'"]}), ONE, MEASURED) == "`k` IN ('a\\u0024{x}\\'')"
    short = Sizes(named_bytes=30)
    assert exactly(pa.table({"k": [1, 2]}), ONE, short) is not None
    assert exactly(pa.table({"k": ["\\" * 3]}), ONE, short) is None, "the log escapes them again"


def keyed(*kinds: str, sensitive: str = "", either: bool = False) -> Table:
    columns = tuple(zip("kl", kinds, strict=False))
    parts = (("k",), ("l",)) if either else ()
    return Table("keyed", columns, keys=tuple(k for k, _ in columns), sensitive=frozenset(sensitive), either=parts)


def names(table: Table, span: tuple[int, int] | None = None) -> int:
    return nameable(table, MEASURED, lambda _: span)


def test_keys_of_one_column_that_is_not_sensitive_are_named() -> None:
    assert names(keyed("BIGINT")) > names(keyed("STRING")) > MEASURED.listed_keys
    assert names(keyed("BIGINT"), (-5, 10**18)) * 20 < MEASURED.named_bytes
    assert names(keyed("DOUBLE")) == names(keyed("INT", "DOUBLE")) == names(Table("log", (("k", "INT"),))) == 0
    assert names(keyed("BIGINT", sensitive="k")) == names(keyed("INT", "INT", sensitive="l")) == 0
    assert names(keyed("INT", "STRING")) == names(keyed("TIMESTAMP", "STRING")) == MEASURED.named_texts
    assert names(keyed("TIMESTAMP")) == 0
    assert names(keyed("INT", "INT"), (-5, 10**18)) * 40 < MEASURED.named_bytes


def test_keys_of_two_parts_are_named_if_those_of_each_part_can_be() -> None:
    assert names(keyed("BIGINT", "STRING", either=True)) == names(keyed("STRING"))
    assert names(keyed("BIGINT", "DOUBLE", either=True)) == names(keyed("INT", "INT", sensitive="l", either=True)) == 0
    keys = pa.table({"l": [2, None, 1], "r": [None, "a", None]})
    assert exactly(keys, PARTS, MEASURED) == "((`l` IN (2L, 1L)) OR (`r` IN ('a')))"
    assert exactly(keys.slice(1, 1), PARTS, MEASURED) == "((`r` IN ('a')))"
    assert exactly(pa.table({"l": [1, 1], "r": pa.nulls(2, pa.string())}), PARTS, MEASURED) is None


def test_a_file_is_read_if_one_part_of_the_key_may_be_in_it() -> None:
    condition = Either(tuple((Among.of(name, values, MEASURED),) for name, values in (("l", [5, 7]), ("r", ["b"]))))
    assert condition.sql("t.") == "(((t.`l` IN (5, 7))) OR ((t.`r` IN ('b'))))"
    found = [
        ({"l": (1, 6), "r": ()}, True),
        ({"l": (8, 9), "r": ()}, False),
        ({"l": (), "r": ("a", "c")}, True),
        ({"l": (), "r": ("c", "d")}, False),
        ({"l": (), "r": None}, True),
    ]
    for bounds, expected in found:
        assert condition.may_meet(bounds.__getitem__) == expected, bounds
    assert Either(((), (Among.of("r", ["b"], MEASURED),))).may_meet({"r": ()}.__getitem__), "nothing is known of a part"


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["TINYINT", "SMALLINT", "INT", "BIGINT"])
def test_buckets_of_numbers_hold_for_their_rows_only(kind: str, spark: SparkSession) -> None:
    there = spark.sql(f"SELECT CAST(id AS {kind}) AS k FROM RANGE(-128, 128) UNION ALL SELECT NULL")
    if kind == "BIGINT":
        there = there.union(spark.sql(f"SELECT * FROM VALUES (-{2**63}L), ({2**63 - 1}L) AS t(k)"))
    keys = there.where("k % 7 IN (0, -3, 5) OR k > 1000 OR k < -1000").toArrow()
    assert len(keys) > 70
    wanted = sorted(keys["k"].to_pylist())
    condition = exactly(keys, ONE, IN_BUCKETS)
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
        condition = exactly(pa.table({"k": keys}), ONE, IN_BUCKETS)
        assert condition is not None
        assert sorted(row["k"] for row in there.where(condition).collect()) == sorted(keys)


def test_keys_at_any_distance_fall_into_all_buckets() -> None:
    for step in (1, 2, 10, 1000, 4096, 10_007):
        condition = exactly(pa.table({"k": [step * i for i in range(2_000)]}), ONE, MEASURED)
        assert condition is not None
        buckets = json.loads(condition.split("'")[1])
        assert max(map(len, buckets)) <= 2 * MEASURED.keys_per_bucket + 1


@pytest.mark.spark
def test_parts_of_several_columns_are_named_by_all_of_them(spark: SparkSession) -> None:
    columns = (("a", "BIGINT"), ("b", "STRING"), ("r", "BIGINT"), ("s", "BIGINT"))
    names = tuple(name for name, _ in columns)
    parts = Table("parts", columns, keys=names, nullable_keys=frozenset(names), either=(("a", "b"), ("r", "s")))

    def table(rows: list[tuple[Any, ...]]) -> pa.Table:
        kinds = (pa.int64(), pa.string(), pa.int64(), pa.int64())
        return pa.table(
            [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)], names=names
        )

    keys = [(1, "x", None, None), (2, "y", None, None), (None, None, 1, 2)]
    others = [(1, "y", None, None), (2, "x", None, None), (None, None, 2, 1), (None, None, 1, 1)]
    condition = exactly(table(keys), parts, MEASURED)
    assert condition is not None
    found = spark.createDataFrame(table([*keys, *others])).where(condition).collect()
    assert sorted(map(tuple, found), key=str) == sorted(keys, key=str)
    assert nameable(parts, MEASURED, lambda _: None) == MEASURED.named_texts


@pytest.mark.spark
@pytest.mark.parametrize("sizes", [MEASURED, Sizes(listed_keys=1, keys_per_bucket=1)], ids=["listed", "in buckets"])
def test_keys_of_several_columns_are_named_with_their_nulls(spark: SparkSession, sizes: Sizes) -> None:
    keys = [(1, "a", 5), (1, "b", 5), (2, "a", 5), (2, None, 5), (None, "a", 5), (None, "'", 6), (None, None, 5)]
    others = [(1, "a", 6), (2, "b", 5), (1, None, 5), (None, "b", 5), (None, None, None), (1, "a", None)]
    names, kinds = ("k", "l", "m"), (pa.int32(), pa.string(), pa.int64())

    def table(rows: list[tuple[Any, ...]]) -> pa.Table:
        return pa.table(
            [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)], names=names
        )

    keyed_by = Table("keyed", (("k", "INT"), ("l", "STRING"), ("m", "BIGINT")), keys=names)
    condition = exactly(table(keys), keyed_by, sizes)
    assert condition is not None
    found = spark.createDataFrame(table([*keys, *others])).where(condition).collect()
    assert sorted(map(tuple, found), key=str) == sorted(keys, key=str)
    assert exactly(table([*keys, keys[0]]), keyed_by, sizes) is None, "a MERGE says what is wrong"


@pytest.mark.spark
@pytest.mark.parametrize("sizes", [MEASURED, Sizes(listed_keys=1, keys_per_bucket=1)], ids=["listed", "in buckets"])
def test_times_are_named_to_the_microsecond_beside_other_columns(spark: SparkSession, sizes: Sizes) -> None:
    early, late = datetime(712, 1, 2, 3, 4, 5, 678901, UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    keys = [(early, "a"), (late, "a"), (late, "it's"), (late, None)]
    others = [(early, "b"), (late + timedelta(microseconds=1), "a"), (early, None), (None, "a")]
    kinds = (pa.timestamp("us", "UTC"), pa.string())

    def table(rows: list[tuple[Any, ...]]) -> pa.Table:
        columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        return pa.table(columns, names=("at", "by"))

    keyed_by = Table("keyed", (("at", "TIMESTAMP"), ("by", "STRING")), keys=("at", "by"))
    condition = exactly(table(keys), keyed_by, sizes)
    assert condition is not None
    rows = spark.createDataFrame(table([*keys, *others])).where(condition).toArrow()
    assert sorted(rows.to_pylist(), key=str) == sorted(table(keys).to_pylist(), key=str)
    far = pa.table([pa.array([2**60], kinds[0]), pa.array(["a"])], names=("at", "by"))
    assert exactly(far, keyed_by, sizes) is None, "a time after year 9999 has no text"
    assert nameable(keyed_by, MEASURED, lambda _: None) == MEASURED.named_texts
