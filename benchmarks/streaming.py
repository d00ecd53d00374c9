"""Spark's own structured streaming on the landing files of cases `window` and `aggregate`, with watermarks.

It drops what is later than its watermark, and tells a row without a match only when the watermark has passed.
"""

from __future__ import annotations

from delta import DeltaTable
from engines import seconds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from windowed import Windowed
from workload import Workload

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
    """A query that reads all new landing files, writes to a Delta table and ends (`availableNow`)."""

    def __init__(self, workload: Workload, session: SparkSession) -> None:
        self.workload, self.session = workload, session
        self.folder = workload.folder / "streaming"

    def run(self) -> float:
        """Runs the query for the files that have landed; returns its seconds, the start included."""
        with settings(self.session, ROCKSDB, optional=True):
            return seconds(lambda: self.query().awaitTermination())

    def query(self) -> StreamingQuery:
        """Starts the query."""
        raise NotImplementedError

    def stream(self, side: str, columns: dict[str, str]) -> DataFrame:
        """Returns the rows of a side that land, as a stream."""
        schema = ", ".join(f"{name} {kind}" for name, kind in {"op": "STRING", **columns}.items())
        return self.session.readStream.schema(schema).parquet(str(self.workload.landing(side, 0).parent))

    def writer(self, rows: DataFrame) -> DataStreamWriter:
        """Returns the writer of a stream that ends when everything that landed is read."""
        place = str(self.folder / "checkpoint")
        return rows.writeStream.option("checkpointLocation", place).trigger(availableNow=True)


class StreamingJoin(StructuredStreaming):
    """The join of two streams of case `window`, appended to a Delta table."""

    def __init__(self, workload: Windowed, session: SparkSession, kind: str) -> None:
        super().__init__(workload, session)
        self.kind = kind

    def query(self) -> StreamingQuery:
        """Starts the query."""
        left, right = self.stream("left", self.workload.LEFT), self.stream("right", self.workload.RIGHT)
        left = left.selectExpr("id", "user", "happened", "ad")
        right = right.selectExpr("id AS click", "user AS clicked_by", "happened AS clicked_at", "page")
        left, right = left.withWatermark("happened", LATENESS), right.withWatermark("clicked_at", LATENESS)
        near = "clicked_at >= happened AND clicked_at <= happened + INTERVAL 30 MINUTES"
        joined = left.join(right, F.expr(f"user = clicked_by AND {near}"), JOINS[self.kind])
        return self.writer(joined).format("delta").start(str(self.folder / "result"))


class StreamingCounts(StructuredStreaming):
    """The counts by hour of case `aggregate`: groups that changed are merged into a Delta table, batch by batch."""

    def query(self) -> StreamingQuery:
        """Starts the query."""
        events = self.stream("left", self.workload.LEFT).withWatermark("happened", LATENESS)
        counts = events.groupBy(F.window("happened", "1 hour").alias("hour"), F.col("service").alias("id")).agg(
            F.count("*").alias("n"), F.sum("millis").alias("total"), F.max("millis").alias("slowest")
        )
        rows = counts.selectExpr("id", "hour.start AS window_start", "hour.end AS window_end", "n", "total", "slowest")
        return self.writer(rows).outputMode("update").foreachBatch(self._merge).start()

    def _merge(self, rows: DataFrame, _: int) -> None:
        place = str(self.folder / "result")
        if not DeltaTable.isDeltaTable(self.session, place):
            rows.write.format("delta").save(place)
            return
        table = DeltaTable.forPath(self.session, place).alias("t")
        merge = table.merge(rows.alias("s"), "t.id = s.id AND t.window_start = s.window_start")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
