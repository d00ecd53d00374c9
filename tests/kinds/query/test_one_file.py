"""A query over files that land, all in one pipeline file: by the command, and by the sensors of Dagster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, Definitions
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from fk_pipeline.cli import main
from fk_pipeline.definitions import definitions
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource, LandingZoneResource
from fk_pipeline.spec import load_spec
from tests.dagster.ticks import evaluated

pytestmark = pytest.mark.spark

REVENUE = """\
name: revenue
kind: query
inputs:
  orders: {path: orders, format: rows, schema: "id INT, customer INT, amount INT", key: id, where: amount > 0}
  customers: {path: customers, format: rows, schema: "id INT, name STRING", key: id}
query: |
  SELECT c.name, SUM(o.amount) AS total FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.name
"""


class Shop:
    """A folder with one pipeline file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.orders = folder, folder / "revenue.yaml", folder / "revenue.yaml#orders"
        self.file.write_text(REVENUE)
        for name in ("orders", "customers"):
            (folder / name).mkdir()

    def land(self, name: str, batch: int, *lines: str) -> None:
        (self.folder / name / f"{batch}.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def command(self, *args: Any, status: int = 0) -> str:
        ended = CliRunner().invoke(main.app, [str(one) for one in args])
        assert ended.exit_code == status, (ended.output, ended.exception)
        return ended.stdout

    def json(self, *args: Any, status: int = 0) -> Any:
        return json.loads(self.command(*args, "--format", "json", status=status))

    def rows(self) -> dict[str, int]:
        found = self.json("show", self.file, "result")
        return {row["name"]: row["total"] for row in found}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """One order of each of two customers."""
    made = Shop(tmp_path)
    made.land("orders", 1, '{"id": 1, "customer": 1, "amount": 5}', '{"id": 2, "customer": 2, "amount": 7}')
    made.land("customers", 1, '{"id": 1, "name": "Ada"}', '{"id": 2, "name": "Bob"}')
    return made


@pytest.mark.connect
@pytest.mark.usefixtures("spark")
def test_one_file_is_run_asked_withdrawn_and_edited_by_the_command(shop: Shop) -> None:
    shop.command("run", shop.file)
    assert shop.rows() == {"Ada": 5, "Bob": 7}
    said = shop.command("explain", shop.file, "--key", "name=Ada")
    assert "id=1, customer=1, amount=5 | orders/1.jsonl" in said
    assert f"fk-pipeline explain {shop.orders} --key '1'" in said

    shop.land("orders", 2, '{"id": 3, "customer": 1, "amount": 1}', "bad", '{"id": 4, "customer": 1, "amount": -1}')
    shop.command("run", shop.file)
    assert shop.rows() == {"Ada": 6, "Bob": 7}
    [bad] = shop.json("quarantine", shop.orders)["rows"]
    assert (bad["batch"], bad["raw"]) == (2, "bad")

    shop.command("remove-batch", shop.orders, 2)
    due = {one["pipeline"]: one["due"] for one in shop.json("status", shop.file)}
    assert [name for name, number in due.items() if number] == ["revenue_orders"]

    shop.file.write_text(REVENUE.replace("amount > 0", "amount > 5"))
    ran = {one["pipeline"]: one for one in shop.json("run", shop.file, status=1)}
    assert {name: one["outcome"] for name, one in ran.items()} == {
        "revenue_orders": "failed", "revenue_customers": "ran", "revenue": "waits",
    }  # fmt: skip
    assert f"fk-pipeline rebuild {shop.orders} --from " in ran["revenue_orders"]["error"]
    shop.command("rebuild", shop.orders, "--from", "landing")
    shop.command("run", shop.file, shop.orders)
    assert shop.rows() == {"Bob": 7}


@pytest.mark.slow
def test_its_sensors_bring_what_lands_through_the_query(shop: Shop, spark: SparkSession) -> None:
    defs = definitions([shop.file])
    resources = {"spark": FkSparkResource().use(spark), "landing_zone": LandingZoneResource()}
    ours = Definitions(
        defs.assets, asset_checks=defs.asset_checks, jobs=defs.jobs, executor=defs.executor, resources=resources
    )
    with DagsterInstance.ephemeral() as instance:

        def tick(pipeline: str) -> Any:
            found = evaluated(defs, pipeline, instance, {"landing_zone": LandingZoneResource()})
            return found.run_requests[0] if found.run_requests else found.skip_message

        assert "has no result yet" in tick("revenue") or "nothing is due" in tick("revenue")
        for name in ("customers", "orders"):
            request = tick(f"revenue_{name}")
            job = ours.resolve_job_def(f"revenue_{name}_and_its_readers")
            job.execute_in_process(instance=instance, tags=dict(request.tags))
            assert instance.get_dynamic_partitions(f"revenue_{name}_batches") == ["b00000001"]
        assert shop.rows() == {"Ada": 5, "Bob": 7}
        assert tick("revenue") == "nothing is due: no new or changed landing files"
    shop.land("customers", 2, '{"id": 2, "name": "Bea"}')
    assert [one.stage for one in Pipeline(load_spec(shop.file), spark).run()] == ["result"], "in Python, too"
    assert shop.rows() == {"Ada": 5, "Bea": 7}
