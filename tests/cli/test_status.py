"""`status`: the rows of the result first, the sizes of tables, and what a monitor calls it for. No Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fk_pipeline.engine.fingerprints import fingerprints
from fk_pipeline.identity import BatchId, Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from tests.report.world import JOINED, joined, land, opened, people, ran, write

SOON = 2.0
"""Seconds in which `status` has read the ledger and the footers of some files."""

Command = Callable[..., Any]


def finished(folder: Path, join: str = "left", lefts: int = 6, without: int = 2) -> Pipeline:
    """A join with nothing due: of so many left rows the last so many refer to no right row; one more was deleted."""
    made = opened(folder, JOINED.replace("join: left", f"join: {join}"))
    for side in (Side.LEFT, Side.RIGHT):
        land(made, side, [1, 2])
    for stage in Stage:
        ran(made.ledger(), stage, {1: {"joined": 3}, 2: {"joined": 3}}, 1.0)
    kept = lefts if join == "left" else lefts - without
    rights = [b"2" if i < lefts - without else None for i in range(kept)]
    rows = {"_fk_batch": [1 + i % 2 for i in range(kept)], "_fk_left_hash": [b"1"] * kept, "_fk_right_hash": rights}
    hashes = {"_fk_left_hash": pa.binary(), "_fk_right_hash": pa.binary()}
    write(made, "resolved_join", {**hashes, "_fk_batch": pa.int32()}, rows)
    states = [*([b"1"] * lefts), None]
    types = {"_fk_hash": pa.binary(), "_fk_batch": pa.int32()}
    write(made, "subscription_store", types, {"_fk_hash": states, "_fk_batch": [1] * len(states)})
    made.ledger().record_fingerprints(fingerprints(made.spec))
    return made


def test_the_rows_of_the_result_come_first(tmp_path: Path, command: Command) -> None:
    made = finished(tmp_path)
    said = command("status", made.spec.file)
    assert said.status == 0
    first, second, third, *_ = said.out.splitlines()
    assert first == "joined: 6 rows in the result: 4 matched, 2 without a match"
    assert second.startswith("last brought up to date 20")
    assert second.endswith(" UTC, with all batches up to 2")
    assert third == "2 batches, 0 of them with work due"
    found = json.loads(command("status", made.spec.file, "--format", "json").out)
    result = found["result"]
    assert (found["due"], found["due_batches"]) == (0, [])
    assert result.pop("written_at").startswith("20")
    assert result == {
        "rows": 6, "matched": 4, "unmatched": 2, "left_out": 0, "not_counted": "", "up_to_batch": 2,
    }  # fmt: skip


def test_an_inner_join_tells_what_it_leaves_out(tmp_path: Path, command: Command) -> None:
    made = finished(tmp_path, "inner")
    assert command("status", made.spec.file).out.startswith(
        "joined: 4 rows in the result: 4 matched, 0 without a match, 2 left out\n"
    )
    land(made, Side.LEFT, [3])
    found = json.loads(command("status", made.spec.file, "--format", "json").out)
    assert found["result"]["left_out"] is None, "work is due that may change it"


def test_what_is_due_is_named_with_the_command_that_does_it(tmp_path: Path, command: Command) -> None:
    file = joined(tmp_path, 12).spec.file
    said = command("status", file)
    lines = said.out.splitlines()
    assert lines[0] == "joined: 30 rows in the result: 24 matched, 6 without a match"
    assert lines[1].endswith("with all batches up to 11")
    assert lines[2] == f"12 batches, 1 of them with work due: 12; 'fk-pipeline run {file}' does it"
    assert json.loads(command("status", file, "--format", "json").out)["due_batches"] == [12]


def test_a_pipeline_without_a_result_and_one_without_matches(tmp_path: Path, command: Command) -> None:
    made = opened(tmp_path / "new", JOINED)
    assert command("status", made.spec.file).out.startswith("joined: no result yet\n0 batches, 0 of them")
    table = people(tmp_path / "table").spec.file
    assert command("status", table).out.startswith("people: 3 rows in the result\n")
    assert json.loads(command("status", table, "--format", "json").out)["result"]["matched"] is None


def test_a_file_that_cannot_be_read_is_told_and_everything_else_too(tmp_path: Path, command: Command) -> None:
    made = finished(tmp_path)
    [file] = Path(made.spec.home, "resolved_join").glob("*.parquet")
    file.write_bytes(b"x" * file.stat().st_size)
    said = command("status", made.spec.file)
    assert said.status == 0
    lines = said.out.splitlines()
    assert lines[0] == "joined: 6 rows in the result"
    assert lines[1].startswith("rows with and without a match are not counted: a file cannot be read")


def test_many_rows_take_no_longer(tmp_path: Path, command: Command) -> None:
    file = joined(tmp_path, 50, rows=300_000).spec.file
    begun = time.monotonic()
    said = command("status", file)
    assert time.monotonic() - begun < SOON
    assert said.out.startswith("joined: 300,000 rows in the result: 240,000 matched, 60,000 without a match\n")


def test_sizes_are_those_of_the_files_with_what_nothing_needs(tmp_path: Path, command: Command) -> None:
    made = people(tmp_path)
    folder = Path(made.spec.home, "table")
    unneeded = folder / "part-older.parquet"
    unneeded.write_bytes(b"x" * 1234)
    sizes = json.loads(command("status", made.spec.file, "--sizes", "--format", "json").out)["sizes"]
    by_name = {row.pop("table"): row for row in sizes["tables"]}
    data = [file.stat().st_size for file in folder.glob("*.parquet") if file != unneeded]
    stored = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert by_name["table"] == {"files": len(data), "bytes": sum(data), "stored": stored, "unneeded": 1234}
    assert {"changelog", "table", "files", "batches", "runs"} <= {*by_name}
    assert sizes["total"] == {
        name: sum(row[name] for row in by_name.values()) for name in ("files", "bytes", "stored", "unneeded")
    }
    text = command("status", made.spec.file, "--sizes").out
    [total] = [line for line in text.splitlines() if line.startswith("total ")]
    assert total.split(" | ")[-1].strip() == "1,234"
    assert f"'fk-pipeline compact {made.spec.file}' removes those" in text
    assert "sizes" not in json.loads(command("status", made.spec.file, "--format", "json").out)


def test_a_monitor_gets_one_line_and_a_status(tmp_path: Path, command: Command) -> None:
    file = joined(tmp_path, 12).spec.file
    assert command("status", file).status == 0
    said = command("status", file, "--fail-on", "due,Quarantine")
    assert said.status == 1
    assert said.err == (
        f"joined: due: 1 batch: 'fk-pipeline run {file}' does it; "
        f"quarantine: 24 records: 'fk-pipeline quarantine {file}' tells why\n"
    )
    said = command("status", file, "--fail-on", "failed,quarantine,red,due", "--format", "json")
    assert said.status == 1
    failing = json.loads(said.out)["failing"]
    assert [*failing] == ["quarantine", "red", "due"]
    assert failing["red"].startswith("one_response of responses and 1 more: ")
    assert said.err.count("\n") == 1


def test_what_does_not_hold_does_not_fail(tmp_path: Path, command: Command) -> None:
    made = finished(tmp_path)
    said = command("status", made.spec.file, "--fail-on", "due,quarantine,failed")
    assert (said.status, said.err) == (0, "")
    found = json.loads(command("status", made.spec.file, "--fail-on", "failed", "--format", "json").out)
    assert found["failing"] == {}


def test_a_failed_run_an_edit_that_is_refused_and_a_new_file_are_found(tmp_path: Path, command: Command) -> None:
    made = opened(tmp_path, JOINED)
    land(made, Side.LEFT, [1])
    ledger = made.ledger()
    ledger.start(Stage.LEFT_CHANGELOG, [BatchId(1)], "r", {})
    ledger.runs.fail(0.1, "boom\nat line 7")
    said = command("status", made.spec.file, "--fail-on", "failed")
    assert (said.status, said.err) == (
        1,
        f"joined: failed: left_changelog 1: boom: 'fk-pipeline run {made.spec.file}' tries again\n",
    )
    other = opened(tmp_path / "other", JOINED)
    (tmp_path / "other" / "landing" / "left" / "1.jsonl").write_text("{}\n")
    said = command("status", other.spec.file, "--fail-on", "due")
    assert (said.status, said.err) == (
        1,
        f"joined: due: 1 landed file: 'fk-pipeline run {other.spec.file}' does it\n",
    )


def test_each_of_several_pipelines_has_its_line(tmp_path: Path, command: Command) -> None:
    first, second = people(tmp_path / "a").spec.file, joined(tmp_path / "b", 12).spec.file
    said = command("status", first, second, "--fail-on", "due", "--format", "json")
    assert said.status == 1
    assert said.err == f"joined: due: 1 batch: 'fk-pipeline run {second}' does it\n"
    found = json.loads(said.out)
    assert {status["pipeline"]: [*status["failing"]] for status in found} == {"people": [], "joined": ["due"]}
    assert not any("waits_for" in status for status in found)


@pytest.mark.parametrize(
    ("words", "fix"), [("rde", "did you mean 'red'?"), ("due,", "one or several of due,quarantine,red,failed")]
)
def test_a_wrong_word_is_refused_before_anything_is_looked_at(command: Command, words: str, fix: str) -> None:
    said = command("status", "nowhere.yaml", "--fail-on", words)
    assert (said.status, said.out) == (2, "")
    assert fix in said.err


def test_nothing_heavy_is_imported_to_count_rows_and_bytes(tmp_path: Path) -> None:
    file = joined(tmp_path, 12).spec.file
    code = (
        "import sys\nfrom fk_pipeline.cli.main import app\n"
        f"app(['status', {str(file)!r}, '--sizes', '--fail-on', 'failed'], standalone_mode=False)\n"
        "print(sorted({'pyspark', 'pandas', 'dagster', 'great_expectations'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("joined: 30 rows in the result: 24 matched")
    assert done.stdout.splitlines()[-1] == "[]"
