"""`verify` finds planted errors of each kind, and tells them from work that is still due."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def made(rows_pipeline: Any) -> Any:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, "a", "v"), (3, "b", "v")], [("a", "A"), ("b", "B")])
    made.pipeline.run()
    return made


def test_planted_errors_of_each_kind_are_found_and_named(made: Any) -> None:
    spark, warehouse = made.pipeline.session, made.pipeline.runner.warehouse
    table = f"delta.`{warehouse.path('resolved_join')}`"
    version = warehouse.version("resolved_join")
    columns = ", ".join(f"9 AS {c}" if c in ("_fk_pk_id", "id") else f"`{c}`" for c in spark.table(table).columns)
    spark.sql(f"INSERT INTO {table} SELECT {columns} FROM {table} WHERE id = 1")
    spark.sql(f"UPDATE {table} SET name = CASE id WHEN 1 THEN 'wrong' ELSE NULL END WHERE id IN (1, 2)")
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    report = made.pipeline.verify()
    assert not report.ok
    assert report.counts() == {"rows": 3, "missing": 1, "stale": 2, "unexpected": 1, "pending": 0, "due": 0}
    found = {row["key"]["id"]: (row["difference"], row["expected"], row["found"]) for row in report.sample}
    row = {"id": 1, "v": "v", "name": "A"}
    assert found == {
        1: ("stale", row, row | {"name": "wrong"}),
        2: ("stale", row | {"id": 2}, row | {"id": 2, "name": None}),
        3: ("missing", row | {"id": 3, "name": "B"}, None),
        9: ("unexpected", None, row | {"id": 9}),
    }
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {version}")
    assert made.pipeline.verify().ok


def test_work_still_due_explains_its_own_keys_and_no_others(made: Any) -> None:
    made.land(1, [(1, "b", "w")], [])
    made.pipeline.run("1", ["left_changelog"])
    pending = made.pipeline.verify()
    assert pending.ok
    assert pending.pending == 1
    assert pending.due > 0
    table = f"delta.`{made.pipeline.runner.warehouse.path('resolved_join')}`"
    made.pipeline.session.sql(f"UPDATE {table} SET v = 'wrong' WHERE id = 3")
    wrong = made.pipeline.verify()
    assert (wrong.ok, wrong.stale, wrong.pending) == (False, 1, 1)
    assert wrong.sample[0]["key"] == {"id": 3}
