"""The row hash: equal for what SQL calls equal, different for everything else, whatever the type."""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from fk_pipeline.blocks.hashing import row_hash, with_row_hash

pytestmark = pytest.mark.spark

EQUAL = {
    "decimals of other scale": ("DECIMAL(20,6)", ["1.50", "1.5", "1.500000"]),
    "short decimals of other scale": ("DECIMAL(18,6)", ["1.50", "1.5", "1.500000"]),
    "whole decimals": ("DECIMAL(20,6)", ["100", "100.000"]),
    "negative zero": ("DOUBLE", ["-0.0", "0.0"]),
    "every NaN": ("DOUBLE", ["'NaN'", "sqrt(-1)"]),
    "one instant in two zones": ("TIMESTAMP", ["'2026-01-01T00:00:00Z'", "'2026-01-01T01:00:00+01:00'"]),
    "maps in another order": ("MAP<STRING, INT>", ["map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"]),
}
DIFFERENT = {
    "STRING": ["NULL", "''", "'n'", "'NULL'", "'a'", "'A'", "' a'", "'a '", "'\\u00d1'", "'N\\u0303'", "'\\\\N'"],
    "STRUCT<a: STRING, b: STRING>": [
        "NULL", "struct('a', NULL)", "struct(NULL, 'a')", "struct('ab', '')", "struct('a', 'b')", "struct('', 'ab')",
        "struct(NULL, NULL)", "struct('1:', 'x')", "struct('1', ':x')",
    ],
    "ARRAY<STRING>": ["NULL", "array()", "array(NULL)", "array('')", "array('', '')", "array('a')", "array('a', NULL)"],
    "ARRAY<ARRAY<INT>>": ["array(array(1), array(2))", "array(array(1, 2))", "array(array(1), array(2), array())"],
    "MAP<STRING, INT>": ["map()", "map('a', 1)", "map('a', NULL)", "map('b', 1)", "map('a', 1, 'b', 1)"],
    "DOUBLE": ["NULL", "0.0", "'NaN'", "'Infinity'", "'-Infinity'", "1.0", "1.0000000000000002", "4.9E-324"],
    "DECIMAL(20,6)": ["0", "10", "100", "1", "0.1", "0.01", "-0.1", "NULL"],
    "DECIMAL(18,6)": ["0", "10", "100", "1", "0.1", "0.01", "-0.1", "-1", "999999999999.999999", "NULL"],
    "BINARY": ["NULL", "X''", "X'00'", "X'0000'", "X'30'"],
    "BOOLEAN": ["NULL", "true", "false"],
    "DATE": ["NULL", "'1970-01-01'", "'1970-01-02'", "'0001-01-01'"],
}  # fmt: skip


def hashes(spark: SparkSession, kind: str, values: list[str]) -> list[bytes]:
    rows = " UNION ALL ".join(f"SELECT {i} AS i, CAST({v} AS {kind}) AS c" for i, v in enumerate(values))
    frame = spark.sql(rows)
    found = frame.selectExpr("i", f"{row_hash([('c', frame.schema['c'].dataType)])} AS h").orderBy("i").collect()
    return [bytes(row["h"]) for row in found]


@pytest.mark.parametrize("case", EQUAL)
def test_equal_values_have_equal_hashes(spark: SparkSession, case: str) -> None:
    kind, values = EQUAL[case]
    assert len(set(hashes(spark, kind, values))) == 1


@pytest.mark.parametrize("kind", DIFFERENT)
def test_different_values_have_different_hashes(spark: SparkSession, kind: str) -> None:
    found = hashes(spark, kind, DIFFERENT[kind])
    assert len(set(found)) == len(DIFFERENT[kind])
    assert {len(h) for h in found} == {16}


def test_integers_of_every_width_share_one_hash(spark: SparkSession) -> None:
    widths = [hashes(spark, kind, ["42"])[0] for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")]
    assert len(set(widths)) == 1


def test_the_encoding_is_what_the_documentation_says(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'héllo' AS a, CAST(NULL AS STRING) AS b, 7 AS c")
    kinds: list[tuple[str, Any]] = [(f.name, f.dataType) for f in frame.schema.fields]
    found = frame.selectExpr(f"{row_hash(kinds)} AS h").collect()[0]["h"]
    assert bytes(found) == hashlib.md5("1:a6:héllo1:c1:7".encode()).digest()


def test_the_order_of_columns_and_columns_without_a_value_change_nothing(spark: SparkSession) -> None:
    kinds: list[tuple[str, Any]] = [("a", T.StringType()), ("b", T.LongType()), ("c", T.StringType())]
    frame = spark.sql("SELECT 'x' AS a, 7L AS b, CAST(NULL AS STRING) AS c, 'x' AS b2")
    wanted = {row_hash(kinds), row_hash(kinds[::-1]), row_hash(kinds[:2])}
    assert len(wanted) == 2
    found = frame.selectExpr(*[f"{sql} AS h{i}" for i, sql in enumerate(wanted)]).collect()[0]
    assert found[0] == found[1]
    other = frame.selectExpr("b2 AS a", "b", "c").union(frame.selectExpr("c AS a", "b", "a AS c"))
    assert len({bytes(row["h"]) for row in other.selectExpr(f"{row_hash(kinds)} AS h").collect()}) == 2


ROW = pa.schema(
    [
        ("a", pa.string()),
        ("b", pa.string()),
        ("c", pa.int64()),
        ("d", pa.decimal128(20, 6)),
        ("e", pa.binary()),
        ("f", pa.list_(pa.string())),
        ("g", pa.struct([("x", pa.string()), ("y", pa.int32())])),
        ("h", pa.float64()),
    ]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3) | st.sampled_from(["n", "1:", "0", "é", "e\u0301"])
ROWS = st.fixed_dictionaries(
    {
        "a": st.none() | TEXT,
        "b": st.none() | TEXT,
        "c": st.none() | st.integers(-2, 2),
        "d": st.none() | st.decimals(-2, 200, places=2),
        "e": st.none() | st.binary(max_size=2),
        "f": st.none() | st.lists(st.none() | TEXT, max_size=2),
        "g": st.none() | st.fixed_dictionaries({"x": st.none() | TEXT, "y": st.none() | st.integers(0, 1)}),
        "h": st.none() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, 1.5]),
    }
)


def encoded(value: Any) -> str:
    """The canonical encoding as its documentation says it, without floating-point numbers."""
    if value is None:
        return "n"
    if isinstance(value, Decimal):
        text = f"{value:f}".rstrip("0").rstrip(".") if "." in f"{value:f}" else f"{value:f}"
        value = "0" if text == "-0" else text
    elif isinstance(value, bytes):
        value = value.hex().upper()
    elif isinstance(value, list):
        value = "".join(map(encoded, value))
    elif isinstance(value, dict):
        value = encoded(value["x"]) + encoded(value["y"])
    return f"{len(str(value).encode())}:{value}"


def parts(row: dict[str, Any]) -> list[Any]:
    """The values of a row in the order of its columns, without the floating-point number."""
    return [row[name] for name in ROW.names if name != "h"]


def test_any_rows_have_the_documented_hash_and_equal_ones_only_if_they_are_equal(spark: SparkSession) -> None:
    @hypothesis_settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(ROWS, min_size=20, max_size=80))
    def check(rows: list[dict[str, Any]]) -> None:
        frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=ROW))
        kinds = [(f.name, f.dataType) for f in frame.schema.fields]
        found = frame.selectExpr(f"{row_hash(kinds)} AS h", f"{row_hash(kinds[:-1])} AS g").collect()
        assert len(found) == len(rows)
        for row, hashed in zip(rows, found, strict=True):
            named = [(name, value) for name, value in sorted(row.items()) if name != "h" and value is not None]
            text = "".join(f"1:{name}{encoded(value)}" for name, value in named)
            assert bytes(hashed["g"]) == hashlib.md5(text.encode()).digest()
        contents = {}
        for row, hashed in zip(rows, found, strict=True):
            number = row["h"] if row["h"] != 0 else 0.0
            whole = (*[encoded(value) for value in parts(row)], str(number).lstrip("-"))
            assert contents.setdefault(whole, bytes(hashed["h"])) == bytes(hashed["h"])
        assert len(set(contents.values())) == len(contents)

    check()


def test_a_row_hash_as_a_column_is_the_row_hash(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT * FROM VALUES (1, 'a', 1.50BD, NAMED_STRUCT('x', 1), ARRAY(1, null), MAP('k', 2.0D), X'00', true), "
        "(2, null, 10.00BD, NAMED_STRUCT('x', CAST(null AS INT)), ARRAY(), MAP(), X'', false), "
        "(3, '', null, null, null, null, null, null) AS rows(i, s, d, st, a, m, b, t)"
    )
    kinds = [(field.name, field.dataType) for field in frame.schema.fields]
    both = with_row_hash(frame, "h", frame.columns, "i = 9").selectExpr("h", f"{row_hash(kinds)} AS wanted").collect()
    assert len({bytes(row["h"]) for row in both}) == 3
    assert [row["h"] for row in both] == [row["wanted"] for row in both]
    assert with_row_hash(frame, "h", frame.columns, "i > 0").where("h IS NOT NULL").isEmpty()
