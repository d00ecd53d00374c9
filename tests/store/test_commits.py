"""What the ledger knows of commits: which of them the next run of a stage found when it began. No Spark."""

from __future__ import annotations

from typing import Any

import pytest

from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY
from fk_pipeline.store.ledger.commits import Commit, CommitLog

STAGE, TABLE = "responses", "responses"


def row(entry: int, event: str, run_id: str, **versions: int) -> dict[str, Any]:
    return {"entry": entry, "event": event, "run_id": run_id, "stage": STAGE, "versions": [*versions.items()]}


def log(*rows: dict[str, Any]) -> CommitLog:
    found = CommitLog(FOREIGN_KEY)
    for one in rows:
        found.fold(one)
    return found


def found_at(of: CommitLog, version: int) -> int | None:
    return of.found_at(Commit(version, STAGE, "0", "a", None, appends=True), TABLE)


BEGUN = [row(1, "started", "a"), row(2, "started", "b", responses=7), row(2, "started", "b", responses=7)]


def test_the_next_run_found_what_was_there_when_it_began() -> None:
    of = log(*BEGUN, row(3, "started", "c", responses=9))
    assert {version: found_at(of, version) for version in (6, 7, 8, 9)} == {6: 2, 7: 2, 8: None, 9: None}
    assert found_at(log(BEGUN[0]), 0) is None, "no other run has begun"


def test_versions_of_a_table_that_became_older_count_for_nothing() -> None:
    assert found_at(log(*BEGUN, row(3, "reopened", "c", responses=3)), 5) is None
    assert found_at(log(*BEGUN, row(3, "reopened", "c")), 5) == 2, "no table is behind"


@pytest.mark.parametrize(("stages", "found"), [([STAGE], None), (["right_table"], 2)])
def test_a_rebuild_numbers_its_tables_anew(stages: list[str], found: int | None) -> None:
    of = log(*BEGUN)
    of.fold_rebuild({"event": "finished", "entry": 3, "stages": stages, "versions": []})
    assert found_at(of, 5) == found
