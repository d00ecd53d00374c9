"""Small and large changes through the command: the way that `plan` tells is gone, and predicted stands beside taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.blocks.refresh.costs import ALWAYS_FEW, COSTS, RATES, Rate, Way
from fk_pipeline.cli.main import app
from fk_pipeline.errors import StageError
from fk_pipeline.store.ledger.commits import row_metadata

pytestmark = pytest.mark.spark

NUMBER = ALWAYS_FEW + 2_000
FREE = Rate(0.001)


class Things:
    """A table of others with many rows, and a query over it."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder, self.session, self.file = folder, session, folder / "q.yaml"
        rows = pa.table({"id": pa.array(range(NUMBER), pa.int64()), "v": pa.array([0] * NUMBER, pa.int64())})
        write_deltalake(str(folder / "things"), rows, configuration={"delta.enableChangeDataFeed": "true"})
        self.refresh("auto")

    def refresh(self, how: str) -> None:
        self.file.write_text(
            f"name: q\nkind: query\nrefresh: {how}\ninputs: {{things: {{table: things, key: id}}}}\n"
            "query: SELECT id, v + 1 AS w FROM things\n"
        )

    def update(self, what: str) -> None:
        self.session.sql(f"UPDATE delta.`{self.folder / 'things'}` SET v = v + 1 {what}")

    def said(self, *args: object) -> str:
        ended = CliRunner().invoke(app, [*map(str, (args[0], self.file, *args[1:]))])
        assert ended.exit_code == 0, ended.output + repr(ended.exception)
        return ended.stdout

    def json(self, command: str) -> Any:
        return json.loads(self.said(command, "--format", "json"))

    def run(self) -> dict[str, Any]:
        """Runs the query: it goes the way that was planned, and the status has both seconds; returns the plan."""
        (planned,) = self.json("plan")["stages"]
        (ran,) = self.json("run")
        forecast, last = planned["forecast"], self.json("status")["last_runs"]["result"]
        assert (ran["strategy"], forecast["way"]) == (planned["strategy"], last["way"])
        assert (last["predicted_seconds"], last["changed_rows"]) == (forecast["seconds"], forecast["changed_rows"])
        assert last["seconds"] == ran["seconds"] > 0
        return dict(planned, notes=" ".join(ran["notes"]))

    def facts(self) -> dict[str, Any]:
        path = str(self.folder / "warehouse" / "q" / "result")
        found: dict[str, Any] = row_metadata(path, DeltaTable(path).version())[COSTS]
        return found


def test_the_way_that_is_planned_is_gone_and_both_seconds_are_kept(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    things = Things(tmp_path, spark)
    first = things.run()
    assert (first["strategy"], first["reason"], first["estimated_rows"]) == ("full", "for the first time", NUMBER)

    things.update("WHERE id < 5")
    planned = " ".join(things.said("plan").split())
    assert (
        f"result | refresh | about 5 | about {things.json('plan')['stages'][0]['forecast']['seconds']:.1f}" in planned
    )
    small = things.run()
    assert (small["strategy"], small["reason"]) == ("incremental", "5 changed rows touch about 5")
    assert "result: last run refresh, 5 changed rows" in things.said("status")
    assert [one[0] for one in things.facts()["earlier"]] == ["first"]

    monkeypatch.setitem(RATES, Way.WHOLE, FREE)
    things.update("")
    whole = things.run()
    assert (whole["strategy"], whole["forecast"]["way"]) == ("full", "whole")
    assert f"result: whole, {NUMBER:,} changed rows touch about {NUMBER:,}, which should take" in whole["notes"]

    things.refresh("incremental")  # what is possible is not refused
    things.update("")
    assert "result: what changed" in things.run()["notes"]

    things.refresh("auto")
    things.update("")
    assert "which should take" in things.run()["reason"]  # both ways have runs now, and the quicker one is gone
    assert sorted(one[0] for one in things.facts()["earlier"]) == ["first", "refresh", "refresh", "whole"]
    assert "equal" in things.said("verify")


@pytest.mark.slow  # the run refuses it: test_query.py
def test_what_incremental_refuses_is_planned_with_the_reason(tmp_path: Path, spark: SparkSession) -> None:
    things = Things(tmp_path, spark)
    things.refresh("incremental")
    things.run()
    spark.sql(f"ALTER TABLE delta.`{tmp_path / 'things'}` SET TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    things.update("WHERE id < 5")
    (planned,) = things.json("plan")["stages"]
    assert "the changes of things since version 0 are gone, or were never kept; " in planned["reason"]
    assert "refresh is incremental and refuses it" in planned["reason"]
    refused = CliRunner().invoke(app, ["run", str(things.file)])
    assert isinstance(refused.exception, StageError)
    assert refused.exception.what.startswith("block result can only be computed whole: the changes of things since")


@pytest.mark.slow  # the share that counts: test_costs.py
def test_what_where_leaves_out_is_traced_once_and_expected_from_then_on(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    things = Things(tmp_path, spark)
    kinds = pa.table({"v": pa.array(range(100), pa.int64()), "w": pa.array([0] * 100, pa.int64())})
    write_deltalake(str(tmp_path / "kinds"), kinds, configuration={"delta.enableChangeDataFeed": "true"})
    things.file.write_text(
        "name: q\nkind: query\ninputs: {things: {table: things, key: id}, kinds: {table: kinds, key: v}}\n"
        "query: SELECT t.id, k.w FROM things t JOIN kinds k ON k.v = t.v WHERE k.v = 0\n"
    )
    things.session.sql(f"UPDATE delta.`{tmp_path / 'things'}` SET v = id % 100")
    things.run()
    assert things.facts()["share"] == 1.0
    monkeypatch.setitem(RATES, Way.WHOLE, FREE)
    for share in (pytest.approx(0.01, abs=0.001), pytest.approx(0.01, abs=0.001)):
        things.session.sql(f"UPDATE delta.`{tmp_path / 'kinds'}` SET w = w + 1")
        planned = things.json("plan")["stages"][0]["forecast"]["way"]
        (ran,) = things.json("run")
        assert "result: what changed" in " ".join(ran["notes"])
        assert things.facts()["share"] == share
    assert planned == "refresh", "the first one was planned to be whole"
    assert "equal" in things.said("verify")
