"""SQL of ours as Sail is told it, and as Spark is: unchanged. Needs no session."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql import types as T

from fk_pipeline.cdc import sail as reading
from fk_pipeline.cdc.columnar import as_lines
from fk_pipeline.cdc.records import typed_row
from fk_pipeline.cdc.sail import Spoken, as_spoken, frame_of, spoken
from fk_pipeline.environment import sail
from fk_pipeline.environment.sail_json import as_json
from fk_pipeline.environment.sail_sql import CALLS, arguments, for_engine, rewritten
from fk_pipeline.protocol.hashing import row_hash
from fk_pipeline.spec import SideSpec

SPARK: Any = SimpleNamespace()
SAIL: Any = SimpleNamespace(session_id="of Sail")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sail, "_sessions", {SAIL.session_id})


class Told:
    """A frame that notes the SQL that it is told."""

    def __init__(self, session: Any, *columns: str) -> None:
        self.sparkSession, self.columns, self.told = session, list(columns), [""]

    def selectExpr(self, *texts: str) -> Told:  # noqa: N802 - as a frame calls it
        self.told += texts
        return self


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("UNHEX(MD5(CONCAT('', a)))", "UNHEX(CAST(MD5(CONCAT('', a)) AS STRING))"),
        ("XXHASH64(CAST(`d` AS DOUBLE))", "XXHASH64(NANVL(CAST(`d` AS DOUBLE), DOUBLE('NaN')))"),
        ("XXHASH64(`n`)", "XXHASH64(`n`)"),
        ("TRY_CAST(b AS BOOLEAN)", "IF(LOWER(TRIM(b)) IN ('on', 'off'), NULL, TRY_CAST(b AS BOOLEAN))"),
        ("TRY_CAST(b AS INT)", "TRY_CAST(b AS INT)"),
        ("MD5(MD5(a))", "CAST(MD5(CAST(MD5(a) AS STRING)) AS STRING)"),
        ("'MD5(' || `MD5(x` || \"MD5(\" || MY_MD5(a)", "'MD5(' || `MD5(x` || \"MD5(\" || MY_MD5(a)"),
        (r"CONCAT('it\'s ) \\', MD5(a))", r"CONCAT('it\'s ) \\', CAST(MD5(a) AS STRING))"),
        ("(a + (b)) IN (1, 2) AND x[0] -> ')'", "(a + (b)) IN (1, 2) AND x[0] -> ')'"),
    ],
)
def test_calls_are_rewritten_and_quoted_text_is_not(sql: str, told: str) -> None:
    assert rewritten(sql, CALLS) == told
    assert for_engine(SAIL, sql) == told
    assert for_engine(SPARK, sql) == sql


def test_the_arguments_of_a_call() -> None:
    assert arguments("CONCAT('a,', b), 'STRUCT<v: INT, w: STRING>', MAP('x', 'y')") == [
        "CONCAT('a,', b)",
        "'STRUCT<v: INT, w: STRING>'",
        "MAP('x', 'y')",
    ]


def test_the_row_hash_of_spark_is_told_as_it_stands() -> None:
    kinds: list[tuple[str, T.DataType]] = [("d", T.DoubleType()), ("n", T.DecimalType(9, 2)), ("s", T.StringType())]
    told = row_hash(kinds, SPARK)
    assert told.startswith("UNHEX(MD5(CONCAT('', IF(`d` IS NULL, '', '1:d'), IF(`d` IS NULL, '', CAST(OCTET_LENGTH(")
    assert "NANVL" not in told
    double, text = "CAST(XXHASH64(CAST(`d` AS DOUBLE)) AS STRING)", "UNHEX(MD5("
    assert (told.count(double), told.count(text)) == (2, 1)
    on_sail = told.replace(double, "CAST(XXHASH64(NANVL(CAST(`d` AS DOUBLE), DOUBLE('NaN'))) AS STRING)")
    on_sail = on_sail.replace(text, "UNHEX(CAST(MD5(").removesuffix("))") + ") AS STRING))"
    assert row_hash(kinds, SAIL) == on_sail


def side() -> SideSpec:
    columns = "id INT, ok BOOLEAN"
    return SideSpec.model_validate({"path": "left", "format": "parquet", "schema": columns, "key": "id"})


def test_a_truth_value_is_told_to_sail_alone() -> None:
    sql = typed_row(side(), {"ok": "v"}, {"id": "i"})
    assert sql == "STRUCT(i AS `id`, TRY_CAST(v AS BOOLEAN) AS `ok`)"
    for session, known_words in ((SPARK, 0), (SAIL, 1)):
        frame = Told(session)
        frame_of(as_spoken(frame).selectExpr(sql))  # type: ignore[arg-type]
        assert frame.told[-1].count("IN ('on', 'off')") == known_words


def test_a_frame_of_spark_stays_what_it_is() -> None:
    frame: Any = Told(SPARK, "a")
    assert as_spoken(frame) is frame
    assert frame_of(frame) is frame


def test_the_place_of_a_row_is_no_column_of_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    frame: Any = Told(SAIL, "id", "ok", *reading.PLACED)
    frame.schema = T.StructType([T.StructField("id", T.IntegerType()), T.StructField("ok", T.BooleanType())])
    SAIL.range = lambda _: SimpleNamespace(selectExpr=lambda *_: SimpleNamespace(schema=frame.schema))
    monkeypatch.setattr("fk_pipeline.cdc.sail.is_sail", lambda _: True)
    assert as_lines(Spoken(frame, reading.PLACED), side(), "_raw", reading.PLACE) is frame  # type: ignore[arg-type]
    assert frame.told[1:5] == ["STRUCT(`id`, `ok`) AS _raw", *reading.PLACE]
    assert "ARRAY('id', 'ok')" in frame.told[-4]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Row(a=1, b=None, c="é\n"), '{"a":1,"b":null,"c":"é\\n"}'),
        ({1: [True, None]}, '{"1":[true,null]}'),
        (Decimal("1E+2"), "100"),
        (Decimal("12.50"), "12.50"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
        (datetime.fromisoformat("2026-01-31T10:00:00"), '"2026-01-31T10:00:00.000000"'),
        (date(2026, 1, 31), '"2026-01-31"'),
        (bytearray(b"\x00"), '"AA=="'),
    ],
)
def test_a_value_as_json(value: object, text: str) -> None:
    assert as_json(value) == text


def test_json_is_read_by_our_function_on_sail(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def function(_: Any, kind: str, corrupt: bool) -> str:
        asked.append((kind, corrupt))
        return "ours"

    monkeypatch.setattr(reading, "_function", function)
    inner = "FROM_JSON(v, 'STRUCT<scale: INT, value: STRING>').value"
    sql = f"FROM_JSON(CONCAT('{{\"v\":', {inner}, '}}'), 'STRUCT<v: STRING>', MAP('x', '_corrupt')).v"
    assert spoken(SAIL, sql) == "ours(CONCAT('{\"v\":', ours(v).value, '}')).v"
    assert asked == [("STRUCT<scale: INT, value: STRING>", False), ("STRUCT<v: STRING>", True)]
