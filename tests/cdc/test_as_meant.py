"""Rules that all formats share: what names, dates, numbers and old images mean (`docs/reference/formats.md`)."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from fk_pipeline.cdc.parquet_columns import _with_texts, columns_of
from fk_pipeline.errors import LandingError
from tests.cdc.test_row_formats import read, spec_of, write

pytestmark = pytest.mark.spark

Rows = list[dict[str, str | None]]


def _lines(shape: Callable[[dict[str, Any]], Any]) -> Callable[[Path, Rows], Path]:
    def landed(folder: Path, rows: Rows) -> Path:
        return write(folder, "1.jsonl", "".join(json.dumps(shape(row)) + "\n" for row in rows))

    return landed


def _csv(folder: Path, rows: Rows) -> Path:
    text = io.StringIO()
    csv.writer(text).writerows([[*rows[0]], *(row.values() for row in rows)])
    return write(folder, "LOAD1.csv", text.getvalue())


def _parquet(folder: Path, rows: Rows) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), folder / "LOAD1.parquet")
    return folder / "LOAD1.parquet"


FORMATS: dict[str, tuple[dict[str, Any], Callable[[Path, Rows], Path]]] = {
    "rows": ({"format": "rows"}, _lines(lambda row: row)),
    "csv": ({"format": "csv"}, _csv),
    "dms": ({"format": "dms", "csv": {"header": True}}, _csv),
    "dms, parquet": ({"format": "dms"}, _parquet),
    "parquet": ({"format": "parquet"}, _parquet),
    "maxwell": ({"format": "maxwell"}, _lines(lambda row: {"type": "insert", "data": row})),
    "envelope": ({"format": "debezium"}, _lines(lambda row: {"payload": {"op": "c", "after": row}})),
    "exported": (
        {"format": "debezium"},
        _lines(lambda row: {"key": {"payload": {"ID": row["ID"]}, "schema": {}}, "value": {"op": "c", "after": row}}),
    ),
    "flattened": ({"format": "debezium"}, _lines(lambda row: {**row, "__op": "c"})),
}
"""Per format, the settings of a side and how rows of texts land as one file."""
SLOW = ("dms", "dms, parquet", "exported", "maxwell", "flattened")
"""Formats that are read as others are: as CSV, as Parquet, as an envelope, and as rows."""
EVERY_FORMAT = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in FORMATS]


@pytest.mark.parametrize("name", EVERY_FORMAT)
def test_names_compare_without_regard_to_case(spark: SparkSession, tmp_path: Path, name: str) -> None:
    changes, landed = FORMATS[name]
    spec = spec_of(schema="id INT, `customerName` STRING, size INT", **changes)
    rows: Rows = [
        {"ID": "1", "CUSTOMERNAME": "a", "Size": "2", "doc": '{"Size": 1}', "x": None},
        {"ID": "2", "CUSTOMERNAME": None, "Size": None, "doc": "d", "x": None},
    ]
    found = read(spark, spec, landed(tmp_path, rows))
    assert [(one["reason"], *one["row"].values()) for one in found] == [(None, 1, "a", 2), (None, 2, None, None)]
    assert {*found[0]["fields"]} == {"id", "customerName", "size", "doc", "x"}


def test_the_declared_name_counts_where_several_are_alike(spark: SparkSession, tmp_path: Path) -> None:
    lines = ['{"ID": 1, "name": "a", "NAME": "b", "Size": 3}', '{"Id": 2, "ID": 3, "NAME": {"Name": "x"}}']
    lines.append('{"ID": 4, "name": null, "NAME": "b"}')
    found = read(spark, spec_of(format="rows"), write(tmp_path, "1.jsonl", "\n".join(lines)))
    assert [[*one["row"].values()] for one in found] == [[1, "a", 3], [2, '{"Name":"x"}', None], [4, None, None]]


HEADERS = ["id, name ,\tsize\n", 'id, "name", "size"\n', '\ufeff"id","name",size\n', "\ufeffid ,name,size\n"]


def test_blanks_around_the_names_of_a_header_do_not_count(spark: SparkSession, tmp_path: Path) -> None:
    files = [write(tmp_path, f"{n}.csv", f'{header}{n},"a, b",2\n') for n, header in enumerate(HEADERS)]
    found = read(spark, spec_of(), *files, readable=tmp_path / "copy")
    assert [(one["reason"], *one["row"].values()) for one in found] == [(None, n, "a, b", 2) for n in range(len(files))]


def test_a_byte_order_mark_before_a_quote_is_no_part_of_the_field(spark: SparkSession, tmp_path: Path) -> None:
    content = '\ufeff"1, x",a,2\n3,"b\nc",4\n'.encode()
    files = [write(tmp_path, "1.csv", content), write(tmp_path, "2.csv.gz", gzip.compress(content))]
    spec = spec_of(schema="name STRING, id STRING, size INT", csv={"header": False})
    found = read(spark, spec, *files, readable=tmp_path / "copy")
    assert [[*one["row"].values()] for one in found] == [["1, x", "a", 2], ["3", "b\nc", 4]] * 2


DAY, NUMBER = date(2024, 5, 1), ": a number is one only if logical_types says what it counts"
NOT_A_DAY = {"20240501": NUMBER, "19000": NUMBER, "2024": NUMBER, "2024-05": "", "05/01/2024": "", "2024-05-01x": ""}


@pytest.mark.parametrize("name", EVERY_FORMAT)
def test_a_number_or_a_part_of_a_date_is_no_date(spark: SparkSession, tmp_path: Path, name: str) -> None:
    changes, landed = FORMATS[name]
    days = changes["format"] == "debezium"
    spec = spec_of(schema="id INT, d DATE, t TIMESTAMP", foreign_key="id", **changes)
    wrong = {day: why for day, why in NOT_A_DAY.items() if not (days and day == "20240501")}  # Python has no year 57386
    rows: Rows = [
        {"ID": "0", "d": "2024-05-01", "t": "2024-05-01"},
        {"ID": "0", "d": "2024-5-1", "t": "2024-05-01 00:00:00Z"},
        *({"ID": "0", "d": day, "t": None} for day in wrong),
        *({"ID": "0", "d": None, "t": day} for day in wrong),
    ]
    found = read(spark, spec, landed(tmp_path, rows))
    moment = datetime(2024, 5, 1, tzinfo=UTC).replace(tzinfo=None)
    assert [[*one["row"].values()] for one in found[:2]] == [[0, DAY, moment]] * 2
    bad = {f"column d: {day} is not DATE{why}" for day, why in wrong.items() if not (days and why)}
    bad |= {f"column t: {day} is not TIMESTAMP{why}" for day, why in wrong.items()}
    assert {one["reason"] for one in found[2:]} - {None} == bad
    counted = [one["row"]["d"] for one in found[2:] if one["kind"] == "event"]
    assert counted == ([date(2022, 1, 8), date(1975, 7, 18)] if days else [])


@pytest.mark.parametrize(
    "name", ["rows", *(pytest.param(n, marks=pytest.mark.slow) for n in ("csv", "parquet", "maxwell"))]
)
def test_a_number_counts_days_where_the_logical_type_says_so(spark: SparkSession, tmp_path: Path, name: str) -> None:
    changes, landed = FORMATS[name]
    spec = spec_of(schema="id INT, d DATE", foreign_key="id", logical_types={"d": "epoch_days"}, **changes)
    found = read(spark, spec, landed(tmp_path, [{"ID": "1", "d": "19844"}, {"ID": "2", "d": "2024-05-01"}]))
    assert [one["row"]["d"] for one in found] == [DAY, DAY]


NESTED = "id INT, a ARRAY<DATE>, m MAP<STRING, DATE>, st STRUCT<d: DATE>"


def test_a_number_within_a_value_counts_days_only_in_debezium(spark: SparkSession, tmp_path: Path) -> None:
    row = {"ID": "1", "a": [19844], "m": {"x": 19844}, "st": {"d": 19844}}
    for name, there in (("envelope", DAY), ("rows", None)):
        changes, landed = FORMATS[name]
        [found] = read(spark, spec_of(schema=NESTED, foreign_key="id", **changes), landed(tmp_path, [row]))
        made = found["row"]
        assert (made["a"], made["m"], made["st"]) == (([there], {"x": there}, {"d": there}) if there else (None,) * 3)


def test_json_that_python_writes_has_numbers_without_quotes(spark: SparkSession, tmp_path: Path) -> None:
    spec = spec_of(format="rows", schema="id INT, f DOUBLE, t STRING, a ARRAY<DOUBLE>", foreign_key="id")
    values = ["NaN", "Infinity", "-Infinity", '"NaN"', "1.5"]
    lines = [f'{{"id": {n}, "f": {one}, "t": {one}, "x": NaN, "a": [{one}, 0.5]}}' for n, one in enumerate(values)]
    lines += ['{"id": 9, "t": "[NaN, -Infinity]"}', '{"id": NaN}', '{"id": 1, "f": xNaN}', '{"ID": 8, "T": [NaN]}']
    found = read(spark, spec, write(tmp_path, "1.jsonl", "\n".join(lines)))
    assert [str(one["row"]["f"]) for one in found[:5]] == ["nan", "inf", "-inf", "nan", "1.5"]
    assert [one["row"]["t"] for one in found[:6]] == ["NaN", "Infinity", "-Infinity", "NaN", "1.5", "[NaN, -Infinity]"]
    assert [str(one["row"]["a"][0]) for one in found[:5]] == ["nan", "inf", "-inf", "nan", "1.5"]
    assert [one["reason"] for one in found[6:8]] == ["column id: NaN is not INT", "not a JSON object"]
    assert (found[8]["row"]["id"], found[8]["row"]["t"]) == (8, "[NaN]")


HALVES = {
    r'"\ud83d\ude00"': None,
    r'"\ud83d"': "not UTF-8: half of a surrogate pair",
    r'"x\uDE00\uD83Dx"': "not UTF-8: half of a surrogate pair",
    r'"\\ud83d"': None,
    r'"\\\ud83d"': "not UTF-8: half of a surrogate pair",
    r'"\ud83d\\\ude00"': "not UTF-8: half of a surrogate pair",
}


@pytest.mark.parametrize("shape", ["ROW", '{"type":"insert","data":ROW}', '{"op":"c","after":ROW}'])
def test_half_a_surrogate_pair_is_no_text(spark: SparkSession, tmp_path: Path, shape: str) -> None:
    kind = "rows" if shape == "ROW" else "maxwell" if "data" in shape else "debezium"
    lines = [shape.replace("ROW", f'{{"id": 1, "name": {one}}}') for one in HALVES]
    found = read(spark, spec_of(format=kind), write(tmp_path, "1.jsonl", "\n".join(lines)))
    assert [one["reason"] for one in found] == [*HALVES.values()]


WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "debezium": [
        ({"after": '{"id": 1}', "op": "c"}, "after is a text, not an object"),
        ({"payload": {"after": [1], "op": "c"}}, "payload.after is a list, not an object"),
        ({"topic": "t", "value": '{"op": "c"}'}, "value is a text, not an object"),
        ({"before": 7, "after": {"id": 1}, "op": "u"}, "before is a number, not an object"),
        ({"after": {"id": 1}, "op": "add"}, "unknown op add"),
    ],
    "maxwell": [
        ({"type": "insert", "data": True}, "data is a boolean, not an object"),
        ({"type": "update", "data": {"id": 1}, "old": "x"}, "old is a text, not an object"),
    ],
}
"""Per format, lines and what is wrong with them."""


@pytest.mark.parametrize("kind", WRONG)
def test_a_reason_names_what_is_wrong(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    lines = "\n".join(json.dumps(line) for line, _ in WRONG[kind])
    found = read(spark, spec_of(format=kind), write(tmp_path, "1.jsonl", lines))
    assert [(one["kind"], one["reason"]) for one in found] == [("bad", reason) for _, reason in WRONG[kind]]


def test_an_update_whose_old_image_has_another_key_removes_that_row(spark: SparkSession, tmp_path: Path) -> None:
    spec = spec_of(format="debezium", key="name")
    new, old = {"id": 1, "name": "new", "size": 2}, {"id": 1, "name": "old", "size": 1}
    lines = [
        {"op": "u", "before": old, "after": new},
        {"op": "u", "before": {**old, "name": "new"}, "after": new},
        {"op": "u", "before": None, "after": new},
        {"op": "u", "before": {"id": 1}, "after": new},
        {"key": {"id": 1}, "value": {"op": "u", "before": old, "after": new, "source": {"lsn": 7}}},
        {"op": "u", "before": {"NAME": "old"}, "after": {"NAME": "new"}},
        {"op": "d", "before": old, "after": None},
    ]
    found = read(spark, spec, write(tmp_path, "1.jsonl", "\n".join(map(json.dumps, lines))))
    told = [(one["op"], one["row"]["name"], (one["old_key"] or {}).get("name")) for one in found]
    assert sorted(told, key=str) == sorted(
        [("d", "old", None), ("u", "new", "old")] * 3 + [("u", "new", None)] * 3 + [("d", "old", None)],
        key=str,
    )
    assert {one["reason"] for one in found} == {None}


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("debezium", '{"op": "OP", "after": {"id": 1}}'),
        ("debezium", '{"id": 1, "__op": "OP"}'),
        ("maxwell", '{"type": "OP", "data": {"id": 1}}'),
    ],
)
def test_a_word_that_names_an_operation_counts_whole_in_any_case(
    spark: SparkSession, tmp_path: Path, kind: str, line: str
) -> None:
    known, unknown = (
        (("C", "u", "R"), ("create", "cu", "")) if kind == "debezium" else (("INSERT", "Update"), ("ins", "add"))
    )
    lines = [line.replace("OP", word) for word in (*known, *unknown)]
    found = read(spark, spec_of(format=kind), write(tmp_path, "1.jsonl", "\n".join(lines)))
    assert [one["kind"] for one in found] == ["event"] * len(known) + ["bad"] * len(unknown)


def test_an_update_that_may_change_the_key_unseen_is_told(spark: SparkSession, tmp_path: Path) -> None:
    spec, new = spec_of(format="debezium", key="name"), {"id": 1, "name": "new"}
    lines = [
        {"key": {"id": 1}, "value": {"op": "u", "before": None, "after": new}},
        {"key": {"id": 1}, "value": {**new, "__op": "u"}},
        {"key": {"id": 1}, "value": {"op": "u", "before": new, "after": new}},
        {"key": {"id": 1}, "value": {"op": "c", "before": None, "after": new}},
        {"key": {"NAME": "new"}, "value": {"op": "u", "before": None, "after": new}},
        {"op": "u", "before": None, "after": new},
    ]
    found = read(spark, spec, write(tmp_path, "1.jsonl", "\n".join(map(json.dumps, lines))))
    assert [one["blind"] for one in found] == [True, True, False, False, False, False]


ORDER = "and it decides which version counts"


@pytest.mark.parametrize(
    "name", ["csv", "envelope", *(pytest.param(n, marks=pytest.mark.slow) for n in ("rows", "maxwell", "parquet"))]
)
def test_what_decides_is_not_rounded(spark: SparkSession, tmp_path: Path, name: str) -> None:
    changes, landed = FORMATS[name]
    schema = "id INT, at TIMESTAMP, seen TIMESTAMP, x DOUBLE"
    spec = spec_of(schema=schema, key=["id", "at"], foreign_key="id", sequence_by="x + 1", **changes)
    fine, exact = "2024-05-01T10:00:00.1234567", "2024-05-01T10:00:00.123456"
    rows: Rows = [
        {"ID": "1", "at": exact, "seen": fine, "x": "0.5"},
        {"ID": "2", "at": fine, "seen": exact, "x": "0.5"},
        {"ID": "3", "at": exact, "seen": exact, "x": "3.14159265358979323846"},
    ]
    found = read(spark, spec, landed(tmp_path, rows))
    assert [(one["reason"], one["rounded"]) for one in found if one["kind"] == "event"] == [(None, "seen")]
    assert [one["reason"] for one in found[1:]] == [
        f"column at: {fine} would be rounded as TIMESTAMP, {ORDER}",
        f"column x: 3.14159265358979323846 would be rounded as DOUBLE, {ORDER}",
    ]


KINDS: dict[str, pa.DataType] = {
    "i8": pa.int8(), "u8": pa.uint8(), "u16": pa.uint16(), "u32": pa.uint32(), "u64": pa.uint64(), "i64": pa.int64(),
    "f32": pa.float32(), "f64": pa.float64(), "b": pa.bool_(), "s": pa.string(), "ls": pa.large_string(),
    "sv": pa.string_view(), "bin": pa.binary(), "lb": pa.large_binary(), "fb": pa.binary(5), "d32": pa.date32(),
    "d64": pa.date64(), "ts": pa.timestamp("s"), "tus": pa.timestamp("us"), "tz": pa.timestamp("us", "Europe/Paris"),
    "dur": pa.duration("us"), "dec": pa.decimal128(10, 2), "dec32": pa.decimal32(5, 1),
    "dict": pa.dictionary(pa.int32(), pa.string()), "l": pa.list_(pa.int32()), "fl": pa.list_(pa.int32(), 2),
    "m": pa.map_(pa.string(), pa.timestamp("us")), "js": pa.json_(),
    "st": pa.struct({"a": pa.uint32(), "b": pa.list_(pa.decimal128(5, 2))}),
}  # fmt: skip
UNKNOWN: dict[str, pa.DataType] = {
    "f16": pa.float16(), "t32": pa.time32("ms"), "t64": pa.time64("us"), "tns": pa.timestamp("ns"), "uu": pa.uuid(),
    "dec256": pa.decimal256(40, 2), "lt": pa.list_(pa.time64("us")), "ID": pa.int32(), "NULLS": pa.null(),
}  # fmt: skip


def test_declared_columns_of_parquet_have_the_types_that_spark_gives_them(spark: SparkSession, tmp_path: Path) -> None:
    known, file = str(tmp_path / "known.parquet"), str(tmp_path / "all.parquet")
    columns = {name: _nulls(kind) for name, kind in KINDS.items()}
    pq.write_table(pa.table(columns), known)
    wanted = {name: name for name in KINDS}
    assert columns_of(known, wanted, {}).read == T.StructType(
        [T.StructField(field.name, field.dataType) for field in spark.read.parquet(known).schema]
    )
    others = {name: _nulls(kind) for name, kind in UNKNOWN.items()}
    names = ["id", *columns, *others]
    pq.write_table(pa.table([pa.array([1, 2]), *columns.values(), *others.values()], names), file)
    found = columns_of(file, wanted, {})
    assert found.names == tuple(names)
    assert spark.read.schema(found.read).parquet(file).count() == 2
    for name in UNKNOWN:
        if name != "NULLS":
            with pytest.raises(LandingError, match=rf"all\.parquet.*columns? (id and )?{name}") as refused:
                columns_of(file, {name.lower(): name}, {})
            assert "nothing of the batch was applied" in str(refused.value)


def test_of_a_struct_only_declared_fields_are_read(spark: SparkSession, tmp_path: Path) -> None:
    kind = pa.struct(
        {"a": pa.int32(), "at": pa.time64("us"), "deep": pa.list_(pa.struct({"x": pa.int8(), "y": pa.float16()}))}
    )
    pq.write_table(pa.table({"id": [1], "st": pa.array([{"a": 5, "deep": [{"x": 1}]}], kind)}), tmp_path / "1.parquet")
    spec = spec_of(format="parquet", schema="id INT, st STRUCT<a: INT, deep: ARRAY<STRUCT<x: INT>>>", foreign_key="id")
    [found] = read(spark, spec, tmp_path / "1.parquet")
    assert found["row"] == {"id": 1, "st": {"a": 5, "deep": [{"x": 1}]}}


def test_an_enum_within_a_value_is_a_text() -> None:
    """Arrow does not tell an ENUM from bytes, and does not write one."""
    kind = pa.struct({"n": pa.int32(), "color": pa.binary(), "more": pa.map_(pa.string(), pa.list_(pa.binary()))})
    wanted = pa.struct({"n": pa.int32(), "color": pa.string(), "more": pa.map_(pa.string(), pa.list_(pa.string()))})
    assert _with_texts(kind, iter([False, True, False, True])) == wanted
    assert _with_texts(kind, iter([False] * 4)) == kind


def _nulls(kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.nulls(2, kind.storage_type))
    return pa.nulls(2, kind)
