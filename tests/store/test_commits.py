"""What the ledger knows of commits: which of them the next run of a stage found when it began. No Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY
from fk_pipeline.store.ledger.commits import READ, Commit, CommitLog, row_metadata

STAGE, TABLE = "responses", "responses"


def row(entry: int, event: str, run_id: str, **versions: int) -> dict[str, Any]:
    return {"entry": entry, "event": event, "run_id": run_id, "stage": STAGE, "versions": [*versions.items()]}


def log(*rows: dict[str, Any]) -> CommitLog:
    found = CommitLog(FOREIGN_KEY)
    for one in rows:
        found.fold(one)
    return found


def found_at(of: CommitLog, version: int) -> int | None:
    return of.found_at(Commit(version, STAGE, "0", "a", None, appends=True, at=None), TABLE)


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


FACTS = {"versions": {"orders": ["id", 3]}, READ: 4}


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ({4: "WRITE", 5: FACTS}, True),
        ({5: FACTS}, True),  # the log has lost the entries before
        ({5: FACTS, 6: "OPTIMIZE", 7: "VACUUM START", 8: "VACUUM END", 9: "SET TBLPROPERTIES"}, True),
        ({5: FACTS, 6: "CHANGE COLUMNS"}, True),
        ({3: "WRITE", 4: "OPTIMIZE", 6: FACTS | {READ: 3}}, False),  # the entry between is lost
        ({3: "WRITE", 4: "OPTIMIZE", 5: FACTS | {READ: 3}}, True),
        ({3: "WRITE", 4: "WRITE", 5: FACTS | {READ: 3}}, False),  # somebody wrote what the run had not read
        ({4: "WRITE", 5: FACTS, 6: "WRITE"}, False),
        ({6: "OPTIMIZE"}, False),  # the entry with the facts is lost
        ({0: FACTS | {READ: -1}}, True),
    ],
)
def test_facts_are_found_behind_upkeep_and_nothing_else(
    log: dict[int, str | dict[str, Any]], told: bool, tmp_path: Path
) -> None:
    (tmp_path / "_delta_log").mkdir()
    for version, entry in log.items():
        info: dict[str, Any] = {"operation": entry}
        if not isinstance(entry, str):
            info = {"operation": "MERGE", "userMetadata": json.dumps({"stage": STAGE, "rows": entry})}
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
    facts = row_metadata(str(tmp_path), max(log))
    assert facts == (next(one for one in log.values() if not isinstance(one, str)) if told else {})
