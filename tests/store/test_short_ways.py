"""The short ways of small work (ADR 0005) and the long ones give the same tables."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from fk_pipeline.kinds.foreign_key import resolved_join as resolver
from fk_pipeline.store.settings import GUARDED, SMALL, settings
from fk_pipeline.store.sizes import Sizes

pytestmark = [pytest.mark.spark, pytest.mark.connect]

INTERPRETED = "spark.sql.codegen.wholeStage"


def test_settings_are_put_back_when_the_last_holder_is_done(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name, None) for name in SMALL | GUARDED}
    with settings(spark, SMALL):
        with settings(spark, SMALL | GUARDED):
            assert all(spark.conf.get(name) == value for name, value in (SMALL | GUARDED).items())
        assert spark.conf.get(INTERPRETED) == "false"
        assert all(spark.conf.get(name, None) == before[name] for name in GUARDED)
    assert {name: spark.conf.get(name, None) for name in SMALL | GUARDED} == before


def test_of_several_values_the_one_that_was_set_last_holds(spark: SparkSession) -> None:
    name = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(name)
    with settings(spark, {name: "32m"}):
        with settings(spark, {name: "1g"}):
            with settings(spark, {name: "32m"}):
                assert spark.conf.get(name) == "32m"
            assert spark.conf.get(name) == "1g"
        assert spark.conf.get(name) == "32m"
    assert spark.conf.get(name) == before


def test_settings_are_put_back_after_an_error(spark: SparkSession) -> None:
    before = spark.conf.get(INTERPRETED)
    with pytest.raises(ZeroDivisionError), settings(spark, SMALL):
        _ = 1 / 0
    assert spark.conf.get(INTERPRETED) == before


def test_a_setting_that_is_refused_leaves_none_behind(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name, None) for name in SMALL}
    with pytest.raises(AnalysisException), settings(spark, SMALL | {"spark.sql.warehouse.dir": "elsewhere"}):
        pytest.fail("a static setting cannot be set")
    assert {name: spark.conf.get(name, None) for name in SMALL} == before
    with settings(spark, {"spark.sql.warehouse.dir": "elsewhere"} | SMALL, optional=True):
        assert spark.conf.get(INTERPRETED) == "false"
    assert {name: spark.conf.get(name, None) for name in SMALL} == before


@pytest.mark.slow
def test_the_join_is_right_on_the_long_ways(
    rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    seen = []
    decide = resolver.decide
    monkeypatch.setattr(
        resolver, "decide", lambda *a, **k: (seen.append(spark.conf.get(INTERPRETED)), decide(*a, **k))[1]
    )
    sizes = Sizes(small_rows=-1, rewritten_rows=-1, deletion_vector_rows=-1, driver_keys=-1, batch_rows=-1)
    made = rows_pipeline("left", sizes)
    made.land(0, [(1, "a", "v"), (2, "b", "v"), (3, "a", "v")], [("a", "A"), ("b", "B")])
    made.pipeline.run()
    made.land(1, [(1, "b", "w"), (3,)], [("b",), ("a", "A2")])
    made.pipeline.run()
    assert made.result() == {1: ("w", None), 2: ("v", None)}
    assert made.pipeline.verify().ok
    assert seen == ["true", "true"]
