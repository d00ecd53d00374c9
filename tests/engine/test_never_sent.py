"""What a source does not send as it is meant is told: columns that no row ever had, and snapshots that lose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import SchemaChangedError
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from tests.cdc.test_as_meant import FORMATS, Rows

pytestmark = pytest.mark.spark

LEFT = {"path": "left", "schema": "id INT, customer STRING, v STRING", "key": "id", "foreign_key": "v"}
FILE = {
    "name": "made",
    "join": "left",
    "right": {"path": "right", "format": "rows", "schema": "k STRING", "key": "k"},
}
NAMES = {"csv": "{}.csv", "dms": "2024050{}-120000000.csv", "parquet": "{}.parquet"}
NAMES["dms, parquet"] = "2024050{}-120000000.parquet"
FEW = ("rows", "csv")


class Made:
    """A pipeline of which only the left changelog runs."""

    def __init__(self, folder: Path, spark: SparkSession, **left: Any) -> None:
        self.file, self.spark = folder / "made.yaml", spark
        for side in ("left", "right"):
            (folder / side).mkdir()
        self.left(**left)

    def left(self, **changes: Any) -> None:
        self.file.write_text(json.dumps({**FILE, "left": LEFT | changes}))
        self.pipeline = Pipeline(load_spec(self.file), self.spark)

    def land(self, batch: int, *rows: dict[str, Any], name: str = "rows") -> None:
        (made := self.file.with_name("made")).mkdir(exist_ok=True)
        every: Rows = [dict.fromkeys(rows[0]) | row for row in rows]
        FORMATS[name][1](made, every).rename(self.file.parent / "left" / NAMES.get(name, "{}.jsonl").format(batch))

    def warnings(self) -> list[str]:
        done = self.pipeline.run(stages=["left_changelog"])
        return [warning for run in done for warning in run.warnings]

    def status(self) -> list[str]:
        found = json.loads(CliRunner().invoke(app, ["status", str(self.file), "--format", "json"]).stdout)
        return [one["text"] for one in found["never_sent"]]


UNSENT = "no left row has ever had column customer, which left.schema declares: it is null"


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FEW else pytest.mark.slow) for n in FORMATS])
def test_a_declared_column_that_no_row_ever_had_is_told_on_the_first_batch(
    tmp_path: Path, spark: SparkSession, name: str
) -> None:
    its = Made(tmp_path, spark, **FORMATS[name][0])
    its.land(1, {"ID": "1", "v": "x", "customer_id": "a"}, {"ID": "2", "v": "y", "customer_id": "b"}, name=name)
    first = 0 if "dms" in name else 1
    [told] = its.warnings()
    assert told == (
        f"batch {first}: none of 2 left row(s) has column customer, which left.schema declares: it is null for them. "
        "They have customer_id: if that is its name, correct left.schema"
    )
    assert its.status() == [UNSENT]
    its.land(2, {"ID": "1", "v": "x", "Customer": "a"}, name=name)
    assert (its.warnings(), its.status()) == ([], [])


def test_a_column_that_is_declared_later_is_told_on_the_next_batch(tmp_path: Path, spark: SparkSession) -> None:
    its = Made(tmp_path, spark, format="rows")
    its.land(1, {"ID": "1", "v": "x", "customer": "a"})
    its.land(2, {"ID": "2", "v": "x"})
    assert its.warnings() == []  # it had one, and rows may leave out nulls
    its.left(format="rows", schema="id INT, customer STRING, v STRING, amount INT")
    its.land(3, {"ID": "3", "v": "x", "amuont": "1"})
    [told] = its.warnings()
    assert told.startswith("batch 3: none of 1 left row(s) has column amount")
    assert "They have amuont" in told


def test_only_rows_that_are_written_count(tmp_path: Path, spark: SparkSession) -> None:
    its = Made(
        tmp_path,
        spark,
        format="rows",
        schema="id INT, v STRING, op STRING, x INT",
        op_column="OP",
        delete_when="v = 'gone'",
    )
    its.land(1, {"ID": "1", "v": "a", "op": "u"}, {"ID": "2", "v": "gone", "op": "u"}, {"ID": "3", "op": "d"})
    assert its.warnings() == [
        "batch 1: none of 1 left row(s) has column x, which left.schema declares: it is null for them"
    ]
    assert [text.split(",")[0] for text in its.status()] == ["no left row has ever had column x"]


def test_it_is_an_error_where_changes_of_the_schema_are(tmp_path: Path, spark: SparkSession) -> None:
    file = FILE | {"schema_changes": "fail", "left": LEFT | {"format": "rows"}}
    its = Made(tmp_path, spark, format="rows")
    its.file.write_text(json.dumps(file))
    its.pipeline = Pipeline(load_spec(its.file), spark)
    its.land(1, {"ID": "1", "v": "x"})
    for _ in range(2):
        with pytest.raises(SchemaChangedError, match="none of 1 left row"):
            its.warnings()


def _debezium(op: str, sequence: str, **row: Any) -> dict[str, Any]:
    return {"op": op, "after": row, "source": {"sequence": sequence}}


SNAPSHOTS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "debezium": (
        [_debezium("r", '[null, "100"]', id=1), _debezium("u", '["150", "160"]', id=1)],
        [_debezium("r", '[null, "500"]', id=1), _debezium("r", '[null, "500"]', id=2)],
    ),
    "maxwell": (
        [{"type": "update", "position": "m.000001:10", "data": {"id": 1}}],
        [{"type": "bootstrap-insert", "data": {"id": 1}}, {"type": "bootstrap-insert", "data": {"id": 2}}],
    ),
}


@pytest.mark.parametrize("name", ["debezium", "dms", pytest.param("maxwell", marks=pytest.mark.slow)])
def test_a_snapshot_that_loses_against_older_changes_is_told(tmp_path: Path, spark: SparkSession, name: str) -> None:
    its = Made(tmp_path, spark, format=name, schema="id INT, v STRING")
    first, second = ("20240501-120000000.csv", "LOAD00000001.csv") if name == "dms" else ("1.jsonl", "2.jsonl")
    changes, snapshot = SNAPSHOTS.get(name, ([], []))
    text = ["\n".join(map(json.dumps, lines)) for lines in (changes, snapshot)]
    text = ["U,1,x", "1,x\n2,y"] if name == "dms" else text
    (tmp_path / "left" / first).write_text(text[0] + "\n")
    assert not [one for one in its.warnings() if "snapshot" in one]
    (tmp_path / "left" / second).write_text(text[1] + "\n")
    [told] = [one for one in its.warnings() if "snapshot" in one]
    at = 1 if name == "dms" else 2
    assert told.startswith(f"batch {at}: 2 left row(s) are of a snapshot, which counts as older than every change")


def test_a_bootstrap_of_maxwell_wins_where_no_change_has_a_position(tmp_path: Path, spark: SparkSession) -> None:
    its = Made(tmp_path, spark, format="maxwell", schema="id INT, v STRING")
    for batch, (kind, xoffset) in enumerate([("update", 7), ("delete", 3), ("bootstrap-insert", 0)]):
        line = {"type": kind, "xoffset": xoffset, "data": {"id": 1, "v": kind}}
        (tmp_path / "left" / f"{batch}.jsonl").write_text(json.dumps(line) + "\n")
        assert not [one for one in its.warnings() if "snapshot" in one]
    its.pipeline.run()
    assert [row["v"] for row in its.pipeline.table("resolved_join").collect()] == ["bootstrap-insert"]


def test_a_second_snapshot_of_oracle_is_as_new_as_its_scn(tmp_path: Path, spark: SparkSession) -> None:
    its = Made(tmp_path, spark, format="debezium", schema="id INT, v STRING")
    lines = [
        {"op": "u", "after": {"id": 1, "v": "old"}, "source": {"scn": "160", "commit_scn": "170"}},
        {"op": "r", "after": {"id": 1, "v": "new"}, "source": {"scn": "500"}},
    ]
    for batch, line in ((2, lines[0]), (1, lines[1])):
        (tmp_path / "left" / f"{batch}.jsonl").write_text(json.dumps(line) + "\n")
    assert not [one for one in its.warnings() if "snapshot" in one]
    its.pipeline.run()
    assert [row["v"] for row in its.pipeline.table("resolved_join").collect()] == ["new"]
