"""Names and values from outside are no commands for a terminal and no markup: every command shows them escaped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fk_pipeline.cli import main
from fk_pipeline.errors import CONTROL

COMMANDS = typer.main.get_command(main.app).commands  # type: ignore[attr-defined]
ODD = "a\x1b[31m\r\a\u202e\u009b1m\udcff[red]x:smile:\n1.jsonl"
SHOWN = r"a\x1b[31m\x0d\x07\u202e\x9b1m"
NOT_UTF8 = (r"\udcff", r"\xff")
"""A byte that is not UTF-8, as Python has it and as the ledger has it."""
REST = r"[red]x:smile:\n1.jsonl"
LINE = '{"id": 1, "fk": "a"}\n'

Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Called:
    """Calls the command as a shell does, in this process; returns its status, and what it wrote."""

    def call(*args: Any) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fk-pipeline", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main.app_main()
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return call


def lines_of(*texts: str) -> str:
    """The lines, of which none has a control character; in one line and without the bars of a table."""
    for line in "\n".join(texts).split("\n"):
        assert CONTROL.search(line) is None, repr(line)
    return "\n".join(texts)


def is_shown(text: str) -> bool:
    text = text.replace(r"\x0a", r"\n")  # as typer shows a line feed
    return any(f"{SHOWN}{byte}{REST}" in text for byte in NOT_UTF8)


def of_files(file: Path) -> dict[str, list[Any]]:
    """Per command the arguments with which it tells of a landing file with an odd name; none of these needs Spark."""
    odd = file.parent / "landing" / "left" / ODD
    return {
        "plan": [file],
        "status": [file],
        "init": [file.parent / "new", "--from-sample", odd],
        "trace": [odd],
    }


def of_the_pipeline(file: Path) -> dict[str, list[Any]]:
    """Per command arguments of which one has the odd name: of a pipeline file, of a folder, of anything."""
    named = {"rebuild": [], "compact": [], "plan": [], "status": [], "verify": [], "run": [], "doctor": []}
    more: dict[str, list[Any]] = {
        "export": ["--to", "x.csv"],
        "show": ["verdicts"],
        "explain": ["--key", "1"],
        "impact": ["--right-key", "a"],
        "remove-batch": ["1"],
        "quarantine": [],
    }
    given = {name: [file.parent / f"{ODD}.yaml", *args] for name, args in (named | more).items()}
    return given | {
        "init": [file.parent / "landing" / ODD],
        "demo": [file.parent / ODD],
        "report": [file.parent / f"{ODD}.yaml"],
        "test": [file.parent / f"{ODD}.yaml"],
        "trace": [file.parent / ODD],
        "up": [file.parent / f"{ODD}.yaml"],
        "down": [f"--{ODD}"],
        "recover": ["--home", file.parent / ODD],
        "dagster": ["sync", file, "--home", file.parent / ODD],
        "spark": ["start", file.parent / f"{ODD}.yaml"],
    }


def test_the_table_has_every_command(file: Path) -> None:
    assert of_the_pipeline(file).keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_name_that_a_command_is_given_is_shown_and_not_obeyed(name: str, file: Path, called: Called) -> None:
    (file.parent / ODD).mkdir()
    (file.parent / ODD / "something").touch()
    args = of_the_pipeline(file)[name]
    status, out, err = called(name, *args)
    assert status in (1, 2)
    assert is_shown(lines_of(out, err)), (out, err)


def test_a_trace_shows_it_too(file: Path, called: Called) -> None:
    _, _, err = called("plan", file.parent / f"{ODD}.yaml", "--debug")
    assert lines_of(err).startswith("Traceback")
    assert is_shown(err.split("PipelineFileError", 1)[1])


@pytest.mark.parametrize("name", ["plan", "status", "init", "trace"])
def test_the_name_of_a_landing_file_is_shown_and_not_obeyed(name: str, file: Path, called: Called) -> None:
    (file.parent / "landing" / "left" / "0.jsonl").rename(file.parent / "landing" / "left" / ODD)
    _, out, err = called(name, *of_files(file)[name])
    assert is_shown(lines_of(out, err)), (out, err)


@pytest.mark.parametrize("name", ["plan", "status"])
def test_json_has_the_names_as_they_are(name: str, file: Path, called: Called) -> None:
    (file.parent / "landing" / "left" / "0.jsonl").rename(file.parent / "landing" / "left" / ODD)
    _, out, _ = called(name, file, "--format", "json")
    lines_of(out)
    [notice] = [one for one in json.loads(out)["notices"] if one["side"] == "left"]
    assert notice["first"] == f"landing/left/{ODD}".replace("\udcff", r"\xff")


def test_a_pattern_of_the_shell_may_make_any_argument(file: Path, called: Called) -> None:
    odd = ODD.replace("\udcff", "")
    for args in ([odd], ["plan", f"--{odd}"], ["status", file, "--format", odd], ["compact", file, odd], ["down", odd]):
        status, out, err = called(*args)
        assert (status, out) == (2, "")
        assert r"\x1b[31m" in lines_of(err)
        assert "[red]x:smile:" in err


def test_help_has_no_such_character() -> None:
    lines_of(CliRunner().invoke(main.app, ["--help"]).output)
