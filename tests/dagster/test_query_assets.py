"""A query in Dagster: an asset per block and per input, from the sensor to green partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance, Definitions
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from fk_pipeline.assets.reports import DATA_VERSION, sync
from fk_pipeline.definitions import definitions
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import BatchId
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource, LandingZoneResource
from fk_pipeline.resources.names import RANGE_FIRST, RANGE_LAST, source_keys
from fk_pipeline.spec import load_spec
from tests.dagster.ticks import evaluated, figures, plotted

TABLE = """
name: {name}
kind: table
input: {{path: {name}, format: rows, schema: "{schema}", key: id}}
"""
QUERY = """
name: spent
kind: query
description: What each customer spent.
inputs:
  orders: {pipeline: orders.yaml, descriptions: {Customer: who ordered}}
  customers: {pipeline: customers.yaml, descriptions: {id: who it is}}
  fees: {table: lake/fees, key: region}
query: |
  WITH per AS (
    SELECT o.customer, SUM(o.amount * f.fee) AS spent
    FROM orders o JOIN fees f ON f.region = o.region GROUP BY o.customer
  )
  SELECT c.id AS customer, c.name, p.spent, q.spent - p.spent AS more
  FROM customers c LEFT JOIN per p ON p.customer = c.id LEFT JOIN per q ON q.customer = c.boss
settings: {settle_seconds: 60}
"""
STAGES = [["spent"], ["spent", "per"]]
INPUTS = ["orders", "customers", "fees"]


def land(folder: Path, table: str, batch: int, *rows: dict[str, Any]) -> None:
    (folder / table).mkdir(exist_ok=True)
    (folder / table / f"{batch}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


class Project:
    """Two tables and a query of two blocks over them, and over a Delta table; and their Dagster."""

    def __init__(self, folder: Path, instance: DagsterInstance) -> None:
        self.folder, self.instance = folder, instance
        self.fee(1, 2)
        tables = {
            "orders": "id INT, Customer STRING, region INT, amount INT",
            "customers": "id STRING, name STRING, boss STRING",
        }
        for name, schema in tables.items():
            (folder / f"{name}.yaml").write_text(TABLE.format(name=name, schema=schema))
        (folder / "spent.yaml").write_text(QUERY)
        land(folder, "orders", 1, {"id": 1, "Customer": "a", "region": 1, "amount": 5})
        land(folder, "customers", 1, {"id": "a", "name": "Ada"}, {"id": "b", "name": "Bob", "boss": "a"})
        self.defs = definitions(sorted(folder.glob("*.yaml")))
        self.spec = load_spec(folder / "spent.yaml")

    def fee(self, region: int, fee: int) -> None:
        """A new version of the Delta table that no pipeline writes."""
        rows = pa.table({"region": pa.array([region], pa.int32()), "fee": pa.array([fee], pa.int32())})
        write_deltalake(str(self.folder / "lake/fees"), rows, mode="append")

    def use(self, spark: SparkSession) -> None:
        self.spark, self.pipeline = spark, Pipeline(self.spec, spark)

    def request(self, pipeline: str) -> Any:
        """What a tick of a sensor requests; its reasons not to if it requests nothing."""
        tick = evaluated(self.defs, pipeline, self.instance, {"landing_zone": LandingZoneResource()})
        return tick.run_requests[0] if tick.run_requests else tick.skip_message

    def run(self, job: str, tags: dict[str, str] | None = None) -> None:
        resources = {"spark": FkSparkResource().use(self.spark), "landing_zone": LandingZoneResource()}
        ours = Definitions(
            self.defs.assets,
            asset_checks=self.defs.asset_checks,
            jobs=self.defs.jobs,
            executor=self.defs.executor,
            resources=resources,
        )
        ended = ours.resolve_job_def(job).execute_in_process(instance=self.instance, tags=tags)
        checks = {one.check_name: one.passed for one in ended.get_asset_check_evaluations()}
        assert checks
        assert all(checks.values()), checks

    def shown(self, key: list[str]) -> dict[str, AssetMaterialization]:
        """The newest materialisation of each partition."""
        found = self.instance.fetch_materializations(AssetKey(key), 50).records
        events = [one.asset_materialization for one in found]
        return {str(one.partition): one for one in reversed(events) if one is not None}

    def landed(self, side: str) -> dict[str, Any]:
        """The metadata of the newest observation of what landed, per partition."""
        found = self.instance.fetch_observations(AssetKey(["spent", side]), 50).records
        events = [one.asset_observation for one in found]
        return {str(one.partition): one.metadata for one in reversed(events) if one is not None}

    def is_green(self, batches: set[str]) -> None:
        """Every partition of every stage is there, fresh, and has the numbers of the ledger."""
        ledger = self.pipeline.ledger()
        assert {batch.key for batch in ledger.batches} == batches
        graph = self.defs.get_repository_def().asset_graph
        stale = CachingStaleStatusResolver(self.instance, graph, AssetGraphView.for_test(self.defs, self.instance))
        for key in STAGES:
            shown = self.shown(key)
            assert shown.keys() == batches
            for batch, event in shown.items():
                state = ledger.state(key[-1] if len(key) > 1 else "result", BatchId.from_key(batch))
                assert state.last is not None
                assert stale.get_status(AssetKey(key), batch) is StaleStatus.FRESH, (key, batch)
                assert (event.tags or {})[DATA_VERSION] == state.last.run_id
                assert state.figures is not None
                assert figures(event).items() >= state.figures.counts.items()
                assert plotted(event).keys() <= {"changed"}

    def rows(self) -> list[Any]:
        names = ("customer", "name", "spent", "more")
        return sorted(tuple(row) for row in self.pipeline.table("result").select(*names).collect())


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with DagsterInstance.ephemeral() as instance:
        yield Project(tmp_path, instance)


def test_the_assets_of_a_query_and_where_its_columns_come_from(project: Project) -> None:
    file = project.folder / "spent.yaml"
    file.write_text(file.read_text().replace("settings: {", "settings: {freshness: 1 day, "))
    defs = definitions(sorted(project.folder.glob("*.yaml")))
    graph = defs.get_repository_def().asset_graph

    def upstream(*key: str) -> set[str]:
        return {one.to_user_string() for one in graph.get(AssetKey([*key])).parent_keys}

    assert upstream("spent") == {"spent/per", "spent/customers"}
    assert upstream("spent", "per") == {"spent/orders", "spent/fees"}
    assert upstream("spent", "orders") == {"orders"}
    assert upstream("spent", "customers") == {"customers"}
    [source] = upstream("spent", "fees")
    assert source.startswith("source/")
    assert source.endswith("lake/fees")
    of_pipeline = {key for key in graph.get_all_asset_keys() if key.path[0] == "spent"}
    assert of_pipeline == {AssetKey(key) for key in (*STAGES, *(["spent", one] for one in INPUTS))}
    assert {graph.get(key).partitions_def for key in of_pipeline} == {graph.get(AssetKey(["spent"])).partitions_def}
    policies = {key: graph.get(key).freshness_policy is not None for key in of_pipeline}
    assert [key.to_user_string() for key, has in policies.items() if not has] == ["spent/per"]

    def made_of(key: list[str], column: str) -> set[tuple[str, str]]:
        lineage = graph.get(AssetKey(key)).metadata["dagster/column_lineage"]
        return {(one.asset_key.to_user_string(), one.column_name) for one in lineage.deps_by_column[column]}

    assert made_of(["spent"], "name") == {("customers", "name")}
    assert made_of(["spent"], "more") == {("spent/per", "spent")}
    assert made_of(["spent", "per"], "customer") == {("orders", "Customer")}
    assert made_of(["spent", "per"], "spent") == {("orders", "amount"), ("spent/fees", "fee")}

    def told(key: list[str]) -> dict[str, str]:
        schema = graph.get(AssetKey(key)).metadata["dagster/column_schema"]
        return {one.name: one.description for one in schema.columns if not one.name.startswith("_fk_")}

    result, per = told(["spent"]), told(["spent", "per"])
    assert result["name"] == "as in the source"
    assert result["customer"] == "who it is"
    assert "-" in result["more"]
    assert per["spent"].startswith("SUM(")
    assert per["customer"] == "as in the source"
    assert str(graph.get(AssetKey(["spent"])).description).startswith("What each customer spent.")


@pytest.mark.spark
def test_batches_of_a_query_run_from_the_sensor_to_green_partitions(project: Project, spark: SparkSession) -> None:
    project.use(spark)
    for name in ("orders", "customers"):
        Pipeline(load_spec(project.folder / f"{name}.yaml"), project.spark).run()
    first = project.request("spent")
    project.run("spent_all_stages", dict(first.tags))
    assert project.rows() == [("a", "Ada", 10, None), ("b", "Bob", None, None)]
    keys = set(project.instance.get_dynamic_partitions("spent_batches"))
    assert {first.tags[RANGE_FIRST], first.tags[RANGE_LAST]} <= keys
    project.is_green(keys)
    assert project.request("spent") == "nothing is due: no new or changed landing files"
    with pytest.raises(UsageError, match="pipeline spent has no quarantine"):
        project.pipeline.quarantined_in_process()
    assert not project.pipeline.verify_inputs().differences

    land(project.folder, "orders", 2, {"id": 2, "Customer": "b", "region": 1, "amount": 1})
    project.run("orders_and_its_readers", dict(project.request("orders").tags))
    assert project.rows() == [("a", "Ada", 10, None), ("b", "Bob", 2, 8)], "one request brings it through the chain"
    [second] = set(project.instance.get_dynamic_partitions("spent_batches")) - keys
    project.is_green({*keys, second})
    assert project.landed("orders")[second]["batches of orders"].value == "2"
    assert second not in project.landed("fees"), "nothing new landed there"
    assert figures(project.shown(["spent", "per"])[second])["files"] == 1
    assert plotted(project.shown(["spent", "per"])[second]) == {"changed": 1}
    assert "files" in figures(project.shown(["spent"])[second])

    project.fee(2, 3)
    land(project.folder, "customers", 2, {"id": "b", "name": "Bea", "boss": "a"})
    Pipeline(load_spec(project.folder / "customers.yaml"), project.spark).run()
    project.pipeline.run()
    assert project.request("spent") == "nothing is due: no new or changed landing files"
    [third] = set(project.instance.get_dynamic_partitions("spent_batches")) - {*keys, second}
    project.is_green({*keys, second, third})
    assert third in project.landed("fees")
    assert third in project.landed("customers")
    assert third not in project.landed("orders")
    assert sync(project.instance, project.pipeline, source_keys([project.pipeline.spec])).events == 0, (
        "Dagster has all that the ledger has"
    )
