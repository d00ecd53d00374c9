"""Keys of Delta tables of others: a run and a check tell if they do not identify a row, and never is a result wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from fk_pipeline.errors import StageError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.pipeline import Pipeline, load

pytestmark = pytest.mark.spark

CHECK = "input_keys_are_unique"


class Lake:
    """A Delta table with an order, a line and an amount, and a query of the amounts per order."""

    def __init__(self, folder: Path, session: SparkSession, more: str = "") -> None:
        self.folder, self.session, self.more = folder, session, more

    def make(self, *rows: tuple[int | None, int | None, int]) -> Lake:
        columns = {
            name: pa.array(values, pa.int64()) for name, values in zip("klv", zip(*rows, strict=True), strict=True)
        }
        settings = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(str(self.folder / "lake"), pa.table(columns), configuration=settings)
        (self.folder / "sums.yaml").write_text(
            f"name: sums\nkind: query\ninputs: {{lake: {{table: lake, key: [k, l]{self.more}}}}}\n"
            "warehouse: warehouse\nquery: SELECT k, COUNT(*) AS n, SUM(v) AS s FROM lake GROUP BY k\n"
        )
        return self

    @property
    def pipeline(self) -> Pipeline:
        return load(self.folder / "sums.yaml")

    def sql(self, *statements: str) -> None:
        """Changes the table, with a version per statement."""
        for one in statements:
            self.session.sql(one.format(f"delta.`{self.folder / 'lake'}`"))

    def notes(self) -> str:
        return "; ".join(note for run in self.pipeline.run() for note in run.notes)

    def refused(self) -> StageError:
        with pytest.raises(StageError, match=r"the key of lake \(k, l\) does not identify its rows") as refused:
            self.pipeline.run()
        assert refused.value.fix is not None
        assert "inputs.lake.key" in refused.value.fix
        assert refused.value.where is not None
        assert "lake, version" in refused.value.where
        return refused.value

    def check(self, sums: Mapping[int | None, tuple[int, int]]) -> None:
        """Asserts that the result is right, by Python and by the proof."""
        found = {row["k"]: (row["n"], row["s"]) for row in self.pipeline.table("result").collect()}
        assert found == sums
        assert self.pipeline.verify().ok


def found(pipeline: Pipeline) -> Any:
    return violations(pipeline, "result").findings[CHECK]


def test_what_shares_a_key_is_refused_and_between_two_refreshes_it_is_computed_whole(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark).make((1, 1, 10), (1, 2, 20), (2, 1, 30), (2, 1, 40))
    assert "1 with more than one row: k=2, l=1" in lake.refused().what
    lake.sql("DELETE FROM {} WHERE v = 40")
    assert "for the first time" in lake.notes()
    lake.sql("INSERT INTO {} VALUES (1, 1, 12), (4, 1, 1)")  # delivered twice
    assert "k=1, l=1" in lake.refused().what
    lake.sql("DELETE FROM {} WHERE v = 10", "INSERT INTO {} VALUES (NULL, 1, 7)")
    assert "1 with a null in it: k=null, l=1" in lake.refused().what
    lake.sql("DELETE FROM {} WHERE k IS NULL")
    assert "whole, rows of lake shared a key" in lake.notes()
    lake.check({1: (2, 32), 2: (1, 30), 4: (1, 1)})


@pytest.mark.slow
def test_a_refresh_is_right_whatever_came_first(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark).make((1, 1, 10), (2, 1, 30))
    lake.notes()
    insert, delete = "INSERT INTO {} VALUES ", "DELETE FROM {} WHERE "
    for statements, whole in (
        ([f"{insert} (3, 1, 5)", "UPDATE {} SET v = 11 WHERE k = 1", f"{delete} k = 2"], False),
        ([f"{insert} (1, 1, 13)", f"{delete} v = 11"], True),  # the new one came first
        ([f"{insert} (1, 1, 14)", f"{delete} k = 1", f"{insert} (1, 1, 15)"], True),
        ([f"{delete} k = 1", f"{insert} (1, 1, 16), (1, 1, 17)", f"{delete} v = 17"], True),
        ([f"{delete} k = 1", f"{insert} (1, 1, 18)", f"{insert} (5, 1, 1)"], False),
        ([f"{insert} (6, 1, 1)", f"{delete} k >= 5"], False),  # one that came and went
        ([f"{insert} (1, 1, 19)", f"{delete} k = 1"], True),
    ):
        lake.sql(*statements)
        assert ("whole" in lake.notes()) is whole, statements
        lake.check({row[0]: (row[1], row[2]) for row in rows(lake)})
    assert found(lake.pipeline).value == 0


def rows(lake: Lake) -> list[Any]:
    return spark_rows(lake, "SELECT k, COUNT(*), SUM(v) FROM {} GROUP BY k")


def spark_rows(lake: Lake, text: str) -> list[Any]:
    return lake.session.sql(text.format(f"delta.`{lake.folder / 'lake'}`")).collect()


def test_a_check_finds_what_no_run_looked_at(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, ', where: "v > 0"')  # at a first load Spark would have to look
    lake.make((1, 1, 10), (1, 2, 20), (2, 1, 30), (2, 1, 40), (2, 1, -1), (1, 1, -1))
    lake.pipeline.run()
    red = found(lake.pipeline)
    assert (red.value, [(one["key"], one["found"]) for one in red.sample]) == (
        1,
        [('{"input":"lake","k":2,"l":1}', "2 rows")],
    )
    lake.sql("INSERT INTO {} VALUES (2, 1, -2), (1, 2, -3), (7, 1, 1)", "DELETE FROM {} WHERE v = 40")
    lake.notes()
    lake.check({1: (2, 30), 2: (1, 30), 7: (1, 1)})
    assert found(lake.pipeline).value == 0
    lake.sql("UPDATE {} SET v = 3 WHERE v = -3")
    assert "k=1, l=2" in lake.refused().what
