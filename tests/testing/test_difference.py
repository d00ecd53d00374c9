"""The difference between expected rows and those of a result, and how people read it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from fk_pipeline.cli.test import as_json, print_case
from fk_pipeline.testing.cases import ExpectedState, WrittenNumber
from fk_pipeline.testing.difference import Difference, ResultRows, ValueType, _pairs, difference_of_rows, is_same
from fk_pipeline.testing.run import CaseResult
from fk_pipeline.testing.stored import _by_arrow, _by_spark_type

TYPES = {"id": ValueType.OTHER, "name": ValueType.OTHER, "price": ValueType.DECIMAL}


def difference(
    expected: list[dict[str, Any]], stored: list[dict[str, Any]], *key: str, some: bool = False
) -> Difference:
    result = ResultRows(tuple({"id": None, "name": None, "price": None, **row} for row in stored), TYPES)
    return difference_of_rows(ExpectedState(tuple(expected), only_some=some), result, key)


@pytest.mark.parametrize(
    ("expected", "stored", "dtype", "same"),
    [
        ("12.5", "12.50", "decimal", True), ("12.51", "12.50", "decimal", False), ("x", "1", "decimal", False),
        ("1234567890123456.7891", "1234567890123456.7892", "decimal", False),
        ("0.3", Decimal("0.30000000000000004"), "floating", True), ("0.31", Decimal("0.3"), "floating", False),
        ("0", Decimal("5.6E-17"), "floating", True), ("0.0", Decimal("1E-11"), "floating", False),
        ("NaN", "NaN", "floating", True), ("-Infinity", "Infinity", "floating", False),
        ("x", Decimal("0.3"), "floating", False),
        ("2026-01-02 03:04", "2026-01-02T03:04:00.000000Z", "time", True),
        ("2026-01-02T04:04+01:00", "2026-01-02T03:04:00.000000Z", "time", True),
        ("2026-01-02", "2026-01-02T00:00:00.000000", "time", True), ("soon", "2026-01-02T00:00:00", "time", False),
        ("2026-01-02", "2026-01-02", "other", True), ("7", "007", "other", False), ("7", 7, "other", True),
        (True, True, "other", True), (True, "true", "other", True), (True, 1, "other", False),
        (None, None, "decimal", True), (None, "", "other", False), ("", None, "other", False),
        (["1", None], [1, None], "other", True), (["1"], [1, 2], "other", False), ("1", [1], "other", False),
        ({"a": "1.0"}, {"a": Decimal("1.00")}, "other", True), ({"a": "1"}, {"a": 1, "b": None}, "other", False),
        (["1"], "['1']", "other", False), ("sNaN", "12.50", "decimal", False), ("sNaN", 1, "other", False),
    ],
)  # fmt: skip
def test_values_compare_by_the_type_of_the_column(expected: Any, stored: Any, dtype: str, same: bool) -> None:
    assert is_same(expected, stored, ValueType(dtype)) is same


@pytest.mark.parametrize(
    ("dtype", "expected", "stored", "other"),
    [
        (pa.list_(pa.float64()), ["0.30000000000000004", None, "NaN"], [Decimal("0.3"), None, "NaN"],
         ["0.4", None, "NaN"]),
        (pa.map_(pa.string(), pa.float32()), {"a": "1"}, {"a": Decimal("1.0")}, {"a": "2"}),
        (pa.struct({"at": pa.timestamp("us", "UTC")}), {"at": "2026-01-02 03:04"}, {"at": "2026-01-02T03:04:00Z"},
         {"at": "2026-01-02 03:05"}),
        (pa.list_(pa.struct({"n": pa.decimal128(9, 2)})), [{"n": "12.5"}], [{"n": Decimal("12.50")}], [{"n": "12.6"}]),
    ],
)  # fmt: skip
def test_values_in_others_compare_as_those_of_columns(dtype: Any, expected: Any, stored: Any, other: Any) -> None:
    of_column = _by_arrow(dtype)
    assert of_column == _by_spark_type(from_arrow_type(dtype))
    assert is_same(expected, stored, of_column)
    assert not is_same(other, stored, of_column)


def test_only_the_columns_that_are_written_are_compared() -> None:
    made = difference([{"id": "1"}, {"name": "b"}], [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    assert not made
    assert made.equal == 2


def test_rows_are_paired_so_that_as_many_as_possible_are_equal() -> None:
    stored = [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]
    assert not difference([{"id": "1"}, {"name": "a"}], stored)
    assert not difference([{"name": "a"}, {"id": "1"}], stored)


def test_many_rows_are_paired_though_each_takes_the_place_of_another() -> None:
    many = 1500
    chain = [[column in (row, row - 1) for column in range(many)] for row in range(1, many)]
    assert len(_pairs([*chain, [column == 0 for column in range(many)]])) == many


def test_equal_rows_count_as_often_as_they_are_there() -> None:
    made = difference([{"id": "1"}, {"id": "1"}], [{"id": 1}, {"id": 1}, {"id": 1}])
    assert (made.equal, len(made.unexpected), made.missing) == (2, 1, ())


def test_some_rows_leave_others_out() -> None:
    assert not difference([{"id": "1"}], [{"id": 1}, {"id": 2}], some=True)
    assert difference([{"id": "3"}], [{"id": 1}, {"id": 2}], "id", some=True).missing == ({"id": "3"},)


def test_a_row_with_the_key_of_another_is_a_changed_one() -> None:
    expected = [{"id": "1", "name": "a", "price": "1"}, {"id": "2", "name": "b"}]
    made = difference(expected, [{"id": 1, "name": "x", "price": "2.00"}, {"id": 3, "name": "b"}], "id")
    [changed] = made.changed
    assert changed.columns == ("name", "price")
    assert made.missing == ({"id": "2", "name": "b"},)
    assert [row["id"] for row in made.unexpected] == [3]


def test_without_the_key_the_nearest_row_is_the_changed_one() -> None:
    stored = [{"name": "y", "price": "2.00"}, {"name": "a", "price": "9.00"}]
    made = difference([{"name": "a", "price": "1"}], stored, "id")
    assert [changed.columns for changed in made.changed] == [("price",)]
    assert difference([{"name": "c", "price": "1"}], stored, "id").changed == ()


def test_nothing_is_compared_if_no_rows_are_expected() -> None:
    assert not difference_of_rows(ExpectedState(None, quarantined=1), ResultRows(({"id": 1},), TYPES), ("id",))


EXPECTED = [
    {"id": WrittenNumber("1"), "name": "a"},
    {"id": WrittenNumber("2"), "name": "b"},
    {"id": WrittenNumber("5"), "name": "e"},
]
STORED = [{"id": 1, "name": None}, {"id": 3, "name": "c"}, {"id": 5, "name": "e"}]


def test_people_read_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_case(CaseResult("rows", 1.25, "step 2", difference(EXPECTED, STORED, "id")))
    assert capsys.readouterr().out.splitlines() == [
        "FAILED    1.2 s  rows",
        "step 2",
        "           | id | name | differs in",
        "missing    | 2  | b    |",
        "unexpected | 3  | c    |",
        "expected   | 1  | a    |",
        "stored     | 1  | NULL | name",
        "1 missing, 1 unexpected, 1 with other values; 1 as expected",
    ]


def test_people_read_what_else_is_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"side": "left", "batch": 1, "reason": "key column id is null", "raw": "{}"}
    print_case(CaseResult("records", 0, difference=Difference(quarantined=(record,), quarantined_expected=0)))
    print_case(CaseResult("proof", 0, difference=Difference(unproved={"rows": 3, "missing": 0, "stale": 1})))
    print_case(CaseResult("error", 0, error="StageError: it failed\n  Fix: run again"))
    out = capsys.readouterr().out
    assert "1 in the quarantine, expected 0\ninput | batch | reason\nleft  | 1     | key column id is null" in out
    assert "verify: the result is not that of the inputs: 3 rows, 1 stale" in out
    assert "FAILED    0.0 s  error\nStageError: it failed\n  Fix: run again" in out


def test_machines_read_numbers() -> None:
    made = as_json(CaseResult("rows", 1.25, "step 2", difference(EXPECTED, STORED, "id")))
    assert (made["passed"], made["where"]) == (False, "step 2")
    assert made["difference"]["missing"] == [{"id": 2, "name": "b"}]
    [changed] = made["difference"]["changed"]
    assert changed["expected"] == {"id": 1, "name": "a"}
    assert changed["columns"] == ("name",)
    assert as_json(CaseResult("right", 1.0, "step 2")) == {"name": "right", "passed": True, "seconds": 1.0}
