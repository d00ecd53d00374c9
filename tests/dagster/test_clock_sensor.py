"""A query with a clock in Dagster: it is due when the step is over, and what the clock shows is told batch by batch."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetKey, DagsterInstance
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from fk_pipeline.cdc import landing
from fk_pipeline.definitions import definitions
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import LandingZoneResource
from fk_pipeline.resources.names import RANGE_FIRST
from fk_pipeline.spec import load_spec
from tests.dagster.ticks import evaluated

QUERY = """\
name: recent
kind: query
inputs:
  orders: {table: lake, key: id}
  now: {clock: 1 day, zone: Europe/Berlin}
query: SELECT o.id FROM orders o, now WHERE o.day > now.day - INTERVAL 30 DAYS
settings: {freshness: 1 day}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The pipeline file of a query of the orders of 30 days."""
    days = pa.array([date(2026, 4, 1), date(2026, 4, 2)])
    write_deltalake(str(tmp_path / "lake"), pa.table({"id": pa.array([1, 2], pa.int32()), "day": days}))
    (tmp_path / "recent.yaml").write_text(QUERY)
    return tmp_path / "recent.yaml"


def test_a_clock_is_an_input_without_a_source(file: Path) -> None:
    graph = definitions([file]).get_repository_def().asset_graph
    clock = graph.get(AssetKey(["recent", "now"]))
    assert (clock.parent_keys, clock.kinds) == (set(), {"clock"})
    assert graph.get(AssetKey(["recent"])).parent_keys == {AssetKey(["recent", one]) for one in ("orders", "now")}
    assert [key.path[0] for key in graph.get_all_asset_keys() if len(key.path) > 2] == ["source"], "the table alone"


@pytest.mark.spark
def test_the_sensor_requests_a_run_when_the_step_is_over(
    file: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shows(time: str) -> None:
        then = datetime.fromisoformat(time).replace(tzinfo=UTC)
        monkeypatch.setattr(landing, "datetime", type("Then", (datetime,), {"now": lambda _: then}))

    def told() -> dict[str, Any]:
        """What the clock showed, per partition, as Dagster shows it."""
        found = instance.fetch_observations(AssetKey(["recent", "now"]), 50).records
        events = [one.asset_observation for one in found if one.asset_observation is not None]
        return {str(one.partition): one.metadata["first files"].records[0].data["file"] for one in events}

    pipeline, defs = Pipeline(load_spec(file), spark), definitions([file])
    with DagsterInstance.ephemeral() as instance:

        def tick() -> Any:
            found = evaluated(defs, "recent", instance, {"landing_zone": LandingZoneResource()})
            return found.run_requests[0].tags[RANGE_FIRST] if found.run_requests else found.skip_message

        shows("2026-05-01T12:00")
        assert tick() == "b00000000"
        pipeline.run()
        shows("2026-05-01T21:59")
        assert tick() == "nothing is due: no new or changed landing files"
        assert [row["id"] for row in pipeline.table("result").collect()] == [2]
        shows("2026-05-01T22:00")
        assert tick() == "b00000001", "midnight in Berlin"
        pipeline.run()
        assert tick() == "nothing is due: no new or changed landing files"
        assert pipeline.table("result").count() == 0
        assert told() == {"b00000000": "now 2026-05-01", "b00000001": "now 2026-05-02"}
