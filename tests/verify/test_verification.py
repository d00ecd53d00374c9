"""`verify` finds planted errors of each kind, and tells them from work that is still due."""

from __future__ import annotations

from typing import Any

import pytest

from fk_pipeline.store.settings import settings, suiting
from fk_pipeline.verify.verification import verify
from tests.mutations import Copy, Delete, Mutation, Update

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def made(rows_pipeline: Any) -> Any:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, "a", "v"), (3, "b", "v")], [("a", "A"), ("b", "B")])
    made.pipeline.run()
    return made


@pytest.mark.slow  # in what is read: test_a_planted_error
def test_planted_errors_of_each_kind_are_found_and_named(made: Any) -> None:
    spark, warehouse = made.pipeline.session, made.pipeline.runner.warehouse
    table = f"delta.`{warehouse.path('resolved_join')}`"
    version = warehouse.version("resolved_join")
    columns = ", ".join(f"9 AS {c}" if c in ("_fk_pk_id", "id") else f"`{c}`" for c in spark.table(table).columns)
    with settings(spark, suiting(0)):
        spark.sql(f"INSERT INTO {table} SELECT {columns} FROM {table} WHERE id = 1")
        spark.sql(f"UPDATE {table} SET name = CASE id WHEN 1 THEN 'wrong' ELSE NULL END WHERE id IN (1, 2)")
        spark.sql(f"DELETE FROM {table} WHERE id = 3")
    report = made.pipeline.verify()
    assert not report.ok
    assert report.counts() == {"rows": 3, "missing": 1, "stale": 2, "unexpected": 1, "pending": 0, "due": 0}
    found = {row["key"]["id"]: (row["difference"], row["expected"], row["found"]) for row in report.sample}
    row = {"id": 1, "v": "v", "name": "A"}
    assert found == {
        1: ("stale", {"name": "A"}, {"name": "wrong"}),
        2: ("stale", {"name": "A"}, {"name": None}),
        3: ("missing", row | {"id": 3, "name": "B"}, None),
        9: ("unexpected", None, row | {"id": 9}),
    }
    with settings(spark, suiting(0)):
        spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {version}")
    assert made.pipeline.verify().ok


MUTATIONS: dict[str, tuple[Mutation, dict[str, int]]] = {
    "left values of an older version": (Update("id = 1", {"v": "'older'"}), {"stale": 1}),
    "right values of an older version": (Update("id IN (1, 2)", {"name": "'older'"}), {"stale": 2}),
    "half-joined although there is a match": (Update("id = 3", {"name": "NULL"}), {"stale": 1}),
    "joined although the row was deleted": (Update("id = 4", {"name": "'B'"}), {"stale": 1}),
    "an empty text for a null": (Update("id = 4", {"name": "''"}), {"stale": 1}),
    "a row is missing": (Delete("id = 1"), {"missing": 1}),
    "all rows are missing": (Delete("TRUE"), {"missing": 4}),
    "a row of a deleted key": (Copy("id = 1", {"_fk_pk_id": "5", "id": "5"}), {"unexpected": 1}),
    "a second row of a key": (Copy("id = 1"), {"unexpected": 1}),
    "the key of a row and its value differ": (Update("_fk_pk_id = 1", {"id": "7"}), {"stale": 1}),
    "two rows have swapped their keys": (
        Update("id IN (1, 3)", {"_fk_pk_id": "CASE id WHEN 1 THEN 3 ELSE 1 END"}),
        {"stale": 2},
    ),
}


@pytest.fixture(scope="module")
def mutable(rows_pipeline: Any) -> Any:
    mutable = rows_pipeline("left")
    rows = [(1, "a", "v"), (2, "a", "v"), (3, "b", "v"), (4, "gone", "v"), (5, "a", "v")]
    mutable.land(0, rows, [("a", "A"), ("b", "B"), ("gone", "G")])
    mutable.land(1, [(5,)], [("gone",)])
    mutable.pipeline.run()
    return mutable


@pytest.mark.parametrize("kind", MUTATIONS)
def test_a_planted_error_is_found_and_counted_as_what_it_is(mutable: Any, kind: str) -> None:
    pipeline = mutable.pipeline
    mutation, counts = MUTATIONS[kind]
    tables = {name: pipeline.table(name) for name in pipeline.spec.definition.proved}
    tables["resolved_join"] = mutation.of(tables["resolved_join"])
    with settings(pipeline.session, suiting(0)):
        report = verify(tables, pipeline.due(), pipeline.spec, pipeline.ledger())
    found = {name: number for name, number in report.counts().items() if number and name != "rows"}
    assert found == counts
    assert not report.ok
    assert len(report.sample) == sum(counts.values())


def test_work_still_due_explains_its_own_keys_and_no_others(made: Any) -> None:
    made.land(1, [(1, "b", "w")], [])
    made.pipeline.run("1", ["left_changelog"])
    pending = made.pipeline.verify()
    assert pending.ok
    assert pending.pending == 1
    assert pending.due > 0
    table = f"delta.`{made.pipeline.runner.warehouse.path('resolved_join')}`"
    with settings(made.pipeline.session, suiting(0)):
        made.pipeline.session.sql(f"UPDATE {table} SET v = 'wrong' WHERE id = 3")
    wrong = made.pipeline.verify()
    assert (wrong.ok, wrong.stale, wrong.pending) == (False, 1, 1)
    assert wrong.sample[0]["key"] == {"id": 3}
