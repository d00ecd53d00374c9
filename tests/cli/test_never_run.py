"""Where nothing was ever run, a look is refused: an empty answer would look like a right one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import PipelineFileError, StateError


def invoke(*args: Any) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args])


def pipeline_file(folder: Path, name: str) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(
        f'name: {name}\njoin: left\nleft: {{path: left, format: rows, schema: "id INT, fk STRING", key: id, '
        'foreign_key: fk}\nright: {path: right, format: rows, schema: "k STRING", key: k}\n'
    )
    return file


@pytest.mark.parametrize(
    "args",
    [["verify"], ["verify", "--format", "json"], ["export", "--to", "out.csv"], ["explain", "--key", "1"],
     ["impact", "--right-key", "a"], ["show", "changes", "--batch", "1"],
     ["show"], ["show", "changes", "--since", "2026-05-01"], ["report"]],
)  # fmt: skip
def test_where_nothing_was_ever_run_nothing_is_green_or_empty(tmp_path: Path, args: list[str]) -> None:
    file = pipeline_file(tmp_path, "renamed")
    (tmp_path / "warehouse" / "orders" / "runs" / "_delta_log").mkdir(parents=True)
    (tmp_path / "warehouse" / "no_pipeline").mkdir()
    told = invoke(args[0], file, *args[1:])
    assert (told.stdout, told.exit_code) == ("", 1)
    assert isinstance(told.exception, StateError)
    assert told.exception.exit_code == 1
    warehouse = tmp_path / "warehouse"
    what = f"nothing was ever run in {warehouse} as pipeline renamed; other pipelines here: orders"
    assert told.exception.what == what
    assert told.exception.fix.startswith(f"fk-pipeline run {file}; or set 'name' and 'warehouse'")
    assert not (tmp_path / "out.csv").exists()


def test_it_is_one_message_on_stderr_and_status_says_it_too(tmp_path: Path, command: Any) -> None:
    file = pipeline_file(tmp_path, "fresh")
    status, out, err = command("verify", file)
    assert (status, out) == (1, "")
    assert f"nothing was ever run in {tmp_path / 'warehouse'} as pipeline fresh\n" in err
    assert "Traceback" not in err
    found = invoke("status", file)
    assert found.exit_code == 0
    assert "as pipeline fresh\nlast run: never\n" in found.stdout


def test_what_several_pipelines_told_is_printed_although_a_later_one_fails(file: Path) -> None:
    later = file.with_name("q.yaml")
    later.write_text(file.read_text().replace("name: p", "name: q").replace("landing/right", "landing/none"))
    told = invoke("plan", file, later, "--format", "json")
    assert told.exit_code == PipelineFileError.exit_code
    first, second = json.loads(told.stdout)
    assert (first["pipeline"], first["due"], second["pipeline"]) == ("p", 5, "q")
    assert "landing/none" in second["error"]
    alone = invoke("plan", file, "--format", "json")
    assert json.loads(alone.stdout)["pipeline"] == "p"
