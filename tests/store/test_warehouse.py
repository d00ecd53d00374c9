"""Commits: what is appended without Spark is what Spark would have appended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fk_pipeline.identity import BatchRange
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.ledger.commits import READ, row_metadata
from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.schemas import STATISTICS, Table
from fk_pipeline.store.skipping import Within
from fk_pipeline.store.warehouse import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.connect]

COLUMNS = (
    ("_fk_batch", "INT"),
    ("id", "BIGINT"),
    ("flag", "BOOLEAN"),
    ("small", "TINYINT"),
    ("part", "FLOAT"),
    ("number", "DOUBLE"),
    ("price", "DECIMAL(15,2)"),
    ("long", "DECIMAL(38,10)"),
    ("day", "DATE"),
    ("moment", "TIMESTAMP"),
    ("local", "TIMESTAMP_NTZ"),
    ("text", "STRING"),
    ("raw", "BINARY"),
    ("seq", "STRUCT<file: INT, at: BIGINT>"),
)
ROWS = """
    SELECT 1, 7L, true, 3Y, CAST('NaN' AS FLOAT), -0.0D, 12345.60BD, 1e20BD, DATE '0001-01-01',
        TIMESTAMP '2026-01-01 00:00:00.123456', TIMESTAMP_NTZ '1800-02-03 04:05:06', 'né', X'00ff', STRUCT(1, 2L)
    UNION ALL SELECT 2, 8L, null, null, null, null, null, null, null, null, null, null, null, null
"""


def info(batch: int) -> CommitInfo:
    return CommitInfo("tested", "left_changelog", BatchRange.of(batch), "run")


def test_rows_appended_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    tables = [Table(name, COLUMNS, skip_by=("_fk_batch", "id")) for name in ("by_spark", "without")]
    frame = spark.sql(ROWS).toDF(*[name for name, _ in COLUMNS])
    frame = frame.selectExpr(*[f"CAST({name} AS {kind}) AS {name}" for name, kind in COLUMNS])
    rows = Materialised.of(frame, 2, 2).local
    assert rows is not None
    warehouse.append(frame.limit(0), tables[0], info(0))
    warehouse.append(frame, tables[0], info(1))
    for part in (rows.slice(0, 0), rows):  # the first one creates the table
        assert warehouse.driver.may_append(tables[1], len(part))
        warehouse.driver.append(part, tables[1], info(len(part) // 2))
    assert warehouse.rows([tables[1]]) == 2

    def stored(table: Table) -> list[Any]:
        return spark.read.format("delta").load(warehouse.path(table.name)).orderBy("id").collect()

    assert str(stored(tables[0])) == str(stored(tables[1]))
    assert warehouse.read(tables[0]).schema == warehouse.read(tables[1]).schema
    assert max(warehouse.history("without")) == (1, info(1).as_json())
    assert warehouse.logs.span(warehouse.path("without"), "id") == (7, 8)
    found = warehouse.read(tables[1], where=[Within("_fk_batch", BatchRange.of(2))]).collect()
    assert [row["id"] for row in found] == [8]


def test_types_that_may_be_stored_in_another_way_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    table = Table("maps", (("id", "INT"), ("m", "MAP<STRING, INT>")))
    frame = spark.sql("SELECT 1 AS id, MAP('a', 1) AS m")
    warehouse.append(frame, table, info(0))
    assert not warehouse.driver.may_append(table, 1)


def test_a_table_with_features_of_its_own_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    table = Table("marked", (("id", "INT"),), properties={"delta.enableDeletionVectors": "true"})
    warehouse.append(spark.sql("SELECT 1 AS id"), table, info(0))
    assert not warehouse.driver.may_append(table, 1)


def test_a_table_gets_the_texts_and_statistics_that_it_lacks(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    comments = {"id": "the key: it's `a` \\ ${b}", "n": "two\nlines"}
    bare = Table("described", (("id", "INT"), ("n", "INT"), ("more", "STRING")), skip_by=("id",))
    table = replace(bare, description="What it is.\n\n**More** of 'it'.", comments=comments, skip_by=("id", "n"))
    made = replace(table, name="made")
    frame = spark.sql("SELECT 1 AS id, 2 AS n, 'a' AS more")
    facts = {"stands for": "version 7", READ: -1}
    for created in (bare, made):
        warehouse.append(frame, created, replace(info(0), metadata=facts))
    assert told(warehouse, "made") == ("", comments, "`id`,`n`"), "Spark creates it without a description"
    assert told(warehouse, "described") == ("", {}, "`id`")
    before = DeltaTable(warehouse.path("described")).metadata().id
    warehouse.describe(table)
    assert told(warehouse, "described") == (table.description, comments, "`id`,`n`")
    version = warehouse.version("described")
    warehouse.describe(table)
    assert (warehouse.version("described"), version) == (2, 2)
    assert DeltaTable(warehouse.path("described")).metadata().id == before
    assert row_metadata(warehouse.path("described"), 2) == facts, "the rows are the same"
    warehouse.append(frame, table, info(1))
    assert warehouse.read(table).count() == 2
    warehouse.replace_all(frame, replace(bare, name="described", description="Another"), info(2))
    assert told(warehouse, "described") == ("Another", {}, "`id`")


def told(warehouse: Warehouse, name: str) -> tuple[str, dict[str, str], str | None]:
    """Returns the description of a table, the comments of its columns, and its columns with statistics."""
    stored = DeltaTable(warehouse.path(name))
    comments = {f.name: f.metadata["comment"] for f in stored.schema().fields if "comment" in f.metadata}
    about = stored.metadata()
    return about.description or "", comments, about.configuration.get(STATISTICS)
