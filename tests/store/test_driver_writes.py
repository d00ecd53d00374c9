"""What the driver commits to small tables is what Spark would commit, value by value and in the change feed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from fk_pipeline.identity import BatchRange
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.driver_writes import one_per_key
from fk_pipeline.store.ledger.commits import commits
from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.schemas import DELETION_VECTORS, MERGED, Table
from fk_pipeline.store.sizes import MEASURED, Sizes
from fk_pipeline.store.skipping import Within
from fk_pipeline.store.warehouse import Warehouse

pytestmark = pytest.mark.usefixtures("interpreted")

COLUMNS = (
    ("k", "INT"), ("batch", "INT"), ("early", "TIMESTAMP"), ("late", "TIMESTAMP"),
    ("day", "DATE"), ("exact", "DECIMAL(38, 18)"), ("raw", "BINARY"), ("double", "DOUBLE"), ("float", "FLOAT"),
    ("tiny", "TINYINT"), ("truth", "BOOLEAN"), ("text", "STRING"), ("seq", "STRUCT<at: TIMESTAMP, n: BIGINT>"),
)  # fmt: skip
SPECIAL = """
    TIMESTAMP '0001-01-01 00:00:00', TIMESTAMP '9999-12-31 23:59:59.999999',
    DATE '0001-01-01', 12345678901234567890.123456789012345678BD, X'00ff', CAST('NaN' AS DOUBLE), CAST('-0.0' AS FLOAT),
    CAST(-128 AS TINYINT), true, 'né', STRUCT(TIMESTAMP '1500-01-01 00:00:00', 7L)"""
NULLS = ", ".join(["NULL"] * 11)
TABLE = Table("values", COLUMNS, keys=("k",), skip_by=("batch", "k"), properties={"delta.enableChangeDataFeed": "true"})
INFO = CommitInfo("tested", "resolved_join", BatchRange.of(1), "run")

Frame = Callable[..., Any]
Rows = Callable[..., pa.Table]


def rows_of(spark: SparkSession, *rows: tuple[int, int, str]) -> Any:
    """Returns rows of TABLE, from (key, batch, whether the values are null, or gone)."""
    lines = [
        f"SELECT {k}, {batch}, {NULLS if what == 'null' else SPECIAL}, {str(what == 'gone').lower()}"
        for k, batch, what in rows
    ]
    found = spark.sql(" UNION ALL ".join(lines)).toDF(*[name for name, _ in COLUMNS], "gone")
    return found.selectExpr(*[f"CAST({name} AS {kind}) AS {name}" for name, kind in COLUMNS], "gone")


@pytest.fixture
def frame(spark: SparkSession, interpreted: None) -> Frame:
    """Returns `rows_of` with the session."""
    return partial(rows_of, spark)


def local(frame: Any) -> pa.Table:
    rows = Materialised.of(frame, 100, 100).local
    assert rows is not None
    return rows


@pytest.fixture(scope="module")
def rows(spark: SparkSession, interpreted: None) -> Rows:
    """Returns a function that makes what `local` gives of `rows_of`; Spark computes one row of each kind."""
    kinds = ("special", "null", "gone")
    found = local(rows_of(spark, *((number, 0, what) for number, what in enumerate(kinds)))).sort_by("k")

    def make(*wanted: tuple[int, int, str]) -> pa.Table:
        made = pa.concat_tables([found.slice(kinds.index(what), 1) for _, _, what in wanted]).combine_chunks()
        for place in (0, 1):
            field = found.schema.field(place)
            made = made.set_column(place, field, pa.array([row[place] for row in wanted], field.type))
        return made

    return make


def stored(warehouse: Warehouse, table: Table = TABLE, version: int | None = None) -> list[tuple[Any, ...]]:
    """Returns the rows of a table, or of a version, as Spark reads them, as text: Python has no year 0."""
    options = {} if version is None else {"versionAsOf": str(version)}
    found = warehouse.session.read.format("delta").options(**options).load(warehouse.path(table.name))
    return [
        tuple(row) for row in found.orderBy("k").selectExpr(*[f"CAST({n} AS STRING)" for n in table.names]).collect()
    ]


def feed(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    """Returns the changes of the second commit, as text."""
    options = {"readChangeFeed": "true", "startingVersion": "1", "endingVersion": "1"}
    found = warehouse.session.read.format("delta").options(**options).load(warehouse.path(TABLE.name))
    names = ["_change_type", *TABLE.names]
    return sorted(
        tuple(row) for row in found.selectExpr(*[f"COALESCE(CAST({n} AS STRING), '')" for n in names]).collect()
    )


def test_a_merge_leaves_the_rows_and_the_change_feed_of_sparks_merge(
    spark: SparkSession, tmp_path: Path, frame: Frame, rows: Rows
) -> None:
    by_driver, by_spark = (Warehouse(spark, str(tmp_path / name)) for name in ("driver", "spark"))
    first = (1, 1, "special"), (2, 1, "null"), (3, 1, "special")
    changes = (2, 2, "special"), (3, 2, "gone"), (4, 2, "special"), (5, 2, "gone")
    for wanted in (first, changes):
        assert by_driver.driver.merge(rows(*wanted), TABLE, INFO, delete_when="gone")
        by_spark.merge(frame(*wanted), TABLE, INFO, delete_when="gone")
    assert stored(by_driver) == stored(by_spark)
    assert [row[0] for row in stored(by_driver)] == ["1", "2", "4"]
    assert by_driver.read(TABLE).schema == by_spark.read(TABLE).schema
    assert max(by_driver.history("values")) == (1, INFO.as_json())
    assert feed(by_driver) == feed(by_spark)
    assert ("delete", "3") in {row[:2] for row in feed(by_driver)}


def test_rows_that_spark_wrote_stay_exact_or_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, frame: Frame, rows: Rows
) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    warehouse.append(frame((1, 1, "special"), (2, 1, "null")).drop("gone"), TABLE, INFO)
    before = stored(warehouse)
    assert warehouse.driver.merge(rows((3, 2, "null")), TABLE, INFO, delete_when="gone")
    assert stored(warehouse)[:2] == before
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:  # as other programs write, and as older versions did
        frame((4, 3, "special")).drop("gone").write.format("delta").mode("append").save(warehouse.path("values"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    before = stored(warehouse)
    assert not warehouse.driver.merge(rows((5, 4, "null")), TABLE, INFO, delete_when="gone")
    assert stored(warehouse) == before


def test_a_condition_finds_the_rows_that_the_driver_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """delta-rs leaves NaN out of its bounds, and rounds bounds of decimals."""
    big, small = "12345678901234567891", "12345678901234567.25"
    columns = (("k", "DECIMAL(20, 0)"), ("money", "DECIMAL(19, 2)"), ("x", "DOUBLE"), ("y", "FLOAT"))
    table = Table("numbers", columns, keys=("k",), skip_by=("k", "money", "x", "y"))
    warehouse = Warehouse(spark, str(tmp_path))
    select = "SELECT CAST({} AS DECIMAL(20, 0)) AS k, {}BD AS money, CAST({} AS DOUBLE) AS x, CAST({} AS FLOAT) AS y"
    first = local(
        spark.sql(select.format(big, small, "'NaN'", "'NaN'") + " UNION ALL " + select.format(1, "0.01", 1, 1))
    )
    more = local(spark.sql(select.format(2, "0.02", 2, 2)))
    for rows in (first, more):  # creates the table, then rewrites the file with the first rows
        assert warehouse.driver.merge(rows.cast(warehouse.driver._columns(table)), table, INFO)
    found = spark.read.format("delta").load(warehouse.path("numbers"))
    for condition in (f"k = {big}BD", f"money = {small}BD", "x > 2", "y > 2", f"k > {big[:-1]}0BD"):
        assert [str(row["k"]) for row in found.where(condition).collect()] == [big], condition
    assert found.count() == 3


def test_a_folder_with_files_and_no_log_is_left_to_spark(spark: SparkSession, tmp_path: Path, rows: Rows) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    assert warehouse.driver.may_append(TABLE, 1)
    Path(warehouse.path("values")).mkdir()
    assert not warehouse.driver.may_append(TABLE, 1)
    assert not warehouse.driver.merge(rows((1, 1, "null")), TABLE, INFO)


def test_rows_with_new_keys_are_added_to_a_table_with_deletion_vectors_only_at_the_version_that_was_read(
    spark: SparkSession, tmp_path: Path, frame: Frame, rows: Rows
) -> None:
    properties = MERGED | {"delta.enableChangeDataFeed": "true"}
    table = Table("state", COLUMNS, keys=("k",), skip_by=("k",), properties=properties)
    warehouse = Warehouse(spark, str(tmp_path), sizes=Sizes(rewritten_rows=2))
    warehouse.append(frame(*((key, 1, "special") for key in range(4))).coalesce(1), table, INFO)
    gone = frame((1, 1, "special")).where("FALSE")
    warehouse.replace(gone, table, "k = 1", INFO)
    files = warehouse.logs.plain_files(warehouse.path("state"), 1, 9)
    assert files is not None
    assert files.marked == 1, "a row is in a deletion vector"
    assert warehouse.driver.may_insert(table, 1)
    assert not warehouse.driver.may_append(table, 1), "a log that is written by batches has none"
    warehouse.driver.append(rows((9, 2, "special")), table, replace(INFO, only_at=1))
    values = [row[1:] for row in stored(warehouse, table) if row[0] in ("0", "9")]
    assert values[0][1:] == values[1][1:], "as Spark writes them"
    assert [row["k"] for row in warehouse.read(table).select("k").orderBy("k").collect()] == [0, 2, 3, 9]
    changes = spark.read.format("delta").options(readChangeFeed=True, startingVersion=2).load(warehouse.path("state"))
    assert [tuple(row) for row in changes.select("k", "_change_type").collect()] == [(9, "insert")]
    [insert, replaced] = [commit.appends for commit in commits(warehouse.path("state"), (2, 1))]
    assert (insert, replaced) == (False, False), "it cannot have made a key twice"
    with pytest.raises(CommitFailedError):
        warehouse.driver.append(rows((10, 2, "null")), table, replace(INFO, only_at=1))
    assert warehouse.version("state") == 2
    assert not Warehouse(spark, str(tmp_path)).driver.may_insert(table, 1), "a small table is rewritten"


def test_of_several_rows_of_a_key_the_first_is_written(spark: SparkSession, tmp_path: Path, rows: Rows) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    wanted = rows((1, 1, "special"), (2, 1, "null"), (1, 1, "null"))
    for _ in range(2):  # the first one creates the table
        assert warehouse.driver.merge(one_per_key(wanted, TABLE.keys), TABLE, INFO, delete_when="gone")
    assert [(row[0], row[10]) for row in stored(warehouse)] == [("1", "true"), ("2", None)]
    pairs = pa.table({"a": [1, 1, 2, 1], "b": ["x", "y", "x", "x"], "n": [1, 2, 3, 4]})
    assert one_per_key(pairs, ["a", "b"])["n"].to_pylist() == [1, 2, 3]
    assert one_per_key(pairs.slice(0, 3), ["a", "b"]) == pairs.slice(0, 3)
    zeros = pa.table({"a": [0.0, -0.0, float("nan"), float("nan")]})
    assert one_per_key(zeros, ["a"]).num_rows == 2


def test_the_rows_of_some_batches_are_replaced_and_files_of_others_stay(
    spark: SparkSession, tmp_path: Path, rows: Rows
) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    for batch in (1, 2, 3):
        warehouse.driver.append(rows((batch, batch, "special"), (batch + 10, batch, "null")), TABLE, INFO)
    files = set(Path(warehouse.path("values")).glob("*.parquet"))
    new, two = rows((2, 2, "null"), (22, 2, "special")), [Within("batch", BatchRange.of(2))]
    assert warehouse.driver.replace(new, TABLE, "batch = 2 AND batch NOT IN (1)", two, INFO)
    assert [row[0] for row in stored(warehouse)] == ["1", "2", "3", "11", "13", "22"]
    plain = warehouse.logs.plain_files(warehouse.path("values"), 3, 9)
    assert plain is not None
    assert len(files & set(map(Path, plain.paths))) == 2
    assert warehouse.driver.replace(new.slice(0, 0), TABLE, "batch = 2", two, INFO)
    assert [row[0] for row in stored(warehouse)] == ["1", "3", "11", "13"]


@pytest.mark.parametrize(
    "limit",
    [Sizes(rewritten_rows=2), pytest.param(Sizes(rewritten_bytes=100), marks=pytest.mark.slow)],
    ids=["rows", "bytes"],
)
def test_a_table_that_is_too_large_gets_deletion_vectors_with_its_next_merge(
    spark: SparkSession, tmp_path: Path, frame: Frame, rows: Rows, limit: Sizes
) -> None:
    table = Table("state", COLUMNS, keys=("k",), skip_by=("k",), properties=MERGED)
    warehouse = Warehouse(spark, str(tmp_path), sizes=limit)
    assert warehouse.driver.merge(rows((1, 1, "special"), (2, 1, "null")), table, INFO)
    warehouse.driver.append(rows((3, 1, "special")), table, INFO)
    changes = rows((3, 2, "null"))
    warehouse.enable_deletion_vectors(table, INFO)
    assert warehouse.driver.merge(changes, table, INFO) == (limit.rewritten_rows < 3)
    if limit.rewritten_rows >= 3:
        warehouse.merge(frame((3, 2, "null")), table, INFO, keys=changes.select(["k"]))
    known = warehouse.logs.table(warehouse.path("state"))
    assert known is not None
    assert (DELETION_VECTORS in known.metadata().configuration) == (limit.rewritten_rows < 3)
    assert [(row[0], row[1]) for row in stored(warehouse, table)] == [("1", "1"), ("2", "1"), ("3", "2")]


def test_a_text_that_is_none_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = Table("texts", (("k", "INT"), ("text", "STRING")), keys=("k",))
    warehouse = Warehouse(spark, str(tmp_path), sizes=MEASURED)
    warehouse.append(spark.sql("SELECT 1 AS k, CAST(X'ff' AS STRING) AS text"), table, INFO)
    good = local(spark.sql("SELECT 2 AS k, 'two' AS text"))
    assert not warehouse.driver.merge(good, table, INFO)
    assert not warehouse.driver.replace(good, table, "k = 1", [], INFO)
    assert warehouse.version("texts") == 0
