"""What a change of an input would touch of a query, told before it is made: a run then does the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import UsageError
from tests.kinds.query.test_query import SUMS
from tests.kinds.query.world import TABLES, World

pytestmark = pytest.mark.spark

FORMS = {
    "rows": "SELECT f.id, f.v, d.w FROM fact f LEFT JOIN dim d ON d.id = f.dim WHERE f.v > 0",
    "sums": SUMS,
    "two": (
        "WITH a AS (SELECT dim, MAX(v) AS m FROM fact GROUP BY dim) SELECT dim, m, w FROM (SELECT a.dim, a.m, d.w, "
        "ROW_NUMBER() OVER (PARTITION BY d.region ORDER BY a.m, a.dim) AS r FROM a JOIN dim d ON d.id = a.dim) AS x "
        "WHERE r <= 2"
    ),
    "far": "SELECT f.id, r.zone FROM fact f JOIN dim d ON d.id = f.dim JOIN region r ON r.id = d.region AND r.zone > 1",
}


EFFECTS = {"insert": "added", "update": "written", "delete": "removed"}
"""What `impact` calls the changes of a run."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> World:
    made = World(tmp_path_factory.mktemp("impact"), spark)
    for name, text in FORMS.items():
        made.query(name, text)
    made.land("fact", 0, (1, 1, 1, 5), (2, 2, 1, 6), (3, 2, 2, None), (4, 9, 1, 2), (5, None, 2, 2), (6, 3, 3, 4))
    made.land("dim", 0, (1, 1, 1), (2, None, 2), (3, 1, 2))
    made.land("region", 0, (1, 1), (2, 3))
    for name in (*TABLES, *FORMS):
        made.at(name).run()
    return made


def impact(world: World, name: str, *args: object) -> dict[str, Any]:
    """Returns what the command tells as JSON."""
    ended = CliRunner().invoke(app, ["impact", str(world.folder / f"{name}.yaml"), *map(str, args), "--format", "json"])
    assert ended.exit_code == 0, ended.output + repr(ended.exception)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def file_of(world: World, table: str, *rows: tuple[Any, ...]) -> Path:
    """Returns a file outside the landing folder; a row of a key alone is a delete."""
    file = world.folder / f"{table}.jsonl"
    lines = [{"op": "d" if len(row) == 1 else "u", **dict(zip(TABLES[table], row, strict=False))} for row in rows]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_any_change_of_a_row_is_told_by_its_key(world: World) -> None:
    found = impact(world, "sums", "--input", "dim", "--key", 3)
    assert [(one["block"], one["unit"], one["anchor"], one["anchors"]) for one in found["blocks"]] == [
        ("result", "group", "fact", 1)
    ]
    rows = [{"region": None, "n": 4, "s": 10}, {"region": 1, "n": 2, "s": 9}]  # if it goes, its fact has no region
    assert found["sample"] == [{"effect": "touched", "row": row} for row in rows]
    assert (found["blocks"][0]["units"], found["blocks"][0]["rows"], found["result_rows"]) == (2, {"touched": 2}, 2)
    assert (found["input"], found["change"], found["input_rows"]) == ("dim", "3", {"changed or removed": 1})
    through = impact(world, "two", "--input", "fact", "--key", 6, "--limit", 1)
    reached = [(one["block"], one["anchors"], one["units"]) for one in through["blocks"]]
    assert reached == [("a", 1, 1), ("result", 1, 1)]  # a group of a block, and a partition of the next
    assert (through["result_rows"], len(through["sample"])) == (2, 1)
    new = impact(world, "rows", "--input", "dim", "--key", 9)  # there is no such row, but one that refers to it
    assert (new["input_rows"], new["result_rows"]) == ({"added": 1}, 1)
    assert new["sample"] == [{"effect": "touched", "row": {"id": 4, "v": 2, "w": None}}]
    group = impact(world, "sums", "--input", "dim", "--key", 9)
    assert [(one["anchors"], one["rows"]) for one in group["blocks"]] == [(1, {})]
    assert impact(world, "far", "--input", "dim", "--key", 77)["result_rows"] == 0
    assert impact(world, "far", "--input", "region", "--key", 7)["blocks"][0]["anchors"] == 0
    file = file_of(world, "dim", (3, 5, 2), (2, None, 7))
    assert impact(world, "sums", "--input", "dim", "--changes", file)["sample"] == [
        {"effect": "added", "row": {"region": 5, "n": 1, "s": 4}},
        {"effect": "written", "row": {"region": 1, "n": 1, "s": 5}},
    ]
    shown = CliRunner().invoke(app, ["impact", str(world.folder / "sums.yaml"), "--input", "dim", "--key", "3"]).stdout
    assert "result: 1 anchor in fact, in 2 groups: 2 rows touched" in shown
    assert "2 rows of the result are made of it" in shown


@pytest.mark.slow
def test_the_changes_in_a_file_are_told_as_a_run_makes_them(world: World) -> None:
    changes = {
        "fact": ((1, 2, 1, 7), (2,), (6, 3, 3, 4), (7, 3, 1, 9), (8, 1, 2, 0)),
        "dim": ((1, 4, 1), (2,), (9, 1, 5)),
    }
    for number, (table, rows) in enumerate(changes.items(), start=1):
        file = file_of(world, table, *rows)
        told = {name: impact(world, name, "--input", table, "--changes", file) for name in FORMS}
        before = {name: Counter(world.check(name, prove=False)) for name in FORMS}
        world.land(table, number, *rows)
        world.at(table).run()
        for name, found in told.items():
            world.at(name).run()
            after = Counter(world.check(name, prove=False))
            changed = world.at(name).changes(number).groupBy("_change_type").count().collect()
            assert {EFFECTS[row[0]]: row[1] for row in changed} == found["blocks"][-1]["rows"], (name, table)
            assert sum(row[1] for row in changed) == found["result_rows"] == len(found["sample"])
            rows_of = {True: list[Any](), False: list[Any]()}
            for one in found["sample"]:
                rows_of[one["effect"] == "removed"].append(tuple(one["row"].values()))
            assert Counter(rows_of[True]) <= before[name] - after
            assert Counter(rows_of[False]) == after - before[name]
        if table == "fact":
            assert told["sums"]["input_rows"] == {
                "added": 2, "changed": 1, "removed": 1, "nothing: no selected column differs": 1
            }  # fmt: skip


def test_what_cannot_be_told_is_refused_with_the_way_out(world: World) -> None:
    refused = {
        ("--key", "3"): "impact needs the input that changes: fact, dim",
        ("--input", "x", "--key", "3"): "'x' is no input of pipeline sums",
        ("--input", "dim"): "impact needs the key of a row of dim, or a file of changes",
        ("--input", "dim", "--key", "a"): "'a' is no BIGINT",
        ("--input", "dim", "--changes", "none.csv"): "none.csv: input dim's format is rows",
        ("--input", "dim", "--changes", "none.jsonl"): "none.jsonl: no such file",
        ("--input", "dim", "--key", "3", "--from", "1"): "a query has none",
    }
    for args, message in refused.items():
        ended = CliRunner().invoke(app, ["impact", str(world.folder / "sums.yaml"), *args])
        assert isinstance(ended.exception, UsageError), args
        assert message in str(ended.exception)
    ended = CliRunner().invoke(app, ["impact", str(world.folder / "fact.yaml"), "--input", "dim", "--key", "3"])
    assert "only a query has inputs to choose from" in str(ended.exception)
