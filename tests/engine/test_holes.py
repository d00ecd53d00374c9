"""Values that the source did not send (architecture, rule 9): filled from older versions, in any order of batches."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.cdc.debezium import UNAVAILABLE
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from tests.landing import write_lines

pytestmark = pytest.mark.spark

PIPELINE = """
name: holes
join: left
left: {path: left, schema: "id INT, ref STRING, v STRING, w STRING", key: id, foreign_key: ref}
right: {path: right, schema: "k STRING, name STRING, note STRING", key: k}
select: [id, v, w, name]
"""


def event(key: Any, row: Mapping[str, Any] | None, at: int, old: Any = None, name: str = "id") -> str:
    """An exported record; without a row a delete."""
    op = "d" if row is None else "u" if old is None else "c"
    value = {"op": op, "before": None, "after": row, "source": {"sequence": f'["{at}","{at}"]'}}
    headers = {"__debezium.oldkey": {name: old}} if old is not None else {}
    return json.dumps({"topic": "t", "key": {name: key}, "value": value, "headers": headers})


def left(key: int, at: int, ref: str = "a", v: str = UNAVAILABLE, w: str = "w", old: int | None = None) -> str:
    return event(key, {"id": key, "ref": ref, "v": v, "w": w}, at, old)


def right(key: str, at: int, name: str = UNAVAILABLE, old: str | None = None) -> str:
    return event(key, {"k": key, "name": name, "note": "n"}, at, old, "k")


def truncate(at: int) -> str:
    value = {"op": "t", "before": None, "after": None, "source": {"sequence": f'["{at}","{at}"]'}}
    return json.dumps({"topic": "t", "key": None, "value": value, "headers": {}})


class Holed:
    """A pipeline whose batches are Debezium events."""

    def __init__(self, folder: Path, spark: SparkSession, settings: str = "{}") -> None:
        folder.mkdir(exist_ok=True)
        (folder / "pipeline.yaml").write_text(f"{PIPELINE}settings: {settings}\n")
        self.folder = folder
        for side in ("left", "right"):
            (folder / side).mkdir()
        self.pipeline = Pipeline(load_spec(folder / "pipeline.yaml"), spark)

    def land(self, batch: int, left: Sequence[str] = (), right: Sequence[str] = ()) -> None:
        for side, lines in (("left", left), ("right", right)):
            if lines:
                write_lines(self.folder / side / f"{batch}.jsonl", lines)

    def settle(self) -> dict[int, tuple[Any, ...]]:
        """Runs what is due; the result by key."""
        self.pipeline.run()
        report = self.pipeline.verify()
        assert (report.ok, report.due) == (True, 0)
        return {
            row["id"]: tuple(row)[1:]
            for row in self.pipeline.table("resolved_join").select("id", "v", "w", "name").collect()
        }

    def holes(self, stage: Stage, batch: int) -> tuple[int, int]:
        """How many rows of a batch had holes, and how many of these were not filled."""
        counts = self.pipeline.ledger().state(stage, batch).counts
        return counts.get("holes", 0), counts.get("unresolved", 0)


@pytest.fixture
def made(tmp_path: Path, spark: SparkSession) -> Holed:
    return Holed(tmp_path, spark)


HISTORY = {
    0: ([left(1, 10, v="v10"), left(2, 11, v="v11")], [right("a", 12, "A12")]),
    1: ([left(1, 20, w="w20")], [right("a", 21)]),
    2: ([left(1, 30, v="v30", w=UNAVAILABLE), left(2, 31, "b", w="w31")], [right("b", 32, "B32")]),
    3: ([left(1, 40, "b", w=UNAVAILABLE), left(2, 41, w="w41", v="v41"), left(2, 42, w=UNAVAILABLE)], [right("b", 43)]),
    4: ([event(2, None, 51), left(3, 51, w="w51", old=2), left(3, 52, "b", w=UNAVAILABLE)], []),
}
RESULT = {1: ("v30", "w20", "B32"), 3: ("v41", "w51", "B32")}


@pytest.mark.slow
@pytest.mark.parametrize("order", ["0..4", "4,3,2,1,0", "2,0,4,1,3", "3,1,4,0,2", "1..3,0,4,2"])
def test_any_order_of_batches_fills_the_same(made: Holed, order: str) -> None:
    for batch, (lefts, rights) in HISTORY.items():
        made.land(batch, lefts, rights)
    made.pipeline.discover()
    made.pipeline.run(order)
    assert made.settle() == RESULT
    assert [made.holes(Stage.LEFT_CHANGELOG, batch) for batch in range(5)] == [(0, 0), (1, 0), (2, 0), (2, 0), (1, 0)]


def test_a_changelog_that_may_have_holes_is_appended_to_without_spark(made: Holed) -> None:
    made.land(0, [left(1, 10, v="v")], [right("a", 11, "A")])
    made.pipeline.run(stages=[Stage.LEFT_CHANGELOG, Stage.RIGHT_TABLE])
    runner = made.pipeline.runner
    assert runner.warehouse.driver.may_append(runner.layout["left_changelog"], 1)
    assert runner.warehouse.driver.may_append(runner.layout["right_changelog"], 1)


@pytest.mark.slow
def test_what_is_not_known_is_null_until_a_batch_brings_it(made: Holed) -> None:
    made.land(3, [left(1, 30)], [right("a", 31)])
    assert made.settle() == {1: (None, "w", None)}
    assert made.holes(Stage.LEFT_CHANGELOG, 3) == made.holes(Stage.RIGHT_TABLE, 3) == (1, 1)
    made.land(1, [left(1, 10, v="v10")], [right("a", 11, "A11")])
    made.pipeline.run("1")
    assert made.pipeline.due()[Stage.LEFT_CHANGELOG] == made.pipeline.due()[Stage.RIGHT_TABLE] == [3]
    assert made.pipeline.ledger().due.why(Stage.LEFT_CHANGELOG, 3) == "another batch has values that it lacks"
    assert made.settle() == {1: ("v10", "w", "A11")}
    assert made.holes(Stage.LEFT_CHANGELOG, 3) == made.holes(Stage.RIGHT_TABLE, 3) == (1, 0)


@pytest.mark.slow
def test_what_fills_a_hole_may_be_corrected_and_withdrawn(made: Holed) -> None:
    made.land(3, [left(1, 30)], [right("a", 31)])
    made.land(1, [left(1, 10, v="v10")], [right("a", 11, "A11")])
    assert made.settle() == {1: ("v10", "w", "A11")}
    made.land(2, [left(1, 20, v="v20")])
    assert made.settle() == {1: ("v20", "w", "A11")}
    made.land(2, [left(1, 20, v="v21")])
    assert made.settle() == {1: ("v21", "w", "A11")}
    made.pipeline.remove_batch(2)
    assert made.settle() == {1: ("v10", "w", "A11")}
    made.pipeline.remove_batch(1)
    assert made.settle() == {1: (None, "w", None)}


@pytest.mark.slow
def test_a_delete_ends_the_search_and_an_unrelated_batch_makes_nothing_due(made: Holed) -> None:
    made.land(0, [left(1, 10, v="v10")], [right("a", 11, "A")])
    made.land(1, [event(1, None, 20)])
    made.land(2, [left(1, 30)])
    assert made.settle() == {1: (None, "w", "A")}
    made.land(3, [left(2, 40, v="v40")])
    made.pipeline.run("3")
    assert not any(made.pipeline.due().values())
    made.land(4, [left(1, 25, v="v25")])
    assert made.settle() == {1: ("v25", "w", "A"), 2: ("v40", "w", "A")}


@pytest.mark.slow
def test_a_foreign_key_that_was_not_sent_is_that_of_the_older_version(made: Holed) -> None:
    made.land(0, [left(1, 10, "a", v="v")], [right("a", 11, "A"), right("b", 12, "B")])
    made.land(1, [left(1, 20, UNAVAILABLE, v="w")])
    assert made.settle() == {1: ("w", "w", "A")}
    made.land(2, [left(1, 15, "b", v="x")])
    assert made.settle() == {1: ("w", "w", "B")}


@pytest.mark.slow
def test_events_of_a_source_without_an_order_are_ordered_by_their_place(made: Holed) -> None:
    def flat(key: int, **values: str) -> str:
        return json.dumps({"id": key, "ref": "a", "v": UNAVAILABLE, "w": "w", "__op": "u", **values})

    made.land(0, [flat(9, v="v")], [right("a", 5, "A")])
    made.land(1, [flat(1, v="v1"), flat(1)])
    made.land(2, [flat(9)])
    made.land(3, [flat(2, v="v2"), flat(2)])
    assert made.settle() == {1: ("v1", "w", "A"), 2: ("v2", "w", "A"), 9: ("v", "w", "A")}
    made.land(4, [flat(1, w="w4")])
    made.pipeline.run("4")
    assert not any(made.pipeline.due().values())
    made.pipeline.run("1")
    assert not made.pipeline.due()[Stage.LEFT_CHANGELOG]
    assert made.settle()[1] == ("v1", "w4", "A")


@pytest.mark.slow
def test_a_key_that_changed_twice_in_a_batch_is_found_when_its_first_one_comes_later(made: Holed) -> None:
    made.land(1, [event(1, None, 20), left(2, 20, old=1), event(2, None, 30), left(3, 30, old=2)])
    made.land(2, [left(3, 40, w="w40")], [right("a", 5, "A")])
    assert made.settle() == {3: (None, "w40", "A")}
    made.land(0, [left(1, 10, v="v10")])
    assert made.settle() == {3: ("v10", "w40", "A")}
    made.pipeline.run("1")
    assert not made.pipeline.due()[Stage.LEFT_CHANGELOG], "a look at what is stored finds what the run found"


@pytest.mark.slow
def test_a_row_whose_key_changed_twice_goes_on_as_that_of_its_first_key(made: Holed) -> None:
    history = [
        [left(1, 10, v="v10")],
        [event(1, None, 20), left(2, 20, old=1)],
        [left(2, 25, w="w25")],
        [event(2, None, 30), left(3, 30, w=UNAVAILABLE, old=2)],
        [left(3, 40, w="w40")],
    ]
    for batch, lines in enumerate(history):
        made.land(batch, lines, [right("a", 5, "A")] if batch == 0 else [])
    for order in itertools.islice(itertools.permutations(range(5)), 100, 101):
        for batch in order:
            made.pipeline.run(str(batch))
    assert made.settle() == {3: ("v10", "w40", "A")}
    made.land(0, [left(1, 10, v="v11")], [right("a", 5, "A")])
    assert made.settle() == {3: ("v11", "w40", "A")}


@pytest.mark.slow
def test_folding_takes_nothing_away_that_late_events_need(tmp_path: Path, spark: SparkSession) -> None:
    """Holes, truncates and deletes on both sides of what was folded, beside a pipeline that folds nothing."""
    whole = Holed(tmp_path / "whole", spark)
    folded = Holed(tmp_path / "folded", spark, "{fold_after_hours: 0, retention_hours: 0}")
    history = [
        [left(1, 10, v="v10"), left(2, 11, v="v11"), left(3, 12, v="v12"), left(6, 13, v="v13")],
        [left(1, 20), left(2, 21, w="w21"), left(6, 23, v="v23")],
        [left(1, 15, v="late, for the hole"), left(3, 9, v="late, for nothing"), left(6, 22, v="late, for nothing")],
        [truncate(30)],
        [left(4, 40, v="v40"), left(1, 41)],
        [left(5, 25, v="before the truncate"), left(2, 26, v="before the truncate")],
        [left(1, 35, v="late, for the hole"), left(5, 36, v="after the truncate")],
        [event(4, None, 50)],
        [left(4, 45, v="before the delete"), left(5, 46)],
    ]
    expected: dict[int, tuple[Any, ...]] = {}
    removed = 0
    for batch, lines in enumerate(history):
        for made in (whole, folded):
            made.land(batch, lines, [right("a", 5, "A")] if batch == 0 else [])
        expected = whole.settle()
        assert folded.settle() == expected, batch
        removed += sum(one.removed for one in folded.pipeline.compact() if one.table == "left_changelog")
    assert removed, "nothing was folded"
    assert expected == {1: ("late, for the hole", "w", "A"), 5: ("after the truncate", "w", "A")}
