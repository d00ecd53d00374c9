"""Two pipelines are two pipelines: tables are refused to another one, and stay with theirs wherever the folder is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from fk_pipeline.errors import StateError
from fk_pipeline.identity import SIDES
from fk_pipeline.pipeline import Pipeline, load

TEXT = """\
name: orders
join: left
left: {{path: {left}, format: rows, schema: "id INT, fk STRING, v STRING", key: id, foreign_key: fk}}
right: {{path: landing/right, format: rows, schema: "k STRING, name STRING", key: k}}
warehouse: {warehouse}
"""


def write(folder: Path, warehouse: Any = "warehouse", left: Any = "landing/left", value: str = "v") -> Path:
    """A pipeline folder with one batch; its files differ by `value`."""
    for side, row in (("left", {"id": 1, "fk": "a", "v": value}), ("right", {"k": "a", "name": value})):
        (folder / "landing" / side).mkdir(parents=True, exist_ok=True)
        (folder / "landing" / side / "1.jsonl").write_text(json.dumps(row) + "\n")
    file = folder / "pipeline.yaml"
    file.write_text(TEXT.format(left=left, warehouse=warehouse))
    return file


def command(*args: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fk_pipeline.cli.main", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A pipeline that has looked at its landing files, with its tables outside of its folder."""
    file = write(tmp_path / "mine", tmp_path / "warehouse")
    load(file).discover()
    return file


def unclaimed(pipeline: Pipeline) -> None:
    """The ledger as it was before it said whose it is."""
    shutil.rmtree(Path(pipeline.spec.home) / "fingerprints")


def refused(file: Path) -> str:
    with pytest.raises(StateError) as error:
        load(file).discover()
    return str(error.value)


def test_the_tables_of_another_pipeline_are_refused_by_every_command(mine: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", tmp_path / "warehouse", value="w")
    before = sorted(tmp_path.glob("warehouse/**/*.json"))
    for name in (["run"], ["plan"], ["status"], ["verify"], ["rebuild"], ["remove-batch", "1"]):
        done = command(name[0], other, *name[1:])
        assert done.returncode == 1, (name, done.stdout, done.stderr)
        assert done.stdout == ""
        assert (
            f"StateError: {tmp_path}/warehouse/orders: these tables belong to another pipeline 'orders', {mine}: "
            f"their left landing files are in {tmp_path}/mine/landing/left, not in {tmp_path}/other/landing/left"
        ) in done.stderr
        assert f"if it is the same one and its landing files moved: fk-pipeline run {other} --adopt" in done.stderr
        assert "Traceback" not in done.stderr
    assert sorted(tmp_path.glob("warehouse/**/*.json")) == before
    load(mine).discover()  # its own go on as before


def test_what_moves_together_stays_the_same_pipeline(tmp_path: Path) -> None:
    first = write(tmp_path / "first")
    load(first).discover()
    (tmp_path / "deeper").mkdir()
    shutil.move(tmp_path / "first", tmp_path / "deeper" / "second")
    second = tmp_path / "deeper" / "second" / "pipeline.yaml"
    assert load(second).discover().batches == ()
    assert load(second).ledger().claim["pipeline file"] == str(second)
    renamed = second.rename(second.with_name("orders.yaml"))
    assert load(renamed).discover().batches == ()
    shutil.move(second.parent / "warehouse", tmp_path / "warehouse")  # the tables alone, and then all of it again
    renamed.write_text(TEXT.format(left="landing/left", warehouse="../../warehouse"))
    assert load(renamed).discover().batches == ()
    (tmp_path / "third").mkdir()
    for part in ("deeper", "warehouse"):
        shutil.move(tmp_path / part, tmp_path / "third" / part)
    third = tmp_path / "third" / "deeper" / "second" / "orders.yaml"
    assert load(third).discover().batches == ()
    (tmp_path / "link").symlink_to(third.parent)
    assert load(tmp_path / "link" / "orders.yaml").ledger().files  # the same place by another name


def test_a_landing_folder_that_moves_alone_is_adopted_with_the_files_that_are_known(mine: Path, tmp_path: Path) -> None:
    shutil.copytree(mine.parent / "landing" / "left", tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "1.jsonl").rename(tmp_path / "elsewhere" / "2.jsonl")
    mine.write_text(TEXT.format(left=tmp_path / "elsewhere", warehouse=tmp_path / "warehouse"))
    assert f"are in {mine.parent}/landing/left, not in {tmp_path}/elsewhere" in refused(mine)
    pipeline = load(mine)
    pipeline.adopt()
    found = pipeline.discover()
    assert [file.path for file in found.vanished] == [f"{tmp_path}/elsewhere/1.jsonl"], "where it should be now"
    assert [file.path for file in found.discovered] == [f"{tmp_path}/elsewhere/2.jsonl"]
    assert load(mine).look().vanished == found.vanished
    shutil.copy(mine.parent / "landing" / "left" / "1.jsonl", tmp_path / "elsewhere")
    found = pipeline.discover()
    assert (found.vanished, found.changed, found.discovered) == ((), (), ()), "it is the known one"


def test_a_path_that_was_wrong_before_anything_landed_binds_nobody(tmp_path: Path) -> None:
    file = write(tmp_path / "p", left="landing/another")
    (tmp_path / "p" / "landing" / "another").mkdir()
    load(file).discover()
    file.write_text(TEXT.format(left="landing/left", warehouse="warehouse"))
    assert [int(batch) for batch in load(file).discover().batches] == [1]


def test_a_ledger_that_does_not_say_whose_it_is_goes_to_whoever_has_its_files(mine: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", tmp_path / "warehouse", value="w")
    unclaimed(load(mine))
    assert "none of their 1 left landing file(s) is here as it was" in refused(other)
    said = command("status", other)
    assert (said.returncode, said.stdout) == (1, "")
    assert "--adopt" in said.stderr
    load(mine).discover()
    assert load(mine).ledger().claim["left.landing"] == str(mine.parent / "landing" / "left")
    unclaimed(load(mine))
    for side in SIDES:  # a landing zone that is archived
        (mine.parent / "landing" / side / "1.jsonl").unlink()
    load(mine).discover()
    assert load(mine).ledger().claim["right.landing"] == str(mine.parent / "landing" / "right")


@pytest.mark.spark
def test_an_adopted_warehouse_is_the_other_ones_from_then_on(mine: Path, tmp_path: Path, spark: Any) -> None:
    from typer.testing import CliRunner

    from fk_pipeline.cli.main import app

    other = write(tmp_path / "other", tmp_path / "warehouse", value="w")
    done = CliRunner().invoke(app, ["run", str(other), "--adopt", "--format", "json"])
    assert done.exit_code == 0, done.stderr
    assert [(row["v"], row["name"]) for row in Pipeline(load(other).spec, spark).table("resolved_join").collect()] == [
        ("w", "w")
    ]
    assert DeltaTable(f"{tmp_path}/warehouse/orders/fingerprints").version() >= 2
    assert f"belong to another pipeline 'orders', {other}" in refused(mine)
