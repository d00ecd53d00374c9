"""What the driver commits to large tables is what Spark would commit, and Spark and delta-rs go on from it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fk_pipeline.store import marked_writes
from fk_pipeline.store.file_bounds import bounds
from fk_pipeline.store.ledger.commits import commits
from fk_pipeline.store.log_files import added_files
from fk_pipeline.store.schemas import CHANGE_FEED, MERGED, Table
from fk_pipeline.store.sizes import Sizes
from fk_pipeline.store.warehouse import Warehouse
from tests.store.test_driver_writes import COLUMNS, INFO, Frame, Rows, frame, local, rows, rows_of, stored

__all__ = ["frame", "rows"]

PROPERTIES = {**MERGED, CHANGE_FEED: "true"}
TABLE = Table("state", COLUMNS, keys=("k",), skip_by=("batch", "k", "early"), properties=PROPERTIES)
LARGE = Sizes(rewritten_rows=2, rows_per_group=2, decoded_rows=1)
"""A table of three rows is too large to be rewritten, and has two row groups."""


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, interpreted: None, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Returns a warehouse with a table of five rows in one file, with deletion vectors."""
    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("prepared")), sizes=LARGE)
    rows = rows_of(spark, *((key, 1, "special" if key % 2 else "null") for key in range(5)))
    warehouse.append(rows.drop("gone").coalesce(1), TABLE, INFO)
    return warehouse


@pytest.fixture
def large(prepared: Warehouse, spark: SparkSession, tmp_path: Path) -> Warehouse:
    """Returns a copy of it."""
    shutil.copytree(prepared.home, tmp_path, dirs_exist_ok=True)
    return Warehouse(spark, str(tmp_path), sizes=LARGE)


def merged(warehouse: Warehouse, rows: pa.Table, table: Table = TABLE) -> bool:
    warehouse.enable_deletion_vectors(table, INFO)
    return warehouse.driver.merge(rows, table, INFO, delete_when="gone")


def keys(warehouse: Warehouse) -> list[int]:
    found = warehouse.session.read.format("delta").load(warehouse.path("state")).select("k").collect()
    return [row["k"] for row in found]


def feed(warehouse: Warehouse, first: int, last: int | None = None) -> list[tuple[Any, ...]]:
    """Returns the changes of some commits, as text, with the version of each."""
    options = {"readChangeFeed": "true", "startingVersion": str(first), "endingVersion": str(last or first)}
    found = warehouse.session.read.format("delta").options(**options).load(warehouse.path(TABLE.name))
    names = ["_commit_version", "_change_type", *TABLE.names]
    return sorted(
        tuple(row) for row in found.selectExpr(*[f"COALESCE(CAST({n} AS STRING), '')" for n in names]).collect()
    )


@pytest.mark.slow
def test_merges_leave_the_rows_and_the_change_feed_of_spark(
    spark: SparkSession, tmp_path: Path, frame: Frame, rows: Rows
) -> None:
    here, there = (Warehouse(spark, str(tmp_path / name), sizes=LARGE) for name in ("driver", "spark"))
    first = frame(*((key, 1, "special" if key % 2 else "null") for key in range(8)))
    merges = [
        [(2, 2, "special"), (3, 2, "gone"), (9, 2, "special"), (10, 2, "gone")],
        [(2, 3, "null"), (4, 3, "special"), (9, 3, "special")],
        [(11, 4, "special")],
        [(2, 5, "gone"), (9, 5, "gone"), (4, 5, "gone")],
    ]
    for warehouse in (here, there):
        warehouse.append(first.drop("gone").coalesce(1), TABLE, INFO)
    for number, wanted in enumerate(merges, 1):
        assert merged(here, rows(*wanted))
        there.merge(frame(*wanted), TABLE, INFO, keys=rows(*wanted).select(["k"]), delete_when="gone")
        assert here.version("state") == there.version("state") == number
    assert feed(here, 1, 4) == feed(there, 1, 4)
    for number in range(1, 5):
        assert stored(here, TABLE, number) == stored(there, TABLE, number)
    assert merged(here, rows((12, 6, "gone"))), "it changes nothing"
    assert [row[0] for row in stored(here, TABLE)] == ["0", "1", "5", "6", "7", "11"]
    assert here.read(TABLE).schema == there.read(TABLE).schema
    assert max(here.history("state")) == (5, INFO.as_json())
    assert not any(one.appends for one in commits(here.path("state"), (5, 1)))
    before = here.read(TABLE, 1).select("k").collect()
    assert sorted(row["k"] for row in before) == [0, 1, 2, 4, 5, 6, 7, 9]


@pytest.mark.slow
def test_other_readers_and_writers_of_delta_go_on_from_it(large: Warehouse, frame: Frame, rows: Rows) -> None:
    path = large.path("state")
    assert merged(large, rows((1, 2, "null"), (2, 2, "gone")))
    assert merged(large, rows((1, 3, "special"), (4, 3, "gone")))
    known = DeltaTable(path)
    [vector] = [keep for batch in known.deletion_vectors() for keep in pa.record_batch(batch)["selection_vector"]]
    assert vector.as_py() == [True, False, False, True, False], "the file with the other row 1 is removed"
    assert large.logs.rows(path) == 3
    known.create_checkpoint()
    files = added_files(path, 2)
    assert files is not None
    assert [{**one, "dataChange": False} for _, one in sorted(files.items())] == _as_delta_reads_them(large, path)
    for warehouse in (Warehouse(large.session, large.home, sizes=LARGE), large):
        assert merged(warehouse, rows((3, 4, "gone")))
        assert sorted(keys(warehouse)) == [0, 1]
    large.merge(frame((0, 5, "special"), (7, 5, "null")), TABLE, INFO, delete_when="gone")
    large.pack("state", 200)
    assert sorted(keys(large)) == [0, 1, 7]
    assert merged(large, rows((1, 6, "gone")))
    assert sorted(keys(large)) == [0, 7]


def _as_delta_reads_them(warehouse: Warehouse, path: str) -> list[dict[str, Any]]:
    """Returns the files of a table as Delta reads them from its log."""
    logs = warehouse.session._jvm.org.apache.spark.sql.delta.DeltaLog
    logs.clearCache()
    log = logs.forTable(warehouse.session._jsparkSession, path)
    rows = log.unsafeVolatileSnapshot().allFiles().toJSON().collectAsList()
    return sorted(map(json.loads, rows), key=lambda one: str(one["path"]))


def test_a_checkpoint_comes_at_its_interval_and_the_log_before_it_may_go(large: Warehouse, rows: Rows) -> None:
    path = Path(large.path("state"))
    for batch in range(2, 52):
        assert merged(large, rows((batch % 3, batch, "null")))
    log = path / "_delta_log"
    assert [one.name for one in log.glob("*.parquet")] == [f"{50:020d}.checkpoint.parquet"]
    for number in range(50):
        (log / f"{number:020d}.json").unlink()
    assert merged(Warehouse(large.session, large.home, sizes=LARGE), rows((1, 60, "gone"), (4, 60, "null")))
    assert sorted(keys(large)) == [0, 2, 3, 4]
    (log / f"{50:020d}.checkpoint.parquet").unlink()
    assert added_files(str(path), 51) is None, "the commits before are gone"


def test_a_table_that_the_driver_created_and_that_grew_goes_on_without_spark(
    spark: SparkSession, tmp_path: Path, rows: Rows
) -> None:
    warehouse = Warehouse(spark, str(tmp_path), sizes=LARGE)
    assert merged(warehouse, rows((1, 1, "special"), (2, 1, "null")))
    warehouse.driver.append(rows((3, 1, "special")), TABLE, INFO)
    for batch in (2, 3):
        assert merged(warehouse, rows((1, batch, "null"), (3, batch, "special")))
    assert warehouse.driver.may_insert(TABLE, 1)
    version = warehouse.version("state")
    warehouse.driver.append(rows((4, 4, "null")), TABLE, replace(INFO, only_at=version))
    assert merged(warehouse, rows((4, 5, "gone"), (2, 5, "special")))
    assert [row[:2] for row in stored(warehouse, TABLE)] == [("1", "3"), ("2", "5"), ("3", "3")]
    assert [row[1:3] for row in feed(warehouse, 6)] == [("delete", "2"), ("delete", "4"), ("insert", "2")]


def test_a_commit_without_rows_carries_its_facts(large: Warehouse, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    assert merged(large, rows((1, 2, "gone")))
    version = large.version("state") or 0
    monkeypatch.setattr(large, "append", lambda *_: pytest.fail("Spark has committed"))
    large.tell(TABLE, INFO)
    assert large.version("state") == version + 1
    [told] = commits(large.path("state"), [version + 1])
    assert (told.stage, told.run_id) == (INFO.stage, INFO.run_id)
    assert sorted(keys(large)) == [0, 2, 3, 4]
    assert feed(large, version + 1) == []
    assert merged(large, rows((2, 3, "gone")))


def test_a_version_is_made_once(large: Warehouse, frame: Frame, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(path: str, version: int) -> Any:
        monkeypatch.undo()
        other = Warehouse(large.session, large.home, sizes=LARGE)
        other.merge(frame((0, 2, "gone")), TABLE, INFO, delete_when="gone")
        return added_files(path, version)

    monkeypatch.setattr(marked_writes, "added_files", meanwhile)
    with pytest.raises(CommitFailedError, match="another writer has made version 1 of state"):
        merged(large, rows((0, 3, "special"), (1, 3, "gone")))
    assert sorted(keys(large)) == [1, 2, 3, 4]
    assert merged(large, rows((1, 3, "gone"))), "the log is read anew"
    assert sorted(keys(large)) == [2, 3, 4]


@pytest.mark.usefixtures("interpreted")
def test_null_is_a_key_like_others(spark: SparkSession, tmp_path: Path) -> None:
    columns = (("a", "BIGINT"), ("b", "STRING"), ("at", "TIMESTAMP"), ("n", "INT"))
    table = Table(
        "pairs", columns, keys=("a", "b", "at"), nullable_keys=frozenset(("a", "b", "at")), properties=PROPERTIES
    )
    warehouse = Warehouse(spark, str(tmp_path), sizes=LARGE)

    def of(*values: str) -> Any:
        return spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS t(a, b, at, n, gone)").selectExpr(
            *[f"CAST({name} AS {kind}) AS {name}" for name, kind in columns], "gone"
        )

    time = "TIMESTAMP '9999-12-31 23:59:59.999999'"
    first = of(
        "(1, 'x', NULL, 1, false)",
        "(1, NULL, NULL, 2, false)",
        "(NULL, 'x', NULL, 3, false)",
        "(NULL, NULL, NULL, 4, false)",
        f"(2, 'x', {time}, 5, false)",
        "(2, 'y', NULL, 6, false)",
    )
    warehouse.append(first.drop("gone").coalesce(1), table, INFO)
    assert merged(
        warehouse,
        local(of("(NULL, 'x', NULL, 30, false)", "(NULL, NULL, NULL, 0, true)", f"(2, 'x', {time}, 50, false)")),
        table,
    )
    assert merged(warehouse, local(of("(1, NULL, NULL, 20, false)", "(3, NULL, NULL, 70, false)")), table)
    found = warehouse.read(table).selectExpr("a", "b", "n").collect()
    assert sorted(map(tuple, found), key=lambda row: row[2]) == [
        (1, "x", 1), (2, "y", 6), (1, None, 20), (None, "x", 30), (2, "x", 50), (3, None, 70),
    ]  # fmt: skip


def test_what_is_not_certain_or_takes_long_is_left_to_spark(
    large: Warehouse, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = Warehouse(large.session, large.home, sizes=Sizes(rewritten_rows=2, scanned_bytes=1))
    assert not merged(narrow, rows((1, 2, "gone"))), "the search reads too much"
    by_number = Table("state", COLUMNS, keys=("double",), properties=PROPERTIES)
    assert not merged(large, rows((1, 2, "gone")), by_number), "Arrow and Spark compare such a key in two ways"
    files = added_files(large.path("state"), 0)
    assert files is not None
    for told in (None, {}, *({name: {**one, "stats": stats} for name, one in files.items()} for stats in (None, "{}"))):
        monkeypatch.setattr(marked_writes, "added_files", lambda *_, told=told: told)
        assert not merged(large, rows((1, 2, "gone"))), "the log does not tell all of a file"
    assert large.version("state") == 0


def test_bounds_are_of_the_columns_by_which_files_are_skipped_and_never_too_narrow() -> None:
    long, micros = "x" * 40, pa.timestamp("us", "UTC")
    rows = pa.table(
        {
            "n": pa.array([3, None, -(2**63)], pa.int64()),
            "text": ["é" + long, "", None],
            "last": ["\U0010ffff" * 40, "a", "b"],
            "at": pa.array([-1, 1_500_999, None], micros),
            "early": pa.array([-(2**63), 0, 0], micros),
            "none": pa.nulls(3, pa.string()),
            "x": [float("nan"), 1.0, 2.0],
            "y": [0.0, 1.5, None],
            "inf": [float("inf"), 1.0, 2.0],
            "day": pa.array([0, None, -719162], pa.date32()),
            "money": pa.array([Decimal("-0.10"), Decimal("12345678.90"), None], pa.decimal128(10, 2)),
            "wide": pa.array([Decimal(1)] * 3, pa.decimal128(38, 2)),
        }
    )
    assert bounds(rows, rows.column_names) == {
        "numRecords": 3,
        "minValues": {
            "n": -(2**63), "text": "", "at": "1969-12-31T23:59:59.999Z", "y": 0.0, "day": "0001-01-01", "money": -0.1
        },
        "maxValues": {
            "n": 3, "text": "é" + "x" * 31 + "\U0010ffff", "at": "1970-01-01T00:00:01.501Z", "y": 1.5,
            "day": "1970-01-01", "money": 12345678.9,
        },
        "nullCount": {
            "n": 1, "text": 1, "last": 0, "at": 1, "early": 0, "none": 3, "x": 0, "y": 1, "inf": 0, "day": 1,
            "money": 1, "wide": 0,
        },
        "tightBounds": True,
    }  # fmt: skip


@pytest.mark.slow  # the same in test_driver_writes.py
def test_a_condition_finds_the_rows_that_the_driver_wrote(large: Warehouse, frame: Frame) -> None:
    rows = frame((1, 7, "special"), (6, 7, "null"))
    finite = {name: F.when(F.col("k") == 6, 0.5).otherwise(F.col(name)).cast(name) for name in ("double", "float")}
    assert merged(large, local(rows.withColumns(finite))), "Arrow takes 0.5 for the greatest of NaN and 0.5"
    found = large.session.read.format("delta").load(large.path("state"))
    for condition, wanted in {
        "batch = 7": [1, 6],
        "k = 6": [6],
        "early < TIMESTAMP '0001-01-02'": [1, 3],
        "double > 1": [1, 3],
        "float <= 0": [1, 3],
        "exact > 1": [1, 3],
        "day < DATE '0001-01-02'": [1, 3],
    }.items():
        assert sorted(row["k"] for row in found.where(condition).select("k").collect()) == wanted, condition
