"""What the ledger says of folded batches, and of questions that a stage asked before it committed. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fk_pipeline.engine.folding import foldable, settled
from fk_pipeline.identity import BatchId, LandedFile, Side
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY, Stage
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.checks import AGREEMENT, LANDING
from fk_pipeline.store.ledger.corrections import Correction

LEFT, RIGHT, STORE = Stage.LEFT_CHANGELOG, Stage.RIGHT_TABLE, Stage.SUBSCRIPTION_STORE


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse" / "p")


def open_ledger(home: str, reader: str = "1", limit: float | None = 10) -> Ledger:
    return Ledger(home, FOREIGN_KEY, reader, {} if limit is None else {"asks": limit})


def land(ledger: Ledger, batch: int, digest: str = "d", side: Side = Side.LEFT) -> None:
    ledger.files.record([("discovered", LandedFile(f"{side}/{batch}", side, BatchId(batch), 1, "now", digest))])


def run(ledger: Ledger, *batches: int, stages: tuple[Stage, ...] = tuple(Stage)) -> None:
    for stage in stages:
        ledger.start(stage, batches, "run", {})
        ledger.runs.succeed({b: {} for b in batches}, {"t": 1}, 0.1)


def folded(home: str, *batches: int) -> Ledger:
    ledger = open_ledger(home)
    for batch in batches:
        land(ledger, batch)
    run(ledger, *batches)
    ledger.folds.record(batches)
    return open_ledger(home)


def refused(ledger: Ledger, stage: Stage) -> list[int | None]:
    return [one.batch for one in ledger.checks.refusing(stage, ledger.batches)]


def test_batches_are_foldable_from_the_first_on_that_are_done_and_old(home: str) -> None:
    ledger = open_ledger(home)
    for batch in (1, 2, 3, 7):
        land(ledger, batch)
    run(ledger, 1, 2, 7)
    now = datetime.now(UTC)
    assert foldable(ledger, now, 0) == [1, 2]
    assert foldable(ledger, now, 1) == []
    assert foldable(ledger, now + timedelta(hours=2), 1) == [1, 2]
    land(ledger, 1, "other")
    assert foldable(ledger, now, 0) == []


def test_a_folded_batch_is_refused_once_other_files_landed_and_others_are_not(home: str) -> None:
    ledger = folded(home, 1, 2)
    assert ledger.folds.on_all_sides == {1, 2}
    land(ledger, 2, "other")
    land(ledger, 3)
    assert [refused(ledger, stage) for stage in Stage] == [[2], [], [], [], []]
    [one] = ledger.folds.restated(LEFT)
    assert (one.remedy, str(one)) == (
        LANDING,
        "batch 2 was folded, and what landed of it is not what left_changelog read",
    )
    assert ledger.checks.not_refused(LEFT, ledger.due.of(LEFT))[0] == [3]
    land(ledger, 2)  # what was read is back
    assert refused(ledger, LEFT) == []


def test_a_first_file_of_the_other_side_is_welcome(home: str) -> None:
    ledger = folded(home, 1)
    land(ledger, 1, side=Side.RIGHT)
    assert ledger.due.of(RIGHT) == [1]
    assert refused(ledger, RIGHT) == []


def test_a_new_reader_keeps_what_is_stored_of_folded_batches(home: str) -> None:
    folded(home, 1)
    ledger = open_ledger(home, reader="2")
    assert ledger.due.of(LEFT) == [1]
    assert refused(ledger, LEFT) == []
    assert ledger.folds.keeps_stored(LEFT, 1)
    assert not ledger.folds.keeps_stored(RIGHT, 1)  # it has no files there


def test_a_rebuild_from_the_landing_files_undoes_it_for_its_stages(home: str) -> None:
    ledger = folded(home, 1)
    ledger.rebuilds.record("finished", source="changelog", stages=[stage.value for stage in Stage])
    assert ledger.folds.on_all_sides == {1}
    ledger.rebuilds.record("finished", source="landing", stages=[LEFT.value])
    assert (ledger.folds.of(LEFT), ledger.folds.of(RIGHT), ledger.folds.on_all_sides) == (frozenset(), {1}, frozenset())
    ledger.folds.record([1])
    assert open_ledger(home).folds.on_all_sides == {1}


def test_a_folded_batch_that_runs_again_is_not_settled_before_the_last_stage_ran(home: str) -> None:
    ledger = folded(home, 1, 2)
    for ran in range(len(Stage)):
        run(ledger, 2, stages=tuple(Stage)[: ran + 1])
        assert settled(ledger, ledger.folds.on_all_sides) == ([1, 2] if ran == len(Stage) - 1 else [1]), ran


def ask(ledger: Ledger, batch: int, value: float = 11.0) -> None:
    """As a stage does that does not commit."""
    ledger.start(RIGHT, [batch], "run", {})
    ledger.checks.record(
        [
            {"stage": RIGHT.value, "name": "asks", "severity": "critical", "depth": "batch", "passed": False}
            | {"first": batch, "last": batch, "batches": [batch], "value": value, "pending": 0, "cure": AGREEMENT}
        ]
    )
    ledger.runs.fail(0.1, "asks")


@pytest.fixture
def asked(home: str) -> Ledger:
    ledger = open_ledger(home)
    for batch in (1, 2):
        land(ledger, batch, side=Side.RIGHT)
    ask(ledger, 1)
    return ledger


def test_a_question_stops_the_stage_that_asked_and_those_after_it_for_its_batch(asked: Ledger) -> None:
    stopped = [Stage.RIGHT_TABLE, Stage.RESPONSES, Stage.RESOLVED_JOIN]
    assert [refused(asked, stage) for stage in Stage] == [[1] if stage in stopped else [] for stage in Stage]
    assert asked.checks.not_refused(RIGHT, asked.due.of(RIGHT))[0] == [2]


def test_somebody_agrees_with_what_has_landed_by_then(asked: Ledger) -> None:
    asked.checks.waive(asked.checks.refusing(RIGHT, [1]), "known")
    assert refused(asked, RIGHT) == []
    assert asked.checks.approved(RIGHT, "asks") == {1}
    land(asked, 1, "other", Side.RIGHT)
    assert asked.checks.approved(RIGHT, "asks") == set()


def test_other_files_corrections_or_a_higher_limit_withdraw_the_question(asked: Ledger, home: str) -> None:
    assert refused(open_ledger(home, limit=11), RIGHT) == []
    assert refused(open_ledger(home, limit=None), RIGHT) == []
    asked.corrections.record([Correction(Side.RIGHT, 1, "right/1", 1, "digest", "text")], "replay")
    assert refused(asked, RIGHT) == []
    ask(asked, 2)
    assert refused(asked, RIGHT) == [2]
    land(asked, 2, "other", Side.RIGHT)
    assert refused(asked, RIGHT) == []
