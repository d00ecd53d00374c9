"""The ledger: what a file list means, what is due, and what a crash leaves behind. No Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fk_pipeline.contract import Source
from fk_pipeline.identity import SIDES, BatchId, LandedFile, Side
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY, Stage
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.corrections import Correction, digest_of
from fk_pipeline.store.ledger.entries import SCHEMAS

LEFT, STORE, RESPONSES = Stage.LEFT_CHANGELOG, Stage.SUBSCRIPTION_STORE, Stage.RESPONSES


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse" / "p")


def open_ledger(home: str, reader: str = "1") -> Ledger:
    return Ledger(home, FOREIGN_KEY, reader)


def land(ledger: Ledger, batch: int, digest: str = "d", side: Side = Side.LEFT, name: str = "f") -> None:
    file = LandedFile(f"{side}/{name}{batch}", side, BatchId(batch), 1, "now", digest)
    ledger.files.record([("discovered", file)])


def run(ledger: Ledger, stage: Stage, *batches: int, rows: int = 1) -> dict[int, int]:
    generations = ledger.start(stage, batches, "run", {})
    ledger.runs.succeed({b: {"rows": rows} for b in batches}, {"t": 1}, 0.1)
    return generations


def run_all(ledger: Ledger, *batches: int) -> None:
    for stage in Stage:
        run(ledger, stage, *batches)


def due(ledger: Ledger) -> dict[str, list[int]]:
    return {stage.value: list(ledger.due.of(stage)) for stage in Stage if ledger.due.of(stage)}


def test_a_new_batch_is_due_everywhere_until_every_stage_has_run(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 3)
    assert due(ledger) == {stage.value: [3] for stage in Stage}
    run_all(ledger, 3)
    assert due(ledger) == {}
    assert due(open_ledger(home)) == {}


def test_running_a_stage_again_makes_its_downstream_due_one_after_the_other(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    land(ledger, 1)
    run_all(ledger, 0, 1)
    run(ledger, LEFT, 1)
    assert due(ledger) == {"subscription_store": [1]}
    run(ledger, STORE, 1)
    assert due(ledger) == {"responses": [1]}


def test_a_stage_that_ran_before_its_upstream_is_due_after_it(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    run(ledger, RESPONSES, 0)
    assert 0 not in ledger.due.of(RESPONSES)
    run(ledger, STORE, 0)
    assert ledger.due.of(RESPONSES) == [0]


def test_an_upstream_run_that_ends_while_a_stage_runs_makes_it_due(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    run_all(ledger, 0)
    other = open_ledger(home)
    ledger.start(RESPONSES, [0], "run", {})
    run(other, STORE, 0)
    ledger.runs.succeed({}, {}, 0.1)
    assert open_ledger(home).due.of(RESPONSES) == [0]


@pytest.mark.parametrize("end", ["crash", "failure"])
def test_a_run_that_did_not_end_well_leaves_its_batches_due(home: str, end: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    run_all(ledger, 0)
    ledger.start(STORE, [0], "run", {})
    if end == "failure":
        ledger.runs.fail(0.1, "no space left")
    again = open_ledger(home)
    assert again.due.of(STORE) == [0]
    assert again.state(STORE, 0).error == ("no space left" if end == "failure" else None)
    assert not again.runs.never_did(STORE, [0], "absent"), "nobody knows what it had committed"


def test_a_run_that_began_before_something_was_undone_does_not_stand_for_it(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    run_all(ledger, 0)
    assert ledger.state(Stage.RESOLVED_JOIN, 0).stands
    ledger.start(Stage.RESOLVED_JOIN, [0], "run", {})
    ledger.runs.reopen(Stage.RESOLVED_JOIN, [0], "another run", "a commit was lost")
    ledger.runs.succeed({0: {"rows": 1}}, {"t": 1}, 0.1)
    for seen in (ledger, open_ledger(home)):
        assert due(seen) == {"resolved_join": [0]}
        assert not seen.state(Stage.RESOLVED_JOIN, 0).stands
    run(ledger, Stage.RESOLVED_JOIN, 0)
    assert due(ledger) == {}
    assert ledger.state(Stage.RESOLVED_JOIN, 0).stands


def test_only_a_batch_that_was_never_started_may_be_appended(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    assert ledger.runs.never_started(LEFT, [0])
    ledger.start(LEFT, [0], "run", {})
    assert not open_ledger(home).runs.never_started(LEFT, [0])


def test_a_changed_file_makes_its_batch_due_and_raises_the_generation(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    run_all(ledger, 0)
    assert ledger.runs.generations(LEFT) == {}
    land(ledger, 0, digest="other")
    assert ledger.files.lists[0, Side.LEFT]["version"] == 2
    assert due(ledger) == {"left_changelog": [0]}
    assert run(ledger, LEFT, 0) == {0: 1}
    land(ledger, 0, digest="d")
    assert run(ledger, LEFT, 0) == {0: 2}, "back to what it was is a rewrite too"
    assert run(ledger, LEFT, 0) == {0: 2}, "the same files again are not"
    assert open_ledger(home).runs.generations(LEFT) == {0: 2}


def test_the_generation_rises_even_if_the_rewriting_run_died(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    run(ledger, LEFT, 0)
    land(ledger, 0, digest="other")
    ledger.start(LEFT, [0], "dies after its data commit", {})
    again = open_ledger(home)
    land(again, 0, digest="d")
    assert run(again, LEFT, 0) == {0: 2}


def test_another_file_for_a_known_batch_joins_it_in_the_order_of_names(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 5, name="b")
    run_all(ledger, 5)
    land(ledger, 5, name="a")
    assert [f.path for f in ledger.files.of(5, Side.LEFT)] == ["left/a5", "left/b5"]
    assert due(ledger) == {"left_changelog": [5]}


def test_a_new_version_of_the_reader_makes_every_batch_due(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    run_all(ledger, 0)
    assert due(open_ledger(home, reader="2")) == {"left_changelog": [0]}


def test_a_side_without_files_has_nothing_to_read(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0, side=Side.RIGHT)
    run_all(ledger, 0)
    assert due(ledger) == {}
    assert ledger.files.digest(0, Side.LEFT) == ""


def test_a_reader_sees_what_another_process_wrote_after_a_refresh(home: str) -> None:
    mine, other = open_ledger(home), open_ledger(home)
    land(other, 7)
    assert mine.batches == []
    mine.refresh()
    assert mine.batches == [7]


def test_a_withdrawn_batch_is_empty_and_due_until_it_is_brought_back(home: str) -> None:
    ledger = open_ledger(home)
    for side in SIDES:
        land(ledger, 0, side=side)
        land(ledger, 1, side=side)
    run_all(ledger, 0, 1)
    ledger.files.remove(1)
    again = open_ledger(home)
    assert (again.files.removed, again.batches) == ({1}, [0, 1])
    assert due(again) == {"left_changelog": [1], "right_table": [1]}
    assert [again.files.of(1, side) for side in SIDES] == [[], []]
    run_all(again, 1)
    assert again.runs.generations(LEFT) == {1: 1}
    land(again, 1, name="late")
    assert due(again) == {}, "a file of a withdrawn batch waits with it"
    again.files.restore(1)
    assert open_ledger(home).files.removed == set()
    assert due(again) == {"left_changelog": [1], "right_table": [1]}
    assert [f.path for f in again.files.of(1, Side.LEFT)] == ["left/f1", "left/late1"]


def test_files_of_a_discovery_that_crashed_before_it_recorded_the_lists_are_found_again(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    monkeypatch.setattr(ledger.files, "_list", lambda *_: None)
    land(ledger, 0, name="second")
    land(ledger, 1)
    again = open_ledger(home)
    assert again.batches == [0]
    assert sorted(f.path for _, f in again.files.unlisted()) == ["left/f0", "left/f1", "left/second0"]
    again.files.record(again.files.unlisted())
    assert (again.batches, again.files.unlisted()) == ([0, 1], [])
    assert [f.path for f in again.files.of(0, Side.LEFT)] == ["left/f0", "left/second0"]


def test_a_run_with_another_input_that_did_not_end_is_remembered_until_a_success(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    run_all(ledger, 0)
    assert not ledger.state(LEFT, 0).uncertain
    ledger.files.remove(0)
    ledger.start(LEFT, [0], "killed", {})
    again = open_ledger(home)
    again.files.restore(0)
    again.start(LEFT, [0], "run", {})
    state = again.state(LEFT, 0)
    assert state.input == state.started_input
    assert state.uncertain, "the killed run may have emptied the partition"
    again.runs.succeed({0: {"rows": 1}}, {}, 0.1)
    assert not open_ledger(home).state(LEFT, 0).uncertain


def test_stages_are_unchanged_since_an_entry_when_all_their_runs_had_ended(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    land(ledger, 1)
    run(ledger, STORE, 0)
    run(ledger, RESPONSES, 0)
    answered = ledger.state(RESPONSES, 0).started
    assert ledger.runs.unchanged_since([STORE, Stage.RIGHT_TABLE], answered)
    run(ledger, RESPONSES, 0)
    assert ledger.runs.unchanged_since([STORE], answered), "the stage itself is not asked about"
    ledger.start(STORE, [1], "run", {})
    assert not ledger.runs.unchanged_since([STORE], ledger.state(RESPONSES, 0).started), "a run goes on"
    ledger.runs.fail(0.1, "no")
    assert not ledger.runs.unchanged_since([STORE], answered)
    run(ledger, RESPONSES, 0)
    assert ledger.runs.unchanged_since([STORE], open_ledger(home).state(RESPONSES, 0).started)


def test_a_ledger_without_the_newest_columns_is_read_and_gets_them(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    with pytest.MonkeyPatch.context() as patch:
        older = pa.schema([field for field in SCHEMAS["runs"] if field.name not in ("strategy", "reason")])
        patch.setitem(SCHEMAS, "runs", older)
        run(ledger, STORE, 0)
    ledger = open_ledger(home)
    assert ledger.state(STORE, 0).successes == 1
    ledger.start(STORE, [0], "run", {})
    ledger.runs.succeed({0: {}}, {}, 0.1, "full", "why")
    assert [row["strategy"] for row in open_ledger(home).entries.rows("runs")] == [None, None, None, "full"]


def correct(ledger: Ledger, batch: int, line: str, text: str) -> int:
    one = Correction(Side.LEFT, batch, f"left/f{batch}", 1, digest_of(line), text)
    return ledger.corrections.record([one], "replay")


def test_a_correction_is_input_of_its_batch(home: str, tmp_path: Path) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)
    land(ledger, 1)
    run_all(ledger, 0, 1)
    assert correct(ledger, 1, "bad", "good") == 1
    assert due(ledger) == {LEFT: [1]}
    assert ledger.due.why(LEFT, 1) == "lines of it were corrected"
    assert due(open_ledger(home)) == {LEFT: [1]}
    assert run(ledger, LEFT, 1) == {1: 1}, "the batch reads something else than before"
    run_all(ledger, 1)
    assert correct(ledger, 1, "bad", "good") == 0
    assert due(ledger) == {}
    copy = ledger.copy(str(tmp_path / "copy"), [LEFT], Source.LANDING)
    assert copy.corrections.texts(Side.LEFT, "left/f1") == {digest_of("bad"): "good"}
    run(copy, LEFT, 0, 1)
    ledger.adopt(copy, [LEFT], Source.LANDING)
    assert due(ledger) == {STORE: [0, 1]}
    land(ledger, 1, digest="other")
    assert ledger.due.why(LEFT, 1) == "its files changed"
    ledger.files.remove(1)
    assert ledger.due.why(LEFT, 1) == "withdrawn"


def test_a_corrected_text_may_be_corrected_again_or_otherwise(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 0)

    def read_as() -> str:
        return open_ledger(home).corrections.texts(Side.LEFT, "left/f0")[digest_of("a")]

    for line, text, expected in (
        ("a", "b", "b"), ("b", "c", "c"), ("a", "b", "c"), ("a", "d", "d"), ("d", "a", "a"), ("a", "", ""),
    ):  # fmt: skip
        correct(ledger, 0, line, text)
        assert read_as() == expected, (line, text)


def test_a_file_that_was_given_up_left_its_batch_for_good_and_the_rest_stays(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 1, name="t@", digest="t")
    land(ledger, 1, side=Side.RIGHT)
    run(ledger, Stage.RIGHT_TABLE, 1)
    lost = ledger.files.known[Side.LEFT, "left/t@1"]
    ledger.files.give_up([lost])
    for now in (ledger, open_ledger(home)):
        assert (now.files.of(1, Side.LEFT), now.files.of_side(Side.LEFT)) == ([], [])
        assert [f.path for f in now.files.given_up.values()] == ["left/t@1"]
        assert [f.path for f in now.files.of(1, Side.RIGHT)] == ["right/f1"]
        assert (now.files.removed, now.files.unlisted(), now.files.batches) == (set(), [], [1])
        assert not now.due.has(Stage.RIGHT_TABLE, 1)
        assert now.due.has(LEFT, 1)
    ledger.files.remove(1)
    ledger.files.restore(1)
    assert (ledger.files.removed, ledger.files.of(1, Side.LEFT)) == (set(), [])
    assert [f.path for f in ledger.files.of(1, Side.RIGHT)] == ["right/f1"]


def test_a_file_whose_giving_up_died_before_the_list_was_recorded_is_not_read(home: str) -> None:
    ledger = open_ledger(home)
    land(ledger, 1)
    row = {"event": "given up", "side": "left", "batch": 1, "path": "left/f1", "size": 1, "modified": "", "digest": ""}
    ledger.entries.append("files", [row])
    now = open_ledger(home)
    assert (now.files.of(1, Side.LEFT), now.files.unlisted()) == ([], [])
