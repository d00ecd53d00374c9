"""What somebody meets who has just installed the command: help, version, completion, quick starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import fk_pipeline
from fk_pipeline.cli import completion
from fk_pipeline.cli.main import app
from fk_pipeline.kinds.registry import kinds
from fk_pipeline.pipeline import load
from fk_pipeline.store import LEDGER_TABLES

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
HEAVY = {"dagster", "pyspark", "delta", "pandas", "great_expectations"}
PIPELINE = (
    'name: p\njoin: left\nleft: {path: landing/left, format: rows, schema: "id INT, fk STRING", key: id, '
    'foreign_key: fk}\nright: {path: landing/right, format: rows, schema: "k STRING", key: k}\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pipeline with a ledger: its first batch was discovered; a second one has landed."""
    for side, line in (("left", '{"id": 1, "fk": "a"}'), ("right", '{"k": "a"}')):
        (tmp_path / "landing" / side).mkdir(parents=True)
        (tmp_path / "landing" / side / "0.jsonl").write_text(line + "\n")
    (tmp_path / "p.yaml").write_text(PIPELINE)
    load(tmp_path / "p.yaml").discover()
    (tmp_path / "landing" / "left" / "1.jsonl").write_text('{"id": 2, "fk": "a"}\n')
    return tmp_path


def started(*args: str, then: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command under its own name in a process of its own; afterwards more Python."""
    code = (
        "import sys\nsys.argv = ['fk-pipeline', *sys.argv[1:]]\nfrom fk_pipeline.cli.main import app_main\n"
        f"try:\n    app_main()\nexcept SystemExit as end:\n    code = end.code\n{then}\nsys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_the_options_that_all_have(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert f"Example: fk-pipeline {name}" in result.output
    assert "--format <text|json>" in result.output
    assert "--debug" in result.output


def test_the_list_of_commands_has_whole_sentences() -> None:
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    listed = lines[lines.index("Commands:") + 1 :]
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"fk-pipeline {fk_pipeline.__version__}\n")


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["show", "--help"], ["status"], ["plan"], ["doctor"]])
def test_what_must_start_quickly_imports_nothing_heavy(args: list[str], folder: Path) -> None:
    file = [str(folder / "p.yaml")] if args[0] in ("status", "plan", "doctor") else []
    result = started(*args, *file, then=f"print('HEAVY', sorted({HEAVY!r} & set(sys.modules)))")
    assert result.returncode in (0, 3), result.stderr  # 3: a check of the doctor
    assert result.stdout.splitlines()[-1] == "HEAVY []"


@pytest.mark.parametrize("args", [["status"], ["plan"], ["remove-batch"], ["doctor"]])
def test_json_is_all_that_stands_on_stdout(args: list[str], folder: Path) -> None:
    result = started(*args, str(folder / "p.yaml"), *(["1"] if args == ["remove-batch"] else []), "--format", "json")
    assert result.returncode in (0, 3), result.stderr
    json.loads(result.stdout)


# Completion.


def completed(shell: str, words: str, cwd: Path | None = None) -> list[str]:
    """What the shell is offered for the last word; the command's completion is asked as the shell's script does."""
    environment = {"_FK_PIPELINE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": words}
    environment |= {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    here = f"import os; os.chdir({str(cwd or Path.cwd())!r})"
    code = f"{here}\nimport sys\nsys.argv = ['fk-pipeline']\nfrom fk_pipeline.cli.main import app_main\napp_main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_tables_are_completed(shell: str) -> None:
    assert completed(shell, "fk-pipeline show p.yaml verd") == ["verdicts"]


def test_tables_are_completed_in_zsh() -> None:
    assert "verdicts" in " ".join(completed("zsh", "fk-pipeline show p.yaml ver"))


def test_stages_are_completed_after_a_comma_without_those_that_are_named() -> None:
    assert completed("bash", "fk-pipeline run p.yaml --stages responses,r") == [
        "responses,right_table", "responses,resolved_join", "responses,right_changelog", "responses,result",
    ]  # fmt: skip


def test_pipeline_files_are_completed_and_folders_on_the_way(folder: Path) -> None:
    (folder / "notes.txt").touch()
    (folder / ".hidden.yaml").touch()
    assert completed("bash", "fk-pipeline run ", folder) == ["p.yaml", "landing/", "warehouse/"]
    assert completed("bash", "fk-pipeline status landing/", folder) == ["landing/left/", "landing/right/"]
    assert completed("bash", "fk-pipeline plan nowhere/", folder) == []
    assert completion.completed_files(f"{folder}/.h") == [f"{folder}/.hidden.yaml"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_each_shell_can_be_shown(shell: str) -> None:
    result = started("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert result.returncode == 0
    assert "_FK_PIPELINE_COMPLETE" in result.stdout


def test_what_is_completed_is_what_there_is() -> None:
    tables = {table.name for kind in kinds() for table in kind.tables}
    assert set(completion.TABLES) == tables | set(LEDGER_TABLES) | {"changes"}


def test_every_argument_that_names_a_pipeline_file_is_completed() -> None:
    without = [
        name
        for name, command in COMMANDS.items()
        for parameter in command.params
        if "PIPELINE.yaml" in str(parameter.metavar) and not completes(parameter)
    ]
    assert without == []


def completes(parameter: Any) -> bool:
    return parameter._custom_shell_complete is not None
