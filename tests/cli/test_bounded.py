"""Lines that are too long, or nested too deeply, through the command: quarantined in their place, all else is read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import BadRecordError, UnreadableFileError, UsageError

FILE = """
name: bounded
join: left
left: {path: landing/left, format: csv, schema: "id INT, fk STRING, v STRING", key: id, foreign_key: fk}
right: {path: landing/right, format: rows, schema: "k STRING, name STRING", key: k}
settings: {max_line_bytes: 2000}
"""

pytestmark = pytest.mark.spark


def invoke(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args])


def land(folder: Path, side: str, name: str, content: bytes) -> None:
    file = folder / "landing" / side / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def row(key: str, **more: str) -> bytes:
    return json.dumps({"k": key, "name": key.upper()} | more).encode() + b"\n"


def test_a_line_that_is_too_long_is_quarantined_and_all_others_are_read(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FILE)
    long = b"\xc3\xa9" * 3000  # two bytes each
    csv = b'id,fk,v\n1,a,x\n2,"b\n' + long + b'",z\n3,b,"two\nlines"\n'
    land(tmp_path, "left", "0.csv", csv)
    land(tmp_path, "left", "1.csv.gz", b"id,fk,v\n4,a," + long + b"\n5,a,z\n")
    land(tmp_path, "right", "0.jsonl.gz", row("a") + row("c", other=long.decode()) + row("b") + long)
    land(tmp_path, "right", "1.jsonl", row("d") + long + b"\n" + row("e"))
    done = invoke("run", file, "--format", "json")
    assert done.exit_code == 0, done.exception
    counts = [one["counts"] for one in json.loads(done.stdout)[:2]]
    assert [counts[0][b]["read"] for b in "01"] == [3, 2]
    assert [(counts[1][b]["read"], counts[1][b]["quarantined"]) for b in "01"] == [(4, 2), (3, 1)]
    shown = json.loads(invoke("quarantine", file, "--format", "json").stdout)["rows"]
    found = {(one["file"].rsplit("/", 2)[-1], one["line"]): (one["reason"], one["raw"]) for one in shown}
    beginning = long[:1000].decode()
    assert {place: reason for place, (reason, _) in found.items()} == dict.fromkeys(
        [("0.csv", 2), ("1.csv.gz", 1), ("0.jsonl.gz", 2), ("0.jsonl.gz", 4), ("1.jsonl", 2)],
        "longer than 2,000 bytes",
    )
    assert found["1.jsonl", 2][1] == beginning
    assert found["0.csv", 2][1] == '2,"b\n' + beginning[: (1000 - 5) // 2] + "\ufffd"
    out = tmp_path / "out.jsonl"
    assert invoke("export", file, "--to", out).exit_code == 0
    assert [(one["id"], one["name"]) for one in map(json.loads, out.read_text().splitlines())] == [
        (1, "A"), (3, "B"), (5, "A"),
    ]  # fmt: skip
    assert not list((tmp_path / "warehouse" / "bounded" / "readable").glob("*"))
    # What is cut off cannot be corrected: the quarantine has its beginning only.
    corrected = tmp_path / "bad.jsonl"
    assert invoke("quarantine", file, "--export", corrected).exit_code == 0
    corrected.write_text(corrected.read_text().replace("\u00e9", "e"))
    refused = invoke("quarantine", file, "--replay", corrected)
    assert isinstance(refused.exception, UsageError)
    assert "cannot be corrected by a text" in str(refused.exception)
    file.write_text(FILE.replace("bounded", "failing") + "on_bad_record: fail\n")
    failed = invoke("run", file)
    assert isinstance(failed.exception, BadRecordError)
    assert "longer than 2,000 bytes" in str(failed.exception)
    file.write_text(FILE.replace("bounded", "whole").replace("format: csv", "format: csv, contents: snapshot"))
    failed = invoke("run", file)
    assert isinstance(failed.exception, UnreadableFileError)
    assert "the snapshot has a line longer than 2,000 bytes" in str(failed.exception)
    assert "max_line_bytes" in failed.exception.fix


def test_bombs_of_json_are_bad_lines(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FILE.replace("2000", "2000000").replace("csv", "rows"))
    deep = 100_000
    bombs = [
        b"[" * deep,
        b'{"a":' * deep,
        b'{"id":5,"fk":"a","v":' + b"[" * deep + b"]" * deep + b"}",
        b'{"id":6,"x":' + b'{"a":' * deep + b"1" + b"}" * (deep + 1),
        json.dumps({"id": 7, "k" * 1_000_000: 1}).encode(),
        b'{"id":' + b"9" * deep + b"}",
    ]
    land(tmp_path, "left", "0.jsonl", b'{"id":1,"fk":"a"}\n' + b"\n".join(bombs) + b'\n{"id":2,"fk":"a"}\n')
    land(tmp_path, "right", "0.jsonl", row("a"))
    done = invoke("run", file, "--format", "json")
    assert done.exit_code == 0, done.exception
    counts = json.loads(done.stdout)[0]["counts"]["0"]
    assert (counts["read"], counts["events"], counts["quarantined"]) == (8, 2, 6)
