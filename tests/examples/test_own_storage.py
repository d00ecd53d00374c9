"""examples/python/own_storage.py, and the stage functions that it is made of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import fk_pipeline as fk
from fk_pipeline.errors import UsageError

SCRIPT = Path(__file__).parents[2] / "examples" / "python" / "own_storage.py"

pytestmark = [pytest.mark.docs, pytest.mark.spark, pytest.mark.usefixtures("python_on_executors")]


def test_the_script_keeps_its_own_tables(
    loaded: Any, tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = loaded(SCRIPT).main(tmp_path, spark)
    assert [tuple(row) for row in rows] == [(1, 12, "Bob"), (2, 3, "Bob"), (3, 7, None)]
    assert capsys.readouterr().out.splitlines()[:3] == [
        "batch 0: 1 half-joined, 1 joined",
        "batch 1: 1 joined",
        "batch 2: 1 half-joined, 1 joined",
    ]
    assert sorted(folder.name for folder in (tmp_path / "tables").iterdir()) == [
        "left_changelog", "resolved_join", "right_changelog", "right_table", "subscription_store",
    ]  # fmt: skip


def spec_of(folder: Path, join: str = "left", left: str = "", right: str = "") -> Any:
    file = folder / "pipeline.yaml"
    file.write_text(
        f"name: mine\njoin: {join}\nleft: {{path: none, format: rows, schema: 'id INT, fk STRING, v INT, at INT', "
        f"key: id, foreign_key: fk{left}}}\nright: {{path: none, format: rows, schema: 'k STRING, name STRING', "
        f"key: k{right}}}\nselect: [id, v, name]\n"
    )
    return fk.load(file).spec


class Tables:
    """Tables in memory, and the stages over them, each for any batch at any time."""

    def __init__(self, stages: fk.StageFunctions, batches: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> None:
        self.stages, self.batches = stages, batches
        names = ("left_changelog", "right_changelog", "right_table", "subscription_store", "responses", "resolved_join")
        self.tables = {name: stages.empty(name) for name in names}

    def frame(self, rows: Sequence[Any], ddl: str) -> DataFrame:
        return self.stages.session.createDataFrame(list(rows), f"{ddl}, gone BOOLEAN")

    def keep(self, name: str, rows: DataFrame) -> None:
        self.tables[name] = rows.localCheckpoint()

    def replace(self, name: str, rows: DataFrame, batch: int) -> None:
        self.keep(name, self.tables[name].where(f"_fk_batch <> {batch}").unionByName(rows))

    def run(self, stage: str, batch: int) -> None:
        its, stages = self.tables, self.stages
        left, right = self.batches[batch]
        if stage == "left_changelog":
            rows = self.frame(left, "id INT, fk STRING, v INT, at INT")
            self.replace(stage, stages.changelog("left", rows, batch, deleted="gone"), batch)
        elif stage == "right_table":
            rows = self.frame(right, "k STRING, name STRING")
            self.replace("right_changelog", stages.changelog("right", rows, batch, deleted="gone"), batch)
            changed = stages.right_table(its["right_changelog"], its[stage], batch)
            self.keep(stage, stages.put(stage, its[stage], changed))
        elif stage == "subscription_store":
            changed = stages.subscription_store(its["left_changelog"], its[stage], batch)
            self.keep(stage, stages.put(stage, its[stage], changed))
        elif stage == "responses":
            self.replace(stage, stages.responses(its["subscription_store"], its["right_table"], batch), batch)
        else:
            due = its["responses"].where(f"_fk_batch = {batch}")
            both = its["subscription_store"], its["right_table"]
            verdicts = stages.verdicts(due, *both, its["left_changelog"], its["resolved_join"])
            alone = stages.unmatched_rights(verdicts, its["right_table"], its[stage], batch)
            self.keep(stage, stages.put(stage, its[stage], stages.resolved_join(verdicts).unionByName(alone)))

    def result(self) -> set[tuple[Any, ...]]:
        return {(row["id"], row["v"], row["name"]) for row in self.tables["resolved_join"].collect()}


@pytest.mark.slow
@pytest.mark.parametrize("join", ["left", "inner", "outer"])
def test_batches_in_any_order_give_the_join(join: str, tmp_path: Path, spark: SparkSession) -> None:
    chance = random.Random(7)
    batches, orders, names = [], {}, {}
    for at in range(4):
        left = [(i, chance.choice(["a", "b", "c", None]), at * 10 + i, at, chance.random() < 0.25) for i in range(6)]
        right = [(k, f"{k}{at}", chance.random() < 0.3) for k in "abc" if chance.random() < 0.6]
        left = chance.sample(left, 4)
        orders |= {row[0]: None if row[4] else row for row in left}
        names |= {row[0]: None if row[2] else row[1] for row in right}
        batches.append((left, right))
    expected = {(i, row[2], names.get(row[1])) for i, row in orders.items() if row is not None}
    if join == "inner":
        expected = {row for row in expected if row[2] is not None}
    if join == "outer":
        referred = {row[1] for row in orders.values() if row is not None}
        expected |= {(None, None, name) for k, name in names.items() if name is not None and k not in referred}
    tables = Tables(fk.StageFunctions(spec_of(tmp_path, join), spark), batches)
    stages = ["left_changelog", "right_table", "subscription_store", "responses", "resolved_join"]
    order = [2, 0, 3, 1]
    for batch in order[:2]:
        for stage in stages:
            tables.run(stage, batch)
    for stage in stages:  # the others stage by stage: their answers cross
        for batch in order[2:]:
            tables.run(stage, batch)
    assert tables.result() == expected
    for stage in stages:  # once more changes nothing
        tables.run(stage, 3)
    assert tables.result() == expected


def test_several_rows_of_a_key_are_ordered_by_the_sequence(tmp_path: Path, spark: SparkSession) -> None:
    stages = fk.StageFunctions(spec_of(tmp_path, left=", sequence_by: at"), spark)
    rows = spark.createDataFrame(
        [(1, "a", 10, 2), (1, "b", 20, 1), (2, "b", 30, 5)], "id INT, fk STRING, v INT, at INT"
    )
    log = stages.changelog("left", rows, 4, generation=1).orderBy("id").collect()
    assert [(row["id"], row["fk"], row["v"], row["_fk_events"]) for row in log] == [(1, "a", 10, 2), (2, "b", 30, 1)]
    assert {(row["_fk_batch"], row["_fk_generation"], row["_fk_op"]) for row in log} == {(4, 1, "u")}
    lacking = spark.createDataFrame([(1, "a", 10, None)], rows.schema)
    with pytest.raises(PySparkException, match="a left row: sequence_by is null"):
        stages.changelog("left", lacking, 5).collect()


def test_what_the_functions_cannot_use_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    stages = fk.StageFunctions(spec_of(tmp_path), spark)
    nobody = spark.createDataFrame([(None, "a", 1, 1)], "id INT, fk STRING, v INT, at INT")
    with pytest.raises(PySparkException, match="a left row has no id, which is its key"):
        stages.changelog("left", nobody, 0).collect()
    with pytest.raises(UsageError, match="there is no table 'nonsense'"):
        stages.empty("nonsense")
    with pytest.raises(UsageError, match="not put in place in 'responses'"):
        stages.put("responses", stages.empty("responses"), stages.empty("responses"))
    debezium = spec_of(tmp_path).file
    debezium.write_text(debezium.read_text().replace("format: rows", "format: debezium", 1))
    with pytest.raises(UsageError, match=r"left\.format is debezium: its order is in the files"):
        fk.StageFunctions(fk.load(debezium).spec, spark)
