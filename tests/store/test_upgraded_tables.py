"""Tables that somebody has upgraded: a run goes on, or one error names table, feature and what takes it off again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from fk_pipeline.errors import StateError
from fk_pipeline.identity import BatchRange
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.damage import damage_of
from fk_pipeline.store.ledger.entries import SCHEMAS, Entries
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.schemas import MERGED, Table
from fk_pipeline.store.settings import settings, suiting
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.warehouse import Warehouse
from fk_pipeline.table_features import Can, Protocol, beyond, open_table
from tests.upgrades import FEATURES, NOT_IN_OLD_TABLES, OF_READERS, upgrade

GOOD_FOR_THE_LEDGER = {"appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors", "generatedColumns",
                       "invariants", "timestampNtz"}  # fmt: skip
"""Features to which every accepted version of delta-rs commits."""


def row_of(table: str) -> list[dict[str, Any]]:
    return [dict.fromkeys(SCHEMAS[table].names[2:])]


def ledger(home: Path, *tables: str) -> None:
    """Makes tables of a ledger, each with two rows in two commits."""
    made = Entries(str(home))
    for table in tables or SCHEMAS:
        for _ in range(2):
            made.append(table, row_of(table))


def state_error(call: Callable[[], object]) -> StateError | None:
    try:
        call()
    except StateError as error:
        return error
    return None


def versions(home: Path) -> int:
    """The number of all versions of all tables."""
    return len([*home.glob("*/_delta_log/*.json")])


def test_every_feature_on_a_table_of_the_ledger_is_written_or_refused_before_anything_is(tmp_path: Path) -> None:
    ledger(tmp_path / "golden", "files", "runs")
    written = set()
    for feature in FEATURES:
        home = shutil.copytree(tmp_path / "golden", tmp_path / feature)
        upgrade(home / "runs", feature)
        before, entries = versions(home), Entries(str(home))
        error = state_error(lambda entries=entries: entries.changed() and entries.append("files", row_of("files")))
        if error is None:
            entries.append("runs", row_of("runs"))
            assert len(Entries(str(home)).rows("runs")) == 3
            written.add(feature)
            continue
        assert error.what.startswith(f"table runs has the feature {feature}: "), error.what
        assert error.where == f"{home}/runs"
        assert f"delta.`{home}/runs`" in error.fix
        with pytest.raises(StateError, match=feature):
            Entries(str(home)).append("runs", row_of("runs"))
        assert versions(home) == before, feature
    assert written >= GOOD_FOR_THE_LEDGER


@pytest.mark.parametrize("table", SCHEMAS)
def test_each_table_of_the_ledger_is_looked_at(tmp_path: Path, table: str) -> None:
    ledger(tmp_path)
    upgrade(tmp_path / table, "rowTracking", "domainMetadata")
    entries = Entries(str(tmp_path))
    entries.changed()
    assert len(entries.rows(table)) == 2, "it is read as before"
    with pytest.raises(StateError) as error:
        entries.append("files", row_of("files"))
    path = f"{tmp_path}/{table}"
    assert error.value.what == (
        f"table {table} has the features domainMetadata, rowTracking: it cannot be written without Spark"
    )
    assert error.value.fix == (
        f"in Spark: ALTER TABLE delta.`{path}` DROP FEATURE 'rowTracking'; "
        f"ALTER TABLE delta.`{path}` DROP FEATURE 'domainMetadata'"
    )


def test_a_version_is_brought_back_only_if_it_has_the_same_rows(tmp_path: Path) -> None:
    """The feature alone cannot be dropped, and a version from before it may lack rows."""

    ledger(tmp_path, "runs")
    log = tmp_path / "runs" / "_delta_log"
    version = upgrade(tmp_path / "runs", "allowColumnDefaults")
    assert refused(tmp_path).endswith(f"RESTORE TABLE delta.`{tmp_path}/runs` TO VERSION AS OF {version - 1}")
    upgrade(tmp_path / "runs", "clustering", "domainMetadata")
    assert refused(tmp_path).endswith(f"TO VERSION AS OF {version - 1}")
    commit = log / f"{version + 2:020d}.json"
    packed = {"path": "f.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": False}
    commit.write_text(json.dumps({"add": packed}) + "\n")
    assert refused(tmp_path).endswith(f"TO VERSION AS OF {version - 1}"), "packing changes no rows"
    commit.write_text(json.dumps({"add": packed | {"dataChange": True}}) + "\n")
    assert "CREATE TABLE" in refused(tmp_path)


def test_the_protocol_of_a_table_whose_first_commits_are_gone_is_that_of_its_checkpoint(tmp_path: Path) -> None:
    ledger(tmp_path, "runs")
    log, last = tmp_path / "runs" / "_delta_log", upgrade(tmp_path / "runs", "allowColumnDefaults")
    DeltaTable(str(tmp_path / "runs"), version=last - 1).create_checkpoint()
    for gone in range(last):
        (log / f"{gone:020d}.json").unlink()
    assert refused(tmp_path).endswith(f"TO VERSION AS OF {last - 1}")


def test_every_feature_on_a_table_of_data_is_opened_or_refused(tmp_path: Path) -> None:
    for feature in (*FEATURES, *NOT_IN_OLD_TABLES, "ofAnotherProgram"):
        path = tmp_path / feature
        write_deltalake(str(path), pa.table({"n": [1, 2]}))
        upgrade(path, feature)
        error = state_error(lambda path=path: DeltaLogs().rows(str(path)))
        if error is None:
            assert DeltaLogs().rows(str(path)) == 2, feature
            assert damage_of(str(tmp_path), feature) is None, feature
            continue
        assert error.what == f"table {feature} has the feature {feature}: it cannot be opened without Spark"
        assert error.fix == f"in Spark: ALTER TABLE delta.`{path}` DROP FEATURE '{feature}'"
        with pytest.raises(StateError, match=feature):
            damage_of(str(tmp_path), feature)


def test_deletion_vectors_that_only_spark_can_read_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "marked"
    write_deltalake(str(path), pa.table({"n": [1, 2]}))
    upgrade(path, "deletionVectors")
    assert DeltaLogs().floor(str(path), 1, "n") == 1
    upgrade(path, "deletionVectors", "vacuumProtocolCheck")
    if beyond(Protocol.of(open_table(str(path))), Can.READ):  # not with every version of delta-rs
        assert DeltaLogs().floor(str(path), 2, "n") is None, "the row with this value may be deleted"
    assert damage_of(str(tmp_path), "marked") is None
    assert DeltaLogs().rows(str(path)) == 2


def test_a_log_that_cannot_be_read_is_not_taken_for_a_feature(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    write_deltalake(str(path), pa.table({"n": [1, 2]}))
    (path / "_delta_log" / f"{1:020d}.json").write_text("no JSON")
    with pytest.raises(DeltaError):
        open_table(str(path))
    damage = damage_of(str(tmp_path), "broken")
    assert damage is not None
    assert damage.of_log


def supported(*features: str) -> str:
    return "SET TBLPROPERTIES (" + ", ".join(f"'delta.feature.{one}' = 'supported'" for one in features) + ")"


UPGRADES = {
    "dropped": ["SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')", supported("domainMetadata")],
    "row tracking": ["SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"],
    "with the version": [
        "CLUSTER BY (entry)",
        supported("allowColumnDefaults", "identityColumns", "typeWidening", "variantShredding", "checkpointProtection"),
        supported("coordinatedCommits-preview", "geospatial", "geospatial-dev", "icebergCompatV2"),
    ],
}
"""Per way in which features are taken off, what somebody does to a table of the ledger."""

SLOW = pytest.param("row tracking", marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("way", ["dropped", SLOW, "with the version"])
def test_what_the_error_names_takes_the_features_off_the_ledger(way: str, tmp_path: Path, spark: SparkSession) -> None:
    ledger(tmp_path, "runs")
    with settings(spark, suiting(0)):
        for change in UPGRADES[way]:
            spark.sql(f"ALTER TABLE delta.`{tmp_path}/runs` {change}")
        follow(spark, refused(tmp_path))
    entries = Entries(str(tmp_path))
    entries.append("runs", row_of("runs"))
    assert len(entries.rows("runs")) == 3


@pytest.mark.slow
@pytest.mark.spark
def test_a_copy_takes_off_what_no_version_is_without(tmp_path: Path, spark: SparkSession) -> None:
    ledger(tmp_path, "runs")
    path = tmp_path / "runs"
    with settings(spark, suiting(0)):
        spark.sql(f"ALTER TABLE delta.`{path}` {supported('allowColumnDefaults')}")
        spark.sql(f"INSERT INTO delta.`{path}` SELECT * FROM delta.`{path}` LIMIT 1").collect()
        copy, then = refused(tmp_path).split("; then ")
        follow(spark, copy)
    assert then == "put that folder in its place"
    path.rename(tmp_path / "old")
    (tmp_path / "runs-copy").rename(path)
    Entries(str(tmp_path)).append("runs", row_of("runs"))
    assert Entries(str(tmp_path)).logs.rows(str(path)) == 4


def refused(home: Path) -> str:
    """Returns the fix of the error with which a ledger is refused."""
    entries = Entries(str(home))
    error = state_error(lambda: entries.changed() and entries.refuse_upgraded())
    assert error is not None
    return error.fix


def follow(spark: SparkSession, fix: str) -> None:
    """Runs the statements of a fix, one after the other."""
    for statement in fix.removeprefix("in Spark: ").split("; "):
        spark.sql(statement).collect()


@pytest.mark.spark
def test_the_features_of_the_tests_are_those_of_delta(spark: SparkSession) -> None:
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        pytest.skip("a Connect client sees no classes")
    found = jvm.org.apache.spark.sql.delta.TableFeature.allSupportedFeaturesMap().values().iterator()
    of_delta = {}
    while found.hasNext():
        one = found.next()
        of_delta[one.name()] = one.isReaderWriterFeature()
    assert {name for name, reads in of_delta.items() if reads} - {*NOT_IN_OLD_TABLES} == {*OF_READERS}
    assert {*of_delta} == {*FEATURES, *NOT_IN_OLD_TABLES}


@pytest.mark.slow
@pytest.mark.spark
def test_a_table_whose_rows_stay_is_told_and_one_for_iceberg_is_written(tmp_path: Path, spark: SparkSession) -> None:
    """Iceberg reads no deletion vectors: the table does not get any, however large it grows."""
    table = Table("kept", (("k", "INT"), ("v", "STRING")), keys=("k",), properties=MERGED)
    warehouse = Warehouse(spark, str(tmp_path), sizes=Sizes(rewritten_rows=3))
    path, info = warehouse.path("kept"), CommitInfo("tested", "right_table", BatchRange.of(0), "run")
    rows = pa.table({"k": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})
    with settings(spark, suiting(0)):
        warehouse.driver.append(rows, table, info)
        spark.sql(
            f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.appendOnly' = 'true', "
            "'delta.enableIcebergCompatV2' = 'true', 'delta.columnMapping.mode' = 'name')"
        )
        more = spark.createDataFrame(rows.set_column(0, "k", pa.array([2, 3], pa.int32())))
        warehouse.append(more.where("k = 3"), table, info)
        with pytest.raises(StateError, match="table kept has the property delta") as error:
            warehouse.merge(more, table, info)
        follow(spark, error.value.fix)
        warehouse.append(spark.createDataFrame(rows).selectExpr("k + 3 AS k", "v"), table, info)
        warehouse.merge(more, table, info)
    found = spark.read.format("delta").load(path).collect()
    assert {row.k: row.v for row in found} == {1: "a", 2: "a", 3: "b", 4: "a", 5: "b"}
    assert warehouse.logs.table(path).protocol().reader_features is None
