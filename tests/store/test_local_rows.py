"""Rows of some batches or with some keys, read without Spark: the same rows, typed alike, where that is certain."""

from __future__ import annotations

import math
import shutil
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fk_pipeline.identity import BatchRange
from fk_pipeline.parquet_files import ALIKE_IN_OURS, is_exact
from fk_pipeline.spec import quote
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.damage import DamagedTableError
from fk_pipeline.store.file_search import Search
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.settings import settings
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.skipping import Within
from fk_pipeline.store.warehouse import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

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
    DATE_ADD(DATE'1582-01-01', CAST(id AS INT)) AS day, TIMESTAMP_SECONDS(id * 3e9 - 6e10) AS moment, id / 2 AS half,
    IF(id % 5 = 0, NULL, STRUCT(CAST(id AS INT) AS one, IF(id % 2 = 0, NULL, 'x') AS other)) AS pair FROM RANGE(100)"""
WIDE = (*KINDS, "moment", "day", "half", "pair")
TABLE = Table(
    "rows",
    (
        ("batch", "INT"),
        *KINDS.items(),
        ("day", "DATE"),
        ("moment", "TIMESTAMP"),
        ("half", "DOUBLE"),
        ("pair", "STRUCT<one: INT, other: STRING>"),
    ),
    skip_by=("batch",),
    properties={"delta.enableDeletionVectors": "true"},
)
INFO = CommitInfo("tested", "left_changelog", BatchRange.of(0), "run")
BATCHES = Within("batch", BatchRange.of(1, 2))


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, interpreted: None, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A table of a hundred rows of four batches in two files; some rows are marked as deleted."""
    made = Warehouse(spark, str(tmp_path_factory.mktemp("prepared")))
    for half in ("id < 50", "id >= 50"):
        made.append(spark.sql(f"{ROWS} WHERE {half}").coalesce(1), TABLE, INFO)
    spark.sql(f"DELETE FROM delta.`{made.path('rows')}` WHERE whole IN (35, 42, 630)")
    return made


@pytest.fixture
def warehouse(prepared: Warehouse, spark: SparkSession, tmp_path: Path) -> Warehouse:
    """A copy of it."""
    shutil.copytree(prepared.home, tmp_path, dirs_exist_ok=True)
    return Warehouse(spark, str(tmp_path))


def here(warehouse: Warehouse, *columns: str) -> pa.Table | None:
    return warehouse.read_in_process(TABLE, warehouse.version("rows") or 0, columns, BATCHES)


@pytest.mark.connect
def test_the_rows_are_those_that_spark_reads(warehouse: Warehouse) -> None:
    found = here(warehouse, *KINDS)
    assert found is not None
    wanted = warehouse.read(TABLE, where=[BATCHES]).select(*KINDS).toArrow()
    assert found.schema.types == wanted.schema.types
    assert found.sort_by("big").to_pylist() == wanted.sort_by("big").to_pylist()
    assert len(found) == 50 - 3, "the marked rows are of these batches"


def test_rows_that_were_added_without_spark_are_read_alike(warehouse: Warehouse, spark: SparkSession) -> None:
    plain = Table("plain", TABLE.columns[: 1 + len(KINDS)], skip_by=("batch",))
    rows = spark.sql(ROWS).select(*plain.names)
    warehouse.append(rows.where("batch = 0"), plain, INFO)
    warehouse.driver.append(rows.where("batch = 1").toArrow(), plain, INFO)
    found = warehouse.read_in_process(plain, 1, KINDS, BATCHES)
    assert found is not None
    wanted = rows.where("batch = 1").select(*KINDS).toArrow()
    assert found.schema.types == wanted.schema.types
    assert found.sort_by("big").to_pylist() == wanted.sort_by("big").to_pylist()


def test_a_batch_without_rows_has_none(warehouse: Warehouse) -> None:
    found = warehouse.read_in_process(
        TABLE, warehouse.version("rows") or 0, ["text"], Within("batch", BatchRange.of(9))
    )
    assert found is not None
    assert (len(found), found.schema.types) == (0, [pa.string()])


def test_what_spark_reads_otherwise_or_much_is_left_to_it(warehouse: Warehouse) -> None:
    assert here(warehouse, "big", "moment") is None, "its unit and zone depend on who wrote it"
    assert here(warehouse, "big", "day") is None, "its calendar does"
    assert warehouse.read_in_process(TABLE, 0, ["big"], BATCHES) is None, "an older version"
    warehouse.sizes = Sizes(batch_rows=10)
    assert here(warehouse, "big") is None


def looked_up(warehouse: Warehouse, column: str, values: pa.ChunkedArray, *more: Within) -> pa.Table | None:
    return warehouse.look_up(TABLE, warehouse.version("rows") or 0, {column: values}, WIDE, more)


def test_the_rows_with_some_keys_are_those_that_spark_finds(warehouse: Warehouse) -> None:
    columns = (*KINDS, "moment")
    asked = warehouse.read(TABLE).where("big % 3 <> 0").select(*columns)
    lists = asked.selectExpr(*[f"COLLECT_LIST({name}) AS {name}" for name in columns]).alias("asked")
    has = [f"COALESCE(ARRAY_CONTAINS(asked.{name}, rows.{name}), FALSE) AS has_{name}" for name in columns]
    rows = warehouse.read(TABLE).alias("rows").crossJoin(lists)
    found_by_spark = rows.selectExpr(*[f"rows.{name}" for name in WIDE], *has).toArrow().sort_by("big")
    keys = asked.toArrow()
    for column in columns:
        found = looked_up(warehouse, column, keys[column])
        assert found is not None, column
        wanted = found_by_spark.filter(found_by_spark[f"has_{column}"]).select([*WIDE])
        assert len(wanted) > 30
        assert found.schema.types == wanted.schema.types
        assert found.sort_by("big").to_pylist() == wanted.to_pylist(), column


def test_keys_of_some_batches_keys_that_are_nowhere_and_no_keys(warehouse: Warehouse) -> None:
    keys = pa.chunked_array([[7, 14, 21, 5_000_000, None, 63, 42]], pa.int32())
    everywhere, of_the_batches = looked_up(warehouse, "whole", keys), looked_up(warehouse, "whole", keys, BATCHES)
    assert everywhere is not None
    assert of_the_batches is not None
    assert sorted(everywhere["whole"].to_pylist()) == [7, 14, 21, 63], "42 is marked as deleted"
    assert sorted(of_the_batches["whole"].to_pylist()) == [7, 14, 63], "3 is of batch 3"
    none = looked_up(warehouse, "whole", pa.chunked_array([[]], pa.int32()))
    assert none is not None
    assert (len(none), none.schema.names) == (0, [*WIDE])


def test_of_a_key_with_two_columns_each_has_one_of_its_values(warehouse: Warehouse) -> None:
    keys = {"tiny": pa.chunked_array([[1, 3, 3]], pa.int8()), "whole": pa.chunked_array([[7, 14, 21]], pa.int32())}
    found = warehouse.look_up(TABLE, warehouse.version("rows") or 0, keys, ["big"])
    assert found is not None
    assert len(found) == 2


def test_a_column_that_came_later_is_null_in_older_files(warehouse: Warehouse) -> None:
    wider = replace(TABLE, columns=(*TABLE.columns, ("late", "STRING")))
    warehouse.add_columns(wider, INFO)
    keys = {"whole": pa.chunked_array([[7]], pa.int32())}
    found = warehouse.look_up(wider, warehouse.version("rows") or 0, keys, ["whole", "late"])
    assert found is not None
    assert found.to_pylist() == [{"whole": 7, "late": None}]


def test_a_column_that_the_table_was_not_given_yet_is_left_to_spark(warehouse: Warehouse) -> None:
    keys = {"whole": pa.chunked_array([[7]], pa.int32())}
    assert warehouse.look_up(TABLE, warehouse.version("rows") or 0, keys, ["whole", "late"]) is None


def test_keys_that_arrow_compares_otherwise_are_left_to_spark(warehouse: Warehouse) -> None:
    version = warehouse.version("rows") or 0
    rows = warehouse.read(TABLE).limit(3).toArrow()
    for name in ("day", "half", "pair"):
        assert warehouse.look_up(TABLE, version, {name: rows[name]}, ["big"]) is None
    keys = {"big": rows["big"]}
    assert warehouse.look_up(TABLE, 0, keys, ["big"]) is None, "an older version"


@pytest.mark.parametrize(
    "written",
    [
        {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"},
        {"spark.sql.parquet.outputTimestampType": "INT96"},
    ],
    ids=["an old calendar", "96 bits"],
)
def test_times_that_arrow_reads_otherwise_are_left_to_spark(
    warehouse: Warehouse, spark: SparkSession, written: dict[str, str]
) -> None:
    with settings(spark, written):
        spark.sql(ROWS).coalesce(1).write.format("delta").mode("append").save(warehouse.path("rows"))
    keys = pa.chunked_array([[7]], pa.int32())
    assert looked_up(warehouse, "whole", keys) is None
    others = warehouse.look_up(TABLE, warehouse.version("rows") or 0, {"whole": keys}, ["big"])
    assert (others is None) == ("spark.sql.parquet.datetimeRebaseModeInWrite" in written), "of 96 bits, only the times"


def test_packing_leaves_timestamps_that_the_driver_reads(warehouse: Warehouse) -> None:
    warehouse.pack("rows", 200.0)
    (file,) = DeltaTable(warehouse.path("rows")).file_uris()
    assert is_exact(pq.read_metadata(file))
    assert looked_up(warehouse, "whole", pa.chunked_array([[7]], pa.int32())) is not None


@pytest.mark.parametrize("limit", ["scanned_rows_per_key", "found_bytes"])
def test_what_is_much_is_left_to_spark(warehouse: Warehouse, limit: str) -> None:
    warehouse.sizes = Sizes(scanned_bytes=0, decoded_bytes=1)
    keys = pa.chunked_array([[7, 14]], pa.int32())
    assert looked_up(warehouse, "whole", keys) is not None
    warehouse.sizes = replace(warehouse.sizes, **{limit: 1})
    assert looked_up(warehouse, "whole", keys) is None


def test_rows_to_replace_are_searched_further_than_rows_to_read(warehouse: Warehouse) -> None:
    version, keys = warehouse.version("rows") or 0, pa.table({"whole": pa.array([7, 14], pa.int32())})

    def located(scanned_bytes: int) -> bool:
        warehouse.sizes = Sizes(scanned_bytes=scanned_bytes)
        return warehouse.locate(Table("rows", TABLE.columns, keys=("whole",)), version, keys) is not None

    least = bisect_left(range(2**16), True, key=located)
    files = warehouse.logs.plain_files(warehouse.path("rows"), version, 2**31, [])
    assert files is not None
    search = Search.of(files, ["whole"], {"whole": keys["whole"]}, [], ALIKE_IN_OURS, Sizes(), placed=True)
    assert search is not None
    assert least == math.ceil(search.bytes() / 8) > 1


@pytest.mark.connect
def test_the_driver_looks_at_nothing_where_spark_is_elsewhere(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = pa.chunked_array([[7]], pa.int32())
    assert looked_up(warehouse, "whole", keys) is not None
    monkeypatch.setattr(warehouse, "reads_in_the_driver", False)
    assert looked_up(warehouse, "whole", keys) is None


def test_what_cannot_be_read_is_left_to_spark_to_report(warehouse: Warehouse) -> None:
    keys = pa.chunked_array([[7]], pa.int32())
    for file in Path(warehouse.path("rows")).glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-20] + bytes(20))
    assert looked_up(warehouse, "whole", keys) is None


def test_a_file_of_another_size_is_damage(warehouse: Warehouse) -> None:
    for file in Path(warehouse.path("rows")).glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DamagedTableError, match="and was written with"):
        looked_up(warehouse, "whole", pa.chunked_array([[7]], pa.int32()))


def test_a_text_that_is_none_is_left_to_spark(warehouse: Warehouse, spark: SparkSession) -> None:
    broken = ROWS.replace("CONCAT('ä', id)", "CAST(X'FF' AS STRING)")
    warehouse.append(spark.sql(broken).coalesce(1), TABLE, INFO)
    found = looked_up(warehouse, "text", pa.chunked_array([["ä7"]]))
    assert found is not None
    assert found["whole"].to_pylist() == [49], "of the others none is asked for"
    assert looked_up(warehouse, "whole", pa.chunked_array([[49]], pa.int32())) is None


GROUPED = replace(
    TABLE,
    name="grouped",
    columns=(
        ("batch", "INT"),
        ("id", "BIGINT"),
        ("text", "STRING"),
        ("moment", "TIMESTAMP"),
        ("a", "STRUCT<id: BIGINT>"),
        ("a.id", "BIGINT"),
    ),
)
IN_GROUPS = """SELECT CAST(id DIV 500 AS INT) AS batch, IF(id % 7 = 0, NULL, id) AS id,
    CONCAT(REPEAT('ä', 40), LPAD(id, 6, '0')) AS text, TIMESTAMP_MICROS(id * 1000003) AS moment,
    STRUCT(-id AS id) AS a, id AS `a.id` FROM RANGE(2000)"""


@pytest.fixture(scope="module")
def grouped(spark: SparkSession, interpreted: None, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A table of two thousand rows in one file with many row groups; two rows are marked as deleted."""
    made = Warehouse(spark, str(tmp_path_factory.mktemp("grouped")), sizes=Sizes(rows_per_group=150))
    made.append(spark.sql(IN_GROUPS).coalesce(1), GROUPED, INFO)
    spark.sql(f"DELETE FROM delta.`{made.path('grouped')}` WHERE id IN (1501, 1502)")
    return made


@pytest.mark.parametrize("column", ["id", "text", "moment", "a.id"])
def test_keys_in_many_row_groups_are_found_with_their_places(
    spark: SparkSession, grouped: Warehouse, column: str
) -> None:
    (file,) = DeltaTable(grouped.path("grouped"), version=0).file_uris()
    assert pq.read_metadata(file).num_row_groups == 14
    chosen = (
        spark.sql(IN_GROUPS).where("`a.id` BETWEEN 40 AND 50 OR `a.id` BETWEEN 1500 AND 1503").where("id IS NOT NULL")
    )
    keys = chosen.select(quote(column)).toArrow()[column]
    found = grouped.look_up(GROUPED, grouped.version("grouped") or 0, {column: keys}, GROUPED.names, [])
    assert found is not None
    asked = spark.createDataFrame(pa.table({column: keys}))
    same = [grouped.read(GROUPED)[quote(column)] == asked[quote(column)]]
    wanted = grouped.read(GROUPED).join(asked, same, "left_semi").select(*map(quote, GROUPED.names)).toArrow()
    assert found.sort_by("id").to_pylist() == wanted.sort_by("id").to_pylist()
    assert len(found) == 11 - 2 + 2
    of_batch = [Within("batch", BatchRange.of(3))]
    of_one = grouped.look_up(GROUPED, grouped.version("grouped") or 0, {column: keys}, ["id"], of_batch)
    assert of_one is not None
    assert sorted(of_one["id"].to_pylist()) == [1500, 1503]
    located = grouped.locate(
        replace(GROUPED, keys=(column,)), grouped.version("grouped") or 0, pa.table({column: keys})
    )
    assert located is not None
    assert sorted(located[column].to_pylist()) == sorted(found[column].to_pylist())


@pytest.mark.slow
def test_the_greatest_living_value_is_found_in_the_driver_as_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = Warehouse(spark, str(tmp_path), sizes=Sizes(rows_per_group=10))
    rows = spark.sql(ROWS)
    for part in ("id < 30", "id >= 70", "id BETWEEN 30 AND 69"):
        chosen = rows.where(part.replace("id", "CAST(big / 1000000007 AS INT)"))
        warehouse.append(chosen.coalesce(1), TABLE, INFO)
    empty = rows.where("whole = 0").selectExpr(*[f"IF(FALSE, {name}, NULL) AS {name}" for name in TABLE.names])
    warehouse.append(empty, TABLE, INFO)
    for gone in ("whole > 650", "whole > 600", "whole BETWEEN 100 AND 300", "whole >= 0"):
        greatest = warehouse.read(TABLE).selectExpr("MAX(big) AS big", "MAX(UNIX_MICROS(moment)) AS moment").first()
        for column, wanted in greatest.asDict().items():
            assert warehouse.greatest(TABLE, warehouse.version("rows") or 0, column) is not None, "found in the driver"
            for local in (True, False):
                monkeypatch.setitem(vars(warehouse), "reads_in_the_driver", local)
                assert TableReader(warehouse, [TABLE]).greatest("rows", column) == wanted
            monkeypatch.undo()
        warehouse.delete(gone, TABLE, INFO)
    for column in ("big", "moment"):
        assert TableReader(warehouse, [TABLE]).greatest("rows", column) is None


def test_the_rows_of_a_range_are_found_in_the_driver_as_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = Warehouse(spark, str(tmp_path), sizes=Sizes(rows_per_group=10, driver_rows=60))
    ranged = {"big": (0, 1_000_000_007), "moment": (-60_000_000_000_000_000, 3_000_000_000_000_000)}
    names = [f"IF(whole % 9 = 0, NULL, {name}) AS {name}" if name in ranged else name for name in TABLE.names]
    warehouse.append(spark.sql(ROWS).selectExpr(*names).coalesce(1), TABLE, INFO)
    spark.sql(f"DELETE FROM delta.`{warehouse.path('rows')}` WHERE whole IN (35, 42, 350)")
    reader = TableReader(warehouse, [TABLE])
    true = {"truth": pa.chunked_array([[True]])}

    def found(column: str, low: int | None, high: int | None, *, by_key: bool) -> tuple[list[Any] | None, bool]:
        start, unit = ranged[column]
        ends = [None if end is None else start + end * unit for end in (low, high)]
        rows = reader.in_range("rows", column, *ends, true if by_key else None)
        kept = reader.frames.cached(rows.where("truth") if by_key else rows, None).local
        here = id(rows) in reader.frames._local
        return None if kept is None else sorted(kept.to_pylist(), key=lambda row: row["whole"]), here

    for column in ranged:
        for low, high, number in ((4, 52, 40), (None, 7, 4), (96, None, 3), (200, None, 0), (50, 51, 0)):
            monkeypatch.setitem(vars(warehouse), "reads_in_the_driver", False)
            by_spark, here = found(column, low, high, by_key=False)
            monkeypatch.undo()
            assert not here
            assert by_spark is not None
            assert len(by_spark) == number
            assert found(column, low, high, by_key=False) == (by_spark, True), "found in the driver"
            assert found(column, low, high, by_key=True) == ([row for row in by_spark if row["truth"]], True)
        assert found(column, None, None, by_key=False)[1] is False, "many rows are left to Spark"
        assert found(column, None, None, by_key=True)[1], "but not those with a key"
