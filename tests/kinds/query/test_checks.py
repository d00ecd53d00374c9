"""The checks of the tables of a query: each expectation turns red for what it is about, and for nothing else."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.rules.suites import PROOF, suite_of
from tests.expectations.world import mutated
from tests.kinds.query.world import World
from tests.mutations import Copy, Delete, Mutation, Update

pytestmark = pytest.mark.spark

COPIES, HASH, KEY = "one_row_per_key", "hash_is_that_of_the_row", "declared_key_is_unique"

CHANGES: dict[str, list[tuple[Mutation, set[str]]]] = {
    "a": [(Copy("dim = 1"), {COPIES}), (Update("dim = 1", {"m": "m + 1"}), {HASH})],
    "result": [
        (Copy("dim = 2"), {COPIES, KEY, PROOF}),
        (Delete("dim = 2"), {PROOF}),
        (Update("dim = 2", {"m": "m + 1"}), {HASH, PROOF}),
    ],
}
"""Per table, changes that no run makes, with the checks that they turn red; all of its checks are among them."""

MORE: dict[str, list[tuple[Mutation, set[str]]]] = {
    "a": [(Update("dim = 1", {"_fk_hash": "UNHEX('00')"}), {HASH})],
    "result": [
        (Update("dim = 2", {"_fk_hash": "UNHEX('00')"}), {HASH}),
        (Update("dim = 2", {"dim": "1"}), {HASH, KEY, PROOF}),
        (Update("dim = 2", {"dim": "NULL"}), {HASH, KEY, PROOF}),
    ],
}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Pipeline:
    """Returns a query of two blocks that ran for two batches."""
    world = World(tmp_path_factory.mktemp("query"), spark)
    text = "SELECT x.dim, x.m, y.dim AS o FROM a x LEFT JOIN a y ON x.m = y.m AND x.dim <> y.dim"
    world.query("checked", f"WITH a AS (SELECT dim, MAX(v) AS m FROM fact GROUP BY dim) {text}", "key: [dim]\n")
    for batch, rows in enumerate([[(1, 1, 1, 5), (2, 2, 1, 6)], [(2, 2, 1, 7), (3, 3, 1, 9)]]):
        world.land("fact", batch, *rows)
        world.at("fact").run()
        world.at("checked").run()
    assert world.check("checked") == [(1, 5, None), (2, 7, None), (3, 9, None)]
    return world.at("checked")


def red(pipeline: Pipeline, stage: str, batches: BatchRange | None = None) -> set[str]:
    """Returns the checks of a stage that found something."""
    return {name for name, found in violations(pipeline, stage, batches).findings.items() if found.value}


def names_of(pipeline: Pipeline, stage: str) -> set[str]:
    """Returns the names of the expectations of a stage; `test_keys` has those about inputs by `table`."""
    return {one.name for one in suite_of(pipeline.spec, stage)}


def test_nothing_is_red_after_a_run(pipeline: Pipeline) -> None:
    for stage in CHANGES:
        assert {*violations(pipeline, stage).findings} == names_of(pipeline, stage)
        assert not red(pipeline, stage)


@pytest.mark.parametrize("table", CHANGES)
def test_a_changed_row_turns_the_checks_red_that_are_about_it(
    pipeline: Pipeline, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set.union(*(names for _, names in CHANGES[table])) == names_of(pipeline, table)
    turns_red(pipeline, table, CHANGES[table], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("table", MORE)
def test_so_does_one_that_is_changed_in_another_way(
    pipeline: Pipeline, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns_red(pipeline, table, MORE[table], monkeypatch)


def turns_red(
    pipeline: Pipeline, table: str, changes: list[tuple[Mutation, set[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asserts what each change turns red: in all of the table, in its own batch, and in no other."""
    for mutation, names in changes:
        with mutated(monkeypatch, {table: mutation}):
            assert red(pipeline, table) == names, mutation
            own = 1 if mutation.where == "dim = 2" else 0
            assert red(pipeline, table, BatchRange.of(own)) == names - {PROOF}, mutation
            others = red(pipeline, table, BatchRange.of(1 - own))
            assert others <= {KEY}, mutation  # a row with the same key may be theirs
