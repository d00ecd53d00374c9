"""A small frame in the driver and a large one on Spark behave alike."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.sizes import Sizes

pytestmark = [pytest.mark.spark, pytest.mark.connect]

FEW = 10

ROWS = """
SELECT * FROM VALUES
  (1, 'a', X'00', TIMESTAMP'2026-01-01 00:00:00', STRUCT(1 AS x, CAST(NULL AS STRING) AS y), 1.50BD),
  (1, 'b', NULL, NULL, NULL, NULL),
  (2, 'a', X'01', TIMESTAMP'2026-01-02 00:00:00', STRUCT(2 AS x, 'z' AS y), 2.25BD),
  (1, 'a', X'02', NULL, NULL, NULL)
AS t(batch, kind, hash, at, nested, amount)
"""


@pytest.mark.parametrize("at_most", [4, FEW + 1], ids=["in the driver", "on Spark"])
def test_rows_types_and_counts_are_the_same(spark: SparkSession, at_most: int) -> None:
    frame = spark.sql(ROWS)
    kept = Materialised.of(frame, at_most, FEW)
    assert kept.frame.schema.simpleString() == frame.schema.simpleString()
    assert sorted(map(str, kept.frame.collect())) == sorted(map(str, frame.collect()))
    assert kept.counts("batch", "kind") == {1: {("a",): 2, ("b",): 1}, 2: {("a",): 1}}
    kept.release()


@pytest.mark.parametrize("at_most", [0, FEW + 1], ids=["in the driver", "on Spark"])
def test_an_empty_frame_has_no_counts(spark: SparkSession, at_most: int) -> None:
    kept = Materialised.of(spark.sql(ROWS).where("false"), at_most, FEW)
    assert kept.counts("batch", "kind") == {}
    assert kept.frame.count() == 0
    kept.release()


@pytest.mark.slow
def test_the_join_is_right_when_every_frame_stays_on_spark(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner", Sizes(driver_rows=-1))
    made.land(0, [(1, "a", "v"), (2, "b", "v"), (3, "a", "v")], [("a", "A"), ("b", "B")])
    made.land(1, [(1, "b", "w"), (3,)], [("b",), ("a", "A2")])
    made.pipeline.run("0")
    made.pipeline.run("1")
    assert made.result() == {}
    made.land(2, [(1, "a", "x")], [("b", "B2")])
    made.pipeline.run()
    assert made.result() == {1: ("x", "A2"), 2: ("v", "B2")}
    assert made.pipeline.verify().ok
