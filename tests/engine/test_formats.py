"""Pipelines over formats whose files are more than their lines: snapshots, Delta tables, files that break off."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import LandingError, PipelineFileError, StateError
from fk_pipeline.identity import Side
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store.sizes import MEASURED, Sizes

pytestmark = pytest.mark.spark

LEFT = "schema: 'id INT, fk STRING, v STRING', key: id, foreign_key: fk"
RIGHT = "schema: 'k STRING, name STRING', key: k"


class Made:
    """A pipeline whose sides are said by a few words of YAML, and its result as text."""

    def __init__(
        self,
        folder: Path,
        spark: SparkSession,
        left: str,
        right: str,
        settings: str = "{}",
        sizes: Sizes = MEASURED,
    ) -> None:
        self.folder, self.spark = folder, spark
        file = folder / "pipeline.yaml"
        file.write_text(
            f"name: made\njoin: left\nleft: {{path: left, {LEFT}, {left}}}\nright: {{path: right, {RIGHT}, {right}}}\n"
            f"select: [id, v, name]\nsettings: {settings}\n"
        )
        for side in ("left", "right"):
            (folder / side).mkdir(exist_ok=True)
        self.pipeline = Pipeline(load_spec(file), spark, sizes=sizes)

    def land(self, side: str, name: str, content: str | bytes) -> None:
        path = self.folder / side / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def run(self, *, proved: bool = True) -> dict[str, dict[int, dict[str, int]]]:
        """Runs what is due; the counts per stage and batch. `verify` agrees, unless a later run shows that."""
        found: dict[str, dict[int, dict[str, int]]] = {}
        for run in self.pipeline.run():
            found.setdefault(run.stage, {}).update(run.counts)
        if proved:
            report = self.pipeline.verify()
            assert (report.ok, report.due) == (True, 0)
        return found

    def result(self) -> list[str]:
        """The rows, as `id v name`."""
        rows = self.pipeline.table("resolved_join").select("id", "v", "name").collect()
        return sorted(" ".join(str(value) for value in row) for row in rows)


@pytest.fixture
def made(tmp_path: Path, spark: SparkSession) -> Callable[..., Made]:
    return lambda left, right, sizes=MEASURED: Made(tmp_path, spark, left, right, sizes=sizes)


@pytest.mark.slow
@pytest.mark.parametrize("small_bytes", [None, 0])
def test_a_snapshot_replaces_the_table_whenever_it_comes(made: Callable[..., Made], small_bytes: int | None) -> None:
    sizes = MEASURED if small_bytes is None else Sizes(small_bytes=small_bytes)  # 0: as large loads are read
    its = made("format: csv, contents: snapshot", "format: rows, contents: snapshot", sizes)
    its.land("left", "0.csv", "id,fk,v\n1,a,x\n2,b,y\n")
    its.land("right", "0.jsonl", '{"k": "a", "name": "A"}\n{"k": "b", "name": "B"}\n')
    counts = its.run(proved=False)
    assert counts["left_changelog"][0] == {"read": 2, "events": 2, "rows": 3, "truncates": 1, "snapshots": 1}
    assert its.result() == ["1 x A", "2 y B"]
    its.land("left", "2.csv", "id,fk,v\n2,a,y2\n3,a,z\n")
    its.land("right", "2.jsonl", '{"k": "a", "name": "A2"}\n')
    its.run(proved=False)
    assert its.result() == ["2 y2 A2", "3 z A2"]
    its.land("left", "1.csv", "id,fk,v\n1,a,late\n7,a,late\n")
    its.land("right", "1.jsonl", "")
    its.run(proved=False)
    assert its.result() == ["2 y2 A2", "3 z A2"]
    its.land("right", "3.jsonl", "")
    its.run()
    assert its.result() == ["2 y2 None", "3 z None"]


@pytest.mark.slow
def test_folding_brings_nothing_back_that_a_snapshot_removed(tmp_path: Path, spark: SparkSession) -> None:
    folding = "{fold_after_hours: 0, retention_hours: 0}"
    its = Made(tmp_path, spark, "format: rows, contents: snapshot", "format: rows", folding)

    def rows(*found: tuple[int, str]) -> str:
        return "".join(json.dumps({"id": ident, "fk": "a", "v": v}) + "\n" for ident, v in found)

    its.land("right", "0.jsonl", '{"k": "a", "name": "A"}\n')
    removed = 0
    for batch, found, expected in [
        (0, rows((1, "x"), (2, "y")), ["1 x A", "2 y A"]),
        (4, rows((2, "y4"), (3, "z")), ["2 y4 A", "3 z A"]),
        (2, rows((1, "late"), (7, "late")), ["2 y4 A", "3 z A"]),
        (6, rows((3, "z6"), (1, "again")), ["1 again A", "3 z6 A"]),
        (5, rows((2, "late")), ["1 again A", "3 z6 A"]),
    ]:
        its.land("left", f"{batch}.jsonl", found)
        its.run()
        assert its.result() == expected, batch
        removed += sum(one.removed for one in its.pipeline.compact() if one.table == "left_changelog")
    assert removed, "nothing was folded"


@pytest.mark.slow
def test_a_snapshot_that_breaks_off_changes_nothing(made: Callable[[str, str], Made]) -> None:
    its = made("format: csv, contents: snapshot", "format: rows")
    its.land("left", "0.csv.gz", gzip.compress(b"id,fk,v\n1,a,x\n2,b,y\n"))
    its.run()
    its.land("left", "1.csv.gz", gzip.compress(b"id,fk,v\n1,a,x\n2,b,y\n" * 100)[:-20])
    with pytest.raises(LandingError, match="the snapshot is unreadable from byte"):
        its.pipeline.run()
    assert its.result() == ["1 x None", "2 y None"]
    its.land("left", "1.csv.gz", gzip.compress(b"id,fk,v\n3,a,x\n"))
    its.run()
    assert its.result() == ["3 x None"]


@pytest.mark.slow
@pytest.mark.connect
def test_a_snapshot_whose_last_record_is_bad_changes_nothing(made: Callable[[str, str], Made]) -> None:
    its = made("format: rows", "format: rows, contents: snapshot")
    its.land("right", "0.jsonl", '{"k": "a", "name": "A"}\n{"k": "b", "name": "B"}\n')
    its.run()
    its.land("right", "1.jsonl", '{"k": "a", "name": "A"}\n{"k": "b", "na')
    with pytest.raises(LandingError, match="the last record of the snapshot is bad: not a JSON object"):
        its.pipeline.run()
    its.land("right", "1.jsonl", '{"k": "a", "name": "A"}\n{"k": null}\n{"k": "c", "name": "C"}\n')
    assert its.run()["right_table"][1]["quarantined"] == 1
    assert its.pipeline.table("right_table").where("NOT _fk_hash IS NULL").count() == 2
    its.land("right", "undated.jsonl", "")
    with pytest.raises(LandingError, match="a snapshot file has no batch number"):
        its.pipeline.run()


@pytest.mark.slow
def test_the_tail_of_a_file_that_breaks_off_is_one_quarantined_record(made: Callable[[str, str], Made]) -> None:
    its = made("format: rows", "format: rows")
    whole = gzip.compress("".join(json.dumps({"id": i, "fk": "a", "v": "x" * i}) + "\n" for i in range(300)).encode())
    its.land("left", "0.jsonl.gz", whole[: len(whole) // 2])
    its.land("left", "1.jsonl.gz", "no gzip at all")
    its.land("right", "0.jsonl", '{"k": "a", "name": "A"}\n')
    counts = its.run()["left_changelog"]
    read = counts[0]["rows"]
    assert 10 < read < 300
    assert counts[0] == {"read": read + 1, "events": read, "rows": read, "quarantined": 1}
    assert counts[1] == {"read": 1, "rows": 0, "quarantined": 1}
    bad = its.pipeline.table("quarantine").orderBy("_fk_batch").collect()
    assert [row["_fk_line"] for row in bad] == [read + 1, 1]
    assert bad[0]["_fk_reason"].startswith(f"unreadable from byte {len(whole) // 2}: ")
    assert bad[0]["_fk_raw"].startswith('{"id": ')
    assert not list((its.folder / "warehouse" / "made" / "readable").glob("*"))
    its.land("left", "0.jsonl.gz", whole)
    assert its.run()["left_changelog"][0]["rows"] == 300
    assert its.pipeline.table("quarantine").count() == 1


def commit(its: Made, *statements: str) -> None:
    for statement in statements:
        its.spark.sql(
            statement.replace("LEFT", f"delta.`{its.folder}/left`").replace("RIGHT", f"delta.`{its.folder}/right`")
        )


@pytest.mark.slow
def test_changes_of_delta_tables(made: Callable[[str, str], Made]) -> None:
    its = made("format: delta", "format: delta")
    assert its.pipeline.run() == []  # no table, nothing to read
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    commit(
        its,
        f"CREATE TABLE LEFT (id INT, fk STRING, v STRING, block INT) USING delta {feed}",
        "CREATE TABLE RIGHT (k STRING, name STRING) USING delta",
        "INSERT INTO LEFT VALUES (1, 'a', 'x', 0), (2, 'b', 'y', 0), (3, 'a', 'z', 0)",
        "INSERT INTO RIGHT VALUES ('a', 'A'), ('b', 'B')",
    )
    counts = its.run()
    assert counts["left_changelog"][0] == {"read": 3, "events": 3, "rows": 4, "truncates": 1, "snapshots": 1}
    assert its.result() == ["1 x A", "2 y B", "3 z A"]
    assert its.pipeline.run() == []
    commit(
        its,
        "UPDATE LEFT SET v = 'x2' WHERE id = 1",
        "UPDATE LEFT SET id = 4 WHERE id = 3",
        "DELETE FROM LEFT WHERE id = 2",
        "INSERT INTO LEFT VALUES (2, 'b', 'again', 0), (5, null, 'w', 0)",
        "DELETE FROM RIGHT WHERE k = 'b'",
    )
    counts = its.run()
    assert counts["left_changelog"][1] == {"read": 7, "events": 7, "rows": 5, "superseded": 2, "tombstones": 1}
    assert its.result() == ["1 x2 A", "2 again None", "4 z A", "5 w None"]
    its.pipeline.rebuild("landing")
    assert its.result() == ["1 x2 A", "2 again None", "4 z A", "5 w None"]
    commit(its, "DELETE FROM RIGHT", "INSERT INTO RIGHT VALUES ('b', 'B2')")
    its.run()
    assert its.result() == ["1 x2 None", "2 again B2", "4 z None", "5 w None"]


@pytest.mark.slow
def test_versions_that_are_gone_are_not_read_again(made: Callable[[str, str], Made]) -> None:
    its = made("format: delta", "format: rows")
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    commit(its, f"CREATE TABLE LEFT (id INT, fk STRING, v STRING, w INT) USING delta {feed}")
    for batch in range(3):
        if batch == 2:  # as VACUUM does
            current = {Path(uri).name for uri in DeltaTable(str(its.folder / "left")).file_uris()}
            for old in (its.folder / "left").rglob("*.parquet"):
                if old.name not in current:
                    old.unlink()
        insert = f"INSERT INTO LEFT VALUES ({batch}, 'a', 'x', {batch})"
        commit(its, insert, f"UPDATE LEFT SET v = 'y' WHERE id = {batch}")
        its.run()
    file = its.pipeline.spec.file
    file.write_text(
        file.read_text().replace("v STRING", "v STRING, w INT").replace("[id, v, name]", "[id, v, name, w]")
    )
    its.pipeline = Pipeline(load_spec(file), its.spark)
    notes = [note for run in its.pipeline.run() for note in run.notes]
    # The files of version 2, which the first batch is, are still those of the table.
    assert [note.split("@")[-1] for note in notes] == ["3..4 are not kept any more; the stored partition was kept"]
    report = its.pipeline.verify()
    assert (report.ok, report.due) == (True, 0)
    rows = its.pipeline.table("resolved_join").select("id", "v", "w").collect()
    assert {tuple(row) for row in rows} == {(0, "y", 0), (1, "y", None), (2, "y", 2)}


def test_a_delta_table_that_was_made_anew_is_refused(made: Callable[[str, str], Made]) -> None:
    its = made("format: delta", "format: rows")
    commit(its, "CREATE TABLE LEFT (id INT, fk STRING, v STRING) USING delta", "INSERT INTO LEFT VALUES (1, 'a', 'x')")
    its.pipeline.discover()
    shutil.rmtree(its.folder / "left")
    commit(its, "CREATE TABLE LEFT (id INT, fk STRING, v STRING) USING delta")
    commit(its, *["INSERT INTO LEFT VALUES (1, 'a', 'x')"] * 2)
    with pytest.raises(LandingError, match=r"another table than before, .* at version 2"):
        its.pipeline.run()


def test_options_that_do_not_fit_are_refused(made: Callable[[str, str], Made]) -> None:
    for left, problem in [
        ("format: debezium, contents: snapshot", "a snapshot is plain rows"),
        ("format: rows, op_column: op, contents: snapshot", "a snapshot is plain rows"),
        ("format: delta, batch_by: arrival", "batch_by goes with files"),
        ("format: rows, contents: snapshot, batch_by: arrival", "number snapshots"),
        ("format: rows, csv: {delimiter: ;}", "csv goes with formats csv and dms"),
        ("format: csv, table: t", "table goes with formats whose lines name one"),
        ("format: delta, sequence_by: v", "sequence_by goes with files"),
        ("format: maxwell, op_column: op", "op_column goes with plain rows"),
        ("format: rows, logical_types: {v: epoch_millis}", "epoch_millis is read into TIMESTAMP; 'v' is STRING"),
        ("format: rows, logical_types: {w: epoch_millis}", "column 'w' is not in the schema"),
        ("format: csv, csv: {delimiter: ab}", "left.csv.delimiter: "),
        ("format: csv, csv: {delimiter: '\"'}", "left.csv.delimiter: "),
        ("format: avro", "'avro' is not a format that this version reads"),
    ]:
        with pytest.raises(PipelineFileError, match=problem):
            made(left, "format: rows")


@pytest.mark.slow
@pytest.mark.connect
def test_a_missing_version_of_a_delta_table_fails_the_stage(made: Callable[[str, str], Made]) -> None:
    its = made("format: delta", "format: rows")
    commit(its, "CREATE TABLE LEFT (id INT, fk STRING, v STRING) USING delta", "INSERT INTO LEFT VALUES (1, 'a', 'x')")
    its.pipeline.discover()
    for file in (its.folder / "left").glob("*.parquet"):
        file.unlink()
    its.land("right", "0.jsonl", '{"k": "a", "name": "A"}\n')
    its.pipeline.discover()
    with pytest.raises(LandingError) as refused:
        its.pipeline.run()
    told = str(refused.value)
    assert "pipeline made, batch 0: versions left@..1 are not kept any more, and were not read before" in told
    assert f"Fix: fk-pipeline remove-batch {its.pipeline.spec.file} 0; the next run takes the whole table" in told
    assert told.endswith("what else is in batch 0 stays")
    assert its.pipeline.ledger().due.of("left_changelog") == [0]
    its.pipeline.remove_batch(0)
    commit(its, "DELETE FROM LEFT", "INSERT INTO LEFT VALUES (2, 'a', 'y')")
    its.run()
    assert its.result() == ["2 y A"]


@pytest.mark.slow
def test_the_fix_for_versions_that_are_gone_loses_nothing_of_either_side(made: Callable[[str, str], Made]) -> None:
    its = made("format: delta", "format: delta")
    left, right = f"{its.folder}/left", f"{its.folder}/right"
    feed = {"delta.enableChangeDataFeed": "true"}

    def add(table: str, **row: Any) -> None:
        kinds = {"id": pa.int32()}
        rows = pa.table({name: pa.array([value], kinds.get(name, pa.string())) for name, value in row.items()})
        write_deltalake(table, rows, mode="append", configuration=feed)

    def joined() -> list[str]:
        names = {row["k"]: row["name"] for row in DeltaTable(right).to_pyarrow_table().to_pylist()}
        rows = DeltaTable(left).to_pyarrow_table().to_pylist()
        return sorted(f"{row['id']} {row['v']} {names.get(row['fk'])}" for row in rows)

    add(left, id=1, fk="a", v="x")
    add(left, id=2, fk="b", v="x")
    add(right, k="a", name="A")
    its.run()
    DeltaTable(left).delete("id = 1")
    add(left, id=3, fk="b", v="x")
    add(right, k="b", name="B")
    its.pipeline.discover()  # batch 1: versions of both sides
    add(left, id=4, fk="c", v="x")
    its.pipeline.discover()  # batch 2: of the left one
    add(right, k="c", name="C")
    its.pipeline.discover()  # batch 3: of the right one
    DeltaTable(left).optimize.compact()
    DeltaTable(left).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    for file in Path(left).glob("_change_data/*.parquet"):
        file.unlink()
    with pytest.raises(LandingError) as refused:
        its.pipeline.run()
    fix = str(refused.value.fix)
    commands = re.findall(r"fk-pipeline (remove-batch) (\S+) (\d+)", fix)
    assert [int(batch) for _, _, batch in commands] == [1, 2]
    assert fix.endswith("; the next run takes the whole table instead, and what else is in these batches stays")
    for number, command in enumerate(commands):
        add(left, id=5 + number, fk="c", v="y")  # the source goes on, and the sensor looks
        add(right, k=f"d{number}", name="D")
        its.pipeline.discover()
        done = CliRunner().invoke(app, [*command])
        assert done.exit_code == 0, done.output
    its.run()
    assert its.result() == joined() == ["2 x B", "3 x B", "4 x C", "5 y C", "6 y C"]
    assert its.pipeline.ledger().files.removed == set()
    assert [f.path for f in its.pipeline.ledger().files.of(1, Side.RIGHT)] == ["right@1..1"]


@pytest.mark.slow
def test_a_delta_table_that_was_replaced_in_place_is_taken_whole(made: Callable[[str, str], Made]) -> None:
    its = made("format: delta", "format: rows")
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    commit(
        its,
        f"CREATE TABLE LEFT (id INT, fk STRING, v STRING) USING delta {feed}",
        "INSERT INTO LEFT VALUES (1, 'a', 'x')",
    )
    its.run()
    replaced = "SELECT 2 AS id, 'a' AS fk, 'y' AS v, 7 AS w"
    commit(its, f"CREATE OR REPLACE TABLE LEFT USING delta {feed} AS {replaced}")
    counts = its.run()
    assert counts["left_changelog"][1] == {
        "read": 1,
        "events": 1,
        "rows": 2,
        "truncates": 1,
        "snapshots": 1,
        "rows with new fields": 1,
    }
    assert its.result() == ["2 y None"]
    commit(its, "UPDATE LEFT SET v = 'z'")
    counts = its.run()
    assert "truncates" not in counts["left_changelog"][2]
    assert its.result() == ["2 z None"]


@pytest.mark.slow
def test_a_rebuild_from_versions_that_are_gone_is_refused(made: Callable[[str, str], Made]) -> None:
    its = made("format: delta", "format: rows")
    commit(its, "CREATE TABLE LEFT (id INT, fk STRING, v STRING) USING delta", "INSERT INTO LEFT VALUES (1, 'a', 'x')")
    its.run()
    for file in (its.folder / "left").glob("*.parquet"):
        file.unlink()
    with pytest.raises(StateError, match=r"1 landing file\(s\) are gone, the first: left@\.\.1"):
        its.pipeline.rebuild("landing")
    its.pipeline.rebuild()
    assert its.result() == ["1 x None"]
