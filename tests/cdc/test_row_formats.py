"""Formats besides Debezium's: CSV, DMS, Maxwell, files that break off, and formats of the user's own."""

from __future__ import annotations

import base64
import gzip
import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fk_pipeline.cdc.reader import format_of, read_records, shape_of
from fk_pipeline.cdc.unreadable import LINES, look_into
from fk_pipeline.errors import LandingError, PipelineFileError
from fk_pipeline.identity import BatchId, LandedFile, Side
from fk_pipeline.spec import PipelineSpec, SideSpec

pytestmark = pytest.mark.spark

SCHEMA = "id INT, name STRING, size INT"


def spec_of(**changes: Any) -> PipelineSpec:
    side = {"path": "x", "schema": SCHEMA, "key": "id"}
    left = {**side, "format": "csv", "foreign_key": "size"} | changes
    return PipelineSpec.model_validate({"name": "p", "join": "left", "left": left, "right": side})


def read(spark: SparkSession, spec: PipelineSpec, *paths: Path, readable: Path | None = None) -> list[dict[str, Any]]:
    """The records of files that are one batch each, in order; broken ones are looked into."""
    files = {n: [LandedFile(str(p), Side.LEFT, BatchId(n), 1, "", "")] for n, p in enumerate(paths)}
    shape = {path: shape_of(str(path), spec.left) or LINES for path in paths}
    looked = {str(p): look_into(str(p), str(readable), shape=shape[p]).unreadable for p in paths} if readable else {}
    found = read_records(
        spark, files, spec, Side.LEFT, {path: broken for path, broken in looked.items() if broken}, {}, {}
    )
    rows = found.parsed.orderBy("batch", "file_number", "block", "position").collect()
    return [row.asDict(recursive=True) for row in rows]


def told(records: list[dict[str, Any]]) -> list[Any]:
    """Of events the operation and the row, of others the kind and why."""
    return [(r["op"], *r["row"].values()) if r["kind"] == "event" else (r["kind"], r["reason"]) for r in records]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_csv_is_read_as_rfc_4180_says(spark: SparkSession, tmp_path: Path) -> None:
    content = (
        '\ufeffNAME,other,id,op\r\n"two\r\nlines, ""quoted""",x,1,insert\r\n,y,2,u\r\n"",z,3,u\r\n  a b ,,4,U\r\n'
        "x,,5,d\r\ntoo,few,6\r\none,too,many,7,u\r\n"
    )
    found = read(spark, spec_of(op_column="op"), write(tmp_path, "1.csv", content))
    assert told(found) == [
        ("i", 1, 'two\nlines, "quoted"', None),
        ("u", 2, None, None),
        ("u", 3, "", None),
        ("u", 4, "  a b ", None),
        ("d", 5, "x", None),
        ("bad", "not a row of 4 fields"),
        ("bad", "not a row of 4 fields"),
    ]
    assert found[5]["value"].startswith("too,few,6")


def test_csv_with_other_marks_headers_and_encodings(spark: SparkSession, tmp_path: Path) -> None:
    marks = {"csv": {"delimiter": "\t", "header": False, "null_text": "\\N"}}
    tabs = write(tmp_path, "1.tsv", "1\t\\N\t3\n2\t\t4\n")
    assert told(read(spark, spec_of(**marks), tabs)) == [("u", 1, None, 3), ("u", 2, None, 4)]
    first = write(tmp_path, "2.csv.gz", gzip.compress(b"id,name\n1,\xc3\xa4\n2,\xe4\n"))
    other = write(tmp_path, "3.csv", "size,ID,size\n7,3,8\nx,4,1\n")
    empty = write(tmp_path, "4.csv", "")
    found = read(spark, spec_of(), first, other, empty)
    assert told(found) == [
        ("u", 1, "ä", None),
        ("bad", "not UTF-8"),
        ("u", 3, None, 7),
        ("bad", "column size: x is not INT"),
    ]
    assert found[3]["value"] == '{"size":"x","ID":"4","size_2":"1"}'


QUOTED = {
    "CR LF": ('1,"a\nb",1\r\n2,c,x\r\n3,"d\r\n\n",3\r\n', ["a\nb", "c", "d\n\n"]),
    "LF": ('1,"a\r\nb\r",1\n2,c,x\n3,"d\r\n\n",3\n', ["a\r\nb\r", "c", "d\r\n\n"]),
    "far CR LF": ('1,"' + "a" * 9_000 + '",1\r\n2,c,x\r\n3,d,3\r\n', ["a" * 9_000, "c", "d"]),
}
"""Rows whose ending is not the first line break, and the texts in them."""


@pytest.mark.parametrize("format_", ["csv", "dms"])
def test_line_breaks_in_quotes_do_not_tell_how_csv_rows_end(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    spec = spec_of(format=format_, csv={"header": False})
    for number, (name, (rows, texts)) in enumerate(QUOTED.items()):
        path = write(tmp_path, f"LOAD{number}.csv", rows)
        other = write(tmp_path, f"LOAD{number}A.csv.gz", gzip.compress(b"\xef\xbb\xbf" + rows.encode()))
        for found in (read(spark, spec, one, readable=tmp_path / "readable") for one in (path, other)):
            assert [r["row"]["name"] for r in found if r["kind"] == "event"] == [texts[0], texts[2]], name
            assert told(found)[1] == ("bad", "column size: x is not INT"), name
    named = write(tmp_path, "LOADA.csv", '\ufeffid,name,"no\nsize",size\r\n1,a,,5\r\n2,b,,6\r\n')
    found = read(spark, spec_of(format=format_, csv={"header": True}), named, readable=tmp_path / "readable")
    assert told(found) == [(found[0]["op"], 1, "a", 5), (found[1]["op"], 2, "b", 6)]


def test_csv_that_is_hardly_csv(spark: SparkSession, tmp_path: Path) -> None:
    files = {
        "1.csv": "id,name\n1," + "," * 30_000 + "\n2,b\n",
        "2.csv": '"id,name\n3,c\n' + "x" * 200_000,
        "3.csv": 'id,name\n4,d\n5,"e\n6,f\n7,g\n',
        "4.csv": "\n\n\n",
        "5.csv": "\0\0\0",
        "6.csv": "id,name\n8," + "h" * 3_000_000 + "\n",
    }
    found = read(spark, spec_of(), *[write(tmp_path, name, content) for name, content in files.items()])
    by_batch = {n: told([r for r in found if r["batch"] == n]) for n in range(len(files))}
    assert by_batch[0] == [("bad", "not a row of 2 fields"), ("u", 2, "b", None)]
    assert by_batch[2] == [("u", 4, "d", None), ("bad", "a quote is not closed")]
    assert by_batch[5] == [("u", 8, "h" * 3_000_000, None)]
    assert by_batch[1] == [("bad", "key column id is null")]  # the header's quote has taken everything
    assert by_batch[3] == by_batch[4] == []


SAID = {
    **{word: ("bad", f"unknown operation {word}") for word in ("remove", "cancel", "touch", "add", "up", "ins", "?")},
    "update_preimage": ("ignored", "old image"),
    **dict.fromkeys(("t", "TRUNCATE"), ("truncate", None)),
    **{word: ("event", word.lstrip("+-")[0].lower()) for word in ("c", "Create", "INSERT", "i", "+I", "r", "read")},
    **dict.fromkeys(("u", "Update", "upsert", "+U", "update_postimage"), ("event", "u")),
    **dict.fromkeys(("d", "DELETE", "-D", "-U"), ("event", "d")),
    "": ("bad", "no operation in op"),
}
"""Per word that names an operation, what is made of its row; a word counts whole."""


@pytest.mark.parametrize("format_", ["rows", "parquet", pytest.param("csv", marks=pytest.mark.slow)])
def test_operations_are_whole_words_in_every_format_of_plain_rows(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    rows = [{"op": word or None, "id": i} for i, word in enumerate(SAID)]
    if format_ == "parquet":
        file = tmp_path / "1.parquet"
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif format_ == "csv":
        file = write(tmp_path, "1.csv", "op,id\n" + "".join(f"{row['op'] or ''},{row['id']}\n" for row in rows))
    else:
        file = write(tmp_path, "1.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    found = read(spark, spec_of(format=format_, op_column="op"), file)
    assert {
        word: (r["kind"], r["op"] if r["kind"] == "event" else r["reason"]) for word, r in zip(SAID, found, strict=True)
    } == SAID


def test_a_row_of_dms_that_lacks_a_column_is_not_taken_for_one_without_an_operation(
    spark: SparkSession, tmp_path: Path
) -> None:
    spec = spec_of(format="dms", schema="code STRING, k INT, v STRING", key="code", foreign_key="k")
    load = write(tmp_path, "LOAD00000001.csv", "I,1,a\nb,2,b\n")
    only_inserts = write(tmp_path, "20240501-100000000.csv", "c,3,c\n")
    before = write(tmp_path, "20240501-100001000.csv", "i,d,4,d\n")
    dropped = write(tmp_path, "20240501-100002000.csv", "U,d,5\nD,b,\n")
    assert told(read(spark, spec, load, only_inserts, before, dropped)) == [
        ("u", "I", 1, "a"),
        ("u", "b", 2, "b"),
        ("u", "c", 3, "c"),
        ("i", "d", 4, "d"),
        ("bad", "not a row of 4 fields"),
        ("bad", "not a row of 4 fields"),
    ]


def test_files_of_dms(spark: SparkSession, tmp_path: Path) -> None:
    spec = spec_of(format="dms")
    load = write(tmp_path, "LOAD0000000A.csv", "1,a,3\n2,b,4\n")
    with_op = write(tmp_path, "LOAD0000000B.csv", "I,3,c,5\n")
    changes = write(tmp_path, "20141029-113401000.csv", 'U,1,"a,b",3\nD,2,,\nX,5,,\n9,9\n')
    later = tmp_path / "20141029-113402000.parquet"
    pq.write_table(pa.table({"Op": ["I", "D"], "id": [6, 1], "name": ["f", None], "size": [1, None]}), later)
    found = read(spark, spec, load, with_op, changes, later)
    assert told(found) == [
        ("u", 1, "a", 3),
        ("u", 2, "b", 4),
        ("i", 3, "c", 5),
        ("u", 1, "a,b", 3),
        ("d", 2, None, None),
        ("bad", "unknown operation X"),
        ("bad", "not a row of 4 fields"),
        ("i", 6, "f", 1),
        ("d", 1, None, None),
    ]
    written = [r["sequence"]["written"] for r in found]
    assert written == [0, 0, 0, *[20141029113401000] * 4, *[20141029113402000] * 2]


def test_a_full_load_of_dms_with_other_columns_does_nothing_wrong(spark: SparkSession, tmp_path: Path) -> None:
    wider = write(tmp_path, "LOAD00000001.csv", "tom,1,a,3\ndora,2,b,4\n")
    found = read(spark, spec_of(format="dms"), wider)
    assert told(found) == [("bad", "not a row of 3 fields")] * 2
    with pytest.raises(LandingError, match="neither a full load nor a time"):
        read(spark, spec_of(format="dms"), write(tmp_path, "changes.csv", "I,1,a,3\n"))


def maxwell(kind: str, data: Any = None, old: Any = None, **more: Any) -> dict[str, Any]:
    return {"database": "d", "table": "t", "type": kind, "ts": 1, "data": data, "old": old, **more}


def test_rows_of_maxwell(spark: SparkSession, tmp_path: Path) -> None:
    lines: list[Any] = [
        maxwell("insert", {"id": 1, "name": "a", "size": 3}, position="master.000006:800911", xoffset=2),
        maxwell("update", {"id": 1, "name": "b"}, {"name": "a"}, gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:23"),
        maxwell("update", {"id": 2, "name": "b"}, {"id": 1}, position="master.000007:4"),
        maxwell("update", {"id": "2"}, {"id": "02"}, position="master.000007:5"),
        maxwell("update", {"name": "x"}, {"id": 1}),
        maxwell("delete", {"id": 2, "name": "b"}),
        maxwell("bootstrap-insert", {"id": 3}),
        maxwell("bootstrap-complete", {}),
        {"type": "table-alter", "sql": "ALTER"},
        maxwell("truncate", {"id": 3}),
        maxwell("insert"),
        maxwell("insert", {"name": "a"}),
        {"id": 1},
        "no json",
        "",
    ]
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    found = read(spark, spec_of(format="maxwell"), write(tmp_path, "1.jsonl", "\n".join(texts) + "\n"))
    assert told(found[:3]) == [("c", 1, "a", 3), ("u", 1, "b", None), ("d", 1, "b", None)]
    assert told(found[3:]) == [
        ("u", 2, "b", None),
        ("u", 2, None, None),
        ("bad", "key column id is null"),
        ("d", 2, "b", None),
        ("r", 3, None, None),
        ("ignored", "no row"),
        ("ignored", "no row"),
        ("bad", "unknown type truncate"),
        ("bad", "type insert without data"),
        ("bad", "key column id is null"),
        ("bad", "not a row of Maxwell: it has no type"),
        ("bad", "not a JSON object"),
        ("ignored", "empty line"),
    ]
    orders = [tuple(r["sequence"].values()) for r in found[:4]]
    assert orders == [(6, 800911, 2), (0, 23, 0), (7, 4, 0), (7, 4, 0)]


def test_the_fields_that_a_source_sends_are_told(spark: SparkSession, tmp_path: Path) -> None:
    def fields(path: Path, **changes: Any) -> list[Any]:
        return [record["fields"] for record in read(spark, spec_of(**changes), path)]

    row = {"op": "u", "id": 1, "other": 2}
    lines = "".join(f"{json.dumps(line)}\n" for line in [row, {"id": 2}])
    assert fields(write(tmp_path, "0.jsonl", lines), format="rows") == [["op", "id", "other"], ["id"]]
    assert fields(write(tmp_path, "0.jsonl", lines), format="rows", op_column="op")[0] == ["id", "other"]
    change = json.dumps(maxwell("insert", {"id": 1, "more": None}, position="master.000006:8"))
    assert fields(write(tmp_path, "1.jsonl", change + "\n"), format="maxwell") == [["id", "more"]]
    csv = write(tmp_path, "0.csv", "op,ID,other\nu,1,x\n")
    assert fields(csv) == [["op", "id", "other"]]
    assert fields(csv, op_column="op") == [["id", "other"]]
    assert fields(write(tmp_path, "1.csv", "1,x,3\n"), csv={"header": False}) == [["id", "name", "size"]]
    pq.write_table(pa.table({"Op": ["I"], "id": [1], "Name": ["a"], "more": [0]}), tmp_path / "LOAD00000001.parquet")
    assert fields(tmp_path / "LOAD00000001.parquet", format="dms") == [["id", "name", "more"]]
    assert fields(tmp_path / "LOAD00000001.parquet", format="parquet") == [["Op", "id", "name", "more"]]


def test_a_snapshot_begins_with_a_truncate(spark: SparkSession, tmp_path: Path) -> None:
    paths = [write(tmp_path, f"{n}.csv", f"id\n{n}\n") for n in range(2)]
    found = read(spark, spec_of(contents="snapshot"), *paths)
    assert [(r["batch"], r["kind"], r["reason"], r["sequence"]["arrival"]) for r in found] == [
        (0, "truncate", "snapshot", 0),
        (0, "event", None, 0),
        (1, "truncate", "snapshot", 1),
        (1, "event", None, 1),
    ]


def test_logical_types(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {"a": "epoch_millis", "b": "epoch_micros", "c": "epoch_nanos", "d": "epoch_seconds", "p": "decimal_bytes"}
    schema = (
        "id INT, size INT, a TIMESTAMP, b TIMESTAMP, c TIMESTAMP, d TIMESTAMP_NTZ, p DECIMAL(38,2), q DECIMAL(12,3)"
    )
    spec = spec_of(format="rows", schema=schema, logical_types=kinds)
    moment, big = 1714557600, 2**120 + 1

    def decimal(number: int) -> str:
        size = max(1, (number + (number < 0)).bit_length() // 8 + 1)
        return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()

    numbers = [0, 7, -7, 1234567890, -1, -256, 127, 128, big, -big]
    lines = [{"id": i, "p": decimal(number)} for i, number in enumerate(numbers)]
    lines.append(
        {"id": 90, "a": moment * 1000 + 5, "b": moment * 10**6 + 5, "c": moment * 10**9 + 5999, "d": moment}
        | {"q": {"scale": 4, "value": decimal(15250)}}
    )
    lines.append({"id": 94, "q": {"scale": -2, "value": decimal(123)}})
    lines += [{"id": 91, "p": "*"}, {"id": 92, "a": 10**18}, {"id": 93, "a": "2024-05-01T10:00:00.000005Z", "q": "1.5"}]
    found = read(spark, spec, write(tmp_path, "1.jsonl", "".join(json.dumps(line) + "\n" for line in lines)))
    assert [r["row"]["p"] for r in found[: len(numbers)]] == [Decimal(f"{n}e-2") for n in numbers]
    row = found[len(numbers)]["row"]
    at = datetime.fromtimestamp(moment, UTC).replace(tzinfo=None)
    assert [row[c] for c in "abcd"] == [at.replace(microsecond=5000), *[at.replace(microsecond=5)] * 2, at]
    assert row["q"] == Decimal("1.525")
    assert found[len(numbers) + 1]["row"]["q"] == Decimal(12300)
    assert [r["reason"] for r in found[-3:]] == [
        "column p: * is not DECIMAL(38, 2)",
        "column a: 1000000000000000000 is not TIMESTAMP",
        None,
    ]
    assert found[-1]["row"]["a"] == at.replace(microsecond=5)


def test_numbers_that_do_not_fit_are_not_made_infinite(spark: SparkSession, tmp_path: Path) -> None:
    spec = spec_of(format="rows", schema="id INT, size INT, x DOUBLE, y FLOAT")
    values = ["1e400", "-1e400", '"Infinity"', '"-Infinity"', '"NaN"', "1e39"]
    lines = "".join(f'{{"id": {i}, "x": {value}, "y": {value}}}\n' for i, value in enumerate(values))
    found = read(spark, spec, write(tmp_path, "1.jsonl", lines))
    assert [r["reason"] and r["reason"].split(":")[0] for r in found] == [
        "column x", "column x", None, None, None, "column y",
    ]  # fmt: skip


def test_a_file_that_breaks_off_keeps_its_whole_lines(spark: SparkSession, tmp_path: Path) -> None:
    lines = "".join(f'{{"id": {i}, "name": "{"x" * (i % 97)}{i}"}}\n' for i in range(3000)).encode()
    whole = gzip.compress(lines)
    files = {
        "0.jsonl.gz": whole,
        "1.jsonl.gz": whole[: len(whole) // 2],
        "2.jsonl.gz": b"no gzip",
        "3.jsonl.gz": whole + whole[:-1] + b"\x07",  # the second member's length is wrong
        "4.jsonl.gz": whole[:2000] + b"\xff\xff\xff" + whole[2003:],
        "5.jsonl.gz": whole + b"\0" * 100,  # padding is not gzip for Spark
        "6.jsonl.gz": b"",
    }
    paths = [write(tmp_path, name, content) for name, content in files.items()]
    found = read(spark, spec_of(format="rows"), *paths, readable=tmp_path / "readable")
    events = [[r["row"]["id"] for r in found if r["batch"] == n and r["kind"] == "event"] for n in range(len(files))]
    bad = {r["batch"]: r for r in found if r["kind"] == "bad"}
    assert events[0] == events[3] == events[5] == list(range(3000))
    assert 0 < len(events[1]) < 3000
    assert events[1] == list(range(len(events[1])))
    assert events[2] == events[4] == events[6] == []
    assert set(bad) == {1, 2, 3, 4, 5}
    assert bad[5]["reason"] == f"unreadable from byte {len(whole)}: gzip: incorrect header check"
    assert bad[1]["reason"] == f"unreadable from byte {len(whole) // 2}: gzip: the file ends before its content"
    assert lines.startswith(b"".join(lines.splitlines(True)[: len(events[1])]) + bad[1]["value"].encode())
    assert bad[2]["reason"].startswith("unreadable from byte ")
    assert bad[3]["reason"] == f"unreadable from byte {len(whole)}: gzip: incorrect length check"
    assert bad[4]["reason"].startswith("unreadable from byte 0: gzip: ")


def test_an_unreadable_parquet_file_is_one_bad_record(spark: SparkSession, tmp_path: Path) -> None:
    good, broken = tmp_path / "0.parquet", tmp_path / "1.parquet"
    pq.write_table(pa.table({"id": [1]}), good)
    broken.write_bytes(good.read_bytes()[:-9])
    found = read(spark, spec_of(format="parquet"), good, broken, readable=tmp_path)
    assert [r["kind"] for r in found] == ["event", "bad"]
    assert found[1]["reason"].startswith("unreadable from byte 0: ")
    assert [r["kind"] for r in read(spark, spec_of(format="parquet"), broken, readable=tmp_path)] == ["bad"]
    with pytest.raises(FileNotFoundError):  # an error of the storage is no damage
        look_into(str(tmp_path / "gone.parquet"), "")


def test_a_format_of_the_users_own(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "formats.md").read_text()
    write(tmp_path, "my_formats.py", page.split("```python\n")[1].split("```")[0] + "\n\nclass Half:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = read(spark, spec_of(format="my_formats:Numbered"), write(tmp_path, "1.txt", '1 {"id": 5}\n'))
    assert told(found) == [("u", 5, None, None)]
    for name, problem in [
        ("my_formats:Half", "has no sequence_type, is_text, has_holes, read, parse, has_keys_once"),
        ("my_formats:None_", "no attribute 'None_'"),
        ("no_such_module:X", "No module named"),
    ]:
        with pytest.raises(PipelineFileError, match=problem):
            format_of(SideSpec.model_validate({"path": "x", "schema": "id INT", "key": "id", "format": name}))
    sys.modules.pop("my_formats")
