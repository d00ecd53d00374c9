"""Tables that are whole, but older or newer than the ledger says: due again, or refused with what mends them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import StateError
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.store.ledger.entries import SCHEMAS

pytestmark = pytest.mark.spark

DUE = ("left_changelog", "right_changelog", "responses", "verdicts", "resolved_join")


class World:
    """A pipeline with three batches done, and a copy of its tables from before the last one."""

    def __init__(self, made: Any, folder: Path) -> None:
        self.made, self.home, self.old, self.new = made, Path(made.pipeline.spec.home), folder / "old", folder / "new"
        made.land(0, [(1, "a", "v"), (2, "b", "v"), (3, "a", "v"), (9, None, "v")], [("a", "A"), ("b", "B")])
        made.land(1, [(2, "a", "w"), (4, "c", "w")], [("b", "B1")])
        made.pipeline.run()
        shutil.copytree(self.home, self.old)
        made.land(2, [(1, "c", "x"), (3,), (5, "z", "x"), "no row"], [("c", "C"), ("a", "A2")])
        made.pipeline.run()
        self.expected = made.result()
        assert self.expected == {1: ("x", "C"), 2: ("w", "A2"), 4: ("w", "C"), 5: ("x", None), 9: ("v", None)}
        shutil.copytree(self.home, self.new)

    def back(self, *tables: str) -> None:
        """Some tables as they were before the last batch, all others as they were after it."""
        shutil.rmtree(self.home)
        shutil.copytree(self.new, self.home)
        for name in tables:
            shutil.rmtree(self.home / name, ignore_errors=True)
            if (self.old / name).exists():
                shutil.copytree(self.old / name, self.home / name)
        self.made.pipeline = Pipeline(self.made.pipeline.spec, self.made.pipeline.session)  # it remembers versions

    def command(self, *args: Any) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, [args[0], str(self.made.file), *map(str, args[1:])])
        error = done.exception
        if isinstance(error, StateError):
            return error.exit_code, done.stdout, str(error)
        assert error is None or isinstance(error, SystemExit), (error, done.stderr)
        return done.exit_code, done.stdout, done.stderr

    def is_right(self) -> None:
        assert self.made.result() == self.expected
        report = self.made.pipeline.verify()
        assert (report.ok, report.due, report.pending) == (True, 0, 0)
        assert self.made.pipeline.behind() == []


@pytest.fixture(scope="module")
def world(rows_pipeline: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(rows_pipeline("left"), tmp_path_factory.mktemp("copies"))


def mended_by_a_run(world: World, *wrong: str) -> None:
    """What is wrong is told by `status`, `plan` and `doctor`, and the next run mends it."""
    said = world.command("status")[1]
    found = json.loads(world.command("plan", "--format", "json")[1])
    reasons = " ".join(why for stage in found["stages"] for why in stage["why"].values())
    checked = json.loads(world.command("doctor", "--format", "json")[1])
    [tables] = [check for check in checked if check["name"] == "Tables"]
    assert tables["ok"], tables
    assert tables["fix"] == f"fk-pipeline run {world.made.file}"
    assert "behind the ledger: " in said
    for what in wrong:
        assert what in said
        assert what in reasons
        assert what in tables["found"]
    code, out, err = world.command("run")
    assert code == 0, (out, err)
    world.is_right()


def where(world: World, table: str) -> str:
    versions = [int(file.stem) for file in (world.home / table / "_delta_log").glob("*.json")]
    return f"is at version {max(versions)}" if versions else "is not there"


@pytest.mark.slow
def test_logs_and_the_result_that_are_older_than_the_ledger_are_due_again(world: World) -> None:
    wrong = ("left_changelog", "resolved_join")
    world.back(*wrong)
    mended_by_a_run(world, *(f"{table} {where(world, table)}, and a run wrote version" for table in wrong))


@pytest.mark.slow
@pytest.mark.parametrize("table", DUE)
def test_each_of_them_alone(world: World, table: str) -> None:
    world.back(table)
    mended_by_a_run(world, f"{table} {where(world, table)}, and a run wrote version")


@pytest.mark.slow
@pytest.mark.parametrize("table", DUE)
def test_one_that_is_gone_is_due_for_all_batches(world: World, table: str) -> None:
    world.back()
    shutil.rmtree(world.home / table)
    mended_by_a_run(world, f"{table} is not there, and a run wrote version")


@pytest.mark.slow
def test_a_last_commit_that_is_gone_is_due_again(world: World) -> None:
    for table in ("resolved_join", "responses"):
        world.back()
        log = world.home / table / "_delta_log"
        last = max(log.glob("*.json")).stem
        for file in [file for file in log.iterdir() if last in file.name]:  # a checksum that stays is damage
            file.unlink()
        mended_by_a_run(world, f"{table} is at version")


@pytest.mark.slow
def test_a_version_that_was_restored_is_due_again(world: World) -> None:
    world.back()
    world.made.pipeline.session.sql(f"RESTORE TABLE delta.`{world.home}/resolved_join` TO VERSION AS OF 0")
    mended_by_a_run(world, "of resolved_join brought version 0 back")


@pytest.mark.slow
@pytest.mark.parametrize("table", ["subscription_store", "right_table"])
def test_a_state_table_that_is_older_is_refused_with_the_rebuild_that_mends_it(world: World, table: str) -> None:
    world.back(table)
    before = sorted(world.home.rglob("*.json"))
    for name in ("run", "plan"):
        code, out, err = world.command(name)
        assert (code, out) == (1, "")
        assert f"{table} is at version" in err
        assert "running the batches again would not bring back all that was done to it since" in err
    assert sorted(world.home.rglob("*.json")) == before
    assert "mended by: fk-pipeline rebuild" in world.command("status")[1]
    doctor = world.command("doctor")[1]
    assert f"{table} is at version" in doctor
    smaller = world.command("rebuild", "--stages", "resolved_join")
    assert smaller[0] == 1
    assert f"{table} is at version" in smaller[2]
    options = err.split(f"fk-pipeline rebuild {world.made.file}")[1].split()
    code, out, err = world.command("rebuild", *options)
    assert code == 0, err
    world.is_right()


@pytest.mark.slow
def test_a_changelog_whose_landing_files_are_gone_is_refused(world: World, tmp_path: Path) -> None:
    world.back("left_changelog")
    file = world.made.folder / "landing" / "left" / "00000002.jsonl"
    shutil.move(file, tmp_path / file.name)
    code, out, err = world.command("run")
    assert (code, out) == (1, "")
    assert "rebuild" in err
    assert "--from landing" in err
    code, _, err = world.command("rebuild", "--from", "changelog", "--stages", "left_changelog,right_table")
    assert code == 0, err  # what there is is taken, and is consistent
    assert world.made.pipeline.behind() == []
    assert world.made.pipeline.verify().ok
    shutil.move(tmp_path / file.name, file)
    assert world.command("rebuild", "--from", "landing")[0] == 0
    world.is_right()


def test_a_ledger_that_is_older_than_the_tables_makes_their_runs_due(world: World) -> None:
    world.back(*SCHEMAS)
    code, _, err = world.command("run")
    assert code == 0, err
    world.is_right()
    rows = world.made.pipeline.ledger().entries.rows("runs")
    assert any("of which the ledger knows nothing" in (row["reason"] or "") for row in rows)


@pytest.mark.slow
def test_all_tables_from_a_backup_that_was_copied_while_a_run_went_on(world: World) -> None:
    """The ledger was copied last: it knows of everything, and of the tables some are as they were."""
    world.back("left_changelog", "responses", "resolved_join", "quarantine", "verdicts")
    code, _, err = world.command("run")
    assert code == 0, err
    world.is_right()
