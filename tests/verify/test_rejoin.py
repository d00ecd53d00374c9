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


PLANTED = [
    ("UPDATE {} SET name = 'wrong' WHERE id = 1", "stale", 1),
    ("UPDATE {} SET name = NULL WHERE id = 2", "stale", 2),
    ("DELETE FROM {} WHERE id = 3", "missing", 3),
    ("INSERT INTO {} SELECT * REPLACE (9 AS _fk_pk_id, 9 AS id) FROM {} WHERE id = 1", "unexpected", 9),
]


@pytest.mark.parametrize(("statement", "kind", "key"), PLANTED, ids=[k for _, k, _ in PLANTED])
def test_a_planted_error_is_found_and_named(made: Any, statement: str, kind: str, key: int) -> None:
    spark, warehouse = made.pipeline.session, made.pipeline.runner.warehouse
    table = f"delta.`{warehouse.path('resolved_join')}`"
    version = warehouse.version("resolved_join")
    if "REPLACE" in statement:
        row = spark.table(table).where("id = 1").withColumns({})
        columns = ", ".join(f"9 AS {c}" if c in ("_fk_pk_id", "id") else f"`{c}`" for c in row.columns)
        spark.sql(f"INSERT INTO {table} SELECT {columns} FROM {table} WHERE id = 1")
    else:
        spark.sql(statement.format(table))
    report = made.pipeline.verify()
    assert not report.ok
    assert report.counts() | {"rows": 0} == {
        "rows": 0, "missing": 0, "stale": 0, "unexpected": 0, "pending": 0, "due": 0,
    } | {kind: 1}  # fmt: skip
    assert report.sample[0]["key"] == {"id": key}
    assert report.sample[0]["difference"] == kind
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
