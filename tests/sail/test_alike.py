"""What Sail computes is what Spark computes, or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from fk_pipeline.cdc.json_texts import read_one, reader_of
from fk_pipeline.cdc.sail import spoken
from fk_pipeline.environment.sail import is_sail
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.spec.portable import not_alike

ROOT = Path(__file__).parent.parent.parent
RECORD = T.StructType([T.StructField(name, T.StringType()) for name in ("a", "b", "_corrupt")])


@pytest.mark.slow
@pytest.mark.spark
def test_a_converted_text_has_the_hash_that_spark_gives_it_or_is_not_converted(tmp_path: Path) -> None:
    pytest.importorskip("pysail")
    found: dict[str, dict[str, str | None]] = {}
    for engine in ("classic", "sail"):
        file = tmp_path / engine
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        for name in ("FK_SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):  # the latter is left by a session on Sail
            environment.pop(name, None)
        command = [sys.executable, "-m", "tests.sail.texts", engine, str(file)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300)
        found[engine] = json.loads(file.read_text())
    spark, sail = found["classic"], found["sail"]
    assert sum(value is not None for value in sail.values()) > 250
    assert {name: sail[name] for name in sail if sail[name] not in (None, spark[name])} == {}
    lost = {name for name in sail if sail[name] is None and spark[name] is not None}
    assert len(lost) < 20, "docs/how-to/sail.md names the kinds of text that Sail does not convert"


@pytest.mark.parametrize(
    ("text", "a"),
    [
        ('{"a": 12.50}', "12.50"),
        ('{"a": 1234567890123456789012}', "1234567890123456789012"),
        ('{"a": 1e3, "b": "x"}', "1e3"),
        ('{"a": {"x": 1.0,  "y":[1, "}"]}, "b": null}', '{"x": 1.0,  "y":[1, "}"]}'),
        ('{"b": {"a": 7}, "a": [1.50, "]"]}', '[1.50, "]"]'),
        ('{"a": true}', "true"),
        ('{"a": 1, "a": 2}', "2"),
        ('{"A": 1}', None),
        (' {"a": "\\u00e9\\n"} \r', "é\n"),
    ],
)
def test_a_value_keeps_the_text_that_it_was_written_in(text: str, a: str | None) -> None:
    found = read_one(text, RECORD, corrupt=True)
    assert (found.get("a"), found.get("_corrupt")) == (a, None)


@pytest.mark.parametrize(
    "text", ["", "not", "[1]", '{"a": "x"', '{"a": 1} more', "null", '"x"', '{"a": NaN}', "{'a': 1}"]
)
def test_what_is_no_object_is_corrupt(text: str) -> None:
    assert read_one(text, RECORD, corrupt=True) == {"_corrupt": text}


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ('{"v": 9007199254740993}', T.LongType(), 9007199254740993),
        ('{"v": 2147483648}', T.IntegerType(), None),
        ('{"v": 1.50}', T.DecimalType(10, 2), Decimal("1.50")),
        ('{"v": 1.505}', T.DecimalType(10, 2), None),
        ('{"v": [1, null]}', T.ArrayType(T.IntegerType()), [1, None]),
        ('{"v": {"x": 1}}', T.MapType(T.StringType(), T.LongType()), [("x", 1)]),
        ('{"v": "x"}', T.LongType(), None),
    ],
)
def test_a_typed_value_is_exact_or_none(text: str, kind: T.DataType, value: Any) -> None:
    found = read_one(text, T.StructType([T.StructField("v", kind)]), corrupt=False)
    assert (None if found is None else found["v"]) == value


def test_a_struct_that_is_null_has_no_values() -> None:
    nested = T.StructType([T.StructField("s", T.StructType([T.StructField("x", T.StringType())]))])
    found = reader_of(nested, corrupt=False)(pa.array(['{"s": {"x": "1"}}', '{"s": null}', None]))
    inner = found.field("s")
    assert inner.field("x").to_pylist() == ["1", None, None]
    assert inner.is_valid().to_pylist() == [True, False, False]


@pytest.mark.parametrize(
    "sql", ["a", "`right`.name AS n", "upper(trim(fk))", "coalesce(a, b) || '-'", "if(a IN ('x'), b, c)"]
)
def test_what_is_computed_alike_may_be_used(sql: str) -> None:
    assert not_alike(sql) is None


@pytest.mark.parametrize(
    "sql", ["a + 1", "cast(a AS INT)", "string(1 / id)", "date_add(d, 1)", "upper(a * 2)", "abs(a)"]
)
def test_what_computes_is_refused(sql: str) -> None:
    assert not_alike(sql) is not None


@pytest.mark.spark
def test_an_expression_that_computes_is_refused_before_it_is_read(rows_pipeline: Any, spark: SparkSession) -> None:
    if not is_sail(spark):
        pytest.skip("Spark computes it")
    made = rows_pipeline("left", select="[id, v, 'string(1 / id) AS name']")
    made.land(0, [(0, "a", "v")])
    with pytest.raises(PipelineFileError, match="Sail may compute"):
        made.pipeline.run()


@pytest.mark.spark
def test_sail_is_told_to_read_json_by_our_function(spark: SparkSession) -> None:
    if not is_sail(spark):
        pytest.skip("Spark reads JSON itself")
    sql = spoken(spark, "FROM_JSON(CONCAT('{\"v\": ', v, ')}'), 'STRUCT<v: STRING>').v")
    assert sql.startswith("fk_json_")
    read = spoken(spark, "FROM_JSON(CONCAT('{\"v\": ', v, '}'), 'STRUCT<v: STRING>').v AS r")
    assert spark.sql("SELECT '1.50' AS v").selectExpr(read).collect() == [("1.50",)]
