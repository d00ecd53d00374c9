"""What an error says will help is done as it is written, and then the command that failed goes on."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from pyspark.sql import SparkSession

import fk_pipeline
from fk_pipeline.cli.main import app
from fk_pipeline.engine.fingerprints import shadow_home
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store import faults, lease
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.store.rows_in_process import InProcessTable, RowRequest
from fk_pipeline.store.sizes import MEASURED
from tests.deaths import Killed, dies_at
from tests.fixes import Met, follow
from tests.upgrades import upgrade

TEXT = """\
name: counted
kind: aggregate
input: {path: landing, format: rows, schema: "id INT, k STRING, v INT", key: id}
group_by: [k]
aggregates: ["count(*) AS n", "sum(v) AS total"]
"""


def write(folder: Path, text: str = TEXT) -> Path:
    file = folder / "p.yaml"
    file.write_text(text)
    return file


def land(folder: Path, batch: int, *rows: dict[str, Any]) -> None:
    (folder / "landing").mkdir(parents=True, exist_ok=True)
    (folder / "landing" / f"{batch}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of a pipeline that has done two batches."""
    folder = tmp_path_factory.mktemp("done")
    land(folder, 1, {"id": 1, "k": "a", "v": 1}, {"id": 2, "k": "b", "v": 2})
    land(folder, 2, {"id": 3, "k": "a", "v": 4})
    Pipeline(load_spec(write(folder)), spark).run()
    return folder


@pytest.fixture
def folder(done: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(done, tmp_path / "copy")


PAIRS = """\
name: pairs
kind: window
join: left
within: {before: 2 milliseconds, after: 2 milliseconds}
grace: 1 milliseconds
retention: 20 milliseconds
left: {path: left, format: rows, schema: "u STRING, at BIGINT", contents: events, on: u, time: at}
right: {path: right, format: rows, schema: "u STRING, at BIGINT", contents: events, on: u, time: at}
select: [left.u AS u, left.at AS l, right.at AS r]
settings: {fold_after_hours: 0, retention_hours: 0}
"""


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of a pipeline whose states have forgotten events that its result is made of."""
    folder = tmp_path_factory.mktemp("forgotten")
    for side in ("left", "right"):
        (folder / side).mkdir()
        for batch, at in enumerate((10, 60)):
            (folder / side / f"{batch}.jsonl").write_text(json.dumps({"u": "x", "at": at}) + "\n")
    pipeline = Pipeline(load_spec(write(folder, PAIRS)), spark)
    pipeline.run()
    pipeline.compact()
    assert pipeline.table("left_changelog").count() == 1
    return folder


def pairs_of(folder: Path) -> list[tuple[Any, ...]]:
    rows = Pipeline(load_spec(folder / "p.yaml")).table("resolved_join").select("u", "l", "r").collect()
    return sorted(tuple(row) for row in rows)


def nothing_was_run(folder: Path) -> list[Any]:
    shutil.rmtree(folder / "warehouse")
    return ["verify", folder / "p.yaml", "--no-checks"]


def landing_moved(folder: Path) -> list[Any]:
    (folder / "landing").rename(folder / "moved")
    land(folder, 3, {"id": 4, "k": "a", "v": 8})
    (folder / "landing" / "3.jsonl").rename(folder / "moved" / "3.jsonl")
    return ["run", write(folder, TEXT.replace("path: landing", "path: moved"))]


def withdrawn_already(folder: Path) -> list[Any]:
    Pipeline(load_spec(folder / "p.yaml")).remove_batch(2)
    return ["remove-batch", folder / "p.yaml", 2]


def aggregates_edited(folder: Path) -> list[Any]:
    return ["run", write(folder, TEXT.replace("sum(v) AS total", "max(v) AS most"))]


def key_edited(folder: Path) -> list[Any]:
    return ["run", write(folder, TEXT.replace("key: id", "key: [id, k]"))]


def rebuild_too_small(folder: Path) -> list[Any]:
    return ["rebuild", key_edited(folder)[1]]


def column_added(folder: Path) -> list[Any]:
    return ["verify", write(folder, TEXT.replace("v INT", "v INT, note STRING")), "--no-checks"]


def table_removed(folder: Path) -> list[Any]:
    shutil.rmtree(folder / "warehouse" / "counted" / "table")
    return ["run", folder / "p.yaml"]


def log_damaged(folder: Path) -> list[Any]:
    """The files of a table are empty."""
    for file in (folder / "warehouse" / "counted" / "changelog").rglob("*.parquet"):
        file.write_bytes(b"")
    return ["verify", folder / "p.yaml", "--no-checks"]


def ledger_damaged(folder: Path) -> list[Any]:
    for file in (folder / "warehouse" / "counted" / "runs").glob("*.parquet"):
        file.write_bytes(b"PAR1")
    return ["plan", folder / "p.yaml"]


def file_gone(folder: Path) -> list[Any]:
    (folder / "landing" / "1.jsonl").unlink()
    return ["rebuild", folder / "p.yaml", "--from", "landing"]


def killed_in_a_swap(folder: Path) -> list[Any]:
    pipeline = Pipeline(load_spec(folder / "p.yaml"))
    with faults.listening(dies_at("after entry in rebuilds")), pytest.raises(Killed):
        pipeline.rebuild()
    return ["verify", folder / "p.yaml", "--no-checks"]


def of_two_steps(folder: Path) -> list[Any]:
    """Corrected lines are read again, and the batches are named as well."""
    (folder / "landing" / "3.jsonl").write_text('{"id": 7, "k": "a", "v": "seven"}\n')
    pipeline = Pipeline(load_spec(folder / "p.yaml"))
    pipeline.run()
    assert pipeline.export_quarantine(folder / "bad.jsonl") == 1
    (folder / "bad.jsonl").write_text((folder / "bad.jsonl").read_text().replace("seven", "7"))
    return ["quarantine", folder / "p.yaml", "--replay", folder / "bad.jsonl", "--batch", 3]


def killed_in_a_swap_that_cannot_be_finished(folder: Path) -> list[Any]:
    args = killed_in_a_swap(folder)
    shutil.rmtree(shadow_home(load_spec(folder / "p.yaml")))
    return args


def killed_in_a_swap_from_landing(folder: Path) -> list[Any]:
    pipeline = Pipeline(load_spec(folder / "p.yaml"))
    with faults.listening(dies_at("after entry in rebuilds")), pytest.raises(Killed):
        pipeline.rebuild("landing")
    write(folder, TEXT.replace("sum(v) AS total", "max(v) AS most"))
    return ["rebuild", folder / "p.yaml"]


def reads_what_is_damaged(folder: Path) -> list[Any]:
    """A pipeline that reads the result of the one of the folder, whose log is damaged."""
    for file in (folder / "warehouse" / "counted" / "aggregated" / "_delta_log").glob("*.json"):
        file.write_text("no json")
    (folder / "next").mkdir()
    reads = re.sub("input: .*", "input: {pipeline: ../p.yaml}", TEXT)
    return ["plan", write(folder / "next", reads.replace("counted", "next").replace("sum(v)", "sum(n)"))]


def folded(folder: Path) -> Path:
    file = write(folder, TEXT + "settings: {fold_after_hours: 0}\n")
    Pipeline(load_spec(file)).compact()
    return file


def withdrawn_when_folded(folder: Path) -> list[Any]:
    return ["remove-batch", folded(folder), 2]


def landed_anew_when_folded(folder: Path) -> list[Any]:
    file = folded(folder)
    land(folder, 1, {"id": 1, "k": "a", "v": 100}, {"id": 2, "k": "b", "v": 2})
    return ["run", file]


SITUATIONS: dict[str, tuple[Callable[[Path], list[Any]], list[str]]] = {
    "nothing was ever run": (nothing_was_run, ["run"]),
    "a batch is withdrawn already": (withdrawn_already, ["run --batches 2"]),
    "a column was added": (column_added, ["run"]),
}
"""Per situation: what makes it and returns the command that fails, and the commands that are followed."""

LONGER: dict[str, tuple[Callable[[Path], list[Any]], list[str]]] = {
    "the landing folder moved": (landing_moved, ["run --adopt"]),  # beside engine/test_moved.py
    "a rebuild died in its swap": (killed_in_a_swap, ["run"]),
    "a rebuild died in its swap, and its tables are gone": (
        killed_in_a_swap_that_cannot_be_finished,
        ["rebuild --from changelog"],
    ),
    "a rebuild from the landing files died in its swap": (killed_in_a_swap_from_landing, ["rebuild --from landing"]),
    "the result of another pipeline is damaged": (
        reads_what_is_damaged,
        ["rebuild --from changelog --stages aggregated"],
    ),
    "a folded batch is withdrawn": (withdrawn_when_folded, ["rebuild --from landing"]),
    "a folded batch has landed anew": (landed_anew_when_folded, ["rebuild --from landing"]),
    "the aggregates were edited": (aggregates_edited, ["rebuild --from changelog"]),
    "a table was removed": (table_removed, ["rebuild --from changelog"]),
    "the key was edited": (key_edited, ["rebuild --from landing"]),
    "a rebuild is too small": (rebuild_too_small, ["rebuild --from landing"]),
    "a log is damaged": (log_damaged, ["rebuild --from landing --stages changelog"]),
    "the ledger is damaged": (ledger_damaged, ["rebuild --from landing"]),
}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("make", "wanted"),
    [*SITUATIONS.values(), *(pytest.param(*one, marks=pytest.mark.slow) for one in LONGER.values())],
    ids=[*SITUATIONS, *LONGER],
)
def test_what_an_error_says_helps(
    folder: Path, command: Any, make: Callable[[Path], list[Any]], wanted: list[str]
) -> None:
    assert [re.sub(r" /\S+", "", one) for one in follow(command, *make(folder))] == wanted


@pytest.mark.spark
@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (of_two_steps, ["quarantine --replay"]),
        pytest.param(file_gone, ["rebuild --from changelog"], marks=pytest.mark.slow),
    ],
)
def test_what_an_error_names_stands_for_the_command(
    folder: Path, command: Any, make: Callable[[Path], list[Any]], wanted: list[str]
) -> None:
    assert [re.sub(r" /\S+", "", one) for one in follow(command, *make(folder), again=False)] == wanted


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Returns a function that makes a function of rows fail, whose rows then are filtered by a condition."""

    def spoil(function: str, condition: str) -> None:
        module, _, name = function.rpartition(".")
        real = getattr(importlib.import_module(module), name)
        monkeypatch.setattr(function, lambda *args, **named: real(*args, **named).where(condition))

    return spoil


@pytest.mark.spark
def test_batches_that_spark_cannot_read_are_found_and_taken_out(folder: Path, command: Any, spoiled: Any) -> None:
    for batch in (3, 4, 5):
        land(folder, batch, {"id": batch, "k": "c", "v": batch})
    bad = "file LIKE '%/4.jsonl' OR file LIKE '%/5.jsonl'"
    spoiled("fk_pipeline.engine.landing.mark_last", f"IF({bad}, CAST(file AS INT), 1) = 1")
    met = Met(command("run", folder / "p.yaml").err)
    assert (met.kind, "batch 3..5" in met.said) == ("StageError", True)
    assert "another run fails in the same way" in met.said
    met = Met(command("run", folder / "p.yaml", "--batches", "4").err)
    assert met.fix.startswith("correct landing/4.jsonl (")
    followed = follow(command, "run", folder / "p.yaml")
    assert followed == ["run --batches 3,4,5", "remove-batch 4", "remove-batch 5"]
    assert counted(folder) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("fails", "wanted"),
    [
        ("no_such = 1", ["rebuild"]),
        pytest.param("RAISE_ERROR('as before') IS NULL", ["run", "rebuild"], marks=pytest.mark.slow),
    ],
    ids=["Spark says that it comes again", "it came again"],
)
def test_an_error_that_comes_from_the_state_is_mended_by_making_it_anew(
    folder: Path, command: Any, spoiled: Any, fails: str, wanted: list[str]
) -> None:
    land(folder, 3, {"id": 3, "k": "b", "v": 4})
    spoiled("fk_pipeline.blocks.refresh.arithmetic._summed", fails)
    assert follow(command, "run", folder / "p.yaml") == wanted
    assert counted(folder) == {"a": 1, "b": 2}


def counted(folder: Path) -> dict[str, int]:
    table = InProcessTable.of(DeltaLogs(), str(folder / "warehouse" / "counted" / "aggregated"), MEASURED)
    assert table is not None
    return {row["k"]: row["n"] for row in table.read(RowRequest(("k", "n"))).to_pylist()}


@pytest.mark.spark
@pytest.mark.slow
def test_a_rebuild_that_spark_refuses_says_that_it_is_to_be_reported(folder: Path, command: Any, spoiled: Any) -> None:
    spoiled("fk_pipeline.blocks.refresh.expected.all_groups", "no_such = 1")
    met = Met(command("rebuild", folder / "p.yaml").err)
    assert met.fix.startswith("report it, with what this rebuild prints with --debug; the tables are as they were"), (
        met.fix
    )
    assert counted(folder) == {"a": 2, "b": 1}


@pytest.mark.spark
def test_an_empty_file_in_the_place_of_one_that_is_gone_lets_the_others_go_on(folder: Path, command: Any) -> None:
    land(folder, 3, {"id": 4, "k": "c", "v": 1})
    land(folder, 4, {"id": 5, "k": "c", "v": 1})
    Pipeline(load_spec(folder / "p.yaml")).discover()
    (folder / "landing" / "3.jsonl").unlink()
    met = Met(command("run", folder / "p.yaml").err)
    assert met.said.startswith("landing/3.jsonl: the landing file is gone")
    assert met.fix.strip() == (
        "restore the file and run again; or, if its rows are not wanted, put an empty file in its place"
    )
    (folder / "landing" / "3.jsonl").touch()
    assert command("run", folder / "p.yaml").status == 0
    assert counted(folder) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.slow  # a file that is held back: engine/test_moved.py
@pytest.mark.spark
def test_a_file_that_was_renamed_goes_on_under_its_old_name_or_in_another_batch(folder: Path, command: Any) -> None:
    (folder / "landing" / "2.jsonl").rename(folder / "landing" / "b2.jsonl")
    met = Met(command("run", folder / "p.yaml").err)
    fix = "restore landing/2.jsonl; or take landing/b2.jsonl out of the folder, and land its rows in another batch"
    assert met.fix.strip() == fix
    (folder / "landing" / "b2.jsonl").rename(folder / "landing" / "3.jsonl")
    assert command("run", folder / "p.yaml").status == 0
    assert counted(folder) == {"a": 2, "b": 1}


def test_a_batch_without_its_file_is_withdrawn_when_that_is_agreed(folder: Path, command: Any) -> None:
    (folder / "landing" / "2.jsonl").unlink()
    args = "remove-batch", folder / "p.yaml", 2
    met = Met(command(*args).err)
    assert met.fix.strip() == "restore it; or agree: --forget"
    assert command(*args, "--forget").status == 0
    assert Met(command(*args).err).said.startswith("batch 2 is withdrawn already")


@pytest.mark.spark
def test_a_table_of_the_ledger_that_was_upgraded_is_readable_after_the_sql(
    folder: Path, command: Any, spark: SparkSession
) -> None:
    upgrade(folder / "warehouse" / "counted" / "files", "inCommitTimestamp")
    met = Met(command("plan", folder / "p.yaml").err)
    assert met.fix.startswith("in Spark: ALTER TABLE ")
    for sql in met.fix.strip().removeprefix("in Spark: ").split("; "):
        spark.sql(sql)
    assert command("plan", folder / "p.yaml").status == 0


JOINED = """\
name: joined
join: left
left: {path: left, format: rows, schema: "id INT, fk STRING", key: id, foreign_key: fk}
right: {path: right, format: rows, schema: "k STRING, n STRING", key: k}
settings: {max_fan_out: 2}
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_that_touches_too_many_rows_goes_on_when_that_is_agreed(tmp_path: Path, command: Any) -> None:
    file = write(tmp_path, JOINED)
    rows: dict[str, list[dict[str, Any]]] = {
        "left": [{"id": i, "fk": "a"} for i in range(3)],
        "right": [{"k": "a", "n": "A"}],
    }
    for side in rows:
        (tmp_path / side).mkdir()
    for batch, side in enumerate(rows):
        (tmp_path / side / f"{batch}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[side]))
        ended = command("run", file)
    met = Met(ended.err)
    assert "failed check fan_out_within_budget of right_table" in met.said
    assert [words[0] for words in met.commands] == ["impact", "run"]
    assert command(*met.commands[1]).status == 0
    assert command("run", file).status == 0


@pytest.mark.slow
@pytest.mark.spark
def test_a_rebuild_without_what_was_forgotten_reads_the_files_or_is_agreed(
    forgotten: Path, tmp_path: Path, command: Any
) -> None:
    folder = shutil.copytree(forgotten, tmp_path / "copy")
    file, whole = folder / "p.yaml", [("x", 10, 10), ("x", 60, 60)]
    assert follow(command, "rebuild", file, again=False) == ["rebuild --from landing"]
    assert pairs_of(folder) == whole
    assert command("compact", file).status == 0
    assert follow(command, "remove-batch", file, 0) == ["rebuild --from landing"]
    assert command("run", file).status == 0
    assert pairs_of(folder) == whole[1:]

    folder = shutil.copytree(forgotten, tmp_path / "without")
    file = folder / "p.yaml"
    (folder / "left" / "0.jsonl").unlink()
    met = Met(command("rebuild", file, "--from", "landing").err)
    assert met.said.endswith("0.jsonl\n  a rebuild from the landing files needs them all; nothing was changed")
    met = Met(command(*met.commands[0]).err)
    assert met.fix.strip().endswith("if the files are still there; or agree: --forget")
    assert pairs_of(folder) == whole
    assert command("rebuild", file, "--forget").status == 0
    assert pairs_of(folder) == whole[1:]
    assert command("verify", file, "--no-checks").status == 0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits for a lease gives up at once."""
    take = lease._take
    monkeypatch.setattr(lease, "_take", lambda held, _: take(held, 0.0))


def test_a_lease_that_another_run_holds_is_free_when_that_has_ended(
    folder: Path, command: Any, impatient: None
) -> None:
    args = "remove-batch", folder / "p.yaml", 2
    with lease.lease(load_spec(args[1]).home, "discovery", run_id="r1"):
        met = Met(command(*args).err)
    assert met.kind == "LeaseTakenError"
    assert "r1" in met.said
    assert met.fix.strip() == "wait for the other run, or end it, and run again"
    assert command(*args).status == 0


def test_a_lease_of_nobody_is_free_when_its_file_is_removed(folder: Path, command: Any, impatient: None) -> None:
    args = "remove-batch", folder / "p.yaml", 2
    home = Path(load_spec(args[1]).home)
    (home / "leases").mkdir(exist_ok=True)
    (home / "leases" / "discovery.lease").write_text("no lease")
    met = Met(command(*args).err)
    assert "nobody knows which" in met.said
    Path(met.fix.strip().rpartition("if none is at work, remove ")[2]).unlink()
    assert command(*args).status == 0


@pytest.mark.spark
def test_a_run_that_lost_its_lease_ends_and_goes_on_when_it_runs_again(folder: Path, command: Any) -> None:
    land(folder, 3, {"id": 4, "k": "c", "v": 1})
    home = Path(load_spec(folder / "p.yaml").home)

    def lose(point: str) -> None:
        if point == "before commit of changelog":
            (home / "leases" / "changelog.lease").unlink()

    with faults.listening(lose):
        met = Met(command("run", folder / "p.yaml").err)
    assert (met.kind, met.fix.strip()) == ("LeaseLostError", "run again: the batches stay due")
    assert counted(folder) == {"a": 2, "b": 1}
    assert command("run", folder / "p.yaml").status == 0
    assert counted(folder) == {"a": 2, "b": 1, "c": 1}


def test_every_command_that_a_message_names_is_there_with_its_options() -> None:
    """In the texts of the code: a name after `fk-pipeline`, and the options that follow it."""
    known = {name: {option for one in made.params for option in one.opts} for name, made in commands().items()}
    call, found = re.compile(r"fk-pipeline ([a-z-]+)((?: (?:\{[^}]+\}|[A-Z.a-z]*[A-Z.]+|--[a-z-]+))*)"), 0
    for file in Path(fk_pipeline.__file__).parent.rglob("*.py"):
        for name, words in call.findall(file.read_text()):
            options = {*re.findall(r"--[a-z-]+", words)}
            if name in known or options:
                assert options <= known[name], (file, name, words)
                found += bool(words)
    assert found > 30


def commands() -> dict[str, Any]:
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
