"""What each format makes of a line: events in every shape, what is ignored, and why a record goes to the quarantine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.cdc.reader import format_of
from fk_pipeline.spec import SideSpec

pytestmark = pytest.mark.spark

SCHEMA = (
    "id BIGINT, name STRING, size INT, price DECIMAL(10,2), born DATE, seen TIMESTAMP, raw BINARY, weight DOUBLE, "
    "tags ARRAY<STRING>, ok BOOLEAN"
)


def side(**changes: Any) -> SideSpec:
    return SideSpec.model_validate({"path": "x", "format": "debezium", "schema": SCHEMA, "key": "id"} | changes)


def parsed(spark: SparkSession, lines: list[Any], spec: SideSpec) -> list[dict[str, Any]]:
    """One dict per line: kind, reason, op, deleted, sequence, row."""
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    frame = spark.createDataFrame(
        [(text, 7, "f", 0, 0, number) for number, text in enumerate(texts)],
        "value STRING, batch INT, file STRING, file_number INT, block INT, position INT",
    )
    rows = format_of(spec).parse(frame, spec).orderBy("position").collect()
    assert len(rows) == len(lines), "one row per line"
    return [row.asDict(recursive=True) for row in rows]


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
    "bare envelope": lambda e: e,
    "bare envelope with schema": wrapped,
}


def test_every_shape_gives_the_same_events(spark: SparkSession) -> None:
    events = {
        "c": envelope("c", after=ROW, sequence=PAIR, lsn=200),
        "u": envelope("u", before={"id": 1}, after=ROW, sequence=PAIR, lsn=200),
        "r": envelope("r", after=ROW, sequence='[null,"150"]', lsn=150, snapshot="true"),
        "d": envelope("d", before=ROW, sequence=PAIR, lsn=200),
    }
    for name, shape in SHAPES.items():
        found = parsed(spark, [shape(e) for e in events.values()], side())
        for op, row in zip(events, found, strict=True):
            assert (row["kind"], row["op"], row["deleted"]) == ("event", op, op == "d"), name
            assert row["row"]["id"] == 1
            assert row["row"]["name"] == "a"
            commit = 0 if op == "r" else 100
            assert row["sequence"] == {"commit": commit, "position": 150 if op == "r" else 200}


def test_the_key_comes_from_the_key_not_from_the_row(spark: SparkSession) -> None:
    """With replica identity DEFAULT the row before a delete has nulls beside the key."""
    lines = [
        exported({"id": 5}, envelope("d", before={"id": None, "name": None})),
        exported({"id": 6}, envelope("u", after={"name": "b"})),
        exported(None, envelope("c", after=ROW)),
    ]
    assert [r["row"]["id"] for r in parsed(spark, lines, side())] == [5, 6, 1]


def test_a_key_column_called_payload_is_no_wrapper(spark: SparkSession) -> None:
    spec = side(schema="payload STRING, schema STRING", key=["payload"])
    found = parsed(spark, [exported({"payload": "x"}, envelope("c", after={"payload": "x", "schema": "y"}))], spec)
    assert found[0]["row"] == {"payload": "x", "schema": "y"}


def test_types_are_read_as_debezium_writes_them(spark: SparkSession) -> None:
    full = {
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
    row = parsed(spark, [envelope("c", after=full)], side())[0]
    assert row["kind"] == "event", row["reason"]
    found = row["row"]
    assert found["id"] == 9223372036854775807
    assert found["name"] == full["name"]
    assert str(found["price"]) == "12345678.90"
    assert str(found["born"]) == "2022-01-08"
    assert found["seen"].microsecond == 1
    assert found["raw"] == b"\x00\x01\x02"
    assert found["weight"] != found["weight"]
    assert found["tags"] == ["a", None]
    assert found["ok"] is True


def test_missing_and_null_columns_are_null(spark: SparkSession) -> None:
    found = parsed(spark, [envelope("c", after={"id": 1}), envelope("c", after={"id": 1, "name": None})], side())
    assert [r["row"]["name"] for r in found] == [None, None]
    assert [r["kind"] for r in found] == ["event", "event"]


def test_without_a_sequence_the_position_counts_and_without_either_the_place(spark: SparkSession) -> None:
    found = parsed(spark, [envelope("c", after=ROW, lsn=77), envelope("c", after=ROW)], side())
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
BAD = [
    ('{"before": null, "aft', "not a JSON object that fits a change event"),
    ("[1, 2]", "not a JSON object that fits a change event"),
    ("not json", "not a JSON object that fits a change event"),
    ({"id": 1, "name": "a"}, "not a Debezium change event: it has no op"),
    (envelope("x", after=ROW), "unknown op x"),
    (envelope("c"), "op c without a row in after"),
    (envelope("c", after={"name": "a"}), "key column id is null"),
    (envelope("d", before=None), "key column id is null"),
    (envelope("c", after={"id": "x"}), "column id: x is not BIGINT"),
    (envelope("c", after={"id": 1, "size": 3000000000}), "column size: 3000000000 is not INT"),
    (envelope("c", after={"id": 1, "seen": 1795206615029}), "column seen: 1795206615029 is not TIMESTAMP"),
    (envelope("c", after={"id": 1, "ok": "maybe"}), "column ok: maybe is not BOOLEAN"),
    (envelope("c", after={"id": 1, "raw": "%%"}), "column raw: %% is not BINARY"),
    (envelope("c", after={"id": 1, "price": "abc"}), "column price: abc is not DECIMAL(10, 2)"),
    (envelope("u", after={"id": 1, "name": "__debezium_unavailable_value"}), "the source did not send column name"),
]


def test_what_is_no_change_is_ignored_with_a_reason(spark: SparkSession) -> None:
    found = parsed(spark, [line for line, _ in IGNORED], side())
    assert [(r["kind"], r["reason"]) for r in found] == [("ignored", reason) for _, reason in IGNORED]


def test_what_cannot_be_applied_is_bad_with_a_reason(spark: SparkSession) -> None:
    found = parsed(spark, [line for line, _ in BAD], side())
    assert [(r["kind"], r["reason"]) for r in found] == [("bad", reason) for _, reason in BAD]


def test_a_truncate_is_told_apart(spark: SparkSession) -> None:
    assert parsed(spark, [exported(None, envelope("t"))], side())[0]["kind"] == "truncate"


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
