"""The ways of large tables and of large batches (ADR 0008), taken by small ones: the join is right on each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.stages import access, materialised, work
from fk_pipeline.store import skipping, warehouse
from fk_pipeline.store.settings import HOLDING

pytestmark = pytest.mark.spark


KEYS = 60
LEFT = [(i, f"k{i % 7}", "v") for i in range(KEYS)]
RIGHT = [(f"k{i}", f"n{i}") for i in range(6)]


def few_in_large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are looked up by key: index, deletion vectors, conditions, rows replaced by their keys."""
    monkeypatch.setattr(work, "SMALL_ROWS", -1)
    monkeypatch.setattr(work, "INDEXED_ROWS", 1)


def few_through_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where Delta must read, and MERGE."""
    few_in_large_tables(monkeypatch)
    found_by_spark(monkeypatch)
    monkeypatch.setattr(warehouse, "MARKED_ROWS", -1)
    monkeypatch.setattr(warehouse, "exactly", lambda *_: None)


def found_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver looks into no table, as where Spark runs on other machines."""
    few_in_large_tables(monkeypatch)
    monkeypatch.setattr(warehouse.Warehouse, "reads_in_the_driver", False)


def sent_to_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are looked up by keys that do not come to the driver."""
    found_by_spark(monkeypatch)
    monkeypatch.setattr(materialised, "SMALL", -1)


def found_by_the_driver(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """More rows than are held in the driver are looked up there, and put in place by their keys in buckets.

    Returns:
        What was taken of this way, filled as it goes.
    """
    taken: set[str] = set()
    look_up, in_buckets = warehouse.look_up, skipping._in_buckets

    def looking(*how: Any) -> Any:
        found = look_up(*how)
        taken.update([] if found is None else ["look_up"])
        return found

    def naming(*how: Any) -> str:
        taken.add("buckets")
        return in_buckets(*how)

    monkeypatch.setattr(warehouse, "look_up", looking)
    monkeypatch.setattr(skipping, "_in_buckets", naming)
    few_in_large_tables(monkeypatch)
    monkeypatch.setattr(materialised, "SMALL", -1)
    monkeypatch.setattr(skipping, "LISTED", 1)
    monkeypatch.setattr(warehouse, "ROWS_SORTED", 1)
    monkeypatch.setattr(warehouse, "ROWS_PER_FILE", 3)
    return taken


def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are joined whole, and rows merged."""
    monkeypatch.setattr(materialised, "SMALL", -1)
    monkeypatch.setattr(access, "SENT_BYTES", -1000)
    monkeypatch.setattr(access, "LOOKED_UP", -1)
    monkeypatch.setattr(work, "SMALL_BYTES", -1)
    monkeypatch.setattr(work, "HELD_BYTES", -1)
    monkeypatch.setitem(HOLDING, "spark.sql.autoBroadcastJoinThreshold", "-1")


def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are joined whole, and written whole, because the pipeline file says so."""
    many(monkeypatch)


def joined(made: Any, left: dict[int, tuple[str | None, str]], right: dict[str, str]) -> None:
    """The result is the join of these tables, and `verify` agrees."""
    inner = made.pipeline.spec.inner
    wanted = {i: (v, right.get(k or "")) for i, (k, v) in left.items() if not inner or k in right}
    assert made.result() == wanted
    assert made.pipeline.verify().ok


@pytest.mark.parametrize(
    ("way", "join"),
    [
        pytest.param(few_in_large_tables, "inner", marks=pytest.mark.slow),
        pytest.param(few_in_large_tables, "left", marks=pytest.mark.slow),
        (found_by_the_driver, "inner"),
        pytest.param(found_by_the_driver, "left", marks=pytest.mark.slow),
        (found_by_spark, "inner"),
        pytest.param(found_by_spark, "left", marks=pytest.mark.slow),
        pytest.param(sent_to_the_tables, "inner", marks=pytest.mark.slow),
        pytest.param(sent_to_the_tables, "left", marks=pytest.mark.slow),
        pytest.param(whole, "inner", marks=pytest.mark.slow),
        pytest.param(whole, "left", marks=pytest.mark.slow),
        pytest.param(few_through_delta, "inner", marks=pytest.mark.slow),
        pytest.param(few_through_delta, "left", marks=pytest.mark.slow),
        pytest.param(many, "inner", marks=pytest.mark.slow),
        pytest.param(many, "left", marks=pytest.mark.slow),
    ],
)
def test_the_join_is_right_on_every_way(
    way: Any, join: str, rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = way(monkeypatch)
    made = rows_pipeline(join, settings="{strategy: full}" if way is whole else "{}")
    left, right = {i: (k, v) for i, k, v in LEFT}, dict(RIGHT)
    made.land(0, LEFT, RIGHT)
    made.pipeline.run()
    joined(made, left, right)

    # moves, updates, a delete, an insert, a lost foreign key; a right row that changes, one that goes, one that comes
    changes: list[Any] = [(1, "k3", "w"), (2, "k2", "w"), (3,), (100, "k1", "new"), (4, None, "w"), (5, "k6", "w")]
    made.land(1, changes, [("k3", "changed"), ("k2",), ("k6", "came")])
    made.pipeline.run()
    del left[3], right["k2"]
    left |= {1: ("k3", "w"), 2: ("k2", "w"), 100: ("k1", "new"), 4: (None, "w"), 5: ("k6", "w")}
    right |= {"k3": "changed", "k6": "came"}
    joined(made, left, right)

    # only right rows; the subscribers are those of before and those that moved
    made.land(2, [], [("k3", "again"), ("k2", "back"), ("k1",)])
    made.pipeline.run()
    right |= {"k3": "again", "k2": "back"}
    del right["k1"]
    joined(made, left, right)

    # batch 1 written anew with less in it: what it no longer brings goes back to what it was
    made.land(1, [(1, "k0", "x")], [("k3", "changed"), ("k6", "came")])
    made.pipeline.run()
    left = {i: (k, v) for i, k, v in LEFT} | {1: ("k0", "x")}
    joined(made, left, right)
    made.pipeline.run("0..2")
    joined(made, left, right)
    assert taken is None or taken == {"look_up", "buckets"}


@pytest.mark.parametrize("named", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["named", "merged"])
def test_two_answers_about_one_row_write_it_once(
    named: bool, rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = found_by_the_driver(monkeypatch)
    made = rows_pipeline("inner")
    made.land(0, LEFT, RIGHT)
    made.pipeline.run()
    if not named:
        monkeypatch.setattr(warehouse, "exactly", lambda *_: None)
    made.land(1, [(1, "k3", "w"), (2, "k3", "w"), (3,)], [])
    made.land(2, [], [("k3", "changed")])
    made.pipeline.run()
    assert made.verdicts(1) == {(1, "left"): "joined", (2, "left"): "joined", (3, "left"): "retracted"}
    assert {key for key in made.verdicts(2) if key[0] < 3} == {(1, "right"), (2, "right")}
    assert set(made.verdicts(2).values()) == {"joined"}
    left = {i: (k, v) for i, k, v in LEFT if i != 3} | {1: ("k3", "w"), 2: ("k3", "w")}
    joined(made, left, dict(RIGHT) | {"k3": "changed"})
    assert not named or "buckets" in taken


def test_rows_with_keys_of_two_columns_are_found_by_the_driver(
    rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = found_by_the_driver(monkeypatch)
    made = rows_pipeline("left", left_key="[id, v]", select="[id, v, fk, name]")
    made.land(0, [(i, f"k{i % 3}", v) for i in range(9) for v in "ab"], [("k0", "n"), ("k1", "n")])
    made.pipeline.run()
    made.land(1, [(1, "k0", "a"), (2, "k1", "b")], [("k1", "m")])
    made.pipeline.run()
    rows = made.pipeline.table("resolved_join").select("id", "v", "fk", "name").collect()
    wanted = {(i, v): f"k{i % 3}" for i in range(9) for v in "ab"} | {(1, "a"): "k0", (2, "b"): "k1"}
    assert {(row["id"], row["v"]): row["fk"] for row in rows} == wanted
    assert all(row["name"] == {"k0": "n", "k1": "m"}.get(row["fk"]) for row in rows)
    assert "look_up" in taken
    assert made.pipeline.verify().ok


@pytest.mark.slow
def test_an_answer_to_both_sides_of_a_batch_is_given_once(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner")
    made.land(0, [(1, "a", "v"), (2, "a", "v")], [("a", "A")])
    made.pipeline.run()
    assert made.verdicts(0) == {(1, "left"): "joined", (2, "left"): "joined"}
    made.land(1, [(1, "a", "w")], [("a", "B")])
    made.pipeline.run()
    assert made.verdicts(1) == {(1, "left"): "joined", (2, "right"): "joined"}
    assert made.result() == {1: ("w", "B"), 2: ("v", "B")}


@pytest.mark.slow
def test_a_right_row_that_goes_in_the_batch_of_its_new_subscriber_is_answered(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner")
    made.land(0, [(1, "a", "v")], [("a", "A")])
    made.pipeline.run()
    made.land(0, [(1, "a", "v")], [("a",)])  # the subscription of key 1 stays the one that asks for a match only
    made.pipeline.run()
    assert made.result() == {}
    assert made.pipeline.verify().ok


@pytest.mark.slow
def test_the_index_of_subscribers_is_there_before_the_store_and_after_a_rebuild(
    rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    few_in_large_tables(monkeypatch)
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, "b", "v"), (3, None, "v")], [("a", "A")])
    made.pipeline.run()

    def pairs(name: str) -> set[tuple[str, int]]:
        rows = made.pipeline.table(name).where("_fk_fk_k IS NOT NULL")
        return {(row["_fk_fk_k"], row["_fk_pk_id"]) for row in rows.collect()}

    assert pairs("subscribers") == pairs("subscription_store") == {("a", 1), ("b", 2)}
    made.land(1, [(1, "b", "v"), (2,)])
    made.pipeline.run()
    assert pairs("subscription_store") == {("b", 1)}
    assert pairs("subscribers") == {("a", 1), ("b", 2), ("b", 1)}
    made.pipeline.rebuild(stages=["subscription_store"])
    assert pairs("subscription_store") <= pairs("subscribers")
    made.land(2, [], [("b", "B")])
    made.pipeline.run()
    assert made.result() == {1: ("v", "B"), 3: ("v", None)}


@pytest.mark.slow
def test_the_first_result_of_a_load_is_not_taken_for_one_after_a_change(
    rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(monkeypatch)
    taken = []
    first_rows = work.resolver.first_rows
    monkeypatch.setattr(work.resolver, "first_rows", lambda *a: (taken.append(a), first_rows(*a))[1])
    made = rows_pipeline("inner")
    made.land(0, LEFT, RIGHT)
    made.land(1, [(1, "k3", "w")])
    made.pipeline.run("0", stages=["left_changelog", "right_table", "subscription_store", "responses"])
    made.pipeline.run("1", stages=["left_changelog", "subscription_store"])
    made.pipeline.run()
    assert not taken, "a key had two versions"
    assert made.pipeline.verify().ok
    other = rows_pipeline("inner")
    other.land(0, LEFT, RIGHT)
    other.pipeline.run()
    assert len(taken) == 1
    for file in Path(other.pipeline.spec.home, "resolved_join").glob("*.parquet"):
        ids = pq.read_table(file, columns=["id"])["id"].to_pylist()
        assert ids == sorted(ids), "a look-up of keys reads every page"
    assert other.pipeline.verify().ok


@pytest.mark.slow
def test_keys_with_dollars_are_not_taken_for_variables(rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    few_in_large_tables(monkeypatch)
    made = rows_pipeline("inner", left_key="fk", foreign_key="v", select="[fk, id, name]")
    made.land(0, [(1, "a", "k"), (2, "a${x}", "k"), (3, "${env:HOME}", "k")], [("k", "K")])
    made.pipeline.run()
    made.land(1, [(4, "a${x}", "k")])
    made.pipeline.run()
    rows = made.pipeline.table("resolved_join").select("fk", "id").collect()
    assert {(row["fk"], row["id"]) for row in rows} == {("a", 1), ("a${x}", 4), ("${env:HOME}", 3)}


@pytest.mark.slow
def test_answers_that_are_computed_again_while_they_are_resolved_are_not_taken_for_the_old_ones(
    rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """Architecture, rule 3: the resolver may leave out the look at both hashes only for the answers that it read."""
    made = rows_pipeline("inner")
    made.land(0, [(1, "a", "old")], [("a", "A")])
    made.pipeline.run()
    made.land(1, [(1, "a", "new")])
    made.pipeline.run()
    made.land(0, [(1, "a", "old")], [("a", "A"), ("b", "B")])
    made.pipeline.run("0", stages=["right_table"])
    as_answered = work.StageWork._as_answered
    other = Pipeline(load_spec(made.file), spark)

    def meanwhile(self: Any, answered: Any) -> bool:
        monkeypatch.setattr(work.StageWork, "_as_answered", as_answered)
        other.runner.run(Stage.RESPONSES, BatchRange.of(0))
        return as_answered(self, answered)

    monkeypatch.setattr(work.StageWork, "_as_answered", meanwhile)
    made.pipeline.runner.run(Stage.RESOLVED_JOIN, BatchRange.of(0))
    assert made.result() == {1: ("new", "A")}
    made.pipeline.run()
    assert made.result() == {1: ("new", "A")}
    assert made.pipeline.verify().ok


def test_a_right_row_with_many_subscribers_is_not_taken_for_a_small_change(
    rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.setattr(work, "SMALL_ROWS", -1)
    monkeypatch.setattr(work, "MANY_ROWS", 20)
    held: dict[str, bool] = {}
    [(name_of_limit, limit)] = HOLDING.items()

    def noting(name: str) -> Any:
        step = getattr(work.StageWork, name)

        def noted(self: Any) -> Any:
            held[name] = spark.conf.get(name_of_limit) == limit
            return step(self)

        return noted

    made = rows_pipeline("inner")
    left: dict[int, tuple[str | None, str]] = dict.fromkeys(range(KEYS), ("k0", "v"))
    right = {"k0": "n0", "k1": "n1"}
    made.land(0, [(i, *row) for i, row in left.items()], list(right.items()))
    made.pipeline.run()
    for step in ("_responses", "_resolved_join"):
        monkeypatch.setattr(work.StageWork, step, noting(step))
    made.land(1, [(1, "k1", "w")])
    made.pipeline.run()
    assert held == {"_responses": False, "_resolved_join": False}
    made.land(2, [], [("k0", "changed")])
    made.pipeline.run()
    assert held == {"_responses": True, "_resolved_join": True}
    joined(made, left | {1: ("k1", "w")}, right | {"k0": "changed"})
