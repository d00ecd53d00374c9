"""`plan` tells of an aggregate and a windowed join what a run then does, as of a query; `status` has both seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.blocks.refresh.costs import COSTS
from fk_pipeline.cli.main import app
from fk_pipeline.store.ledger.commits import row_metadata
from tests.kinds.aggregate.grouped import Grouped
from tests.kinds.window.near import Near

pytestmark = pytest.mark.spark


def said(made: Grouped | Near, *args: str) -> str:
    ended = CliRunner().invoke(app, [args[0], str(made.file), *args[1:]])
    assert ended.exit_code == 0, ended.output + repr(ended.exception)
    return " ".join(ended.stdout.split())


def planned(made: Grouped | Near) -> dict[str, Any]:
    """Returns what `plan` says of the stage of the result."""
    found: dict[str, Any] = json.loads(said(made, "plan", "--format", "json"))["stages"][-1]
    return found


def run(made: Grouped | Near, stages: list[str] | None = None) -> dict[str, Any]:
    """Runs the pipeline; returns its last run: strategy and reason, and what `status` and the commit say of it."""
    ran = made.pipeline.run(stages=stages)[-1]
    last = json.loads(said(made, "status", "--format", "json"))["last_runs"]
    path = f"{made.pipeline.spec.home}/{ran.stage}"
    facts = row_metadata(path, DeltaTable(path).version()).get(COSTS, {})
    assert ran.choice is not None
    return last.get(ran.stage, {}) | {"facts": facts, "strategy": ran.choice.strategy, "reason": ran.choice.reason}


def rows(first: int, number: int) -> list[dict[str, Any]]:
    return [
        {"op": "u", "id": key, "user": f"u{key % 5}", "at": 100, "v": 7, "note": "x"}
        for key in range(first, first + number)
    ]


@pytest.mark.parametrize(
    ("aggregates", "how"),
    [
        ("[count(*) AS n, sum(v) AS total]", "aggregated: by arithmetic, in groups of user: what changed rows gave is"),
        (
            "[min(v) AS low]",
            "aggregated: by group of user: where a row of a group changed, the group is computed again",
        ),
    ],
)
def test_an_aggregate_is_planned_as_it_runs(tmp_path: Path, spark: SparkSession, aggregates: str, how: str) -> None:
    made = Grouped(tmp_path, spark, aggregates=aggregates)
    made.land(0, rows(100, 200))
    before = planned(made)
    nothing = {"way": "first", "why": "for the first time", "changed_rows": None, "seconds": None}
    assert (before["forecast"], before["estimated_rows"], before["strategy"]) == (nothing, None, "full")
    assert how in said(made, "plan")
    first = run(made)
    assert (first["way"], first["changed_rows"], first["strategy"]) == ("first", 200, "full")
    assert first["seconds"] > 0
    assert first["predicted_seconds"] > 0
    assert "forecast" not in planned(made)
    assert "aggregated: last run first, 200 changed rows" in said(made, "status")

    made.land(1, rows(150, 20))
    due = planned(made)
    [changes, table, _] = json.loads(said(made, "plan", "--format", "json"))["stages"]
    assert changes["estimated_rows"] == table["estimated_rows"] == due["estimated_rows"] == 20
    assert (due["strategy"], due["forecast"]["way"], due["forecast"]["changed_rows"]) == ("incremental", "refresh", 20)
    assert due["reason"].startswith("20 changed rows touch about ")
    assert "aggregated | refresh | about 20 | about " in said(made, "plan")
    run(made, ["changelog", "table"])  # none of these rows is another one than before
    assert planned(made)["forecast"]["changed_rows"] <= 20

    made.land(2, [row | {"v": 8} for row in rows(150, 20)])
    run(made, ["changelog", "table"])
    applied = planned(made)
    assert applied["forecast"]["changed_rows"] >= 20
    last = run(made)
    assert (last["way"], last["strategy"], last["changed_rows"]) == ("refresh", "incremental", 20)
    assert last["predicted_seconds"] == pytest.approx(applied["forecast"]["seconds"], rel=0.1)
    assert [one[0] for one in last["facts"]["earlier"]] == ["first"]


def test_a_windowed_join_is_planned_as_it_runs_and_counts_what_the_clock_passes(
    tmp_path: Path, spark: SparkSession
) -> None:
    made = Near(tmp_path, spark, join="left")
    made.land(0, [("a", 10), ("b", 10), ("c", 11), ("d", 12)], [("a", 10)])
    before = planned(made)
    assert (before["forecast"]["way"], before["forecast"]["seconds"], before["strategy"]) == ("first", None, "full")
    told = said(made, "plan")
    assert "Blocks, each with the tables that it reads: resolved_join: by row: of each of 2 parts the rows that" in told
    assert run(made)["way"] == "first"
    assert "forecast" not in planned(made)

    made.land(1, [], [("z", 99)])
    due = planned(made)
    assert due["strategy"] == "incremental"
    assert due["forecast"]["seconds"] > 0
    beside = "; besides, the rows that the clock passes (clock 12, open rows 4)"
    assert due["reason"] == f"1 changed row touches about 8{beside}" == due["forecast"]["why"]
    last = run(made)
    assert last["reason"].startswith("1 changed row and 4 that the clock passed touch about 8")
    assert (last["way"], last["changed_rows"], last["facts"]["numbers"]["passed"]) == ("refresh", 1, 4)
    assert made.result() == [("a", 10, 10), ("b", 10, None), ("c", 11, None), ("d", 12, None)]
    made.land(2, [("e", 99)])
    assert planned(made)["reason"].endswith("(clock 99, open rows 0)")
    assert run(made)["facts"]["numbers"]["passed"] == 0


def test_a_windowed_join_whose_clock_is_in_no_log_is_planned_whole(tmp_path: Path, spark: SparkSession) -> None:
    made = Near(tmp_path, spark, join="left")
    made.file.write_text(made.file.read_text().replace("on: user, time: at", "on: user, time: at, sensitive: [at]"))
    made = Near.again(made)
    made.land(0, [("a", 10)], [("a", 10)])
    run(made)
    made.land(1, [("b", 20)])
    due = planned(made)
    assert (due["forecast"]["way"], due["reason"]) == ("whole", "the clock that it stands for is not known")
    assert run(made)["reason"].startswith(due["reason"])
