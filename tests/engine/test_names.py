"""Every name that the file system allows is the name of one file, whose rows are read once and known as its own."""

from __future__ import annotations

import gzip
import json
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cdc.names import as_utf8
from fk_pipeline.cli.main import app
from fk_pipeline.errors import CONTROL

NAMES = [
    "a[1]", "a1", "a[0-9]", "a[!b]", "b{x,y}", "bx", "{", "}", "[", "]", "c*", "cc", "c?", "**", "d\\1", "d\\",
    "\\x41", "\\xff", os.fsdecode(b"\xff"), os.fsdecode(b"latin-\xe9"), os.fsdecode(b"\x80\\x80"),
    "2026-11-22T10:15:30", ":", "x:", "file:", "a::b", "s3:a", "e%20f", "e f", "e+f", "%", "%zz", "%25", "#", "g#h",
    "g?h=1&i=2", "j\nk", "j\tk", "l,m", "n'o", 'p"q', "$HOME", "${x}", "`r`", "~", "-t", "=u", "k=v", " ", " lead",
    "trail ", "a..b", "w;x|y>z", unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é"), "日本", "😀",
    "\u2028", "\u00a0", "\u0085", "\x01", "\x7f", "@1..2", "a@..7", "n" * 240,
]  # fmt: skip
"""Without the ending; some differ only in what a pattern, a URL or a normal form makes of them."""


def invoke(*args: Any) -> Any:
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 0, result.stderr
    return result


def stored(table: Path, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a table, read without Spark, in the order of their values."""
    rows = DeltaTable(table).to_pyarrow_table(columns=[*columns]).to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in rows)


def _rows(path: Path, number: int) -> None:
    path.write_text(json.dumps({"id": number, "v": f"of {number}"}) + f"\nbad {number}\n")


def _debezium(path: Path, number: int) -> None:
    event = {"before": None, "after": {"id": number, "v": f"of {number}"}, "op": "c", "source": {}, "ts_ms": 1}
    path.write_text(json.dumps(event) + f"\nbad {number}\n")


def _csv(path: Path, number: int) -> None:
    path.write_text(f"id,v\n{number},of {number}\nbad,{number},{number}\n")


def _parquet(path: Path, number: int) -> None:
    ids = pa.array([number, None], pa.int32())
    with path.open("wb") as stream:
        pq.write_table(pa.table({"id": ids, "v": [f"of {number}", f"bad {number}"]}), stream)


WRITE: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "rows": (".jsonl", _rows), "debezium": (".json", _debezium),
    "csv": (".csv", _csv), "parquet": (".parquet", _parquet),
}  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(
    ("left", "right", "stages"),
    [
        pytest.param("rows", "parquet", None, marks=pytest.mark.slow),
        pytest.param("csv", "debezium", "left_changelog,right_table", marks=pytest.mark.connect),
    ],
)
def test_a_row_and_a_bad_record_are_of_the_file_that_has_them(
    left: str, right: str, stages: str | None, tmp_path: Path, spark: SparkSession
) -> None:
    assert len(set(NAMES)) == len(NAMES) >= 40
    file, table = tmp_path / "p.yaml", tmp_path / "warehouse" / "p"
    names: dict[str, dict[int, str]] = {}
    for side, name in (("left", left), ("right", right)):
        ending, write = WRITE[name]
        (tmp_path / "landing" / side).mkdir(parents=True)
        for number, stem in enumerate(NAMES):
            path = tmp_path / "landing" / side / f"{stem}{ending}"
            write(path, number)
            names.setdefault(side, {})[number] = as_utf8(str(path))
    schema = 'batch_by: arrival\n  schema: "id INT, v STRING"\n  key: id\n'
    file.write_text(
        f"name: p\njoin: inner\nleft:\n  path: landing/left\n  format: {left}\n  {schema}  foreign_key: id\n"
        f"right:\n  path: landing/right\n  format: {right}\n  {schema}"
    )
    run = invoke("run", file, *(["--stages", stages] if stages else []))
    shown = [run.stdout, run.stderr]
    if stages is None:
        shown.append(invoke("quarantine", file, "--limit", 1000).stdout)
    for text in shown:
        assert not [line for line in text.split("\n") if CONTROL.search(line)]
    assert f"left: {len(NAMES)} files, batch = the order of arrival" in run.stderr
    if stages is None:
        assert stored(table / "resolved_join", "id", "v", "right_v") == [
            (n, f"of {n}", f"of {n}") for n in range(len(NAMES))
        ]
    for side in ("left", "right"):
        log = stored(table / f"{side}_changelog", "id", "v", "_fk_file")
        assert log == [(n, f"of {n}", path) for n, path in names[side].items()]
    quarantined = json.loads(invoke("quarantine", file, "--format", "json", "--limit", 1000).stdout)
    for side in ("left", "right"):
        found = {one["file"]: one for one in quarantined["rows"] if one["side"] == side}
        assert len(found) == len(NAMES)
        for number, path in names[side].items():
            one = found[path.removeprefix(f"{tmp_path}/")]
            assert f"{number}" in one["raw"].split("bad", 1)[1]
            assert one["line"] in (2, 3)
    assert not any((table / "readable").rglob("*.*")), "links are left"
    if stages is None:
        assert "Nothing is due" in invoke("run", file).stdout


@pytest.mark.spark
def test_files_of_dms_and_those_that_break_off_keep_their_names_too(tmp_path: Path, spark: SparkSession) -> None:
    left, right = tmp_path / "landing [x]" / "le*ft", tmp_path / "landing [x]" / "r:{1}"
    for folder in (left, right):
        folder.mkdir(parents=True)
    names = ["LOAD00000001.csv", "a[1]:20141029-113401000.csv", "a1:20141029-113402000.csv"]
    for number, name in enumerate(names):
        (left / name).write_text(f"{'IU'[number > 0]},1,v{number}\n")
    whole = gzip.compress(b'{"id": 1, "v": "r"}\n{"id": 2, "v": "cut')
    (right / "10:15[1].jsonl.gz").write_bytes(whole[:-9])
    (right / "of [a] day.jsonl").write_text('{"id": 3, "v": "s"}\n')
    (tmp_path / "what if {1}:2.jsonl").write_text('{"id": 1, "v": "t"}\n')
    schema = 'schema: "id INT, v STRING"\n  key: id\n'
    file = tmp_path / "p.yaml"
    file.write_text(
        f"name: p\njoin: left\nleft:\n  path: landing [x]/le*ft\n  format: dms\n  {schema}  foreign_key: id\n"
        f"right:\n  path: 'landing [x]/r:{{1}}'\n  format: rows\n  batch_by: arrival\n  {schema}"
    )
    invoke("run", file)
    assert stored(tmp_path / "warehouse/p/resolved_join", "id", "v", "right_v") == [(1, "v2", "r")]
    assert stored(tmp_path / "warehouse/p/left_changelog", "_fk_file") == [(str(left / names[2]),)]
    [bad] = json.loads(invoke("quarantine", file, "--format", "json").stdout)["rows"]
    assert (bad["file"], bad["raw"]) == ("landing [x]/r:{1}/10:15[1].jsonl.gz", '{"id": 2, "v": "cut')
    changes = invoke("impact", file, "--changes", tmp_path / "what if {1}:2.jsonl", "--format", "json")
    assert json.loads(changes.stdout)["fan_out"] == 1
