"""A run that is overtaken while it sleeps, commits when it wakes, and dies: its commit is noticed, and undone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import StateError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.store import faults
from fk_pipeline.store.commit import CommitInfo
from tests.deaths import Killed, dies_at
from tests.engine.conftest import BEGUN

pytestmark = pytest.mark.spark


def command(made: Any, *args: str) -> Any:
    return CliRunner().invoke(app, [args[0], str(made.file), *args[1:]])


def overtake(made: Any, table: str, stage: Stage, meanwhile: Any) -> None:
    """A run sleeps before a commit of a table, loses its lease, and dies after the commit."""
    slept = []

    def listen(point: str) -> None:
        if point == f"before commit of {table}" and not slept:
            slept.append(point)
            (Path(made.pipeline.spec.home) / "leases" / f"{stage}.lease").unlink()
            meanwhile()
            other = threading.Thread(target=Pipeline(made.pipeline.spec, made.pipeline.session).run)
            other.start()
            other.join()
        elif point == f"after commit of {table}" and slept and threading.current_thread() is threading.main_thread():
            raise Killed

    with faults.listening(listen), pytest.raises(Killed):
        made.pipeline.run()
    assert slept


def is_right(made: Any, expected: dict[int, Any]) -> None:
    assert made.result() == expected
    report = made.pipeline.verify()
    assert (report.ok, report.due) == (True, 0)
    assert made.pipeline.behind() == []


def test_a_late_commit_makes_what_its_stage_did_since_due_again(begun: Any) -> None:
    made = begun("inner")
    made.land(1, [(1, "a", "old"), (11, "a", "old")])
    overtake(made, "left_changelog", Stage.LEFT_CHANGELOG, lambda: made.land(1, [(1, "a", "new")]))
    said = command(made, "status").stdout
    assert "of left_changelog was committed late: run " in said
    assert " of left_changelog was overtaken by another; mended by: fk-pipeline run" in said
    done = command(made, "run")
    assert done.exit_code == 0, done.stderr
    is_right(made, BEGUN | {1: ("new", "A")})


def test_a_commit_that_the_next_run_of_its_stage_found_is_not_late(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner")
    made.land(0, [(1, "a", "v")], [("a", "A")])
    for point in ("after commit of subscription_store", "after entry in runs"):  # the second run only begins
        with faults.listening(dies_at(point)), pytest.raises(Killed):
            made.pipeline.run()
    runs = made.pipeline.runner.ledger.entries.rows("runs")
    starts = [row for row in runs if (row["event"], row["stage"]) == ("started", Stage.SUBSCRIPTION_STORE)]
    assert [dict(row["versions"]) for row in starts] == [{}, {"subscription_store": 0}]
    made.pipeline.run()
    assert made.result() == {1: ("v", "A")}
    assert made.pipeline.behind() == []


@pytest.mark.slow
def test_rows_that_were_added_late_to_a_state_table_are_refused_with_the_rebuild(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner")
    made.land(0, [(1, "a", "v")], [("a", "A")])
    overtake(made, "subscription_store", Stage.SUBSCRIPTION_STORE, lambda: made.land(1, [(1, "a", "new")]))
    refused = command(made, "run").exception
    assert isinstance(refused, StateError)
    assert "of subscription_store was committed late" in refused.what
    fix = refused.fix.split(f"fk-pipeline rebuild {made.file} ")[1].split()
    done = command(made, "rebuild", *fix)
    assert done.exit_code == 0, done.stderr
    assert command(made, "run").exit_code == 0
    is_right(made, {1: ("new", "A")})


@pytest.mark.slow  # a stage that is computed again: test_faults.py
def test_a_run_in_whose_time_another_commits_is_done_again(begun: Any) -> None:
    made = begun("inner")
    table = f"{made.pipeline.spec.home}/responses"
    rows = DeltaTable(table).to_pyarrow_table()
    attempts = []

    def listen(point: str) -> None:
        if point == "before commit of responses":
            attempts.append(point)
            if len(attempts) == 1:
                whose = CommitInfo("tested", "responses", made.pipeline.runner.ledger.batches[0], "sleeper")  # type: ignore[arg-type]
                properties = CommitProperties(custom_metadata={"userMetadata": whose.as_json()})
                write_deltalake(table, rows, mode="append", commit_properties=properties)

    made.land(1, [(2, "a", "w")])
    with faults.listening(listen):
        made.pipeline.run(stages=[stage for stage in Stage if stage != Stage.RESOLVED_JOIN])
    assert len(attempts) == 2
