"""Numbers through the command: the digits that land are the digits that are exported, or somebody is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app

pytestmark = pytest.mark.spark

FILE = """\
name: exact
join: left
left:
  path: landing/left
  format: rows
  schema: >-
    id DECIMAL(20,4), fk STRING, p DECIMAL(10,2), big DECIMAL(20,2), s STRING, tags ARRAY<DECIMAL(20,4)>, x DOUBLE
  key: id
  foreign_key: fk
right: {path: landing/right, format: csv, schema: "k STRING, price DECIMAL(20,4)", key: k}
select: [id, p, big, s, tags, x, price]
"""
LEFT = [
    '{"id": 1234567890123456.7891, "fk": 1.10, "p": 1.100, "big": 9999999999999999.99, "s": 1.10, "tags": [0.10001e1]}',
    '{"id": 1234567890123456.7892, "fk": "1.1", "s": {"a": [1.10, "1.10"]}, "x": 3.14159265358979323846}',
    '{"id": 3, "p": 1.005}',
    '{"id": 4}{"id": 5}',
    '{"id": 6} garbage',
]


def invoke(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(one) for one in args])


@pytest.mark.slow
def test_the_digits_that_were_written_are_exported_and_what_is_altered_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FILE)
    for side, name, lines in (
        ("left", "0.jsonl", LEFT),
        ("right", "0.csv", ["k,price", "1.10,1234567890123456.7891", "1.1,0.00005"]),
    ):
        (tmp_path / "landing" / side).mkdir(parents=True)
        (tmp_path / "landing" / side / name).write_text("".join(line + "\n" for line in lines))
    done = invoke("run", file, "--format", "json")
    assert done.exit_code == 0, done.exception
    left = json.loads(done.stdout)[0]
    assert left["counts"]["0"] | {"rounded": 1, "rounded: x": 1, "quarantined": 3, "rows": 2} == left["counts"]["0"]
    assert any("1 left value(s) of x are not exact as DOUBLE" in one for one in left["notes"]), left["notes"]
    assert invoke("export", file, "--to", tmp_path / "out.jsonl").exit_code == 0
    rows = sorted(json.loads(line, parse_float=str)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert rows == ["1234567890123456.7891", "1234567890123456.7892"]
    text = (tmp_path / "out.jsonl").read_text()
    for written in ("9999999999999999.99", '"s":"1.10"', "1.0001", '{\\"a\\":[1.10,\\"1.10\\"]}', "1.10"):
        assert written in text.replace(": ", ":"), (written, text)
    listed = json.loads(invoke("quarantine", file, "--format", "json").stdout)
    assert sorted((one["side"], one["reason"], one["records"]) for one in listed["reasons"]) == [
        (
            "left",
            "column p: 1.005 would be rounded as DECIMAL(10, 2); declare more digits after the point, or STRING",
            1,
        ),
        ("left", "not one JSON object: other text is on its line", 2),
        (
            "right",
            "column price: 0.00005 would be rounded as DECIMAL(20, 4); declare more digits after the point, or STRING",
            1,
        ),
    ]
    assert invoke("verify", file, "--no-checks").exit_code == 0
