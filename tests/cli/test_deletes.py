"""Deletes as data: `delete_when`, and what a run says of a field that looks like one and that nothing reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import PipelineFileError, StateError

pytestmark = pytest.mark.spark

FILE = """\
name: shop
join: left
left:
  path: landing/orders
  format: csv
  schema: "id INT, customer STRING, deleted_at TIMESTAMP, age INT"
  key: id
  foreign_key: customer
  delete_when: deleted_at IS NOT NULL OR 10 / age > 5
right:
  path: landing/customers
  format: rows
  schema: "k STRING, name STRING, is_deleted BOOLEAN"
  key: k
  op_column: op
  delete_when: is_deleted
select: [id, name]
"""


def invoke(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(one) for one in args])


def land(folder: Path, name: str, *lines: Any) -> None:
    file = folder / "landing" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))


def result(folder: Path) -> dict[int, str | None]:
    exported = invoke("export", folder / "p.yaml", "--to", folder / "out.jsonl")
    assert exported.exit_code == 0, exported.exception
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert all(list(row) == ["id", "name"] for row in rows)
    return {row["id"]: row["name"] for row in rows}


def test_rows_are_deleted_by_what_they_say(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FILE)
    header = "id,customer,deleted_at,age"
    land(
        tmp_path,
        "orders/0.csv",
        header,
        "1,a,,9",
        "2,a,2024-01-31 00:00:00,9",
        "3,b,,9",
        "4,c,,9",
        "5,d,,",
        "6,a,,0",
        "7,a,,1",
    )
    customers = [
        {"op": "u", "k": "a", "name": "A", "is_deleted": False},
        {"op": "u", "k": "b", "name": "B", "is_deleted": True},
        {"op": "d", "k": "c", "name": "C", "is_deleted": False},
        {"op": "u", "k": "d", "name": "D"},
    ]
    land(tmp_path, "customers/0.jsonl", *customers)
    done = invoke("run", file, "--format", "json")
    assert done.exit_code == 0, done.exception
    counts = {one["stage"]: one["counts"]["0"] for one in json.loads(done.stdout)}
    assert counts["left_changelog"] == {"read": 7, "rows": 6, "events": 6, "tombstones": 2, "quarantined": 1}
    assert counts["right_table"]["tombstones"] == 2
    assert [one["warnings"] for one in json.loads(done.stdout)] == [[]] * 5
    assert result(tmp_path) == {1: "A", 3: None, 4: None, 5: "D"}  # null is not deleted
    listed = json.loads(invoke("quarantine", file, "--format", "json").stdout)
    assert "delete_when deleted_at IS NOT NULL OR 10 / age > 5 fails on this row" in json.dumps(listed)
    land(tmp_path, "orders/1.csv", header, "1,a,2024-02-01 00:00:00,9", "2,a,,9")
    assert invoke("run", file).exit_code == 0
    assert result(tmp_path) == {2: "A", 3: None, 4: None, 5: "D"}

    file.write_text(FILE.replace("delete_when: is_deleted", "delete_when: name = 'A'"))
    refused = invoke("run", file)
    assert isinstance(refused.exception, StateError)
    assert "right.format was 'rows op delete_when is_deleted', is \"rows op delete_when name = 'A'\"" in str(
        refused.exception
    )
    assert f"fk-pipeline rebuild {file} --from landing" in str(refused.exception)


@pytest.mark.slow
def test_a_run_warns_of_a_field_that_looks_like_a_delete_and_that_nothing_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "p.yaml"
    text = FILE.replace("  delete_when: deleted_at IS NOT NULL OR 10 / age > 5\n", "").replace(
        "  delete_when: is_deleted\n", ""
    )
    text = text.replace("  op_column: op\n", "").replace(", is_deleted BOOLEAN", "")
    file.write_text(text)
    land(tmp_path, "orders/0.csv", "id,customer,deleted_at,age,operational,undeleted", "1,a,,9,x,y")
    land(
        tmp_path,
        "customers/0.jsonl",
        {"k": "a", "name": "A", "_change_type": "delete", "isDeleted": 0, "action": "buy"},
    )
    stages = ["--stages", "left_changelog,right_table"]
    done = invoke("run", file, *stages)
    assert done.exit_code == 0, done.exception
    said = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert [line.split(",")[0] for line in said] == [
        "  WARNING: left rows have a field 'deleted_at'",
        "  WARNING: right rows have a field '_change_type'",
        "  WARNING: right rows have a field 'isDeleted'",
    ]
    assert (
        "Say so in the pipeline file: left.delete_when, a condition over deleted_at, declared in the schema" in said[0]
    )
    assert "Say so in the pipeline file: right.op_column: _change_type; if it does not, delete_when: FALSE" in said[1]
    said_all = text.replace("select: [id, name]", "select: [id, name, deleted_at]").replace("name: shop", "name: other")
    file.write_text(said_all.replace("key: k", "key: k\n  delete_when: false"))
    again = invoke("run", file, *stages)
    assert again.exit_code == 0, again.exception
    assert "WARNING" not in again.stderr


def test_a_condition_that_is_none_is_told_before_anything_is_read(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FILE.replace("delete_when: is_deleted", "delete_when: CONCAT(name, 'x')"))
    land(tmp_path, "orders/0.jsonl")
    land(tmp_path, "customers/0.jsonl", {"k": "a"})
    wrong = invoke("run", file)
    assert isinstance(wrong.exception, PipelineFileError)
    assert "right.delete_when: \"CONCAT(name, 'x')\" is STRING, not BOOLEAN" in str(wrong.exception)
