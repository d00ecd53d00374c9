"""The job of a pipeline that reads the result of another, in one process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, DagsterRunStatus, Definitions
from dagster._core.test_utils import create_run_for_test
from pyspark.sql import SparkSession

from fk_pipeline.assets.partitions import active_runs
from fk_pipeline.cdc.notices import HELD_BACK
from fk_pipeline.definitions import definitions
from fk_pipeline.errors import CONTROL, CheckFailedError
from fk_pipeline.expectations.checking import check, refuse_failed
from fk_pipeline.identity import BatchRange
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource, LandingZoneResource
from fk_pipeline.resources.names import chain_tag
from fk_pipeline.spec import load_spec
from tests.dagster.ticks import evaluated, figures

pytestmark = pytest.mark.spark

TOTALS = """
name: totals
kind: aggregate
input: {path: payments, format: rows, schema: "user STRING, amount INT", contents: events}
group_by: [user]
aggregates: [sum(amount) AS total]
expectations:
  aggregated:
    - {name: totals_are_small, type: expect_column_values_to_be_between, kwargs: {column: total, max_value: 100}}
"""
USERS = """
name: users
join: left
left: {path: users, format: rows, schema: "id STRING, name STRING", key: id, foreign_key: id}
right: {pipeline: totals.yaml}
select: [id, name, total]
"""


def land(folder: Path, side: str, batch: int, *rows: dict[str, Any]) -> None:
    (folder / side).mkdir(exist_ok=True)
    (folder / side / f"{batch}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_what_reads_a_result_waits_for_a_batch_whose_check_is_red_until_it_is_waived(
    tmp_path: Path, spark: SparkSession
) -> None:
    for name, text in (("users", USERS), ("totals", TOTALS)):
        (tmp_path / f"{name}.yaml").write_text(text)
    totals = Pipeline(load_spec(tmp_path / "totals.yaml"), spark)

    def users() -> Pipeline:
        return Pipeline(load_spec(tmp_path / "users.yaml"), spark)

    def result() -> list[Any]:
        totals.run()
        users().run()
        return sorted(tuple(row) for row in users().table("resolved_join").select("id", "name", "total").collect())

    land(tmp_path, "users", 1, {"id": "a", "name": "Ada"}, {"id": "b", "name": "Bob"})
    land(tmp_path, "payments", 1, {"user": "a", "amount": 5}, {"user": "a", "amount": 6})
    assert result() == [("a", "Ada", 11), ("b", "Bob", None)]
    land(tmp_path, "payments", 2, {"user": "b", "amount": 1000})
    totals.run()
    with pytest.raises(CheckFailedError):
        refuse_failed(check(totals, "aggregated", BatchRange.of(2)), totals)
    land(tmp_path, "users", 2, {"id": "c", "name": "Cleo"})
    [notice] = (one for one in users().discover().notices if one.kind == HELD_BACK)
    assert "batch 2 failed check totals_are_small of aggregated" in notice.text
    assert f"fk-pipeline run {tmp_path / 'totals.yaml'} --waive REASON" in notice.text
    assert result() == [("a", "Ada", 11), ("b", "Bob", None), ("c", "Cleo", None)], "its own files are read"
    totals.run(waive="a large order")
    assert result() == [("a", "Ada", 11), ("b", "Bob", 1000), ("c", "Cleo", None)]


@pytest.mark.slow  # a job of a chain: test_query_assets.py; a red check: expectations/test_checks.py
def test_one_job_runs_what_feeds_a_pipeline_before_it(tmp_path: Path, spark: SparkSession) -> None:
    files = [tmp_path / "users.yaml", tmp_path / "totals.yaml"]
    for file, text in zip(files, (USERS, TOTALS), strict=True):
        file.write_text(text)
    land(tmp_path, "users", 1, {"id": "a", "name": "Ada"}, {"id": "b", "name": "Bob"})
    land(tmp_path, "payments", 1, {"user": "a", "amount": 5}, {"user": "a", "amount": 6})
    (tmp_path / "payments" / "note\x1b[31m\u202e\u009b1m.txt").touch()
    defs = definitions(files)
    chains = ["totals_and_its_readers", "users_after_its_inputs"]
    assert sorted(job.name for job in defs.jobs or () if "_its_" in job.name) == chains
    graph = defs.get_repository_def().asset_graph
    lineage = graph.get(AssetKey(["users", "right_table"])).metadata["dagster/column_lineage"]
    [total] = lineage.deps_by_column["total"]
    assert (total.asset_key.path, total.column_name) == (["totals"], "total")

    def run(
        instance: DagsterInstance, name: str = "users_after_its_inputs", tags: dict[str, str] | None = None
    ) -> tuple[bool, Counter[str], dict[str, bool]]:
        resources = {"spark": FkSparkResource().use(spark), "landing_zone": LandingZoneResource()}
        ours = Definitions(defs.assets, jobs=defs.jobs, executor=defs.executor, resources=resources)
        job = ours.resolve_job_def(name)
        done = job.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
        written = Counter(
            one.asset_key.to_user_string()
            for event in done.get_asset_materialization_events()
            for one in [event.materialization]
            if one.partition is not None and "seconds" in figures(one)
        )
        logged = [entry.message for entry in instance.all_logs(done.run_id)]
        assert not [text for text in logged if CONTROL.search(text.replace("\n", ""))]
        assert any(r"payments/note\x1b[31m\u202e\x9b1m.txt" in text for text in logged)
        checks = {one.check_name: one.passed for one in done.get_asset_check_evaluations()}
        return done.success, written, checks

    def result() -> list[Any]:
        table = Pipeline(load_spec(files[0]), spark).table("resolved_join")
        return sorted(tuple(row) for row in table.select("id", "name", "total").collect())

    with DagsterInstance.ephemeral() as instance:
        ended, written, checks = run(instance)
        assert ended, "the types of the other result were not known when the definitions were made"
        assert {"totals", "users/right_table", "users"} <= written.keys()
        assert checks["totals_are_small"]
        assert all(checks.values())
        assert result() == [("a", "Ada", 11), ("b", "Bob", None)]
        assert run(instance) == (True, Counter(), {}), "nothing is due"
        land(tmp_path, "payments", 2, {"user": "b", "amount": 7})
        assert run(instance)[0]
        assert result() == [("a", "Ada", 11), ("b", "Bob", 7)]
        assert len(instance.get_dynamic_partitions("users_batches")) == 3, "a file, and two looks at the result"

        land(tmp_path, "payments", 3, {"user": "b", "amount": 1000})
        ended, written, checks = run(instance)
        assert not ended
        assert not checks["totals_are_small"]
        assert "totals" in written
        assert not any(asset.startswith("users") for asset in written), "a red check stops what comes after it"

        users, totals = (Pipeline(load_spec(file), spark) for file in files)
        land(tmp_path, "users", 2, {"id": "c", "name": "Cleo"})
        [notice] = (one for one in users.discover().notices if one.kind == HELD_BACK)
        assert "batch 3 failed check totals_are_small of aggregated" in notice.text
        assert f"fk-pipeline run {files[1]} --waive REASON" in notice.text
        users.run()
        assert result() == [("a", "Ada", 11), ("b", "Bob", 7), ("c", "Cleo", None)], "its own files are read"
        tick = evaluated(defs, "users", instance, {"landing_zone": LandingZoneResource()})
        assert not tick.run_requests
        assert tick.skip_message == notice.text
        with pytest.raises(CheckFailedError):
            refuse_failed(check(totals, "aggregated"), totals)
        [notice] = (one for one in users.look().notices if one.kind == HELD_BACK)
        assert "the table failed check totals_are_small" in notice.text, "a full check has found it, too"
        totals.run(waive="a large order")
        users.run()
        assert result() == [("a", "Ada", 11), ("b", "Bob", 1007), ("c", "Cleo", None)]

        land(tmp_path, "payments", 4, {"user": "c", "amount": 3})
        land(tmp_path, "payments", 5, {"user": "a", "amount": 1})
        tick = evaluated(defs, "totals", instance, {"landing_zone": LandingZoneResource()})
        [request] = tick.run_requests or []
        land(tmp_path, "payments", 6, {"user": "a", "amount": 50})
        ended, written, checks = run(instance, "totals_and_its_readers", dict(request.tags))
        assert ended
        assert written["totals"] == 2, "not the batch that nobody asked for"
        assert written["users"] == 1
        assert all(checks.values())
        assert result() == [("a", "Ada", 12), ("b", "Bob", 1007), ("c", "Cleo", 3)], "one request is all it took"
        assert [batch for batches in totals.due().values() for batch in batches] != []
        assert not any(users.due().values())
        told = [one.asset_observation for one in instance.fetch_observations(AssetKey(["users", "right"]), 9).records]
        read = {one.partition: one.metadata["batches of totals"].value for one in told if one is not None}
        assert read == {"b00000002": "all up to version 0", "b00000003": "2", "b00000005": "4..5"}
        assert evaluated(defs, "totals", instance, {"landing_zone": LandingZoneResource()}).run_requests


def test_the_sensor_of_a_pipeline_waits_for_a_job_that_runs_it(tmp_path: Path) -> None:
    for name, text in (("users", USERS), ("totals", TOTALS)):
        (tmp_path / f"{name}.yaml").write_text(text)
    totals = load_spec(tmp_path / "totals.yaml")
    with DagsterInstance.ephemeral() as instance:
        run = create_run_for_test(
            instance, "users_after_its_inputs", status=DagsterRunStatus.STARTED, tags={chain_tag("totals"): ""}
        )
        assert [one.run_id for one in active_runs(instance, totals)] == [run.run_id]
        assert not active_runs(instance, totals.model_copy(update={"name": "others"}))
