"""What each format makes of a line: events in every shape, what is ignored, and why a record goes to the quarantine."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fk_pipeline.cdc.debezium import UNAVAILABLE
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.errors import LandingError, UnreadableFileError
from fk_pipeline.spec import SideSpec

pytestmark = pytest.mark.spark

SCHEMA = (
    "id BIGINT, name STRING, size INT, price DECIMAL(10,2), born DATE, seen TIMESTAMP, raw BINARY, weight DOUBLE, "
    "tags ARRAY<STRING>, ok BOOLEAN"
)


Records = list[dict[str, Any]]
Test = Callable[..., None]


def side(**changes: Any) -> SideSpec:
    return SideSpec.model_validate({"path": "x", "format": "debezium", "schema": SCHEMA, "key": "id"} | changes)


def parsed(spark: SparkSession, lines: list[Any], spec: SideSpec) -> list[dict[str, Any]]:
    """One dict per line: kind, reason, op, deleted, sequence, row."""
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    lines_of = pa.table({"value": texts, "position": range(len(texts))})
    place = {"batch": F.lit(7), "file": F.lit("f"), "file_number": F.lit(0), "block": F.lit(0)}
    frame = spark.createDataFrame(lines_of, "value STRING, position INT").withColumns(place)
    rows = format_of(spec).parse(frame, spec).orderBy("position").collect()
    assert len(rows) == len(lines), "one row per line"
    return [row.asDict(recursive=True) for row in rows]


LINES: dict[str, list[Any]] = {}
"""Per test that looks at records of the usual side, its lines."""


def lines_of(lines: list[Any]) -> Callable[[Test], Test]:
    """Says which lines a test is about; it gets their records as `found`."""

    def add(test: Test) -> Test:
        LINES[test.__name__] = lines
        return test

    return add


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> dict[str, Records]:
    """Returns the records of each test in LINES: one job parses all, because it takes a second whatever the lines."""
    every = iter(parsed(spark, [line for lines in LINES.values() for line in lines], side()))
    return {name: [next(every) for _ in lines] for name, lines in LINES.items()}


@pytest.fixture
def found(records: dict[str, Records], request: pytest.FixtureRequest) -> Records:
    return records[request.node.name]


def envelope(op: str, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}


def wrapped(payload: Any) -> dict[str, Any]:
    return {"schema": {"type": "struct", "fields": []}, "payload": payload}


def exported(key: Any, value: Any) -> dict[str, Any]:
    return {"topic": "t", "key": key, "value": value, "headers": {}}


ROW = {"id": 1, "name": "a", "size": 3}
PAIR = '["100","200"]'
SHAPES = {
    "exported record": lambda e: exported({"id": 1}, e),
    "exported record with schema": lambda e: exported(wrapped({"id": 1}), wrapped(e)),
    "bare value": lambda e: e,
    "bare value with schema": wrapped,
}


EVENTS = {
    "c": envelope("c", after=ROW, sequence=PAIR, lsn=200),
    "u": envelope("u", before={"id": 1}, after=ROW, sequence=PAIR, lsn=200),
    "r": envelope("r", after=ROW, sequence='[null,"150"]', lsn=150, snapshot="true"),
    "d": envelope("d", before=ROW, sequence=PAIR, lsn=200),
}


@lines_of([shape(event) for shape in SHAPES.values() for event in EVENTS.values()])
def test_every_shape_gives_the_same_events(found: Records) -> None:
    for number, name in enumerate(SHAPES):
        for op, row in zip(EVENTS, found[number * len(EVENTS) :], strict=False):
            assert (row["kind"], row["op"], row["deleted"]) == ("event", op, op == "d"), name
            assert row["row"]["id"] == 1
            assert row["row"]["name"] == "a"
            commit = 0 if op == "r" else 100
            assert row["sequence"] == {"commit": commit, "position": 150 if op == "r" else 200}
            assert row["fields"] == (None if op == "d" else ["id", "name", "size"]), name


META = {"__source_lsn": 200, "__source_snapshot": None}
FLATTENED: list[dict[str, Any]] = [
    {**ROW, "__deleted": "false", "__op": "c", **META, "note": None},
    {**ROW, "__deleted": "false", "__op": "r", "__source_lsn": 150},
    {**ROW, "__deleted": "true", "__op": "d", **META},
    {**ROW, "__deleted": "true"},
    {**ROW, "__op": "u", "__source_sequence": PAIR, "__source_lsn": 7},
]


@lines_of([shape(row) for shape in SHAPES.values() for row in FLATTENED])
def test_flattened_rows_in_every_shape(found: Records) -> None:
    wanted = [("c", False, (1, 200)), ("r", False, (0, 150)), ("d", True, (1, 200)), ("d", True, (0, 0))]
    wanted.append(("u", False, (100, 200)))
    for number, name in enumerate(SHAPES):
        made = found[number * len(FLATTENED) :][: len(FLATTENED)]
        told = [(r["op"], r["deleted"], tuple(r["sequence"].values())) for r in made]
        assert told == wanted, name
        assert {r["kind"] for r in made} == {"event"}
        assert all(r["row"]["id"] == 1 and r["row"]["size"] == 3 for r in made)
        assert [r["fields"] for r in made] == [[*ROW, "note"], [*ROW], None, None, [*ROW]]


@pytest.mark.slow
def test_lines_of_other_tables_are_ignored_where_the_table_is_named(spark: SparkSession) -> None:
    sources = [{"schema": "public", "table": "flights"}, {"db": "d", "table": "planes"}, {}]
    lines: list[Any] = [envelope("c", after=ROW, **source) for source in sources]
    lines += [{**ROW, "__op": "c", **{f"__source_{k}": v for k, v in source.items()}} for source in sources]
    lines += [{"type": "insert", "database": "d", "table": table, "data": ROW} for table in ("flights", "planes", None)]
    ours, other = ("event", None), ("ignored", "another table")
    for table, wanted in [("flights", [ours, other, ours]), ("d.planes", [other, ours, ours]), (None, [ours] * 3)]:
        debezium = parsed(spark, lines[:6], side(table=table))
        assert [(r["kind"], r["reason"]) for r in debezium] == wanted * 2, table
        maxwell = parsed(spark, lines[6:], side(table=table, format="maxwell"))
        assert [(r["kind"], r["reason"]) for r in maxwell] == wanted, table


@pytest.mark.slow
def test_columns_of_a_flattened_row_may_be_called_like_parts_of_an_envelope(spark: SparkSession) -> None:
    names = ("status", "op", "before", "after", "source", "payload", "value", "key", "topic", "schema")
    spec = side(schema=", ".join(f"`{name}` STRING" for name in (*names, "id")))
    row = {"id": "1", **{name: f"my {name}" for name in names}, "__op": "u", "__source_lsn": 5}
    shapes = [shape for name, shape in SHAPES.items() if name != "bare value"]
    for found in parsed(spark, [shape(row) for shape in shapes], spec):
        assert found["kind"] == "event", found["reason"]
        assert {name: found["row"][name] for name in names} == {name: row[name] for name in names}


@lines_of(
    [
        envelope("u", after={"id": 1, "name": UNAVAILABLE, "size": 3}),
        envelope("u", after={"id": 1, "name": "a", "raw": base64.b64encode(UNAVAILABLE.encode()).decode()}),
        {"id": 1, "name": "a", "tags": [UNAVAILABLE], "price": UNAVAILABLE, "__op": "u"},
        envelope("u", after={"id": 1, "name": {UNAVAILABLE: UNAVAILABLE}, "tags": list(UNAVAILABLE.encode())}),
        envelope("d", before={"id": 1, "name": UNAVAILABLE}),
        {**exported({"id": 2}, envelope("c", after={"id": 2})), "headers": {"__debezium.oldkey": {"id": 1}}},
        {**exported({"id": 2}, envelope("c", after={"id": 2})), "headers": {"__debezium.oldkey": wrapped({"id": 1})}},
        {**exported({"id": 2}, envelope("c", after={"id": 2})), "headers": [{"key": "a", "value": "b"}]},
    ]
)
def test_values_that_were_not_sent_are_holes_and_an_old_key_is_told(found: Records) -> None:
    assert [r["reason"] for r in found] == [None] * 8
    assert [r["holes"] for r in found] == [
        ["name"],
        ["raw"],
        ["price", "tags"],
        ["name", "tags"],
        None,
        None,
        None,
        None,
    ]
    assert [r["row"]["name"] for r in found[:3]] == [None, "a", "a"]
    assert [r["old_key"] for r in found] == [None] * 5 + [{"id": 1}] * 2 + [None]


@lines_of(
    [
        exported({"id": 5}, envelope("d", before={"id": None, "name": None})),
        exported({"id": 6}, envelope("u", after={"name": "b"})),
        exported(None, envelope("c", after=ROW)),
    ]
)
def test_the_key_comes_from_the_key_not_from_the_row(found: Records) -> None:
    """With replica identity DEFAULT the row before a delete has nulls beside the key."""
    assert [r["row"]["id"] for r in found] == [5, 6, 1]


def test_a_key_column_called_payload_is_no_wrapper(spark: SparkSession) -> None:
    spec = side(schema="payload STRING, schema STRING", key=["payload"])
    found = parsed(spark, [exported({"payload": "x"}, envelope("c", after={"payload": "x", "schema": "y"}))], spec)
    assert found[0]["row"] == {"payload": "x", "schema": "y"}


FULL = {
    "id": 9223372036854775807,
    "name": 'line\u2028break\u0085 "quoted" \\N',
    "size": -1,
    "price": "12345678.90",
    "born": 19000,
    "seen": "2013-01-01T10:00:00.000001Z",
    "raw": "AAEC",
    "weight": "NaN",
    "tags": ["a", None],
    "ok": True,
}


@lines_of([envelope("c", after=FULL)])
def test_types_are_read_as_debezium_writes_them(found: Records) -> None:
    [row] = found
    assert row["kind"] == "event", row["reason"]
    values = row["row"]
    assert values["id"] == 9223372036854775807
    assert values["name"] == FULL["name"]
    assert str(values["price"]) == "12345678.90"
    assert str(values["born"]) == "2022-01-08"
    assert values["seen"].microsecond == 1
    assert values["raw"] == b"\x00\x01\x02"
    assert values["weight"] != values["weight"]
    assert values["tags"] == ["a", None]
    assert values["ok"] is True


@lines_of([envelope("c", after={"id": 1}), envelope("c", after={"id": 1, "name": None})])
def test_missing_and_null_columns_are_null(found: Records) -> None:
    assert [r["row"]["name"] for r in found] == [None, None]
    assert [r["kind"] for r in found] == ["event", "event"]


@lines_of([envelope("c", after=ROW, lsn=77), envelope("c", after=ROW)])
def test_without_a_sequence_the_position_counts_and_without_either_the_place(found: Records) -> None:
    assert [r["sequence"] for r in found] == [{"commit": 0, "position": 77}, {"commit": 0, "position": 0}]


IGNORED = [
    ("", "empty line"),
    ("null", "empty line"),
    (exported({"id": 1}, None), "tombstone line"),
    (exported(None, None), "tombstone line"),
    (exported({"prefix": "x"}, {"op": "m", "message": {"prefix": "x"}}), "logical message"),
    (exported({"id": "1"}, {"status": "BEGIN", "id": "1:2"}), "transaction record"),
    ({"status": "END", "id": "1:2", "event_count": 3}, "transaction record"),
]
UNTOLD = ": a number is one only if logical_types says what it counts"
BAD = [
    ('{"before": null, "aft', "not a JSON object"),
    ("[1, 2]", "not a JSON object"),
    ("not json", "not a JSON object"),
    ({"id": 1, "name": "a"}, "not a Debezium change event: it has no op"),
    (envelope("x", after=ROW), "unknown op x"),
    (envelope("c"), "op c without a row in after"),
    (envelope("c", after={"name": "a"}), "key column id is null"),
    (envelope("d", before=None), "key column id is null"),
    (envelope("c", after={"id": "x"}), "column id: x is not BIGINT"),
    (envelope("c", after={"id": 1, "size": 3000000000}), "column size: 3000000000 is not INT"),
    (envelope("c", after={"id": 1, "seen": 1795206615029}), f"column seen: 1795206615029 is not TIMESTAMP{UNTOLD}"),
    (envelope("c", after={"id": 1, "ok": "maybe"}), "column ok: maybe is not BOOLEAN"),
    (envelope("c", after={"id": 1, "raw": "%%"}), "column raw: %% is not BINARY"),
    (envelope("c", after={"id": 1, "price": "abc"}), "column price: abc is not DECIMAL(10, 2)"),
    ({"id": None, "__op": "u"}, "key column id is null"),
    ({"id": 1, "size": "x", "__op": "u"}, "column size: x is not INT"),
    ({"id": 1, "__op": "x"}, "unknown op x"),
]


@lines_of([line for line, _ in IGNORED])
def test_what_is_no_change_is_ignored_with_a_reason(found: Records) -> None:
    assert [(r["kind"], r["reason"]) for r in found] == [("ignored", reason) for _, reason in IGNORED]


@lines_of([line for line, _ in BAD])
def test_what_cannot_be_applied_is_bad_with_a_reason(found: Records) -> None:
    assert [(r["kind"], r["reason"]) for r in found] == [("bad", reason) for _, reason in BAD]


def test_the_reason_quotes_nothing_that_may_be_a_sensitive_value(spark: SparkSession) -> None:
    lines = [envelope("x", after=ROW), envelope("c", after={"id": "x"}), envelope("c", after={"id": 1, "size": "x"})]
    assert [r["reason"] for r in parsed(spark, lines, side(sensitive=["id"]))] == [
        "unknown op",
        "column id: a sensitive value is not BIGINT",
        "column size: x is not INT",
    ]
    plain = side(format="rows", op_column="op", sensitive="name")
    assert parsed(spark, [{"op": "?", "id": 1}], plain)[0]["reason"] == "unknown operation"


@lines_of([exported(None, envelope("t"))])
def test_a_truncate_is_told_apart(found: Records) -> None:
    assert [r["kind"] for r in found] == ["truncate"]


def test_plain_rows_with_and_without_an_operation(spark: SparkSession) -> None:
    spec = side(format="rows", op_column="op")
    lines = [
        {"op": "insert", "id": 1, "name": "a"},
        {"op": "DELETE", "id": 1},
        {"op": "?", "id": 1},
        {"id": 1},
        {"op": "u", "name": "a"},
        "",
        "{",
    ]
    found = parsed(spark, lines, spec)
    assert [(r["kind"], r["reason"], r["deleted"]) for r in found] == [
        ("event", None, False),
        ("event", None, True),
        ("bad", "unknown operation ?", False),
        ("bad", "no operation in op", None),
        ("bad", "key column id is null", False),
        ("ignored", "empty line", None),
        ("bad", "not a JSON object", None),
    ]
    plain = parsed(spark, [{"id": 1}, {"id": 2, "size": 5.5}], side(format="rows"))
    assert [(r["kind"], r["reason"]) for r in plain] == [("event", None), ("bad", "column size: 5.5 is not INT")]


def from_parquet(spark: SparkSession, folder: Path, sql: str, spec: SideSpec) -> list[dict[str, Any]]:
    """The rows of a Parquet file that a query makes, as `parsed` gives lines."""
    spark.sql(sql).coalesce(1).write.mode("overwrite").parquet(str(folder))
    lines = format_of(spec).read(spark, [str(file) for file in folder.glob("*.parquet")], spec)
    lines = lines.selectExpr("value", "7 AS batch", "path AS file", "0 AS file_number", "block", "position")
    return [row.asDict(recursive=True) for row in format_of(spec).parse(lines, spec).orderBy("position").collect()]


def test_rows_of_a_parquet_file(spark: SparkSession, tmp_path: Path) -> None:
    spec = side(
        format="parquet", op_column="op", schema="id BIGINT, name STRING, size INT, born DATE, price DECIMAL(4,1)"
    )
    found = from_parquet(
        spark,
        tmp_path,
        "SELECT * FROM VALUES ('insert', 1, 'a', 3L, '2013-01-31', 1.3D, 0), ('D', 1, null, null, null, null, 0), "
        "('?', 1, null, null, null, null, 0), (null, 1, null, null, null, null, 0), ('u', null, 'a', 3L, null, 1, 0), "
        "('u', 2, 'b', 99999999999L, null, 1, 0), ('u', 3, 'c', null, 'no date', 1, 0), "
        "('t', null, null, null, null, null, 0) AS rows(op, ID, name, size, born, price, unused)",
        spec,
    )
    assert [(r["kind"], r["reason"], r["deleted"]) for r in found] == [
        ("event", None, False),
        ("event", None, True),
        ("bad", "unknown operation ?", False),
        ("bad", "no operation in op", None),
        ("bad", "key column id is null", False),
        ("bad", "column size: 99999999999 is not INT", False),
        ("bad", "column born: no date is not DATE", False),
        ("truncate", None, True),
    ]
    row = {"id": 1, "name": "a", "size": 3, "born": date(2013, 1, 31), "price": Decimal("1.3")}
    assert found[0]["row"] == row
    assert found[6]["value"]["born"] == "no date"
    assert found[5]["sequence"] == {"arrival": 7}
    assert [r["position"] for r in found] == [*range(8)]


def test_a_parquet_file_may_lack_columns(spark: SparkSession, tmp_path: Path) -> None:
    spec = side(format="parquet", schema="id BIGINT, name STRING")
    found = from_parquet(spark, tmp_path, "SELECT 1L AS id, 5 AS other", spec)
    assert [(r["kind"], r["row"]) for r in found] == [("event", {"id": 1, "name": None})]
    lost = from_parquet(spark, tmp_path, "SELECT 5 AS other", side(format="parquet", op_column="op"))
    assert [(r["kind"], r["reason"]) for r in lost] == [("bad", "no operation in op")]


def test_values_of_another_type_are_read_as_those_of_json_lines_are(spark: SparkSession, tmp_path: Path) -> None:
    schema, days = "id INT, born DATE, seen TIMESTAMP, pair STRUCT<a: INT, b: INT>", {"born": "epoch_days"}
    spec = side(format="parquet", schema=schema, logical_types=days)
    made = "named_struct('b', 2, 'a', 1, 'more', 0) AS pair"
    sql = f"SELECT 1 AS id, 19000 AS born, TIMESTAMP_NTZ '2024-05-01 10:00:00' AS seen, {made}"
    row = from_parquet(spark, tmp_path, sql, spec)[0]["row"]
    assert (row["born"], row["pair"]) == (date(2022, 1, 8), {"a": 1, "b": 2})
    assert row["seen"].isoformat() == "2024-05-01T10:00:00"
    millis = from_parquet(spark, tmp_path, "SELECT 1 AS id, 1714557600000 AS seen", spec)[0]
    assert (millis["kind"], millis["reason"]) == ("bad", f"column seen: 1714557600000 is not TIMESTAMP{UNTOLD}")
    days = from_parquet(
        spark, tmp_path, "SELECT 1 AS id, 19000 AS born", side(format="parquet", schema="id INT, born DATE")
    )[0]
    assert (days["kind"], days["reason"]) == ("bad", f"column born: 19000 is not DATE{UNTOLD}")


def test_timestamps_in_nanoseconds_are_refused_with_the_cure(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "1.parquet"
    pq.write_table(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))}), file)
    spec = side(format="parquet", schema="id INT, at TIMESTAMP")
    with pytest.raises(LandingError, match="column at has timestamps in nanoseconds"):
        format_of(spec).read(spark, [str(file)], spec)


def test_parquet_files_of_other_types_are_read_together_and_broken_ones_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number, rows in enumerate(["1 AS id, void AS name", "2L AS id, 'b' AS name", "'3' AS id, array(1) AS more"]):
        spark.sql(f"SELECT {rows.replace('void', 'null')}").coalesce(1).write.parquet(str(tmp_path / str(number)))
    spec = side(format="parquet", schema="id INT, name STRING")
    files = sorted(str(file) for file in tmp_path.glob("*/*.parquet"))
    lines = format_of(spec).read(spark, files, spec).selectExpr("*", "7 AS batch")
    rows = format_of(spec).parse(lines, spec).collect()
    assert sorted((*r["row"], r["kind"]) for r in rows) == [(1, None, "event"), (2, "b", "event"), (3, None, "event")]
    broken = tmp_path / "broken.parquet"
    broken.write_text("no parquet")
    with pytest.raises(UnreadableFileError, match="cannot be read as Parquet"):
        format_of(spec).read(spark, [*files, str(broken)], spec)
