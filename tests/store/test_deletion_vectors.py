"""Reading tables as Parquet files: without the rows that deletion vectors mark, and never those of another table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.identity import BatchRange
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import MEASURED, Sizes
from fk_pipeline.store.warehouse import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.connect, pytest.mark.usefixtures("interpreted")]

COLUMNS = (("id", "BIGINT"), ("text", "STRING"), ("_fk_at", "TIMESTAMP"))
TABLE = Table("marked", COLUMNS, properties={"delta.enableDeletionVectors": "true"})
NOW = "TIMESTAMP'2026-05-01T10:00:00Z'"
INFO = CommitInfo("tested", "left_changelog", BatchRange.of(0), "run")


@pytest.fixture(scope="module")
def marked(
    spark: SparkSession, interpreted: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Warehouse, set[int]]:
    """A table of two files, and the ids of its rows in deletion vectors."""
    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("prepared")))
    for first in (0, 200):  # two files, in the order of their rows
        rows = (
            spark.range(first, first + 200)
            .selectExpr("id", "CONCAT('row ', id) AS text", f"{NOW} AS _fk_at")
            .coalesce(1)
        )
        warehouse.append(rows, TABLE, INFO)
    gone = {0, 1, 62, 63, 64, 125, 126, 127, 199, 200, 263}
    spark.sql(f"DELETE FROM delta.`{warehouse.path('marked')}` WHERE id IN ({', '.join(map(str, gone))})")
    version = warehouse.version("marked")
    assert version is not None
    files = warehouse.logs.plain_files(warehouse.path("marked"), version, 10)
    assert files is not None
    assert files.marked == len(gone), "Delta wrote no deletion vectors"
    return warehouse, gone


def ids(warehouse: Warehouse) -> list[int]:
    rows = warehouse.read(TABLE)
    assert rows.columns == TABLE.names
    return sorted(row["id"] for row in rows.collect())


@pytest.mark.parametrize(
    "sizes",
    [MEASURED, Sizes(mark_words=0), Sizes(deletion_vector_rows=-1)],
    ids=["as a literal", "joined", "by Delta"],
)
def test_marked_rows_are_not_read(marked: tuple[Warehouse, set[int]], tmp_path: Path, sizes: Sizes) -> None:
    prepared, gone = marked
    shutil.copytree(prepared.home, tmp_path, dirs_exist_ok=True)
    warehouse = Warehouse(prepared.session, str(tmp_path), sizes=sizes)
    assert ids(warehouse) == sorted(set(range(400)) - gone)
    prepared.session.sql(f"DELETE FROM delta.`{warehouse.path('marked')}` WHERE id = 399")
    assert ids(warehouse) == sorted(set(range(399)) - gone), "an older version was read"


def test_a_table_made_anew_is_read_anew(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    for number in (1, 2):
        warehouse.append(spark.sql(f"SELECT {number}L AS id, 'x' AS text, {NOW} AS _fk_at"), TABLE, INFO)
        assert warehouse.version("marked") == 0
        assert ids(warehouse) == [number]
        shutil.rmtree(warehouse.path("marked"))
