"""PySpark asks Java once what a name is, and columns are built without a further question."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JVMView
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fk_pipeline.environment.java_names import remember_names


@pytest.fixture
def asked(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that PySpark asks Java for from now on."""
    if not hasattr(spark, "_jvm"):
        pytest.skip("a client of Spark Connect has no Java")
    names: list[str] = []
    for kind in (JVMView, JavaClass):

        def asking(self: Any, name: str, ask: Any = kind.__getattr__) -> Any:
            names.append(name)
            return ask(self, name)

        monkeypatch.setattr(kind, "__getattr__", asking)
    return names


@pytest.mark.spark
def test_what_a_batch_uses_often_is_known_to_a_session_that_we_started(spark: SparkSession, asked: list[str]) -> None:
    frame = spark.range(3).select(F.col("id"), F.expr("id + 1 AS more"), F.lit("x").alias("x"))
    rows = frame.where(~F.col("id").isin(0, 1)).withColumn("is", F.when(F.col("more") > 1, F.struct("id"))).collect()
    assert [(row["id"], row["more"], row["x"], row["is"]["id"]) for row in rows] == [(2, 3, "x", 2)]
    assert asked == [], asked


@pytest.mark.spark
def test_a_name_that_this_version_has_not_is_left_out(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(spark, "_jvm"):
        pytest.skip("a client of Spark Connect has no Java")
    names = {"no.such.Class": ("method",), "java.lang.Math": ("noSuchMethod", "abs")}
    monkeypatch.setattr("fk_pipeline.environment.java_names._NAMES", names)
    java: Any = spark._jvm
    remember_names(spark)
    assert "no.such.Class" not in vars(java)
    kept = vars(java).pop("java.lang.Math")
    assert "abs" in vars(kept)
    assert kept.abs(-1) == 1
