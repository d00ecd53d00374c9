"""Bounds of files in a log that is read without Spark: none of them leaves out a row, whoever wrote a checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.identity import BatchRange
from fk_pipeline.store import log_bounds
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.log_bounds import NO_TEXT, Times, used_columns
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.settings import settings, suiting
from fk_pipeline.store.sizes import MEASURED
from fk_pipeline.store.skipping import TIMESTAMP_SLACK, Among
from fk_pipeline.store.warehouse import Warehouse
from fk_pipeline.upkeep import PACKED

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last time of the years 1 to 9999, in microseconds since 1970."""

FAR, LEFT_OUT, OVER = 2**62, -12_219_292_800_000_001, 2**63 // 1000 + 1
"""A time far away, one of the days that the calendar left out in 1582, and one after those of 64-bit nanoseconds."""

TIMES = (FIRST, LAST, -FAR, FAR, LEFT_OUT, OVER, 1_777_629_601_000_000, None)

ENDS = {
    "n BIGINT": range(8),
    "whole BIGINT": (2**63 - 1, f"{1 - 2**63} - 1", 0, 1, -1, 2, 3, "NULL"),
    "at TIMESTAMP": ["NULL" if at is None else f"TIMESTAMP_MICROS({at})" for at in TIMES],
    "day DATE": "'0001-01-01' '9999-12-31' '-200000-01-01' '+200000-01-01' '1582-10-10' '1582-10-15' '1970-01-01' NULL",
    "text STRING": f"'' REPEAT('\U0010ffff',99) REPEAT('a',99) REPEAT('\U0001f600',99) '{NO_TEXT}' '\ue000' '\0' NULL",
    "x DOUBLE": "'NaN' '-0.0' '0.0' 'Infinity' '-Infinity' 1.5 4.9E-324D NULL",
    "money DECIMAL(38,0)": f"{'9' * 38} -{'9' * 38} 0 1 -1 12345678901234567891 2 NULL",
    "raw BINARY": "X'' X'ff' X'00ff' X'61' X'7f' X'80' X'00' NULL",
    "nothing BIGINT": ["NULL"] * 8,
}
"""Per column, the least and the greatest values of its type, one per row."""

TABLE = Table("ends", tuple((name, kind) for name, _, kind in (one.partition(" ") for one in ENDS)), keys=("n",))
INFO = CommitInfo("tested", "left_changelog", BatchRange.of(0), "run")
LOG = "_delta_log"

Way = Callable[[SparkSession, str], None]


@pytest.fixture(scope="module")
def ends(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A table with the ends of all types: each row in a file of Spark's, and all once more in one of the driver's."""
    made = Warehouse(spark, str(tmp_path_factory.mktemp("ends")))
    lists = [of.split() if isinstance(of, str) else of for of in ENDS.values()]
    rows = [", ".join(map(str, row)) for row in zip(*lists, strict=True)]
    frame = spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows)).toDF(*TABLE.names)
    frame = frame.selectExpr(*[f"CAST({name} AS {kind}) AS {name}" for name, kind in TABLE.columns])
    made.append(frame.repartitionByRange(len(rows), "n"), TABLE, INFO)
    again = frame.selectExpr("n + 100 AS n", *TABLE.names[1:]).toArrow()
    assert made.driver.may_append(TABLE, len(again))
    made.driver.append(again, TABLE, INFO)
    return made


def by_spark(properties: str = "", times: str = "INT96", **conf: str) -> Way:
    """Returns a way in which somebody makes a checkpoint with Spark, whose own setting for timestamps is 96 bits."""
    wanted = suiting(0) | {"spark.sql.parquet.outputTimestampType": times}
    wanted |= {f"spark.databricks.delta.{name.replace('_', '.')}": value for name, value in conf.items()}

    def make(session: SparkSession, path: str) -> None:
        with settings(session, wanted):
            session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1'{properties})")

    return make


def by_nobody(session: SparkSession, path: str) -> None:
    pass


def by_delta_rs(session: SparkSession, path: str) -> None:
    DeltaTable(path).create_checkpoint()


def by_both(session: SparkSession, path: str) -> None:
    """delta-rs copies the bounds that it has read from the checkpoint of Spark."""
    by_spark(PARSED)(session, path)
    table = DeltaTable(path)
    write_deltalake(table, pa.table({"n": pa.array([], pa.int64())}), mode="append", schema_mode="merge")
    table.create_checkpoint()


MICROS = "TIMESTAMP_MICROS"
PARSED = ", 'delta.checkpoint.writeStatsAsJson' = 'false', 'delta.checkpoint.writeStatsAsStruct' = 'true'"
V2 = ", 'delta.checkpointPolicy' = 'v2'"

WAYS: dict[str, tuple[Way, bool]] = {
    "no checkpoint": (by_nobody, True),
    "96 bits": (by_spark(), False),
    "96 bits, no JSON": (by_spark(PARSED), False),
    "96 bits, in parts": (by_spark(checkpoint_partSize="4"), False),
    "96 bits, V2": (by_spark(V2, checkpointV2_topLevelFileFormat="json"), False),
    "microseconds": (by_spark(times=MICROS), True),
    "microseconds, V2": (by_spark(V2, MICROS, checkpointV2_topLevelFileFormat="parquet"), True),
    "delta-rs": (by_delta_rs, True),
    "96 bits, no JSON, copied by delta-rs": (by_both, False),
}
"""Per way of a checkpoint, what makes it, and whether its times are exact."""

QUICK = ("96 bits", "96 bits, no JSON", "delta-rs")
"""Ways of one file. Which files of the others count: test_the_last_complete_checkpoint_and_later_ones_count."""


@pytest.mark.spark
@pytest.mark.parametrize("way", [pytest.param(w, marks=() if w in QUICK else pytest.mark.slow) for w in WAYS])
def test_no_row_is_left_out_by_the_bounds_of_its_file(way: str, ends: Warehouse, tmp_path: Path) -> None:
    make, exact = WAYS[way]
    path = shutil.copytree(ends.path(TABLE.name), f"{tmp_path}/{TABLE.name}")
    make(ends.session, path)
    assert bool([*Path(path, LOG).glob("*.checkpoint.*")]) == (way != "no checkpoint")
    warehouse = Warehouse(ends.session, str(tmp_path))
    version = warehouse.version(TABLE.name)
    assert version is not None
    assert (warehouse.logs.floor(path, version, "at") is not None) == warehouse.logs.has_exact_bounds(path) == exact
    assert_bounds_hold(path, but="" if exact else "at")

    wanted = {at: [n, n + 100] for n, at in enumerate(TIMES) if at is not None}
    for in_the_driver in (True, False) if way == "96 bits" else (True,):
        warehouse.__dict__["reads_in_the_driver"] = in_the_driver
        read = TableReader(warehouse, [TABLE])
        assert read.greatest(TABLE.name, "at") == max(wanted)
        found = [read.in_range(TABLE.name, "at", at, at + 1).selectExpr(f"{at}L AS wanted", "n") for at in wanted]
        rows = reduce(DataFrame.unionAll, found).collect()
        assert {at: sorted(row.n for row in rows if row.wanted == at) for at in wanted} == wanted


def assert_bounds_hold(path: str, but: str) -> None:
    """Asserts that every value is within the bounds of its file, and that no other types have bounds."""
    told, times = used_columns(DeltaTable(path))
    bounded = {name.removeprefix("min.") for name in told if name.startswith("min.")}
    assert (bounded, times) == ({"n", "whole", "at", "text", "nothing"}, {"at"})
    for i, name in enumerate(told["path"]):
        for column in bounded - {but}:
            values = pq.read_table(f"{path}/{name}", columns=[column])[column].drop_null()
            values = values.cast(pa.int64()) if column in times else values
            low, high = told[f"min.{column}"][i], told[f"max.{column}"][i]
            if column in times and low is not None:
                low, high = low - TIMESTAMP_SLACK, high + TIMESTAMP_SLACK
            for value in values.to_pylist():
                assert low is None or low <= value, (name, column)
                assert high is None or value <= high, (name, column)


@pytest.mark.spark
def test_what_the_engine_writes_has_exact_times(spark: SparkSession, tmp_path: Path) -> None:
    """Also the checkpoint after VACUUM, in a session with Spark's own settings."""
    table = Table("packed", (("n", "INT"), ("at", "TIMESTAMP")), keys=("n",))
    warehouse = Warehouse(spark, str(tmp_path))
    warehouse.append(spark.sql(f"SELECT 1 AS n, TIMESTAMP_MICROS({LAST}) AS at"), table, INFO)
    path = warehouse.path("packed")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    with settings(spark, suiting(0) | PACKED):
        warehouse.pack("packed", 200)
    checkpoints = [*Path(path, LOG).glob("*.checkpoint.*parquet")]
    assert len(checkpoints) == 1
    version = warehouse.version("packed")
    assert version is not None
    assert warehouse.logs.floor(path, version, "at") == LAST // 1000 * 1000


@pytest.mark.spark
def test_the_driver_does_not_copy_bounds_that_do_not_count(ends: Warehouse, tmp_path: Path) -> None:
    path = shutil.copytree(ends.path(TABLE.name), f"{tmp_path}/{TABLE.name}")
    warehouse = Warehouse(ends.session, str(tmp_path))
    assert warehouse.driver.may_append(TABLE, 1)
    by_spark(PARSED)(ends.session, path)
    assert not warehouse.driver.may_append(TABLE, 1)
    assert not warehouse.driver.may_merge(TABLE, 1)


@pytest.mark.spark
def test_a_text_that_is_none_has_no_bounds(spark: SparkSession, tmp_path: Path) -> None:
    """JSON has a replacement character for its bytes, which is less than some texts."""
    table, smile = Table("texts", (("text", "STRING"),)), "\U0001f600"
    warehouse = Warehouse(spark, str(tmp_path))
    warehouse.append(
        spark.sql(f"SELECT CAST(X'FF' AS STRING) AS text UNION ALL SELECT '{smile}'").coalesce(1), table, INFO
    )
    files = warehouse.logs.plain_files(warehouse.path("texts"), 0, 9, [Among.of("text", [smile], MEASURED)])
    assert files is not None
    assert len(files.paths) == 1


def is_good(_: object, file: str) -> bool:
    return Path(file).read_text() == "good"


def test_the_last_complete_checkpoint_and_later_ones_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / LOG
    (log / "_sidecars").mkdir(parents=True)
    monkeypatch.setattr(log_bounds, "_has_exact_times", is_good)

    def put(version: int, end: str, what: str) -> None:
        (log / f"{version:020d}.checkpoint.{end}").write_text(what)

    def count(since: int, version: int) -> bool:
        return Times(str(tmp_path), since).count(version)

    uuid = "de3e1645-5e6d-4dc9-ba03-ca0bf1b7c4c6"
    assert count(0, 5)
    put(2, "parquet", "bad")
    assert (count(1, 1), count(2, 2), count(1, 4)) == (True, False, False)
    put(4, "parquet", "good")
    assert (count(4, 5), count(3, 5)) == (True, False), "what was read before the good one stays in memory"
    put(6, "0000000001.0000000002.parquet", "bad")
    assert count(7, 8), "one part is missing: nobody reads it"
    put(6, "0000000002.0000000002.parquet", "good")
    assert not count(7, 8)
    put(8, f"{uuid}.json", "")
    assert not count(8, 8), "nobody knows its other files"
    (log / "_sidecars" / f"{8:020d}.checkpoint.0000000001.0000000001.{uuid}.parquet").write_text("good")
    assert count(8, 8)
    put(9, f"{uuid}.parquet", "good")
    assert not count(9, 9)


def test_times_that_did_not_count_once_do_not_count_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / LOG
    log.mkdir()
    monkeypatch.setattr(log_bounds, "_has_exact_times", is_good)
    bad = log / f"{2:020d}.checkpoint.parquet"
    bad.write_text("bad")
    times = Times(str(tmp_path), 2)
    assert not times.count(2)
    bad.unlink()
    (log / f"{4:020d}.checkpoint.parquet").write_text("good")
    assert not times.count(5)
    assert Times(str(tmp_path), 5).count(5)
