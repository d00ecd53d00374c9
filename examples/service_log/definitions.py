"""The three pipelines in one Dagster project, and an asset that draws their results.

    FK_EXAMPLE=service_log dagster dev -f examples/service_log/definitions.py

`anomalies/picture` follows the last result. Each materialisation has numbers, which Dagster plots over time, and the
picture of every service with anomalies. Without matplotlib it has the numbers only, and says so.
"""

import base64
import os
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dagster import AssetKey, AutomationCondition, Definitions, MaterializeResult, MetadataValue, asset

import fk_pipeline as fk
from fk_pipeline.resources import FkSparkResource

FOLDER = Path(os.environ.get("FK_EXAMPLE", Path(__file__).parent))
ERRORS, COMPARED, ANOMALIES = (FOLDER / f"{name}.yaml" for name in ("errors", "week_over_week", "anomalies"))

plot = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("plot.py"))))  # the folder is no package


@asset(
    key=["anomalies", "picture"],
    deps=[AssetKey("anomalies")],
    group_name="anomalies",
    # Batches that ran before Dagster knew of them are no materialisations: they must not hold the picture back.
    automation_condition=AutomationCondition.eager().without(~AutomationCondition.any_deps_missing()),
)
def picture(spark: FkSparkResource) -> MaterializeResult:
    """The results, counted and drawn."""
    compared, anomalies = (
        fk.Pipeline(spec, spark.spark_session).table(spec.definition.result.name)
        for spec in (fk.load(COMPARED).spec, fk.load(ANOMALIES).spec)
    )
    counts = compared.selectExpr("sum(errors) DIV 2 AS errors", "count_if(before IS NULL) AS unknown").first()
    return MaterializeResult(
        metadata={
            "anomalies": anomalies.count(),
            "errors": counts["errors"] or 0,  # each counts in two windows
            "windows without last week": counts["unknown"],
            "picture": drawn(compared, anomalies),
        }
    )


def drawn(compared: Any, anomalies: Any) -> MetadataValue:
    """Returns the picture of every service with anomalies, or why there is none."""
    services = sorted(row[0] for row in anomalies.select("service").distinct().collect())
    if not services:
        return MetadataValue.text("no service has an anomaly")
    try:
        svg = plot.picture([plot.panel(compared, anomalies, service, service) for service in services])
    except ModuleNotFoundError:
        return MetadataValue.text("left out: matplotlib is not installed")
    return MetadataValue.md(f"![errors](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})")


defs = Definitions.merge(fk.definitions([ERRORS, COMPARED, ANOMALIES]), Definitions(assets=[picture]))
