"""The ways of large tables and of large batches (ADR 0008), taken by small ones: the join is right on each of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fk_pipeline.engine.stage_reader import StageReader
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key import resolved_join as resolver
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.stages import resolved_join, responses
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import key_literals, tables, warehouse
from fk_pipeline.store.settings import holding
from fk_pipeline.store.sizes import MEASURED, Sizes

pytestmark = pytest.mark.spark


KEYS = 60
LEFT = [(i, f"k{i % 7}", "v") for i in range(KEYS)]
RIGHT = [(f"k{i}", f"n{i}") for i in range(6)]


LARGE_TABLES = Sizes(small_rows=-1, rewritten_rows=-1, indexed_rows=1)
"""Changes are looked up by key: index, deletion vectors, conditions, rows replaced by their keys."""

THROUGH_DELTA = replace(LARGE_TABLES, driver_keys=-1, deletion_vector_rows=-1, named_bytes=0)
"""The same where Delta must read, and MERGE."""

BY_SPARK = replace(LARGE_TABLES, driver_keys=-1)
"""The driver looks into no table, as where Spark runs on other machines."""

SENT = replace(BY_SPARK, driver_rows=-1)
"""Changes are looked up by keys that do not come to the driver."""

BY_THE_DRIVER = replace(LARGE_TABLES, driver_rows=-1, listed_keys=1, sorted_rows=1, rows_per_file=3)
"""More rows than are brought to the driver are looked up there, and put in place by their keys in buckets."""

MANY = Sizes(driver_rows=-1, driver_keys=-1, sent_bytes=-1000, small_bytes=-1, broadcast_bytes=-1)
"""Tables are joined whole, and rows merged."""

UNWRITTEN = replace(MANY, unwritten_rows=-1)
"""Responses are computed with the result (ADR 0062)."""


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Which of the two ways of `BY_THE_DRIVER` were taken, filled as it goes."""
    taken: set[str] = set()
    look_up, in_buckets = tables.look_up, key_literals._in_buckets

    def looking(*how: Any) -> Any:
        found = look_up(*how)
        taken.update([] if found is None else ["look_up"])
        return found

    def naming(*how: Any) -> str:
        taken.add("buckets")
        return in_buckets(*how)

    monkeypatch.setattr(tables, "look_up", looking)
    monkeypatch.setattr(key_literals, "_in_buckets", naming)
    return taken


def joined(made: Any, left: dict[int, tuple[str | None, str]], right: dict[str, str]) -> None:
    """The result is the join of these tables."""
    inner = made.pipeline.spec.inner
    wanted = {i: (v, right.get(k or "")) for i, (k, v) in left.items() if not inner or k in right}
    assert made.result() == wanted


def way(sizes: Sizes, join: str, *, strategy: str = "auto") -> Any:
    [name] = [name for name, value in globals().items() if value is sizes]
    shown = f"{name.lower()}-{join}" + ("" if strategy == "auto" else f"-{strategy}")
    return pytest.param(sizes, join, strategy, marks=pytest.mark.slow, id=shown)


@pytest.mark.parametrize(
    ("sizes", "join", "strategy"),
    [
        *[way(LARGE_TABLES, join) for join in ("inner", "left")],
        # The tests below take these ways in a few steps.
        *[way(BY_THE_DRIVER, join) for join in ("inner", "left")],
        *[way(BY_SPARK, join) for join in ("inner", "left")],
        *[way(SENT, join) for join in ("inner", "left")],
        *[way(MANY, join, strategy="full") for join in ("inner", "left")],
        *[way(THROUGH_DELTA, join) for join in ("inner", "left")],
        *[way(MANY, join) for join in ("inner", "left")],
        *[way(UNWRITTEN, join) for join in ("inner", "left")],
    ],
)
def test_the_join_is_right_on_every_way(
    sizes: Sizes, join: str, strategy: str, rows_pipeline: Any, taken: set[str]
) -> None:
    made = rows_pipeline(join, sizes, settings=f"{{strategy: {strategy}}}")
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
    assert made.pipeline.verify().ok
    assert sizes is not BY_THE_DRIVER or taken == {"look_up", "buckets"}


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False], ids=["named", "merged"])
def test_two_answers_about_one_row_write_it_once(
    named: bool, rows_pipeline: Any, taken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rows_pipeline("inner", BY_THE_DRIVER)
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
    assert made.pipeline.verify().ok
    assert not named or "buckets" in taken


@pytest.mark.slow
def test_rows_with_keys_of_two_columns_are_found_by_the_driver(rows_pipeline: Any, taken: set[str]) -> None:
    made = rows_pipeline("left", BY_THE_DRIVER, left_key="[id, v]", select="[id, v, fk, name]")
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
def test_the_index_of_subscribers_is_there_before_the_store_and_after_a_rebuild(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", LARGE_TABLES)
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
    taken = []
    first_rows = resolver.first_rows
    monkeypatch.setattr(resolver, "first_rows", lambda *a: (taken.append(a), first_rows(*a))[1])
    made = rows_pipeline("inner", MANY)
    made.land(0, LEFT, RIGHT)
    made.land(1, [(1, "k3", "w")])
    made.pipeline.run("0", stages=["left_changelog", "right_table", "subscription_store", "responses"])
    made.pipeline.run("1", stages=["left_changelog", "subscription_store"])
    made.pipeline.run()
    assert not taken, "a key had two versions"
    assert made.pipeline.verify().ok
    other = rows_pipeline("inner", MANY)
    other.land(0, LEFT, RIGHT)
    other.pipeline.run()
    assert len(taken) == 1
    for file in Path(other.pipeline.spec.home, "resolved_join").glob("*.parquet"):
        ids = pq.read_table(file, columns=["id"])["id"].to_pylist()
        assert ids == sorted(ids), "a look-up of keys reads every page"
    assert other.pipeline.verify().ok


@pytest.mark.slow
def test_keys_with_dollars_are_not_taken_for_variables(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner", LARGE_TABLES, left_key="fk", foreign_key="v", select="[fk, id, name]")
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
    unchanged_since = StageReader.unchanged_since
    other = Pipeline(load_spec(made.file), spark)

    def meanwhile(self: Any, *asked: Any) -> bool:
        monkeypatch.setattr(StageReader, "unchanged_since", unchanged_since)
        other.runner.run(Stage.RESPONSES, BatchRange.of(0))
        return unchanged_since(self, *asked)

    monkeypatch.setattr(StageReader, "unchanged_since", meanwhile)
    made.pipeline.runner.run(Stage.RESOLVED_JOIN, BatchRange.of(0))
    assert made.result() == {1: ("new", "A")}
    made.pipeline.run()
    assert made.result() == {1: ("new", "A")}
    assert made.pipeline.verify().ok


@pytest.mark.slow
def test_a_right_row_with_many_subscribers_is_not_taken_for_a_small_change(
    rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    held: dict[str, bool] = {}
    [(name_of_limit, limit)] = holding(MEASURED).items()

    def noting(name: str, module: Any) -> Any:
        step = getattr(module, name)

        def noted(read: Any) -> Any:
            held[name] = spark.conf.get(name_of_limit) == limit
            return step(read)

        return noted

    made = rows_pipeline("inner", Sizes(small_rows=-1, rewritten_rows=-1, many_rows=20))
    left: dict[int, tuple[str | None, str]] = dict.fromkeys(range(KEYS), ("k0", "v"))
    right = {"k0": "n0", "k1": "n1"}
    made.land(0, [(i, *row) for i, row in left.items()], list(right.items()))
    made.pipeline.run()
    for step, module in (("responses", responses), ("resolved_join", resolved_join)):
        monkeypatch.setattr(module, step, noting(step, module))
    made.land(1, [(1, "k1", "w")])
    made.pipeline.run()
    assert held == {"responses": False, "resolved_join": False}
    made.land(2, [], [("k0", "changed")])
    made.pipeline.run()
    assert held == {"responses": True, "resolved_join": True}
    joined(made, left | {1: ("k1", "w")}, right | {"k0": "changed"})
    assert made.pipeline.verify().ok
