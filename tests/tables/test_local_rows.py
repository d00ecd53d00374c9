"""Rows of some batches, read without Spark: the same rows, typed alike, and only where that is cheap and certain."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fk_pipeline.identity import BatchRange
from fk_pipeline.tables import local
from fk_pipeline.tables.engine import open_warehouse
from fk_pipeline.tables.schemas import Table
from fk_pipeline.tables.skipping import Within
from fk_pipeline.tables.warehouse import CommitInfo, Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.no_sail("deletion vectors are written by Spark")]

KINDS = {
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "big": "BIGINT",
    "text": "STRING",
    "bytes": "BINARY",
    "truth": "BOOLEAN",
    "money": "DECIMAL(12,3)",
}
ROWS = """SELECT CAST(id % 4 AS INT) AS batch, CAST(id AS TINYINT) AS tiny, CAST(-id AS SMALLINT) AS small,
    CAST(id * 7 AS INT) AS whole, id * 1000000007 AS big, IF(id % 3 = 0, NULL, CONCAT('ä', id)) AS text,
    UNHEX(MD5(CAST(id AS STRING))) AS bytes, id % 2 = 0 AS truth, CAST(id / 8 AS DECIMAL(12,3)) AS money,
    DATE_ADD(DATE'1582-01-01', CAST(id AS INT)) AS day, TIMESTAMP_SECONDS(id) AS moment FROM RANGE(100)"""
TABLE = Table(
    "rows",
    (("batch", "INT"), *KINDS.items(), ("day", "DATE"), ("moment", "TIMESTAMP")),
    skip_by=("batch",),
    properties={"delta.enableDeletionVectors": "true"},
)
INFO = CommitInfo("tested", "left_changelog", BatchRange.of(0), "run")
BATCHES = Within("batch", BatchRange.of(1, 2))


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Warehouse:
    """A table of a hundred rows of four batches in two files; some rows are marked as deleted."""
    made = open_warehouse(spark, str(tmp_path))
    for half in ("id < 50", "id >= 50"):
        made.append(spark.sql(f"{ROWS} WHERE {half}").coalesce(1), TABLE, INFO)
    spark.sql(f"DELETE FROM delta.`{made.path('rows')}` WHERE whole IN (35, 42, 630)")
    return made


def here(warehouse: Warehouse, *columns: str) -> pa.Table | None:
    return warehouse.read_here(TABLE, warehouse.version("rows") or 0, columns, BATCHES)


def test_the_rows_are_those_that_spark_reads(warehouse: Warehouse) -> None:
    found = here(warehouse, *KINDS)
    assert found is not None
    wanted = warehouse.read(TABLE, where=[BATCHES]).select(*KINDS).toArrow()
    assert found.schema.types == wanted.schema.types
    assert found.sort_by("big").to_pylist() == wanted.sort_by("big").to_pylist()
    assert len(found) == 50 - 3, "the marked rows are of these batches"


def test_rows_that_were_added_without_spark_are_read_alike(warehouse: Warehouse, spark: SparkSession) -> None:
    plain = Table("plain", TABLE.columns[:-2], skip_by=("batch",))
    rows = spark.sql(ROWS).select(*plain.names)
    warehouse.append(rows.where("batch = 0"), plain, INFO)
    warehouse.append_local(rows.where("batch = 1").toArrow(), plain, INFO)
    found = warehouse.read_here(plain, 1, KINDS, BATCHES)
    assert found is not None
    wanted = rows.where("batch = 1").select(*KINDS).toArrow()
    assert found.schema.types == wanted.schema.types
    assert found.sort_by("big").to_pylist() == wanted.sort_by("big").to_pylist()


def test_a_batch_without_rows_has_none(warehouse: Warehouse) -> None:
    found = warehouse.read_here(TABLE, warehouse.version("rows") or 0, ["text"], Within("batch", BatchRange.of(9)))
    assert found is not None
    assert (len(found), found.schema.types) == (0, [pa.string()])


def test_what_spark_reads_otherwise_or_much_is_left_to_it(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here(warehouse, "big", "moment") is None, "its unit and zone depend on who wrote it"
    assert here(warehouse, "big", "day") is None, "its calendar does"
    assert warehouse.read_here(TABLE, 0, ["big"], BATCHES) is None, "an older version"
    monkeypatch.setattr(local, "LOCAL_ROWS", 10)
    assert here(warehouse, "big") is None
