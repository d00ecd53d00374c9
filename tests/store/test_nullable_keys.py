"""Tables whose key columns may be null: a null is one value of the key, however the rows are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.frames import join_by_key
from fk_pipeline.identity import BatchRange
from fk_pipeline.store.commit import CommitInfo
from fk_pipeline.store.materialised import Materialised
from fk_pipeline.store.schemas import MERGED, Table
from fk_pipeline.store.warehouse import Warehouse

pytestmark = pytest.mark.spark

TABLE = Table(
    "pairs",
    (("l", "INT"), ("r", "STRING"), ("v", "STRING")),
    keys=("l", "r"),
    nullable_keys=frozenset("lr"),
    properties={**MERGED, "delta.enableChangeDataFeed": "true"},
)
INFO = CommitInfo("tested", "resolved_join", BatchRange.of(1), "run")
BEFORE = "(1, 'a', 'old'), (2, NULL, 'old'), (NULL, 'b', 'old'), (NULL, 'c', 'old'), (3, NULL, 'old')"
CHANGES = (
    "(1, NULL, 'new', false), (1, 'a', NULL, true), (2, NULL, 'new', false), "
    "(NULL, 'b', NULL, true), (NULL, 'd', 'new', false)"
)
AFTER = {(1, None): "new", (2, None): "new", (None, "c"): "old", (None, "d"): "new", (3, None): "old"}


def rows(spark: SparkSession, values: str, *more: str) -> Any:
    names = ", ".join([*TABLE.names, *more])
    typed = [f"CAST({name} AS {kind}) AS {name}" for name, kind in TABLE.columns]
    return spark.sql(f"SELECT * FROM VALUES {values} AS t({names})").selectExpr(*typed, *more)


@pytest.mark.parametrize("by", ["the driver", "MERGE", "a rewrite"])
def test_a_null_is_a_value_of_the_key(spark: SparkSession, tmp_path: Path, by: str) -> None:
    warehouse = Warehouse(spark, str(tmp_path))
    before = Materialised.of(rows(spark, BEFORE), 100, 100).local
    assert before is not None
    warehouse.driver.append(before, TABLE, INFO)
    changes = rows(spark, CHANGES, "gone")
    if by == "the driver":
        local = Materialised.of(changes, 100, 100).local
        assert local is not None
        assert warehouse.driver.merge(local, TABLE, INFO, delete_when="gone")
    elif by == "MERGE":
        warehouse.merge(changes, TABLE, INFO, delete_when="gone")
    else:
        keys = changes.select(*TABLE.keys)
        stays = join_by_key(warehouse.read(TABLE), keys, TABLE.keys, "left_anti", nullable=True)
        warehouse.rewrite(changes, stays, TABLE, INFO, delete_when="gone")
    found = warehouse.read(TABLE).collect()
    assert {(row["l"], row["r"]): row["v"] for row in found} == AFTER
    assert len(found) == len(AFTER)


def test_a_full_join_has_the_key_of_the_side_that_has_the_row(spark: SparkSession) -> None:
    one = rows(spark, "(1, NULL, 'x'), (NULL, 'a', 'x'), (NULL, 'b', 'x')").withColumnRenamed("v", "x")
    other = rows(spark, "(1, NULL, 'y'), (NULL, 'b', 'y'), (NULL, 'c', 'y')").withColumnRenamed("v", "y")
    found = join_by_key(one, other, TABLE.keys, "full", nullable=True).collect()
    assert {(row["l"], row["r"]): (row["x"], row["y"]) for row in found} == {
        (1, None): ("x", "y"),
        (None, "a"): ("x", None),
        (None, "b"): ("x", "y"),
        (None, "c"): (None, "y"),
    }
    assert len(found) == 4
