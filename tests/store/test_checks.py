"""How long a failed check counts, and what it stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.cdc.landing import READER_VERSION
from fk_pipeline.identity import BatchId, LandedFile, Side
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY, Stage
from fk_pipeline.store.ledger import Ledger

STORE, LOG = Stage.SUBSCRIPTION_STORE, Stage.LEFT_CHANGELOG


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger of batches 1 to 3, nothing of them run."""
    made = Ledger(str(tmp_path), FOREIGN_KEY, READER_VERSION)
    files = [LandedFile(f"{n}.jsonl", Side.LEFT, BatchId(n), 1, "then", str(n)) for n in (1, 2, 3)]
    made.files.record([("discovered", file) for file in files])
    return made


def say(ledger: Ledger, stage: Stage = STORE, name: str = "a_rule", **what: Any) -> None:
    row = {"stage": stage.value, "name": name, "severity": "critical", "depth": "full", "first": None, "last": None}
    ledger.checks.record([row | {"passed": False, "value": 1.0, "pending": 0, "batches": [2], "cure": "run"} | what])


def failed(ledger: Ledger) -> list[tuple[str, int | None]]:
    ledger.entries.forget()
    ledger.refresh()
    return [(one.name, one.batch) for one in ledger.checks.failed()]


def run(ledger: Ledger, stage: Stage, batch: int) -> None:
    ledger.start(stage, [BatchId(batch)], "r", {})
    ledger.runs.succeed({batch: {}}, {}, 0.0)


def test_a_failed_check_stops_every_stage_downstream_for_its_batch_and_nothing_else(ledger: Ledger) -> None:
    say(ledger)
    for stage in Stage:
        found = [(str(one)) for one in ledger.checks.refusing(stage, [1, 2, 3])]
        stopped = stage in (Stage.RESPONSES, Stage.RESOLVED_JOIN)
        assert found == (["batch 2 failed check a_rule of subscription_store"] if stopped else [])
    assert ledger.checks.refusing(Stage.RESPONSES, [1, 3]) == []


def test_one_that_lies_at_no_batch_stops_all_of_them(ledger: Ledger) -> None:
    say(ledger, batches=[])
    assert failed(ledger) == [("a_rule", None)]
    assert [str(one) for one in ledger.checks.refusing(Stage.RESPONSES, [3])] == [
        "the table failed check a_rule of subscription_store"
    ]
    assert ledger.checks.refusing(Stage.RESPONSES, []) == []


def test_a_batch_check_without_a_batch_of_its_own_is_laid_at_those_it_looked_at(ledger: Ledger) -> None:
    say(ledger, depth="batch", first=2, last=9, batches=[])
    assert failed(ledger) == [("a_rule", 2), ("a_rule", 3)]


def test_a_check_of_a_pass_with_gaps_says_nothing_of_batches_in_them(ledger: Ledger) -> None:
    say(ledger, depth="batch", first=2, last=2)
    say(ledger, depth="batch", first=1, last=3, looked_at=[1, 3], passed=True, batches=[])
    assert failed(ledger) == [("a_rule", 2)]
    say(ledger, name="another", depth="batch", first=1, last=3, looked_at=[1, 3], batches=[])
    assert failed(ledger) == [("another", 1), ("a_rule", 2), ("another", 3)]
    say(ledger, depth="batch", first=1, last=3, passed=True, batches=[])
    assert failed(ledger) == [("another", 1), ("another", 3)]


def test_warnings_stop_nothing(ledger: Ledger) -> None:
    say(ledger, severity="warning")
    assert failed(ledger) == []


def test_it_counts_until_a_check_that_looks_as_far_passes(ledger: Ledger) -> None:
    say(ledger)
    say(ledger, name="another", passed=True, batches=[])
    say(ledger, stage=LOG, passed=True, batches=[])
    say(ledger, depth="batch", first=2, last=2, passed=True, batches=[])
    assert failed(ledger) == [("a_rule", 2)]
    say(ledger, passed=True, batches=[])
    assert failed(ledger) == []
    say(ledger, depth="batch", first=1, last=2)
    say(ledger, depth="batch", first=3, last=3, passed=True, batches=[])
    assert failed(ledger) == [("a_rule", 2)]
    say(ledger, depth="batch", first=2, last=3, passed=True, batches=[])
    assert failed(ledger) == []


@pytest.mark.parametrize(("cure", "after_a_run"), [("run", []), ("source", []), ("rebuild", [("a_rule", 2)])])
def test_it_counts_until_what_mends_it_was_done(ledger: Ledger, cure: str, after_a_run: list[tuple[str, int]]) -> None:
    say(ledger, cure=cure)
    run(ledger, STORE, 1)
    run(ledger, LOG, 2)
    assert failed(ledger) == [("a_rule", 2)]
    run(ledger, STORE, 2)
    assert failed(ledger) == after_a_run
    say(ledger, cure=cure)
    rebuilt = {"rebuild_id": "x", "source": "changelog", "rows": {}, "seconds": {}, "fingerprints": {}}
    ledger.rebuilds.record("finished", **(rebuilt | {"stages": ["responses"]}))
    assert failed(ledger) == [("a_rule", 2)]
    ledger.rebuilds.record("finished", **(rebuilt | {"stages": ["subscription_store"]}))
    assert failed(ledger) == []


def test_it_counts_until_somebody_waives_it_and_again_when_it_fails_again(ledger: Ledger) -> None:
    say(ledger, batches=[1, 2])
    say(ledger, name="another", batches=[])
    ledger.checks.waive(ledger.checks.refusing(Stage.RESPONSES, [2]), "the source is wrong, and knows")
    assert failed(ledger) == [("a_rule", 1)]
    reasons = {row["reason"] for row in ledger.entries.rows("checks") if row["event"] == "waived"}
    assert reasons == {"the source is wrong, and knows"}
    say(ledger, batches=[2])
    assert failed(ledger) == [("a_rule", 2)]


def test_what_was_found_with_something_upstream_goes_with_it(ledger: Ledger) -> None:
    say(ledger, stage=Stage.RESPONSES, name="downstream", cure="rebuild", check_id="x", batches=[1, 2])
    say(ledger, stage=STORE, check_id="x")
    say(ledger, stage=Stage.RESPONSES, name="another day", cure="rebuild", check_id="y")
    assert failed(ledger) == [("downstream", 1), ("another day", 2), ("downstream", 2), ("a_rule", 2)]
    run(ledger, STORE, 2)
    assert failed(ledger) == [("downstream", 1), ("another day", 2)]


def test_a_check_with_rows_that_wait_lifts_nothing(ledger: Ledger) -> None:
    say(ledger)
    say(ledger, passed=True, pending=1, batches=[])
    assert failed(ledger) == [("a_rule", 2)]


def test_what_is_about_the_source_and_at_no_batch_stops_nothing(ledger: Ledger) -> None:
    say(ledger, cure="source", batches=[])
    assert failed(ledger) == [("a_rule", None)]
    assert ledger.checks.refusing(Stage.RESPONSES, [1, 2, 3]) == []


def test_a_changelog_is_mended_by_its_landing_files_only(ledger: Ledger) -> None:
    say(ledger, stage=LOG)
    run(ledger, LOG, 2)  # adopted from a rebuild: it wrote no table
    rebuilt = {"rebuild_id": "x", "rows": {}, "seconds": {}, "fingerprints": {}, "stages": ["left_changelog"]}
    ledger.rebuilds.record("finished", source="changelog", **rebuilt)
    assert failed(ledger) == [("a_rule", 2)]
    ledger.start(LOG, [BatchId(2)], "r", {})
    ledger.runs.succeed({2: {}}, {"left_changelog written": 4}, 0.0)
    assert failed(ledger) == []
    say(ledger, stage=LOG)
    ledger.rebuilds.record("finished", source="landing", **rebuilt)
    assert failed(ledger) == []


def test_a_waived_check_does_not_lift_what_was_found_with_it(ledger: Ledger) -> None:
    say(ledger, stage=STORE, check_id="x")
    say(ledger, stage=Stage.RESPONSES, name="downstream", cure="rebuild", check_id="x")
    ledger.checks.waive(ledger.checks.refusing(Stage.RESPONSES, [2]), "known")
    assert failed(ledger) == [("downstream", 2)]


def test_a_stage_runs_for_the_batches_that_are_not_refused(ledger: Ledger) -> None:
    say(ledger)
    allowed, refusing = ledger.checks.not_refused(Stage.RESPONSES, ledger.batches)
    assert (allowed, [one.batch for one in refusing]) == ([1, 3], [2])
    say(ledger, batches=[])
    assert ledger.checks.not_refused(Stage.RESPONSES, ledger.batches)[0] == []
