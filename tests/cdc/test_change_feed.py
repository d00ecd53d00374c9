"""The change feed of a Delta table that is read as Parquet is the one that Delta reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from fk_pipeline.cdc.delta import changes_between
from fk_pipeline.cdc.table_versions import MOST_FEED_INDICES, are_kept, plain_feed
from fk_pipeline.parquet_files import rows_at

pytestmark = pytest.mark.spark

FEED = {"delta.enableChangeDataFeed": "true"}


def rows(path: str, session: SparkSession) -> list[dict[str, Any]]:
    return _all(changes_between(session, path))


def by_delta(table: str, first: int, last: int, session: SparkSession) -> list[dict[str, Any]]:
    options = {"readChangeFeed": True, "startingVersion": first, "endingVersion": last}
    found = session.read.format("delta").options(**options).load(table).drop("_commit_timestamp")
    return _all(found)


def _all(found: DataFrame) -> list[dict[str, Any]]:
    """Returns rows without their nulls: Delta has the columns that the table got later, too."""
    told = [{name: value for name, value in row.asDict().items() if value is not None} for row in found.collect()]
    return sorted(told, key=lambda row: sorted(map(str, row.items())))


@pytest.mark.slow
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


def marked(table: str, session: SparkSession, more: str = "") -> None:
    """Creates a table with a change feed and deletion vectors: `id BIGINT, v STRING`, and more columns."""
    properties = ", ".join(f"'{k}' = 'true'" for k in (*FEED, "delta.enableDeletionVectors"))
    session.sql(f"CREATE TABLE delta.`{table}` (id BIGINT, v STRING{more}) USING delta TBLPROPERTIES ({properties})")


def restore(table: str, version: int, session: SparkSession) -> None:
    """Restores a table, by a commit that leaves the settings out: they are the same."""
    session.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {version}")
    commit = Path(table, "_delta_log", f"{DeltaTable(table).version():020d}.json")
    lines = commit.read_text().splitlines()
    commit.write_text("".join(f"{line}\n" for line in lines if "metaData" not in json.loads(line)))
    commit.with_name(f".{commit.name}.crc").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", ", some ARRAY<INT>"], ids=["here", "by Spark"])
def test_the_rows_of_deletion_vectors_are_those_that_delta_tells(
    spark: SparkSession, tmp_path: Path, more: str
) -> None:
    table = str(tmp_path / "t")
    marked(table, spark, more)
    for first in (0, 100):  # two files
        some = spark.range(first, first + 100).selectExpr("id", "CONCAT('v', id) AS v").coalesce(1)
        some.write.format("delta").mode("append").save(table)
    full = DeltaTable(table).version()
    for gone in ("id IN (0, 7, 99, 100, 163)", "id IN (1, 8)", "id >= 100", "id = 50"):
        spark.sql(f"DELETE FROM delta.`{table}` WHERE {gone}")
    before = DeltaTable(table).version()
    restore(table, full, spark)  # rows come back, and a file
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id IN (2, 102)")
    restore(table, before, spark)
    last = DeltaTable(table).version()
    for version in range(1, last + 1):
        assert plain_feed(f"{table}@{version}..{version}") is not None, version
        assert rows(f"{table}@{version}..{version}", spark) == by_delta(table, version, version, spark), version
    for end in range(2, last + 1):
        again = end > before  # rows came again in the range
        assert (plain_feed(f"{table}@1..{end}") is None) == (end > 2), "rows came and went"
        assert (plain_feed(f"{table}@3..{end}") is None) == again if end >= 3 else True
    assert rows(f"{table}@3..{before}", spark) == by_delta(table, 3, before, spark)
    assert len(rows(f"{table}@3..{before}", spark)) == 5 + 2 + 98 + 1
    for count in (MOST_FEED_INDICES, MOST_FEED_INDICES + 1):
        spark.range(10_000).selectExpr("id", "'w' AS v").coalesce(1).write.format("delta").mode("overwrite").save(table)
        spark.sql(f"DELETE FROM delta.`{table}` WHERE id < {count}")
        version = DeltaTable(table).version()
        assert (plain_feed(f"{table}@{version}..{version}") is None) == (count > MOST_FEED_INDICES)
        assert len(rows(f"{table}@{version}..{version}", spark)) == count


@pytest.mark.slow
def test_a_damaged_deletion_vector_is_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    marked(table, spark)
    spark.range(9).selectExpr("id", "'v' AS v").coalesce(1).write.format("delta").mode("append").save(table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 3")
    assert rows(f"{table}@2..2", spark) == [{"id": 3, "v": "v", "_change_type": "delete", "_commit_version": 2}]
    assert plain_feed(f"{table}@2..2") is not None
    assert are_kept(f"{table}@2..2")
    [vectors] = Path(table).glob("deletion_vector_*.bin")
    data = vectors.read_bytes()
    vectors.write_bytes(data[:-6] + bytes([data[-6] ^ 1]) + data[-5:])
    assert plain_feed(f"{table}@2..2") is None
    vectors.unlink()
    assert plain_feed(f"{table}@2..2") is None
    assert not are_kept(f"{table}@2..2")


def test_a_merge_that_changes_nothing_has_no_changes(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"]}), configuration=FEED)
    spark.sql(
        f"MERGE INTO delta.`{table}` t USING (SELECT 1L AS id, 'a' AS v) s ON t.id = s.id "
        "WHEN MATCHED AND t.v <> s.v THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    last = DeltaTable(table).version()
    commit = Path(table, "_delta_log", f"{last:020d}.json").read_text()
    assert '"dataChange":true' in commit, "its files are written anew"
    assert rows(f"{table}@{last}..{last}", spark) == by_delta(table, last, last, spark) == []


def test_a_file_that_is_removed_and_added_without_a_vector_is_left_to_delta(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table({"id": pa.array([1], pa.int64())}), configuration=FEED)
    log = Path(table, "_delta_log")
    lines = (log / f"{0:020d}.json").read_text().splitlines()
    [added] = [action["add"] for line in lines if "add" in (action := json.loads(line))]
    removed = {"path": added["path"], "dataChange": True, "deletionTimestamp": 1}
    actions = [{"commitInfo": {"operation": "WRITE"}}, {"remove": removed}, {"add": added}]
    (log / f"{1:020d}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    assert DeltaTable(table).version() == 1
    assert plain_feed(f"{table}@1..1") is None


def test_few_rows_of_a_file_are_read_by_arrow_only_as_spark_reads_them(tmp_path: Path) -> None:
    schema = T.StructType.fromDDL("id BIGINT, day DATE")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "day": pa.array([0, 1, 2], pa.date32())})
    file, few = tmp_path / "rows.parquet", BitMap64([0, 2])

    def found(table: pa.Table, indices: BitMap64 = few) -> list[int | None] | None:
        pq.write_table(table, file)
        read = rows_at(str(file), indices, schema)
        return None if read is None else read["id"].to_pylist()

    assert found(rows) == [1, 3]
    assert found(rows.select(["day"])) == [None, None], "a column that came later"
    assert found(rows.rename_columns(["ID", "day"])) is None, "for Spark it is the same name"
    assert found(rows, BitMap64([0, 3])) is None, "the file has no such row"
    assert found(rows.replace_schema_metadata({"org.apache.spark.version": "3.5.1"})) == [1, 3]
    for old in ({"org.apache.spark.version": "2.4.8"}, {"org.apache.spark.legacyDateTime": ""}):
        assert found(rows.replace_schema_metadata(old)) is None, "dates in the calendar from before 1582"
    file.write_bytes(file.read_bytes()[:-20])
    assert rows_at(str(file), few, schema) is None


def test_changes_that_no_file_has_alone_are_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    marked(table, spark)
    spark.range(6).selectExpr("id", "'v' AS v").coalesce(1).write.format("delta").mode("append").save(table)
    spark.range(7, 9).selectExpr("id", "'v' AS v").coalesce(1).write.format("delta").mode("overwrite").save(table)
    for version in (1, 2):
        assert plain_feed(f"{table}@{version}..{version}") is not None
    assert plain_feed(f"{table}@1..2") is None, "a file came and went"
    assert rows(f"{table}@1..2", spark) == by_delta(table, 1, 2, spark)
    assert len(rows(f"{table}@1..2", spark)) == 6 + 6 + 2
    assert plain_feed(f"{table}@1..99") is None, "there are no such versions"
    assert plain_feed(f"{table}@..1") is None, "a whole table has no changes"
    parts = str(tmp_path / "parts")
    properties = ", ".join(f"'{k}' = 'true'" for k in FEED)
    spark.sql(
        f"CREATE TABLE delta.`{parts}` (id BIGINT, day INT) USING delta PARTITIONED BY (day) "
        f"TBLPROPERTIES ({properties})"
    )
    spark.sql(f"INSERT INTO delta.`{parts}` VALUES (1, 2)")
    assert plain_feed(f"{parts}@1..1") is None, "a partition is in no file"
