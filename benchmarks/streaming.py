"""Spark's own structured streaming on the landing files of case `window`: a join of two streams with watermarks.

It drops what is later than its watermark, and tells a row without a match only when the watermark has passed.
"""

from __future__ import annotations

from engines import seconds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from windowed import Windowed

from fk_pipeline.store.settings import settings

LATENESS = "8 hours"
"""More than any event of the workload is late by."""

JOINS = {"inner": "inner", "left": "leftOuter", "outer": "fullOuter"}

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.shuffle.partitions": "2",
}


class StructuredStreaming:
    """A query that reads all new landing files, appends to a Delta table and ends (`availableNow`)."""

    def __init__(self, workload: Windowed, session: SparkSession, kind: str) -> None:
        self.workload, self.session, self.kind = workload, session, kind
        self.folder = workload.folder / "streaming"

    def run(self) -> float:
        """Runs the query for the files that have landed; returns its seconds, the start included."""
        with settings(self.session, ROCKSDB, optional=True):
            return seconds(self._query)

    def _query(self) -> None:
        left, right = self._stream("left", self.workload.LEFT), self._stream("right", self.workload.RIGHT)
        left = left.selectExpr("id", "user", "happened", "ad")
        right = right.selectExpr("id AS click", "user AS clicked_by", "happened AS clicked_at", "page")
        left, right = left.withWatermark("happened", LATENESS), right.withWatermark("clicked_at", LATENESS)
        near = "clicked_at >= happened AND clicked_at <= happened + INTERVAL 30 MINUTES"
        joined = left.join(right, F.expr(f"user = clicked_by AND {near}"), JOINS[self.kind])
        query = (
            joined.writeStream.format("delta")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.folder / "result"))
        )
        query.awaitTermination()

    def _stream(self, side: str, columns: dict[str, str]) -> DataFrame:
        schema = ", ".join(f"{name} {kind}" for name, kind in {"op": "STRING", **columns}.items())
        return self.session.readStream.schema(schema).parquet(str(self.workload.landing(side, 0).parent))
