"""`verify` finds planted errors of each kind, and tells them from work that is still due."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.store.settings import settings, suiting
from fk_pipeline.verify.verification import VerifyReport, verify
from tests.mutations import Copy, Delete, Mutation, Several, Update

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def made(rows_pipeline: Any) -> Any:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, "a", "v"), (3, "b", "v")], [("a", "A"), ("b", "B")])
    made.pipeline.run()
    return made


@pytest.mark.slow  # in what is read: test_planted_errors_are_found
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


def planted(first: int) -> dict[str, tuple[Mutation, dict[str, int]]]:
    """Per kind of error, the change that plants it among the rows `first` to `first + 4`, and how it is counted.

    The first two refer to one right row, the third to another, the fourth to a deleted one; the last was deleted.
    """
    second, third, fourth, deleted = range(first + 1, first + 5)
    return {
        "left values of an older version": (Update(f"id = {first}", {"v": "'older'"}), {"stale": 1}),
        "right values of an older version": (Update(f"id IN ({first}, {second})", {"name": "'older'"}), {"stale": 2}),
        "half-joined although there is a match": (Update(f"id = {third}", {"name": "NULL"}), {"stale": 1}),
        "joined although the row was deleted": (Update(f"id = {fourth}", {"name": "'B'"}), {"stale": 1}),
        "an empty text for a null": (Update(f"id = {fourth}", {"name": "''"}), {"stale": 1}),
        "a row is missing": (Delete(f"id = {first}"), {"missing": 1}),
        "all rows are missing": (Delete(f"id BETWEEN {first} AND {deleted}"), {"missing": 4}),
        "a row of a deleted key": (
            Copy(f"id = {first}", {"_fk_pk_id": f"{deleted}", "id": f"{deleted}"}),
            {"unexpected": 1},
        ),
        "a second row of a key": (Copy(f"id = {first}"), {"unexpected": 1}),
        "the key of a row and its value differ": (Update(f"_fk_pk_id = {first}", {"id": "7"}), {"stale": 1}),
        "two rows have swapped their keys": (
            Update(f"id IN ({first}, {third})", {"_fk_pk_id": f"CASE id WHEN {first} THEN {third} ELSE {first} END"}),
            {"stale": 2},
        ),
    }


KINDS = {kind: 10 * number for number, kind in enumerate(planted(0), 1)}
"""Per kind of error, the first of its own rows."""


@pytest.fixture(scope="module")
def mutable(rows_pipeline: Any) -> Any:
    mutable = rows_pipeline("left")
    refers = ("a", "a", "b", "gone", "a")
    rows = [(first + n, key, "v") for first in KINDS.values() for n, key in enumerate(refers)]
    mutable.land(0, rows, [("a", "A"), ("b", "B"), ("gone", "G")])
    mutable.land(1, [(first + 4,) for first in KINDS.values()], [("gone",)])
    mutable.pipeline.run()
    return mutable


def verified(pipeline: Pipeline, *mutations: Mutation) -> VerifyReport:
    """The report about the result with these changes."""
    tables = {name: pipeline.table(name) for name in pipeline.spec.definition.proved}
    tables["resolved_join"] = Several(mutations).of(tables["resolved_join"])
    with settings(pipeline.session, suiting(0)):
        return verify(tables, pipeline.due(), pipeline.spec, pipeline.ledger())


def test_planted_errors_are_found_and_counted_as_what_they_are(mutable: Any) -> None:
    report = verified(mutable.pipeline, *(planted(first)[kind][0] for kind, first in KINDS.items()))
    found = {kind: Counter(row["difference"] for row in report.sample if of(kind, row)) for kind in KINDS}
    assert found == {kind: planted(first)[kind][1] for kind, first in KINDS.items()}
    total = sum(map(Counter, found.values()), Counter())
    assert {name: report.counts()[name] for name in total} == total
    assert (report.ok, report.pending, len(report.sample)) == (False, 0, total.total())


def of(kind: str, row: dict[str, Any]) -> bool:
    return bool(KINDS[kind] <= row["key"]["id"] < KINDS[kind] + 10)


@pytest.mark.slow  # beside all of them together
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_error_alone_is_found_and_counted_as_what_it_is(mutable: Any, kind: str) -> None:
    mutation, counts = planted(KINDS[kind])[kind]
    report = verified(mutable.pipeline, mutation)
    found = {name: number for name, number in report.counts().items() if number and name != "rows"}
    assert found == counts
    assert not report.ok
    assert len(report.sample) == sum(counts.values())


@pytest.mark.slow  # beside all of them together
def test_a_result_without_rows_is_found(mutable: Any) -> None:
    report = verified(mutable.pipeline, Delete("TRUE"))
    assert (report.ok, report.missing, report.rows) == (False, 4 * len(KINDS), 0)


def test_work_still_due_explains_its_own_keys_and_no_others(mutable: Any, copy_of: Any) -> None:
    made, first = copy_of(mutable), min(KINDS.values())
    made.land(2, [(first, "b", "w")], [])
    made.pipeline.run("2", ["left_changelog"])
    pending = made.pipeline.verify()
    assert pending.ok
    assert pending.pending == 1
    assert pending.due > 0
    wrong = verified(made.pipeline, Update(f"id = {first + 2}", {"v": "'wrong'"}))
    assert (wrong.ok, wrong.stale, wrong.pending) == (False, 1, 1)
    assert wrong.sample[0]["key"] == {"id": first + 2}
