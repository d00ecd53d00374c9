"""Sources that send other fields than before, and schemas that are edited (docs/reference/schema-changes.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.blocks.drift import NEW_FIELDS, NOT_COMPARED
from fk_pipeline.blocks.unsent import ROWS_WITHOUT
from fk_pipeline.errors import SchemaChangedError, StateError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults
from tests.deaths import Killed

pytestmark = pytest.mark.spark

FILE = """\
name: made
join: left
left: {path: left, format: rows, schema: 'id INT, fk STRING, v STRING', key: id, foreign_key: fk}
right: {path: right, format: csv, schema: 'k STRING, name STRING', key: k}
"""


class Made:
    """A pipeline that selects every column, of JSON rows and of CSV files with a header."""

    def __init__(self, folder: Path, spark: SparkSession, file: str) -> None:
        self.folder, self.spark, self.file = folder, spark, folder / "pipeline.yaml"
        for side in ("left", "right"):
            (folder / side).mkdir(exist_ok=True)
        self.edit(file)

    def edit(self, file: str) -> None:
        self.file.write_text(file)
        self.pipeline = Pipeline(load_spec(self.file), self.spark)

    def change(self, *pairs: tuple[str, str]) -> None:
        text = self.file.read_text()
        for old, new in pairs:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        self.edit(text)

    def left(self, batch: int, *rows: dict[str, Any]) -> None:
        self.land("left", f"{batch}.jsonl", (json.dumps(row) for row in rows))

    def right(self, batch: int, *rows: str) -> None:
        self.land("right", f"{batch}.csv", rows)

    def land(self, side: str, name: str, lines: Iterable[str]) -> None:
        path = self.folder / side / name
        path.write_text("".join(f"{line}\n" for line in lines))

    def run(self) -> tuple[dict[Stage, dict[int, dict[str, int]]], list[str]]:
        """Runs what is due and proves it; the counts per stage and batch, and the notes."""
        found: dict[Stage, dict[int, dict[str, int]]] = {}
        notes: list[str] = []
        for run in self.pipeline.run():
            found.setdefault(run.stage, {}).update(run.counts)
            notes += run.notes
        self.proved()
        return found, notes

    def warnings(self) -> list[str]:
        """Reads what has landed; the warnings."""
        done = self.pipeline.run(stages=[Stage.LEFT_CHANGELOG, Stage.RIGHT_TABLE])
        return [warning for run in done for warning in run.warnings]

    def proved(self, due: int = 0) -> None:
        report = self.pipeline.verify()
        assert (report.ok, report.due) == (True, due), report

    def result(self, *columns: str) -> list[str]:
        rows = self.pipeline.table("resolved_join").select("id", *columns).collect()
        return sorted(" ".join(str(value) for value in row) for row in rows)

    def written(self) -> dict[int, int]:
        """By key, the batch of the last change of its row."""
        return {r[0]: r[1] for r in self.pipeline.table("resolved_join").select("id", "_fk_batch").collect()}

    def operations(self, table: str) -> list[str]:
        history = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.pipeline.spec.home}/{table}`")
        return [row["operation"] for row in history.orderBy("version").collect()]


@pytest.fixture
def made(tmp_path: Path, spark: SparkSession) -> Callable[..., Made]:
    return lambda file=FILE: Made(tmp_path, spark, file)


def before_an_added_column(its: Made) -> None:
    """Three batches; from the second on the left source sends `note`, which nobody has declared."""
    its.left(0, {"id": 1, "fk": "a", "v": "x"}, {"id": 2, "fk": "b", "v": "y"})
    its.right(0, "k,name", "a,A", "b,B")
    its.run()
    its.left(1, {"id": 2, "fk": "b", "v": "y2", "note": "n2"}, {"id": 3, "fk": "b", "v": "z"})
    its.left(2, {"id": 4, "fk": "a", "v": "w"})


@pytest.mark.slow
@pytest.mark.connect
def test_an_added_column_is_taken_over_in_place_with_the_values_of_every_batch(made: Callable[..., Made]) -> None:
    its = made()
    before_an_added_column(its)
    counts, notes = its.run()
    assert notes == ["batch 1: left rows have a field that is not in the schema: note"]
    assert counts[Stage.LEFT_CHANGELOG][1][NEW_FIELDS] == 1
    assert its.result("v", "name") == ["1 x A", "2 y2 B", "3 z B", "4 w A"]
    its.change(("v STRING'", "v STRING, note STRING'"))
    plan = its.pipeline.plan()
    assert (plan.stale, plan.fix) == ({}, "")
    why = {stage.stage: stage.why for stage in plan.stages}
    assert why[Stage.LEFT_CHANGELOG] == dict.fromkeys((1, 2), "column note was added to the schema")
    assert why[Stage.RIGHT_TABLE] == {}
    with pytest.raises(StateError, match=r"(?s)columns were added to the schema.*fk-pipeline run"):
        its.pipeline.table("resolved_join")
    tables = ("left_changelog", "resolved_join")
    operations = {table: its.operations(table) for table in tables}
    counts, notes = its.run()
    assert notes == []
    assert [*counts[Stage.LEFT_CHANGELOG]] == [1, 2]
    assert its.result("v", "note", "name") == ["1 x None A", "2 y2 n2 B", "3 z None B", "4 w None A"]
    assert its.written() == {1: 0, 2: 1, 3: 1, 4: 2}
    verdicts = its.pipeline.table("verdicts").where("_fk_batch IN (1, 2)").collect()
    assert {row["_fk_pk_id"]: row["_fk_verdict"] for row in verdicts} == {2: "joined", 3: "unchanged", 4: "unchanged"}
    for table in tables:
        assert its.operations(table)[len(operations[table])] == "ADD COLUMNS"
    names = its.spark.read.format("delta").load(f"{its.pipeline.spec.home}/resolved_join").columns
    assert [name for name in names if not name.startswith("_fk_")] == ["id", "fk", "v", "note", "k", "name"]
    its.left(3, {"id": 1, "fk": "b", "v": "x3", "note": "n1"})
    its.right(3, "k,name", "b,B3")
    its.run()
    assert its.result("note", "name") == ["1 n1 B3", "2 n2 B3", "3 None B3", "4 None A"]
    changed = {row["id"]: row["note"] for row in its.pipeline.changes(0).collect()}
    assert changed == {1: None, 2: None}


@pytest.mark.slow
def test_a_column_of_a_right_file_is_told_when_it_comes_and_when_it_goes(made: Callable[..., Made]) -> None:
    its = made(FILE + "select: [id, v, name]\n")
    its.left(0, {"id": 1, "fk": "a", "v": "x"})
    its.right(0, "k,name", "a,A", "b,B")
    _, notes = its.run()
    assert notes == []
    its.right(1, "k,seats", "b,7")
    counts, notes = its.run()
    assert notes == [
        "batch 1: 1 right row(s) have no column name, which batch 0 had",
        "batch 1: right rows have a field that is not in the schema: seats",
    ]
    assert {k: v for k, v in counts[Stage.RIGHT_TABLE][1].items() if k.startswith("rows w")} == {
        f"{ROWS_WITHOUT}name": 1,
        NEW_FIELDS: 1,
    }
    for batches, missing in ((None, 1), (BatchRange.of(1), 1), (BatchRange.of(0), 0)):
        found = violations(its.pipeline, Stage.RIGHT_TABLE, batches).findings["changelog_columns_are_sent"]
        assert found.value == missing
    its.change(("name STRING'", "seats INT, name STRING'"), ("v, name]", "v, name, seats]"))
    its.left(2, {"id": 2, "fk": "b", "v": "y"})
    counts, notes = its.run()
    assert [*counts[Stage.RIGHT_TABLE]] == [1, 2]
    assert its.result("name", "seats") == ["1 A None", "2 None 7"]
    its.right(3, "k,name,seats", "a,A3,9")
    its.run()
    assert its.result("name", "seats") == ["1 A3 9", "2 None 7"]


def test_a_column_of_a_key_or_a_foreign_key_that_is_gone_is_a_warning_with_its_new_name(
    made: Callable[..., Made],
) -> None:
    its = made(FILE.replace("id INT, fk STRING", "id INT, customer_id STRING").replace("key: fk", "key: customer_id"))
    its.left(0, *({"id": n, "customer_id": "a", "v": "x"} for n in (1, 2)))
    its.left(1, {"id": 3, "v": "a null is left out", "amount": 1})
    its.right(0, "k,name", "a,A")
    assert its.warnings() == []
    its.left(2, *({"id": n, "customerId": "a", "v": "x", "amount": 1} for n in (4, 5)))
    its.left(3, {"order_id": 6, "customer_id": "a"}, {"order_id": 7, "customer_id": "a"}, {"id": 8, "customer_id": "a"})
    its.right(2, "k_id,name", "a,A", "b,B")
    new = "if that is its new name,"
    key = "batch 3: 2 left row(s) have no column id, which left.key names: they are in the quarantine."
    refers = "batch 2: 2 left row(s) have no column customer_id, which left.foreign_key names: it is null for them."
    right = "batch 2: 2 right row(s) have no column k, which right.key names: they are in the quarantine."
    add = "add it to left.schema, and write COALESCE(customerId, customer_id) in left.foreign_key"
    assert its.warnings() == [
        f"{key} They have order_id: {new} name it in left.schema and left.key",
        f"{refers} They have customerId: {new} {add}",
        f"{right} They have k_id: {new} name it in right.schema and right.key",
    ]
    its.change(("left: {", "schema_changes: fail\nleft: {"))
    its.left(4, {"order_id": 9, "customer_id": "a"})
    with pytest.raises(SchemaChangedError, match=r"batch 4: 1 left row\(s\) have no column id, which left.key names"):
        its.pipeline.run()


def test_a_column_that_was_renamed_before_the_first_run_stops_its_batch_each_time(made: Callable[..., Made]) -> None:
    its = made(FILE.replace("fk STRING", "customer_id STRING").replace("y: fk", "y: customer_id"))
    its.change(("left: {", "schema_changes: fail\nleft: {"))
    its.left(0, {"id": 1, "customerId": "a", "v": "x"})
    for _ in range(3):
        with pytest.raises(SchemaChangedError, match=r"no column customer_id, which left.foreign_key .*customerId"):
            its.pipeline.run(stages=[Stage.LEFT_CHANGELOG])
    its.change(("schema_changes: fail", "schema_changes: evolve"))
    assert len(its.warnings()) == 1


@pytest.mark.slow
def test_a_source_that_changes_stops_the_batch_where_that_is_wanted(made: Callable[..., Made]) -> None:
    its = made(FILE + "schema_changes: fail\n")
    its.left(0, {"id": 1, "fk": "a", "v": "x", "unused": 1})
    its.right(0, "k,name,unused", "a,A,1")
    its.run()
    its.left(1, {"id": 1, "fk": "a", "v": "x1", "note": 7})
    for _ in range(2):
        with pytest.raises(SchemaChangedError, match="batch 1: left rows have a field that is not in the schema: note"):
            its.pipeline.run()
        assert its.result("v") == ["1 x"]
    its.change(("schema_changes: fail", "schema_changes: evolve"))
    its.run()
    its.change(("schema_changes: evolve", "schema_changes: fail"))
    its.left(2, {"id": 1, "fk": "a", "v": "x2", "note": 8})
    its.run()
    its.right(3, "k,unused", "a,1")
    with pytest.raises(SchemaChangedError, match=r"batch 3: 1 right row\(s\) have no column name, which batch 0 had"):
        its.pipeline.run()
    its.right(3, "k,name,unused", "a,A3,1")
    its.run()
    assert its.result("v", "name") == ["1 x2 A3"]
    its.change(("v STRING'", "v STRING, note STRING'"))
    with pytest.raises(StateError, match=r"rebuild .* --from changelog"):
        its.pipeline.run()


@pytest.mark.slow
def test_rows_that_nobody_compared_are_read_again(made: Callable[..., Made]) -> None:
    its = made(FILE + "schema_changes: ignore\n")
    before_an_added_column(its)
    counts, notes = its.run()
    assert (notes, counts[Stage.LEFT_CHANGELOG][1][NOT_COMPARED]) == ([], 2)
    its.change(("schema_changes: ignore", "schema_changes: evolve"))
    its.left(3, {"id": 1, "fk": "a", "v": "x3"})
    # Values are read of a line that is not quite JSON; its names are not known.
    its.left(4, {"id": 5, "fk": "a", "v": float("nan"), "note": "n5"}, {"id": 6, "fk": "a", "v": "y"})
    counts, _ = its.run()
    assert NOT_COMPARED not in counts[Stage.LEFT_CHANGELOG][3]
    assert counts[Stage.LEFT_CHANGELOG][4][NOT_COMPARED] == 1
    its.change(("v STRING'", "v STRING, note STRING'"))
    counts, _ = its.run()
    assert [*counts[Stage.LEFT_CHANGELOG]] == [0, 1, 2, 4]
    assert its.result("v", "note") == ["1 x3 None", "2 y2 n2", "3 z None", "4 w None", '5 "NaN" n5', "6 y None"]


@pytest.mark.slow
def test_a_wider_type_is_made_of_the_changelogs_and_lets_in_what_did_not_fit(made: Callable[..., Made]) -> None:
    its = made(FILE.replace("v STRING", "v INT, w DECIMAL(5,2)"))
    its.left(0, {"id": 1, "fk": "a", "v": 7, "w": 0.1}, {"id": 2, "fk": "a", "v": 3_000_000_000})
    its.left(1, {"id": 3, "fk": "a", "v": 8})
    its.right(0, "k,name", "a,A")
    counts, _ = its.run()
    assert counts[Stage.LEFT_CHANGELOG][0]["quarantined"] == 1
    hashes = {row["_fk_pk_id"]: row["_fk_hash"] for row in its.pipeline.table("subscription_store").collect()}
    its.change(("v INT, w DECIMAL(5,2)", "v BIGINT, w DECIMAL(9,2)"))
    with pytest.raises(StateError, match=r"(?s)left.schema was .*rebuild .* --from changelog"):
        its.pipeline.run()
    for side in ("left", "right"):  # the landing files of batch 1 and of the right side are not needed
        for file in (its.folder / side).glob("1.*" if side == "left" else "*"):
            file.unlink()
    its.pipeline.rebuild()
    assert its.result("v") == ["1 7", "3 8"]
    counts, _ = its.run()
    assert [*counts[Stage.LEFT_CHANGELOG]] == [0]
    assert its.result("v", "name") == ["1 7 A", "2 3000000000 A", "3 8 A"]
    again = {row["_fk_pk_id"]: row["_fk_hash"] for row in its.pipeline.table("subscription_store").collect()}
    assert {key: again[key] for key in hashes} == hashes
    assert its.pipeline.table("quarantine").count() == 0


@pytest.mark.slow
def test_a_column_that_goes_and_comes_back_has_its_values(made: Callable[..., Made]) -> None:
    its = made()
    its.left(0, {"id": 1, "fk": "a", "v": "x"})
    its.right(0, "k,name", "a,A")
    its.run()
    its.change((", v STRING", ""))
    with pytest.raises(StateError, match=r"rebuild .* --from changelog"):
        its.pipeline.run()
    its.pipeline.rebuild()
    its.proved()
    assert its.result() == ["1"]
    its.left(1, {"id": 2, "fk": "a", "v": "y"})
    _, notes = its.run()
    assert notes == []
    its.change(("fk STRING", "fk STRING, v STRING"))
    counts, _ = its.run()
    assert [*counts[Stage.LEFT_CHANGELOG]] == [0, 1]
    assert its.result("v", "name") == ["1 x A", "2 y A"]


@pytest.mark.slow
def test_an_output_that_is_computed_needs_a_rebuild_of_the_changelogs(made: Callable[..., Made]) -> None:
    its = made(FILE + "select: [id, v]\n")
    before_an_added_column(its)
    its.run()
    its.change(("v STRING'", "v STRING, note STRING'"), ("[id, v]", "[id, v, \"COALESCE(note, 'none') AS said\"]"))
    with pytest.raises(StateError, match=r"rebuild .* --from changelog"):
        its.pipeline.run()
    its.pipeline.rebuild()
    assert its.result("v", "said") == ["1 x none", "2 y2 none", "3 z none", "4 w none"]
    its.proved(due=2)
    its.run()
    assert its.result("v", "said") == ["1 x none", "2 y2 n2", "3 z none", "4 w none"]


@pytest.mark.slow
def test_a_run_that_dies_while_it_adds_columns_can_be_started_again(
    made: Callable[..., Made],
) -> None:
    its = made()
    before_an_added_column(its)
    its.run()
    its.change(("v STRING'", "v STRING, note STRING'"), ("name STRING'", "name STRING, seats INT'"))
    points: list[str] = []

    def die(point: str) -> None:
        if point not in points:
            points.append(point)
            raise Killed

    for _ in range(50):
        try:
            with faults.listening(die):
                its.pipeline.runner.add_columns()
            break
        except Killed:
            its.edit(its.file.read_text())
        if points[-1] != "after entry in fingerprints":
            with pytest.raises(StateError, match="columns were added"):
                its.pipeline.table("resolved_join")
    commits = [f"commit of {name}" for name in ("left_changelog", "right_changelog", "right_table", "resolved_join")]
    entries = [f"entry in {name}" for name in ("runs", "fingerprints")]
    assert points == [f"{when} {what}" for what in [*commits, *entries] for when in ("before", "after")]
    its.run()
    assert its.result("v", "note") == ["1 x None", "2 y2 n2", "3 z None", "4 w None"]
