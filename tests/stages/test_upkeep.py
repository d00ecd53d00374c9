"""Upkeep: fewer files, the same rows, and everything goes on as before."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from expectations.violations import violations
from fk_pipeline.errors import CheckFailedError, StateError
from fk_pipeline.identity import Stage

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_small_files_are_packed_and_old_ones_removed(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", settings="{retention_hours: 0}")
    for batch in range(4):
        made.land(batch, [(batch, "ab"[batch % 2], f"v{batch}"), (100, "a", f"v{batch}")], [("a", f"A{batch}")])
        made.pipeline.run()
    runner = made.pipeline.runner
    tables = [getattr(runner.layout, one.name) for one in fields(runner.layout)]
    tables = [table for table in tables if runner.warehouse.version(table.name) is not None]
    before = {table.name: sorted(map(str, runner.warehouse.read(table).collect())) for table in tables}
    told: list[str] = []
    done = {one.table: one for one in made.pipeline.compact(told.append)}
    assert {table.name for table in tables} <= set(done)
    assert {"runs", "files", "batches"} <= set(done)
    assert told == list(done)
    for name in ("left_changelog", "responses", "verdicts", "runs"):
        assert done[name].before.files > done[name].after.files == 1, name
        assert done[name].after.bytes < done[name].before.bytes, name
        assert len(list(Path(runner.spec.home, name).glob("*.parquet"))) == 1, name  # the log grows by what was done
    after = {table.name: sorted(map(str, runner.warehouse.read(table).collect())) for table in tables}
    assert after == before
    assert not any(made.pipeline.due().values())
    made.land(2, [(2, "b", "again")])
    made.land(5, [(5, "b", "v6")], [("b", "B")])
    made.pipeline.run()
    assert made.pipeline.verify().ok
    assert made.result()[2] == ("again", "B")


FOLDING = "{fold_after_hours: 0, retention_hours: 0}"


def rows_of(made: Any, name: str) -> list[Any]:
    return made.pipeline.table(name).collect()


def versions(made: Any, name: str, key: str) -> dict[Any, list[int]]:
    """Per key the batches of its rows in a changelog."""
    found: dict[Any, list[int]] = {}
    for row in sorted(rows_of(made, name), key=lambda row: row["_fk_batch"]):
        found.setdefault(row[key], []).append(row["_fk_batch"])
    return found


@pytest.mark.once
def test_old_batches_are_folded_to_the_winner_per_key(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", settings=FOLDING)
    made.land(0, [(1, "a", "v0"), (2, "a", "w0"), (3, "b", "x0")], [("a", "A0"), ("b", "B0")])
    made.land(1, [(1, "b", "v1"), (3,)], [("a", "A1")])
    made.land(2, [(1, "a", "v2")], [("b",)])
    made.pipeline.run()
    made.land(3, [(2, "b", "w3")])
    made.pipeline.run(batches="3", stages=["left_changelog"])  # the rest of it is due: it is not folded
    before = made.result()
    done = {one.table: one for one in made.pipeline.compact()}
    assert versions(made, "left_changelog", "id") == {1: [2], 2: [0, 3], 3: [1]}
    assert versions(made, "right_changelog", "k") == {"a": [1], "b": [2]}
    assert (done["left_changelog"].removed, done["right_changelog"].removed) == (3, 2)
    assert rows_of(made, "responses") == rows_of(made, "verdicts") == []
    assert made.result() == before
    ledger = made.pipeline.ledger()
    assert sorted(ledger.fully_folded) == [0, 1, 2]

    made.pipeline.run()  # what was not folded goes on
    made.land(4, [(3, "a", "late, but by arrival it is the last")])
    made.pipeline.run()
    assert made.pipeline.verify().ok
    assert made.result()[2] == ("w3", None)
    made.pipeline.remove_batch(3)
    made.pipeline.run()
    assert made.result()[2] == ("w0", "A1")  # it falls back to what folding kept
    for stage in Stage:
        red = {n: f for n, f in violations(made.pipeline, stage).findings.items() if f.value}
        assert set(red) <= {"late_share_is_low"}, (stage, red)


@pytest.mark.slow
def test_a_folded_batch_is_run_again_as_it_was_and_restated_by_a_rebuild_only(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", settings=FOLDING)
    made.land(0, [(1, "a", "v0")], [("a", "A0")])
    made.land(1, [(1, "a", "v1")], [("a", "A1")])
    made.pipeline.run()
    assert made.pipeline.compact()[0].removed == 1
    assert made.pipeline.compact()[0].removed == 0
    made.pipeline.run(batches="0..1")
    assert made.result() == {1: ("v1", "A1")}
    with pytest.raises(StateError, match="batch 1 was folded"):
        made.pipeline.remove_batch(1)
    made.land(1, [(2, "a", "w1")])
    made.land(2, [(3, "a", "x2")])
    with pytest.raises(
        CheckFailedError, match="batch 1 was folded, and what landed of it is not what left_changelog read"
    ):
        made.pipeline.run()
    assert made.result() == {1: ("v1", "A1"), 3: ("x2", "A1")}  # batch 2 was not held up
    with pytest.raises(CheckFailedError, match="was folded"):
        made.pipeline.run(waive="nobody can agree to that")
    made.pipeline.rebuild("landing")
    assert made.result() == {1: ("v0", "A0"), 2: ("w1", "A0"), 3: ("x2", "A0")}
    assert made.pipeline.ledger().fully_folded == frozenset()
    made.pipeline.remove_batch(1)
    made.pipeline.run()
    assert made.result() == {1: ("v0", "A0"), 3: ("x2", "A0")}


@pytest.mark.slow
def test_answers_of_a_folded_batch_that_ran_again_stay_until_they_are_resolved(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", settings=FOLDING)
    made.land(0, [(1, "a", "v0")], [("a", "A0")])
    made.land(1, [(2, "a", "w1")])
    made.pipeline.run()
    made.pipeline.compact()
    made.pipeline.run(batches="0..1", stages=["subscription_store", "responses"])
    answers = len(rows_of(made, "responses"))
    assert answers > 0
    made.pipeline.compact()  # the result was not made of them yet
    assert len(rows_of(made, "responses")) == answers
    made.pipeline.run()
    made.pipeline.compact()
    assert rows_of(made, "responses") == []
    made.pipeline.rebuild("changelog", ["resolved_join"])  # makes the answers anew
    assert made.pipeline.verify().ok
    assert made.result() == {1: ("v0", "A0"), 2: ("w1", "A0")}


@pytest.mark.slow
def test_a_folded_batch_takes_a_first_file_of_the_other_side_and_no_correction(
    rows_pipeline: Any, tmp_path: Path
) -> None:
    made = rows_pipeline("left", settings=FOLDING)
    made.land(0, [(1, "a", "v0"), "not JSON"])
    made.pipeline.run()
    made.pipeline.compact()
    exported = tmp_path / "bad.jsonl"
    assert made.pipeline.export_quarantine(exported) == 1
    exported.write_text(exported.read_text().replace("not JSON", "{}"))
    with pytest.raises(StateError, match="batch 0 was folded"):
        made.pipeline.correct(exported)
    (made.folder / "landing/right/00000000.jsonl").write_text('{"op": "u", "k": "a", "name": "A0"}\n')
    made.pipeline.run()
    assert made.result() == {1: ("v0", "A0")}
    assert made.pipeline.verify().ok
