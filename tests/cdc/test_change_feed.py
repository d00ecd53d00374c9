"""The change feed of a Delta table that is read as Parquet is the one that Delta reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.cdc.delta import _changes
from fk_pipeline.cdc.table_versions import plain_feed

pytestmark = pytest.mark.spark

FEED = {"delta.enableChangeDataFeed": "true"}


def rows(path: str, session: SparkSession) -> list[dict[str, Any]]:
    return _all(_changes(session, path))


def by_delta(table: str, first: int, last: int, session: SparkSession) -> list[dict[str, Any]]:
    options = {"readChangeFeed": True, "startingVersion": first, "endingVersion": last}
    found = session.read.format("delta").options(**options).load(table).drop("_commit_timestamp")
    return _all(found)


def _all(found: DataFrame) -> list[dict[str, Any]]:
    """Returns rows without their nulls: Delta has the columns that the table got later, too."""
    told = [{name: value for name, value in row.asDict().items() if value is not None} for row in found.collect()]
    return sorted(told, key=lambda row: sorted(map(str, row.items())))


def test_the_files_of_the_feed_have_the_changes_that_delta_tells(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    first = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["a", None, "c"]})
    write_deltalake(table, first, configuration=FEED)
    write_deltalake(table, first.slice(0, 1).set_column(0, "id", pa.array([4], pa.int64())), mode="append")
    known, changed = DeltaTable(table), pa.table({"id": pa.array([2, 5], pa.int64()), "v": ["new", "five"]})
    merge = known.merge(changed, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (more INT)")
    spark.sql(f"UPDATE delta.`{table}` SET more = id WHERE id <= 2")
    spark.sql(f"OPTIMIZE delta.`{table}`")
    spark.sql(f"DELETE FROM delta.`{table}`")
    last = DeltaTable(table).version()
    assert [plain_feed(f"{table}@{v}..{v}") is not None for v in range(last + 1)] == [
        False, True, True, False, True, False, True,
    ], "the table is created, gets a column, and its files are packed"  # fmt: skip
    for begin, end in ((1, 1), (2, 2), (1, 2), (4, 4), (4, 5), (6, 6), (4, 6), (0, last), (1, 4)):
        assert (plain_feed(f"{table}@{begin}..{end}") is None) == (begin <= 3 <= end)
        assert rows(f"{table}@{begin}..{end}", spark) == by_delta(table, begin, end, spark)
    for empty in (3, 5):
        assert rows(f"{table}@{empty}..{empty}", spark) == []
    told = {(row["_change_type"], row["_commit_version"]) for row in rows(f"{table}@0..{last}", spark)}
    assert told >= {("insert", 0), ("insert", 1), ("update_preimage", 2), ("update_postimage", 4), ("delete", 6)}


def test_changes_without_a_file_for_them_are_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    properties = ", ".join(f"'{k}' = 'true'" for k in (*FEED, "delta.enableDeletionVectors"))
    spark.sql(f"CREATE TABLE delta.`{table}` (id BIGINT) USING delta TBLPROPERTIES ({properties})")
    spark.range(6).coalesce(1).write.format("delta").mode("append").save(table)
    for gone in ("id = 1", "id >= 0"):
        spark.sql(f"DELETE FROM delta.`{table}` WHERE {gone}")
    last = DeltaTable(table).version()
    assert plain_feed(f"{table}@2..2") is None, "rows are in a deletion vector"
    assert plain_feed(f"{table}@1..{last}") is None
    assert plain_feed(f"{table}@{last}..{last}") is None, "the file that is removed has a deletion vector"
    assert rows(f"{table}@1..{last}", spark) == by_delta(table, 1, last, spark)
    spark.range(3).coalesce(1).write.format("delta").mode("append").save(table)
    spark.range(7, 9).coalesce(1).write.format("delta").mode("overwrite").save(table)
    [came, went] = [DeltaTable(table).version() - 1, DeltaTable(table).version()]
    for version in (came, went):
        feed = plain_feed(f"{table}@{version}..{version}")
        assert feed is not None
        assert rows(f"{table}@{version}..{version}", spark) == by_delta(table, version, version, spark)
    assert plain_feed(f"{table}@{came}..{went}") is None, "a file came and went"
    assert len(rows(f"{table}@{came}..{went}", spark)) == 3 + 3 + 2
    assert plain_feed(f"{table}@1..99") is None, "there are no such versions"
    assert plain_feed(f"{table}@..1") is None, "a whole table has no changes"
    parts = str(tmp_path / "parts")
    by_day = f"USING delta PARTITIONED BY (day) TBLPROPERTIES ({properties})"
    spark.sql(f"CREATE TABLE delta.`{parts}` (id BIGINT, day INT) {by_day}")
    spark.sql(f"INSERT INTO delta.`{parts}` VALUES (1, 2)")
    assert plain_feed(f"{parts}@1..1") is None, "a partition is in no file"
