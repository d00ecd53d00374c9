"""Rows that this process reads itself are those that Spark reads, and are written letter by letter as Spark does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.arrow_text import csv_rows, json_lines, json_text, time_text
from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.blocks.hashing_in_process import row_digests
from fk_pipeline.conditions_of_sql import parsed
from fk_pipeline.environment import storage
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.export import json_rows, texts, write
from fk_pipeline.spec import quote
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.rows_in_process import InProcessTable, RowRequest
from fk_pipeline.store.settings import file_settings, settings
from fk_pipeline.store.sizes import MEASURED

ROWS = r"""
(1, 1Y, 2S, 3L, 'a', X'00ff', true, 1.5D, FLOAT(0.1), 12.340BD, 0.0000001BD, DATE'2020-01-01',
 TIMESTAMP'2020-01-01 10:00:00.123456', TIMESTAMP_NTZ'2020-01-01 10:00:00',
 NAMED_STRUCT('x', 1, 'y', CAST(NULL AS STRING), 'z', 0.0000001BD, 't', TIMESTAMP'2020-01-01 10:00:00.123456'),
 ARRAY(1, NULL), MAP('k', 1.5D, '"', CAST('NaN' AS DOUBLE))),
(2, -1Y, -2S, -9223372036854775808L, '', X'', false, CAST('NaN' AS DOUBLE), FLOAT('-Infinity'), -0.001BD, 0BD,
 DATE'0001-01-01', TIMESTAMP'0001-01-01 00:00:00', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', NULL, ARRAY(), MAP()),
(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(4, 5Y, 6S, 7L, 'q"\\\n\u0001\u001f\t\u007f,é\u2028', X'80', true, -0.0D, FLOAT(1e10), 99999.999BD, -1.5BD,
 DATE'1582-10-04', TIMESTAMP'1582-10-04 00:00:00', TIMESTAMP_NTZ'1500-01-01 00:00:00.000001',
 NAMED_STRUCT('x', NULL, 'y', 'é"', 'z', 1BD, 't', NULL), ARRAY(3), MAP('a', NULL)),
(5, 6Y, 6S, 7L, 'gone', X'81', true, 0D, FLOAT(1), 1BD, 1BD, DATE'2020-01-02', NULL, NULL, NULL, NULL, NULL),
(6, 7Y, 6S, 7L, 'z_%', X'81', true, 1e7D, FLOAT(1.17549435E-8), 1BD, 12345BD, DATE'+12000-01-01',
 TIMESTAMP'+12000-01-01 00:00:00', TIMESTAMP_NTZ'-0001-01-01 00:00:00', NULL, NULL, NULL),
(7, 8Y, 7S, 8L, 'Z', X'82', false, CAST('Infinity' AS DOUBLE), FLOAT('NaN'), 1.25BD, 1BD, DATE'-0001-03-01',
 TIMESTAMP'1969-12-31 23:59:59.999999', NULL, NULL, NULL, NULL)
"""

NAMES = "id, ti, sm, bi, st, bn, bo, do, fl, de, d2, da, ts, tn, sr, ar, ma"

TABLES: dict[str, dict[str, str]] = {
    "plain": {},
    "marked": {"delta.enableDeletionVectors": "true"},
    "mapped": {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"},
    "parts": {"delta.enableDeletionVectors": "true"},
}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name == "marked" else pytest.mark.slow) for name in TABLES]
)
def stored(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a table with all types, of which a row was deleted."""
    path = str(tmp_path_factory.mktemp("tables") / request.param)
    rows = spark.sql(f"SELECT * FROM VALUES {ROWS} AS t({NAMES})").drop(*(["sr"] if request.param == "mapped" else []))
    with settings(spark, file_settings(MEASURED)):
        writer = rows.coalesce(1).write.format("delta").options(**TABLES[request.param])
        (writer.partitionBy("sm") if request.param == "parts" else writer).save(path)
        spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 5")
        if request.param == "mapped":
            spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN de TO price")
    return path


def here(path: str) -> InProcessTable:
    found = InProcessTable.of(DeltaLogs(), path, MEASURED)
    assert found is not None
    return found


def by_spark(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("delta").load(path)


def test_every_type_is_written_as_spark_writes_it(stored: str, spark: SparkSession, tmp_path: Path) -> None:
    rows, frame = here(stored), by_spark(spark, stored).orderBy("id")
    found = rows.read(RowRequest(frame.columns, order=[("id", False)]))
    shown = [json.loads(line) for line in json_lines(found, hexadecimal=True)]
    assert list(map(repr, shown)) == list(map(repr, json_rows(frame)))
    write(frame, tmp_path / "of_spark.jsonl")
    assert list(json_lines(found)) == (tmp_path / "of_spark.jsonl").read_text().split("\n")[:-1]
    nested = [name for name, kind in frame.dtypes if kind.startswith(("array", "map", "struct"))]
    plain = frame.drop(*nested)
    told = plain.select(*[text.cast("string") for text in texts(plain)]).collect()
    assert list(csv_rows(found.drop_columns(nested))) == [*map(list, told)]


def test_every_type_is_hashed_as_spark_hashes_it(stored: str, spark: SparkSession) -> None:
    frame = by_spark(spark, stored).orderBy("id")
    found = here(stored).read(RowRequest(frame.columns, order=[("id", False)]))
    for names in (frame.columns, ["ts", "id"], ["fl", "do"], ["bn"]):
        fields = [(field.name, field.dataType) for field in frame.schema if field.name in names]
        told = [bytes(row[0]) for row in frame.select(F.expr(row_hash(fields))).collect()]
        assert row_digests(found, names) == told


CONDITIONS = [
    "id = 4", "id <> 4", "4 < id", "id in (1, 4, 9)", "not (id = 4 or id = 1)", "id not in (1)", "id between 2 and 4",
    "ID = 1 AND st = 'a'", "`st` = ''", "st is null", "st is not null and not st = 'a'", "st like 'q%'", "st like '_'",
    "st not like '%a%'", "st > 'a'", "st <= 'a'", "bo", "not bo", "bo = false", "do > 1", "do >= 1.5", "do < 0.5",
    "do = 0", "do <= 0", "do <> 1.5", "not do > 1", "do < 0", "do >= 0", "da > '1900-01-01'", "da = DATE '0001-01-01'",
    "ts >= '1970-01-01'", "ts < TIMESTAMP '1970-01-01 00:00:00'", "ts = '2020-01-01 10:00:00.123456Z'", "ti = -1",
    "tn > '1600-01-01T00:00:00'", "bi >= -922337203685477580", "sm = 6", "bn is null", "id = '4'",
    "ts is null or id = 1",
    "not (st = 'a' and ti is null)", "ti > 1 or st is null", "id = 1 or st = 'gone'",
]  # fmt: skip

LEFT = [
    "upper(st) = 'A'", "id = 1.5", "fl > 1", "st = 1", "st rlike 'a'", "id + 1 = 2", "id = null", "st like 'a\\\\%'",
    "sr.x = 1", "st = 'a' 'b'", "id = 1 = true", "da = '2020-1-1'", "ti = 300", "st ilike 'A'",
    "case when bo then 1 end = 1", "id = bi", "exists (select 1)",
    "tn = TIMESTAMP '2020-01-01 00:00:00'", "\"st\" = 'a'", "nope = 1",
    "id =", "id = '\u0661'", "da = '202\u0661-01-01'",
    "id = 1 -- x", "st = r'a'", "id in (select 1)", "bn = X'80'", "do = 1e3",
    "ti between symmetric 5 and 1", "st like 'a' escape '/'",
]  # fmt: skip


def test_conditions_choose_the_rows_that_spark_chooses(stored: str, spark: SparkSession) -> None:
    table, frame = here(stored), by_spark(spark, stored)
    kinds = {field.name: field.type for field in table.schema}
    told = frame.select("id", F.array(*[F.expr(text) for text in CONDITIONS]).alias("met")).collect()
    for i, text in enumerate(CONDITIONS):
        found = table.read(RowRequest(["id"], [parsed(text, kinds)]))["id"].to_pylist()
        assert sorted(found) == sorted(row["id"] for row in told if row["met"][i]), text


@pytest.mark.parametrize("text", LEFT)
def test_what_spark_may_understand_otherwise_is_left_to_it(text: str) -> None:
    kinds: dict[str, pa.DataType] = {
        "id": pa.int32(), "ti": pa.int8(), "bi": pa.int64(), "st": pa.string(), "bn": pa.binary(), "bo": pa.bool_(),
        "do": pa.float64(), "fl": pa.float32(), "da": pa.date32(), "tn": pa.timestamp("us"), "sr": pa.struct([]),
    }  # fmt: skip
    with pytest.raises(LeftToSpark):
        parsed(text, kinds)


ORDERED = ["ti", "bi", "st", "bn", "bo", "do", "fl", "d2", "da", "ts", "tn"]


@pytest.mark.slow
def test_rows_have_the_order_of_spark(stored: str, spark: SparkSession) -> None:
    table, frame = here(stored), by_spark(spark, stored)
    for column in ORDERED:
        for descends in (False, True):
            order = [F.desc(column) if descends else F.asc(column), F.asc("id")]
            told = [row["id"] for row in frame.select("id", column).orderBy(*order).select("id").collect()]
            wanted = RowRequest(["id"], order=[(column, descends), ("id", False)])
            assert table.read(wanted)["id"].to_pylist() == told, (column, descends)
            assert table.read(RowRequest(["id"], order=wanted.order, limit=2))["id"].to_pylist() == told[:2]


@pytest.fixture(scope="module")
def large(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a table whose files have many row groups, and many rows in deletion vectors."""
    path = str(tmp_path_factory.mktemp("tables") / "large")
    rows = spark.range(40_000).selectExpr("id", "CONCAT('k', id % 1000) AS k", "id % 7 AS b", "STRUCT(id) AS s")
    options = {"delta.enableDeletionVectors": "true", "parquet.block.row.count.limit": "1000"}
    rows.coalesce(2).write.format("delta").options(**options).save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 3 = 1")
    return path


@pytest.mark.parametrize(
    ("text", "meets"),
    [
        ("id = 31337", lambda i: i == 31337),
        ("k = 'k777'", lambda i: i % 1000 == 777),
        ("id > 39000", lambda i: i > 39000),
        ("id BETWEEN 100 AND 150 OR k = 'k5'", lambda i: 100 <= i <= 150 or i % 1000 == 5),
        ("b = 3", lambda i: i % 7 == 3),
    ],
)
def test_rows_in_deletion_vectors_are_left_out_of_every_row_group(
    large: str, text: str, meets: Callable[[int], bool]
) -> None:
    table = here(large)
    where = [parsed(text, {field.name: field.type for field in table.schema})]
    expected = [i for i in range(40_000) if i % 3 != 1 and meets(i)]
    rows = table.read(RowRequest(["id", "k"], where))
    assert sorted(rows["id"].to_pylist()) == expected
    assert [int(k[1:]) for k in rows["k"].to_pylist()] == [i % 1000 for i in rows["id"].to_pylist()]
    few = table.read(RowRequest(["id"], where, limit=3))["id"].to_pylist()
    assert len(few) == min(3, len(expected))
    assert {*few} <= {*expected}
    assert table.read(RowRequest(["id"], where, [("id", True)], 5))["id"].to_pylist() == expected[:-6:-1]


def test_few_rows_are_read_of_a_large_table_and_too_many_are_left_to_spark(large: str) -> None:
    sizes = replace(MEASURED, scanned_in_process=1, found_bytes=10_000)
    table = InProcessTable.of(DeltaLogs(), large, sizes)
    assert table is not None
    assert len(table.read(RowRequest(["id"], limit=100))) == 100
    with pytest.raises(LeftToSpark, match="has 40,000 rows"):
        table.read(RowRequest(["id"]))
    table = InProcessTable.of(DeltaLogs(), large, replace(sizes, scanned_in_process=2**30))
    assert table is not None
    with pytest.raises(LeftToSpark, match="megabytes"):
        table.read(RowRequest(["id"]))


def test_a_file_that_is_not_the_one_of_the_log_and_times_of_96_bits_are_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "old")
    with settings(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        spark.sql("SELECT 1 AS id, TIMESTAMP'0001-01-01 00:00:00' AS ts").write.format("delta").save(path)
    table = here(path)
    assert table.read(RowRequest(["id"])).to_pylist() == [{"id": 1}]
    with pytest.raises(LeftToSpark, match="times"):
        table.read(RowRequest(["ts"]))
    [file] = Path(path).glob("*.parquet")
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(LeftToSpark, match="log"):
        here(path)


def test_floating_point_numbers_are_written_as_java_does_or_left_to_spark(spark: SparkSession) -> None:
    doubles = [10.0**i for i in range(-30, 30)] + [i / 100 for i in range(-500, 500)] + [2.0**i + 1 for i in range(70)]
    doubles += [1e-3, 0.00099999, 9_999_999.5, 123_456_789_012.25, 8.41e21, 5e-324, 7.718730517372719e17]
    rows = pa.table({"d": doubles, "f": pa.array(doubles, pa.float64()).cast(pa.float32(), safe=False)})
    told = spark.createDataFrame(rows).selectExpr("CAST(d AS STRING) AS d", "CAST(f AS STRING) AS f").collect()
    left = 0
    for name in ("d", "f"):
        for i, row in enumerate(told):
            one: Any = rows.select([name]).slice(i, 1)
            try:
                assert next(csv_rows(one)) == [row[name]]
            except LeftToSpark:
                left += 1
                assert not 1e-19 < abs(doubles[i]) < 1e7
    assert 0 < left < len(doubles) // 2


def test_a_text_that_is_not_utf_8_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "bytes")
    spark.sql("SELECT CAST(X'80' AS STRING) AS st, 1 AS id").write.format("delta").save(path)
    table = here(path)
    kinds = {field.name: field.type for field in table.schema}
    assert table.read(RowRequest(["id"])).to_pylist() == [{"id": 1}]
    rows = table.read(RowRequest(["st"], [parsed("id = 1", kinds)]))
    for write_as in (json_lines, csv_rows):
        with pytest.raises(LeftToSpark, match="UTF-8"):
            list(write_as(rows))
    with pytest.raises(LeftToSpark):
        table.read(RowRequest(["id"], [parsed("st LIKE '_'", kinds)]))


def test_texts_have_what_json_needs() -> None:
    assert json_text('"\\\u001f\b\u007fé') == '"\\"\\\\\\u001F\\b\u007fé"'
    assert json_text("\\u001f") == '"\\\\u001f"'
    assert time_text(-1, 3) == "1969-12-31T23:59:59.999"
    assert quote("a`b") == "`a``b`"


def test_a_table_in_s3_is_read_too(s3: str) -> None:
    path = f"{s3}/warehouse/t"
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "at": pa.array(range(100), pa.timestamp("us", "UTC"))})
    write_deltalake(path, rows, storage_options=storage.delta_options(path))
    table = here(path)
    where = [parsed("id > 97 AND at < '1970-01-02'", {field.name: field.type for field in table.schema})]
    assert table.read(RowRequest(["id"], where, [("id", True)])).to_pylist() == [{"id": 99}, {"id": 98}]
    assert len(table.read(RowRequest(["at"], limit=3))) == 3


def test_a_column_that_came_later_is_null_in_older_files(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "wider")
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, st STRING) USING delta")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'A')")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (later STRING FIRST)")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES ('x', 2, 'a')")
    table = here(path)
    kinds = {field.name: field.type for field in table.schema}
    rows = table.read(RowRequest(["later", "id", "st"], order=[("id", False)])).to_pylist()
    assert rows == [{"later": None, "id": 1, "st": "A"}, {"later": "x", "id": 2, "st": "a"}]
    assert table.read(RowRequest(["id"], [parsed("later IS NULL", kinds)])).to_pylist() == [{"id": 1}]
    assert table.read(RowRequest(["later"], [parsed("st > 'A'", kinds)])).to_pylist() == [{"later": "x"}]
