"""An asset that follows a join batch by batch, and counts what each changed in the result.

Each partition is asked for as soon as the join has made it (its `AutomationCondition`), and reads only what the batch
changed. Try it on the demo:

    fk-pipeline demo
    FK_PIPELINES=fk-pipeline-demo/flight_planes.yaml dagster dev -f examples/downstream/definitions.py
"""

import os
from pathlib import Path

from dagster import AssetExecutionContext, AssetKey, AutomationCondition, BackfillPolicy, Definitions, asset
from pyspark.sql import DataFrame

import fk_pipeline as fk
from fk_pipeline.assets.partitions import batch_partitions
from fk_pipeline.identity import BatchId
from fk_pipeline.resources import FkSparkResource

FILE = Path(os.environ.get("FK_PIPELINES", "fk-pipeline-demo/flight_planes.yaml"))
SPEC = fk.load(FILE).spec


def net_changes(pipeline: fk.Pipeline, batch: int) -> DataFrame:
    """Per flight that a batch changed: the last change that its runs made, and the row."""
    rows = pipeline.changes(batch)
    rows.createOrReplaceTempView("changes_of_the_batch")
    newest = "ROW_NUMBER() OVER (PARTITION BY _fk_pk_id ORDER BY _commit_version DESC)"
    return pipeline.session.sql(f"SELECT *, {newest} AS age FROM changes_of_the_batch").where("age = 1").drop("age")


@asset(
    key=[SPEC.name, "changed_flights"],
    deps=[AssetKey(SPEC.name)],
    partitions_def=batch_partitions(SPEC),
    backfill_policy=BackfillPolicy.single_run(),
    automation_condition=AutomationCondition.eager(),
    group_name=SPEC.name,
)
def changed_flights(context: AssetExecutionContext, spark: FkSparkResource) -> None:
    """How many rows each batch inserted, updated and deleted: where a real asset would write them to its own table."""
    pipeline = fk.Pipeline(SPEC, spark.spark_session)
    for key in context.partition_keys:
        counted = net_changes(pipeline, BatchId.from_key(key)).groupBy("_change_type").count().collect()
        counts = dict.fromkeys(("insert", "update", "delete"), 0) | {row[0]: row[1] for row in counted}
        context.add_asset_metadata(counts, partition_key=key)


defs = Definitions.merge(fk.definitions([FILE]), Definitions(assets=[changed_flights]))
