"""The project's definitions: its own assets and resources, and those of the join merged in.

In the folder of the project: `dagster dev -m shop.definitions`.
"""

import csv
import os
from pathlib import Path

from dagster import (
    AssetKey,
    AutomationCondition,
    ConfigurableResource,
    Definitions,
    MaterializeResult,
    asset,
    define_asset_job,
)

import fk_pipeline as fk
from fk_pipeline.resources import FkResult, FkSparkResource, LandingZoneResource

PIPELINE = fk.load(Path(os.environ.get("SHOP_ORDERS", Path(__file__).parents[2] / "orders")) / "orders.yaml")


class Reports(ConfigurableResource):
    """The project's own resource: where its reports go."""

    folder: str

    def write(self, name: str, header: list[str], rows: list[list[object]]) -> Path:
        """Writes a report as CSV."""
        file = Path(self.folder) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", newline="") as stream:
            csv.writer(stream).writerows([header, *rows])
        return file


@asset(group_name="shop")
def sales_targets(reports: Reports) -> None:
    """An asset that has nothing to do with the join."""
    reports.write("targets.csv", ["segment", "target"], [["BUILDING", 50_000_000], ["MACHINERY", 40_000_000]])


@asset(
    group_name="shop",
    deps=[AssetKey(PIPELINE.spec.name), sales_targets],
    automation_condition=AutomationCondition.eager(),
)
def revenue_by_segment(joined: FkResult, reports: Reports) -> MaterializeResult:
    """The project's report of the joined orders; orders without a known customer have no segment."""
    totals = joined.arrow().group_by("segment").aggregate([([], "count_all"), ("total", "sum")]).sort_by("segment")
    rows = [[row["segment"], row["count_all"], row["total_sum"]] for row in totals.to_pylist()]
    file = reports.write("revenue.csv", ["segment", "orders", "revenue"], rows)
    return MaterializeResult(metadata={"segments": len(rows), "path": str(file)})


defs = Definitions.merge(
    # The project brings `spark` and `landing_zone` itself, so the join must not.
    fk.definitions([PIPELINE], resources=False),
    Definitions(
        assets=[sales_targets, revenue_by_segment],
        jobs=[define_asset_job("shop_reports", selection=[sales_targets, revenue_by_segment])],
        resources={
            "reports": Reports(folder=os.environ.get("SHOP_REPORTS", "reports")),
            "spark": FkSparkResource(spark_config={}, driver_memory="2g"),
            "landing_zone": LandingZoneResource(),
            "joined": FkResult(pipeline=str(PIPELINE.spec.file)),
        },
    ),
)
