"""Rows of Parquet files count in their order, also on an engine that reads them in several threads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fk_pipeline.environment.sail import is_sail
from fk_pipeline.errors import LandingError
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

pytestmark = pytest.mark.spark

ROWS = 60_000
KEYS = 1_000


def made(folder: Path, spark: SparkSession) -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(
        "name: columnar\njoin: left\n"
        "left: {path: left, format: parquet, schema: 'id INT, fk STRING, v BIGINT', key: id, foreign_key: fk}\n"
        "right: {path: right, format: parquet, schema: 'k STRING, name STRING', key: k}\n"
        "select: [id, v, name]\n"
    )
    for side in ("left", "right"):
        (folder / side).mkdir()
    return Pipeline(load_spec(file), spark)


def test_the_last_row_of_a_key_wins_in_a_file_of_many_row_groups(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = made(tmp_path, spark)
    left = {"id": [i % KEYS for i in range(ROWS)], "fk": ["a"] * ROWS, "v": list(range(ROWS))}
    pq.write_table(pa.table(left), tmp_path / "left" / "0.parquet", row_group_size=5_000)
    pq.write_table(pa.table({"k": ["a", "a"], "name": ["old", "A"]}), tmp_path / "right" / "0.parquet")
    pipeline.run()
    rows = {row["id"]: (row["v"], row["name"]) for row in pipeline.table("resolved_join").collect()}
    assert rows == {i: (ROWS - KEYS + i, "A") for i in range(KEYS)}
    assert pipeline.verify().ok


def test_a_type_that_sail_may_read_otherwise_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    if not is_sail(spark):
        pytest.skip("Spark reads it")
    pipeline = made(tmp_path, spark)
    left = pa.table({"id": [1], "fk": ["a"], "v": pa.array([1 << 63], pa.uint64())})
    pq.write_table(left, tmp_path / "left" / "0.parquet")
    with pytest.raises(LandingError, match="column v is of type uint64"):
        pipeline.run()
