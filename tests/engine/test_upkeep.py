"""Upkeep: fewer files, the same rows, and everything goes on as before."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import CheckFailedError, StateError
from fk_pipeline.expectations.violations import violations
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.store.warehouse import Warehouse

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_small_files_are_packed_and_old_ones_removed(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", settings="{retention_hours: 0}")
    for batch in range(4):
        made.land(batch, [(batch, "ab"[batch % 2], f"v{batch}"), (100, "a", f"v{batch}")], [("a", f"A{batch}")])
        made.pipeline.run()
    runner = made.pipeline.runner
    tables = [table for table in runner.layout.tables if runner.warehouse.version(table.name) is not None]
    before = {table.name: sorted(map(str, runner.warehouse.read(table).collect())) for table in tables}
    told: list[str] = []
    done = {one.table: one for one in made.pipeline.compact(told.append)}
    assert {table.name for table in tables} <= set(done)
    assert {"runs", "files", "batches"} <= set(done)
    assert [name for name in told if name in done] == list(done)
    for name in ("left_changelog", "responses", "runs"):
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


@pytest.mark.slow
def test_the_log_of_the_ledger_does_not_grow_for_ever_and_others_go_on(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", settings="{retention_hours: 0}")
    made.land(0, [(1, "a", "v")], [("a", "A")])
    made.pipeline.run()
    other, log = (
        Pipeline(made.pipeline.spec, made.pipeline.session),
        Path(made.pipeline.spec.home, "runs", "_delta_log"),
    )
    known = other.ledger().runs.stages.keys()
    entries = len(list(log.glob("*.json")))
    made.pipeline.compact()
    assert len(list(log.glob("0*.json"))) <= 2 < entries
    made.land(1, [(2, "a", "w")])
    made.pipeline.run()
    assert other.ledger().runs.stages.keys() > known, "a process that had read the older log has the new entries"
    made.land(2, [(3, "a", "x")])
    other.run()
    assert made.pipeline.verify().ok
    assert {*made.result()} == {1, 2, 3}


def rows_of(made: Any, name: str) -> list[Any]:
    return made.pipeline.table(name).collect()


def versions(made: Any, name: str, key: str, batch: str = "_fk_batch") -> dict[Any, list[int]]:
    """Per key the batches of its rows in a changelog, or the owner of its row in a state table."""
    found: dict[Any, list[int]] = {}
    for row in sorted(rows_of(made, name), key=lambda row: row[batch]):
        found.setdefault(row[key], []).append(row[batch])
    return found


@pytest.mark.slow
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
    assert sorted(ledger.folds.on_all_sides) == [0, 1, 2]

    made.pipeline.run()  # what was not folded goes on
    made.land(4, [(3, "a", "late, but by arrival it is the last")])
    made.pipeline.run()
    assert made.pipeline.verify().ok
    assert made.result()[2] == ("w3", None)
    made.pipeline.remove_batch(3)
    made.pipeline.run()
    assert made.result()[2] == ("w0", "A1")  # it falls back to what folding kept
    no_check_is_red(made)


FORGETTING = "{fold_after_hours: 0, retention_hours: 0, tombstone_retention: 0}"


def forgetful(rows_pipeline: Any) -> Any:
    """Rows have an order of their own, in `note`."""
    order = "  sequence_by: CAST(note AS INT)\n"
    return rows_pipeline("left", settings=FORGETTING, left_extra=order, right_extra=order)


def left(at: int, key: int, *row: str) -> str:
    fk, v = row or (None, None)
    return json.dumps({"op": "u" if row else "d", "id": key, "fk": fk, "v": v, "note": str(at)})


def right(at: int, key: str, name: str | None) -> str:
    return json.dumps({"op": "d" if name is None else "u", "k": key, "name": name, "note": str(at)})


def no_check_is_red(made: Any) -> None:
    for stage in Stage:
        red = {name for name, found in violations(made.pipeline, stage).findings.items() if found.value}
        assert red <= {"late_share_is_low"}, (stage, red)


@pytest.mark.slow
def test_deleted_keys_are_forgotten_when_nothing_else_is_known_of_them(
    rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = forgetful(rows_pipeline)
    made.land(0, [left(0, key, "ab"[key % 2], f"v{key}") for key in range(4)], [right(0, "a", "A"), right(0, "b", "B")])
    made.land(1, [left(5, 0), left(5, 1)], [right(5, "b", None)])
    made.pipeline.run()
    made.land(2, [left(3, 1, "a", "late: it was deleted since")])  # of a batch that is not folded: its delete decides
    made.pipeline.run(stages=["left_changelog", "right_table"])
    assert made.pipeline.ledger().due.of(Stage.SUBSCRIPTION_STORE) == [2]
    made.pipeline.compact()  # what was read is not applied yet: no left key is forgotten, the right one is
    assert set(versions(made, "subscription_store", "_fk_pk_id", "_fk_owner")) == {0, 1, 2, 3}
    assert set(versions(made, "right_table", "k", "_fk_owner")) == set(versions(made, "right_changelog", "k")) == {"a"}
    made.pipeline.run()

    class Died(BaseException):
        pass

    remove = Warehouse.remove

    def die_at_the_store(self: Warehouse, rows: Any, table: Any, info: Any) -> None:
        if table.name == "subscription_store":
            raise Died
        remove(self, rows, table, info)

    with monkeypatch.context() as patch:
        patch.setattr(Warehouse, "remove", die_at_the_store)
        with pytest.raises(Died):
            made.pipeline.compact()
    no_check_is_red(made)
    made.pipeline.compact()
    for key, name in (("id", "left_changelog"), ("_fk_pk_id", "subscription_store")):
        assert 0 not in versions(made, name, key, "_fk_batch" if key == "id" else "_fk_owner")
    expected = {2: ("v2", "A"), 3: ("v3", None)}
    assert made.result() == expected
    no_check_is_red(made)

    made.pipeline.run(batches="0..2")  # a backfill of what was folded brings no row back
    assert made.result() == expected
    assert made.pipeline.verify().ok
    made.land(3, [left(9, 0, "b", "new")], [right(9, "b", "B again")])
    made.pipeline.run()
    assert made.result() == expected | {0: ("new", "B again"), 3: ("v3", "B again")}
    made.land(4, [left(4, 1, "a", "older than the delete, which is forgotten")])
    made.pipeline.compact()
    made.pipeline.run()
    assert made.result()[1] == ("older than the delete, which is forgotten", "A")  # the price, as documented
    assert made.pipeline.verify().ok
    no_check_is_red(made)


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
    assert made.pipeline.ledger().folds.on_all_sides == frozenset()
    made.pipeline.remove_batch(1)
    made.pipeline.run()
    assert made.result() == {1: ("v0", "A0"), 3: ("x2", "A0")}


@pytest.mark.slow
def test_a_batch_that_has_landed_anew_is_not_folded_before_it_is_read(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", settings=FOLDING)
    made.land(0, [(1, "a", "v0")], [("a", "A0")])
    made.land(1, [(1, "a", "v1")], [("a", "A1")])
    made.pipeline.run()
    made.land(1, [(2, "a", "w1")])
    made.pipeline.compact()
    assert made.pipeline.ledger().folds.on_all_sides == {0}
    made.pipeline.run()
    assert made.result() == {1: ("v0", "A0"), 2: ("w1", "A0")}


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


@pytest.mark.slow
def test_the_command_says_what_was_freed_what_will_be_when_and_why_a_table_grew(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", settings="{retention_hours: 48}")
    for batch in range(2):
        made.land(batch, [(1, "a", f"v{batch}")], [("a", f"A{batch}")])
        made.pipeline.run()
    said = CliRunner().invoke(app, ["compact", str(made.file)])
    assert said.exit_code == 0, said.exception
    text = said.stdout
    assert re.search(r"^Freed: [\d,]+ bytes\.$", text, re.MULTILINE)
    told = r"^([\d,]+) bytes more are of older versions, .* for 48 hours \(settings.retention_hours\): "
    later = re.search(told, text, re.MULTILINE)
    assert later is not None
    assert int(later[1].replace(",", "")) > 1000
    when = datetime.now(UTC) + timedelta(hours=48)
    assert f"'fk-pipeline compact {made.file}' frees the last of them from {when:%Y-%m-%d}" in text
    assert re.search(r"^Larger on disk than before: .*left_changelog.*\. Packing writes new files", text, re.MULTILINE)
    made.file.write_text(made.file.read_text().replace("retention_hours: 48", "retention_hours: 0"))
    again = CliRunner().invoke(app, ["compact", str(made.file), "--format", "json"])
    assert again.exit_code == 0, again.exception
    tables = json.loads(again.stdout)
    assert sum(one["freed"] for one in tables) > 1000
    assert {one["freed_later"] for one in tables} == {0}
    assert all(datetime.fromisoformat(one["freed_from"]) < datetime.now(UTC) for one in tables)
