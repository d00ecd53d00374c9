"""What the command says of landing files: names with dates, and what is not there or not read. No Spark."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from fk_pipeline.cdc.zone import FsspecLandingZone
from fk_pipeline.cli.main import app
from fk_pipeline.errors import FkPipelineError
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import load


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for side in ("left", "right"):
        (tmp_path / "landing" / side).mkdir(parents=True)
    return pipeline(tmp_path)


def pipeline(folder: Path, left: str = "", form: str = "rows") -> Path:
    """A pipeline file; `left` are further lines of its left side."""
    lines = "".join(f"  {line}\n" for line in left.splitlines())
    schema = '  schema: "id INT, fk INT"\n  key: id\n'
    file = folder / "p.yaml"
    file.write_text(
        f"name: p\njoin: left\nleft:\n  path: landing/left\n  format: {form}\n{schema}  foreign_key: fk\n{lines}"
        f"right:\n  path: landing/right\n  format: rows\n{schema}"
    )
    return file


def put(file: Path, *names: str, side: str = "left", text: str = "{}\n") -> None:
    for name in names:
        (file.parent / "landing" / side / name).write_text(text)


def command(*args: Any) -> tuple[int, str, str]:
    """Status, standard output, and standard error with the message as the command prints it."""
    result = CliRunner().invoke(app, [str(a) for a in args])
    if isinstance(result.exception, FkPipelineError):
        return result.exception.exit_code, result.stdout, f"{result.stderr}{result.exception}"
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def notices(file: Path, name: str = "status") -> dict[tuple[str, str], dict[str, Any]]:
    status, out, err = command(name, file, "--format", "json")
    assert status == 0, err
    return {(one["side"], one["kind"]): one for one in json.loads(out)["notices"]}


DATES = [
    ("orders_2026-12-31.jsonl", "orders_2027-01-01.jsonl", r"(\d{4})-(\d\d)-(\d\d)", 20261231),
    ("2026_12_31.jsonl", "2027_01_01.jsonl", r"(\d{4})_(\d\d)_(\d\d)", 20261231),
    ("2026.12.31.jsonl", "2027.01.01.jsonl", r"(\d{4})\.(\d\d)\.(\d\d)", 20261231),
    ("o-2026-12-31T10:15.jsonl", "o-2027-01-01T00:00.jsonl", r"(\d{4})-(\d\d)-(\d\d)", 20261231),
    ("o-2026-12-31T10-15-30.jsonl.gz", "o-2027-01-01T00-00-00.jsonl.gz", r"(\d{4})-(\d\d)-(\d\d)", 20261231),
    ("o.2026-12-31-23.jsonl", "o.2027-01-01-00.jsonl", r"(\d{4})-(\d\d)-(\d\d)", 20261231),
    ("2026-12-31 (2).jsonl", "2027-01-01 (1).jsonl", r"(\d{4})-(\d\d)-(\d\d)", 20261231),
    ("2026-12-31_part3.json", "2027-01-01_part1.json", r"(\d{4})-(\d\d)-(\d\d)", 20261231),
    ("20261231-1015.jsonl", "20270101-0001.jsonl", r"(?<!\d)(\d{8})(?!\d)", 20261231),
    ("20261231T101530Z.jsonl", "20270101T000000Z.jsonl", r"(?<!\d)(\d{8})(?!\d)", 20261231),
    ("20261231101530.jsonl", "20270101000000.jsonl", r"(?<!\d)(\d{8})", 20261231),
    ("1999-01-01_to_2026-12-31.jsonl", "1999-01-01_to_2027-01-01.jsonl", r".*(\d{4})-(\d\d)-(\d\d)", 20261231),
    ("orders_2026-12.jsonl", "orders_2027-01.jsonl", r"(\d{4})-(\d{2})", 202612),
    ("orders-2026-W52.jsonl", "orders-2027-W01.jsonl", r"(\d{4})-W(\d{2})", 202652),
]  # fmt: skip
"""An older and a newer name, the `batch_by` that the command proposes, and the batch of the first by it."""


@pytest.mark.parametrize(("older", "newer", "batch_by", "batch"), DATES)
def test_a_name_whose_last_number_is_part_of_a_date_is_refused_with_the_batch_by_that_orders_it(
    older: str, newer: str, batch_by: str, batch: int, place: Path
) -> None:
    put(place, older, newer)
    for name in ("run", "plan", "status"):
        status, out, err = command(name, place)
        assert (status, out) == (1, "")
        assert "date" in err or "8 digits" in err
        assert f"batch_by: '{batch_by}' in the pipeline file" in err
        assert f"({batch})" in err
        assert "landing/left/" in err
    assert not (place.parent / "warehouse" / "p" / "files").exists()
    pipeline(place.parent, f"batch_by: '{batch_by}'")
    found = {f.path.rsplit("/", 1)[-1]: int(f.batch) for f in load(place).look().discovered}
    assert found[older] == batch < found[newer]
    status, out, _ = command("plan", place)
    assert status == 0
    assert f"left: 2 files, batch = batch_by {batch_by}, for example {older} -> {batch}" in out


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("orders_20261231.jsonl", 20261231), ("orders-2026-11-20-00000007.jsonl", 7), ("2026-13-45.jsonl", 45),
        ("orders-20261231+0+0000000042.json", 42), ("v2026.jsonl", 2026), ("12026-12-31.jsonl", 31),
    ],
)  # fmt: skip
def test_a_whole_date_or_a_long_counter_is_a_batch_as_before(name: str, batch: int, place: Path) -> None:
    put(place, name)
    assert [int(f.batch) for f in load(place).look().discovered] == [batch]


@pytest.mark.parametrize("name", ["31-12-2026.jsonl", "1.2.2027.jsonl"])
def test_a_date_that_ends_in_the_year_is_refused_and_no_batch_by_is_made_up(name: str, place: Path) -> None:
    put(place, name)
    status, _, err = command("run", place)
    assert status == 1
    assert "the year of a date" in err
    assert "batch_by: arrival" in err


def test_dumps_of_one_day_are_not_told_to_become_one_table(place: Path) -> None:
    pipeline(place.parent, "contents: snapshot")
    put(place, "2026-12-31T10.jsonl", "2026-12-31T11.jsonl")
    status, _, err = command("run", place)
    assert status == 1
    assert "number the files" in err
    assert "arrival" not in err
    assert "whole date" not in err


def test_known_files_keep_their_batches_and_a_new_one_is_asked_about(place: Path) -> None:
    put(place, "7.jsonl")
    load(place).discover()
    put(place, "o-2026-12-31.jsonl")
    assert command("run", place)[0] == 1
    pipeline(place.parent, r"batch_by: '(\d+)-(\d\d)-(\d\d)|^(\d+)\.'")
    assert load(place).discover().batches == (20261231,)
    assert load(place).ledger().batches == [7, 20261231]


def test_names_and_arrivals_are_told_once(place: Path) -> None:
    put(place, "o-0007.jsonl", "o-0009.jsonl", "new.jsonl")
    put(place, "other.jsonl", side="right")
    found = notices(place)
    assert found["left", "named"]["text"] == (
        "left: 3 files, batch = the last number in the name, for example o-0007.jsonl -> 7"
    )
    assert found["left", "arrived"]["text"].startswith(
        "left: 1 file has no number in its name: landing/left/new.jsonl. They are batch 10"
    )
    assert "batch = the order of arrival, for example other.jsonl -> 10" in found["right", "named"]["text"]
    assert notices(place, "plan") == found
    load(place).discover()
    assert notices(place) == {}
    put(place, "newer.jsonl")
    assert [kind for _, kind in notices(place)] == ["arrived"]


def test_the_greatest_number_beside_a_file_without_one_is_an_error_that_names_the_file(place: Path) -> None:
    put(place, "99999999.jsonl", "new.jsonl")
    for name in ("run", "plan", "status"):
        status, _, err = command(name, place)
        assert status == 1
        assert (
            "landing/left/new.jsonl: the name has no batch number, and none is left to give: 99999999 is taken" in err
        )


def test_a_folder_that_never_was_is_an_error_and_one_that_is_gone_a_note(place: Path) -> None:
    folder = place.parent / "landing" / "left"
    folder.rmdir()
    for name in ("run", "plan"):
        status, out, err = command(name, place)
        assert (status, out) == (2, "")
        assert f"{place}:4: left.path: there is no file or folder {folder}\n" in err
        assert f"mkdir -p '{folder}'" in err
    assert not (place.parent / "warehouse" / "p" / "files").exists()
    assert f"left: there is nothing at {folder}" in notices(place)["left", "missing"]["text"]
    assert "note: left: there is nothing at" in command("status", place)[1]
    folder.mkdir()
    put(place, "1.jsonl", "2.jsonl")
    load(place).discover()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    found = notices(place)
    assert found["left", "missing"]["text"].endswith("its rows stay")
    assert found["left", "vanished"]["files"] == 2
    assert command("plan", place)[0] == 0


def test_a_glob_is_missing_where_the_folder_is_that_it_starts_from(place: Path) -> None:
    place.write_text(place.read_text().replace("landing/left", "landing/lost/*/*.jsonl"))
    status, _, err = command("run", place)
    assert status == 2
    assert f"there is no file or folder {place.parent}/landing/lost" in err
    place.write_text(place.read_text().replace("landing/lost/*", "landing/*/none"))
    assert ("left", "missing") not in notices(place)


@pytest.mark.parametrize("path", ["landing/lfet", "lnading/left"])
def test_a_folder_that_is_spelled_alike_is_proposed(place: Path, path: str) -> None:
    place.write_text(place.read_text().replace("landing/left", path))
    _, _, err = command("plan", place)
    assert f"{place.parent}/{path}; did you mean '{place.parent}/landing/left'?" in err
    _, _, err = command("plan", place.with_name("q.yml"))
    assert f"{place.parent}/q.yml: there is no such pipeline file; did you mean '{place}'?" in err


def test_a_delta_table_that_is_not_there_is_told(place: Path) -> None:
    pipeline(place.parent, form="delta")
    assert f"there is no Delta table at {place.parent}/landing/left" in notices(place)["left", "missing"]["text"]


def test_what_lies_in_a_folder_and_is_not_read_is_told_with_what_to_do(place: Path) -> None:
    folder = place.parent / "landing" / "left"
    put(place, "1.jsonl", "a.csv", "b.csv", "_c.csv", ".d.csv")
    put(place, "2.jsonl", text="")
    (folder / "sub").mkdir()
    (folder / "linked").symlink_to(place.parent)
    (folder / "3.jsonl").symlink_to(folder / "nowhere")
    (folder / "4.jsonl").symlink_to("4.jsonl")
    os.mkfifo(folder / "5.jsonl")
    found = notices(place)
    told = {kind: (one["files"], one["text"]) for (side, kind), one in found.items() if side == "left"}
    assert {kind: number for kind, (number, _) in told.items()} == {
        "not read": 3, "folders": 2, "broken links": 2, "empty": 1, "named": 2,
    }  # fmt: skip
    assert told["not read"][1] == (
        "left: 3 files are not read; the first: landing/left/5.jsonl. Format rows reads .jsonl, .jsonl.gz, .json, "
        ".json.gz, .ndjson, .ndjson.gz: convert them, correct left.format, or keep them elsewhere"
    )
    assert "left.path: landing/left/*/*" in told["folders"][1]
    assert "Restore what they name, or remove them" in told["broken links"][1]
    assert told["empty"][1].startswith("left: 1 file is empty: landing/left/2.jsonl. ")
    assert notices(place, "plan") == found
    for name in ("plan", "status"):
        assert f"note: {told['not read'][1]}" in command(name, place)[1]


def test_a_run_tells_what_it_does_not_read(place: Path) -> None:
    put(place, "a.csv", "b.csv")
    status, out, err = command("run", place)
    assert (status, out.strip()) == (0, "Nothing is due.")
    assert "note: left: 2 files are not read; the first: landing/left/a.csv. " in " ".join(err.split())


def test_links_to_files_are_read_and_follow_what_they_name(place: Path) -> None:
    folder, there = place.parent / "landing" / "left", place.parent / "there"
    there.mkdir()
    (there / "x.jsonl").write_text("{}\n")
    (folder / "1.jsonl").symlink_to(there / "x.jsonl")
    (folder / "day").symlink_to(there)
    found = FsspecLandingZone().list(str(folder))
    assert [(f.path, f.kind) for f in found] == [(f"{folder}/1.jsonl", "file"), (f"{folder}/day", "folder")]
    assert found[0].size == 3
    assert [f.path for f in FsspecLandingZone().list(f"{folder}/*/*.jsonl")] == [f"{folder}/day/x.jsonl"]
    load(place).discover()
    (there / "x.jsonl").write_text('{"id": 1}\n')
    assert [f.path for f in load(place).look().changed] == ["landing/left/1.jsonl"]


def test_a_folder_whose_name_is_a_pattern_is_that_folder(place: Path) -> None:
    (place.parent / "landing" / "l[1]*").mkdir()
    (place.parent / "landing" / "l[1]*" / "3.jsonl").write_text("{}\n")
    (place.parent / "landing" / "l1x").mkdir()
    (place.parent / "landing" / "l1x" / "4.jsonl").write_text("{}\n")
    place.write_text(place.read_text().replace("landing/left", "landing/l[1]*"))
    assert [f.path for f in load(place).look().discovered] == ["landing/l[1]*/3.jsonl"]


def test_batches_that_are_not_there_are_wrong_usage_and_those_that_are_there_are_named(place: Path) -> None:
    assert command("remove-batch", place, 3)[0] == 2
    assert "there is no batch yet" in command("run", place, "--batches", 3)[2]
    put(place, *(f"{n}.jsonl" for n in (1, 2, 3, 7, 9)))
    for args in (["run", place, "--batches", "1..2,42"], ["remove-batch", place, "42"]):
        status, out, err = command(*args)
        assert (status, out) == (2, "")
        assert "pipeline p: there is no batch 42: no landing file has this number" in err
        assert "Fix: the batches are 1..3, 7, 9" in err
    put(place, *(f"{n}.jsonl" for n in range(11, 61, 2)))
    assert re.search(r"the batches are 1\.\.3, 7, 9, 11, (\d+, )+\.\.\., 59$", command("remove-batch", place, 60)[2])
    load(place).remove_batch(9)
    assert "withdrawn already" in command("remove-batch", place, 9)[2]


def test_a_batch_between_others_in_which_nothing_landed_is_empty(place: Path) -> None:
    put(place, "1.jsonl", "4.jsonl")
    status, out, err = command("remove-batch", place, 2, "--format", "json")
    assert (status, json.loads(out)["removed"]) == (0, None)
    assert err == "note: batch 2 is empty: no landing file has this number; there is nothing to do for it\n"
    assert command("remove-batch", place, 3)[1].startswith("No batch was withdrawn. Due now:")
    assert not load(place).ledger().files.removed
    assert command("run", place, "--batches", "2,5")[0] == 2


def append(file: Path, *sides: str) -> None:
    """A commit of the Delta table of each side, and a discovery."""
    for side in sides:
        rows = pa.table({"id": pa.array([1], pa.int32()), "fk": pa.array([1], pa.int32())})
        table = file.parent / "landing" / side
        write_deltalake(table, rows, mode="append", configuration={"delta.enableChangeDataFeed": "true"})
    load(file).discover()


def vacuum(file: Path, side: str) -> None:
    table = DeltaTable(file.parent / "landing" / side)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    load(file).discover()


def of_batches(file: Path, side: str) -> dict[int, list[str]]:
    files = load(file).ledger().files
    return {int(b): [f.path.split("@")[1] for f in files.of(b, Side(side))] for b in files.batches}


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A pipeline of two Delta tables. Batch 1 has a version of both; that of the left one is gone."""
    file = pipeline(tmp_path, form="delta")
    file.write_text(file.read_text().replace("format: rows", "format: delta"))
    append(file, "left", "right")
    append(file, "left", "right")
    append(file, "right")
    vacuum(file, "left")
    assert (of_batches(file, "left")[1], of_batches(file, "right")[1]) == (["1..1"], ["1..1"])
    return file


def read(file: Path, side: str, *batches: int) -> None:
    """Records that the stage of a side has read batches."""
    ledger = load(file).ledger()
    stage = {"left": Stage.LEFT_CHANGELOG, "right": Stage.RIGHT_TABLE}[side]
    ledger.start(stage, batches, "run", {})
    ledger.runs.succeed({b: {"rows": 1} for b in batches}, {}, 0.1)


def test_versions_that_are_gone_unread_leave_their_batch_and_the_table_is_taken_whole(tables: Path) -> None:
    read(tables, "left", 0)
    before, right = of_batches(tables, "left"), of_batches(tables, "right")
    append(tables, "left")  # the source goes on before somebody types the command
    status, out, err = command("remove-batch", tables, 1)
    assert (status, out.split("\n")[0]) == (0, "No batch was withdrawn. Due now:")
    assert err == (
        "note: versions landing/left@1..1 were never read and are gone: the next run has the whole table in their "
        "place; what else is in batch 1 stays\n"
    )
    append(tables, "left")
    after, now = of_batches(tables, "left"), DeltaTable(tables.parent / "landing" / "left").version()
    assert after == before | {1: [], max(before) + 1: [f"{now - 1}..{now - 1}"], max(before) + 2: [f"..{now}"]}
    assert {batch: paths for batch, paths in of_batches(tables, "right").items() if paths} == {
        batch: paths for batch, paths in right.items() if paths
    }
    append(tables, "left")
    assert of_batches(tables, "left") == after | {max(after) + 1: [f"{now + 1}..{now + 1}"]}


def test_versions_that_were_read_and_are_gone_are_withdrawn_only_if_that_is_agreed(tables: Path) -> None:
    read(tables, "left", 0, 1)
    before = of_batches(tables, "left")
    status, _, err = command("remove-batch", tables, 1)
    assert status == 2
    assert "batch 1 could not be brought back: landing/left@1..1 is gone" in err
    assert "agree: --forget" in err
    assert of_batches(tables, "left") == before
    assert command("remove-batch", tables, 1, "--forget")[1].startswith("Batch 1 is withdrawn.")
    append(tables, "left")
    left = of_batches(tables, "left")
    assert left[1] == []
    assert not any(paths[0].startswith("..") for batch, paths in left.items() if batch and paths), "it stays out"
    assert "batch 1 cannot be brought back: landing/left@1..1 is gone" in command("run", tables, "--batches", 1)[2]
    assert load(tables).ledger().files.removed == {1}


def test_versions_that_are_kept_are_withdrawn_and_stay_out(tables: Path) -> None:
    append(tables, "right")
    assert command("remove-batch", tables, 2)[1].startswith("Batch 2 is withdrawn.")
    vacuum(tables, "right")
    append(tables, "right")
    right = of_batches(tables, "right")
    assert right[2] == []
    assert not any(paths[0].startswith("..") for batch, paths in right.items() if batch and paths)
    assert load(tables).ledger().files.removed == {2}


def test_a_plan_that_is_refused_is_the_refusal_and_status_1(place: Path) -> None:
    from fk_pipeline.engine.fingerprints import fingerprints

    put(place, "1.jsonl")
    found = load(place)
    found.discover()
    found.ledger().record_fingerprints(fingerprints(found.spec))
    place.write_text(place.read_text().replace("join: left", "join: inner"))
    status, out, _ = command("plan", place)
    assert status == 1
    assert "A run is refused" in out
    assert "Undo the edit, or: fk-pipeline rebuild" in out
    assert "strategy" not in out
    status, out, _ = command("plan", place, "--format", "json")
    told = json.loads(out)
    assert (status, told["due"], told["stages"]) == (1, 0, [])
    assert list(told["stale"]) == ["join"]
