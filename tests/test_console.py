"""What the command shows: plain characters in a pipe, tables and a bar of passes on a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from fk_pipeline import console
from fk_pipeline.console import Progress, plain_table, print_json, print_lines, print_table, say, say_error
from fk_pipeline.engine.runner import StageRun
from fk_pipeline.errors import CONTROL, LandingError
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.passes import Pass

COLOURED = re.compile(r"\x1b\[(\d+;)*(3[0-8]|4[0-8]|9\d)")


@pytest.fixture(params=["with colours", "NO_COLOR"])
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal for both streams, and what it is sent."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    if request.param == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    text = io.StringIO()
    made: dict[str, Any] = {"file": text, "force_terminal": True, "width": 100, "highlight": False}
    monkeypatch.setattr(console, "out", Console(**made, markup=False, emoji=False))
    monkeypatch.setattr(console, "err", Console(**made, markup=False, emoji=False, soft_wrap=True))
    return text


def plain(text: str) -> str:
    """Without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_table_in_a_pipe_is_one_line_per_row_of_plain_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["stage", "batches"], [["responses", None], ["resolved_join", "x" * 500]], title="Due")
    assert capsys.readouterr().out == (
        f"Due\nstage         | batches\nresponses     | NULL\nresolved_join | {'x' * 500}\n"
    )


def test_a_cell_of_several_lines_stays_in_its_column() -> None:
    assert plain_table(["a", "b"], [["1\n22", "x"], ["3", "y\nz"]]) == [
        "a  | b", "1  | x", "22 |", "3  | y", "   | z",
    ]  # fmt: skip


def test_a_table_without_rows_is_its_head() -> None:
    assert plain_table(["batch", "stage"], []) == ["batch | stage"]


def test_a_table_on_a_terminal_has_lines(terminal: io.StringIO) -> None:
    print_table(["stage", "batches"], [["responses", None], ["resolved_join", "a [b] :smile:"]])
    assert plain(terminal.getvalue()).splitlines() == [
        "stage         ┃ batches      ", "━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━", "responses     │ NULL         ",
        "resolved_join │ a [b] :smile:",
    ]  # fmt: skip


def test_values_send_no_control_characters_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["v"], [["red \x1b[31m and\tbell \a"]])
    assert capsys.readouterr().out == "v\nred \\x1b[31m and\\x09bell \\x07\n"


ODD = "\x1b[31m\r\a\u202e\u009b1m[red]x[/red]:smile:"


def test_names_of_columns_and_titles_send_none_either(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([ODD], [[ODD]], title=ODD)
    shown = r"\x1b[31m\x0d\x07\u202e\x9b1m[red]x[/red]:smile:"
    assert capsys.readouterr().out.splitlines() == [shown] * 3


def test_a_terminal_gets_names_as_text_and_not_as_markup(terminal: io.StringIO) -> None:
    say(ODD)
    print_table([ODD], [[ODD]], title=ODD)
    ours = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert ours.count(r"\x1b[31m\x0d\x07\u202e\x9b1m[red]x[/red]:smile:") == 4
    assert not CONTROL.search(ours.replace("\n", ""))


def test_json_has_the_same_values_without_such_a_character(capsys: pytest.CaptureFixture[str]) -> None:
    value = {ODD: [ODD, "\x7f\ud800\u2028é日本"]}
    print_json(value)
    written = capsys.readouterr().out
    assert json.loads(written) == value
    assert not CONTROL.search(written.replace("\n", ""))
    assert "é日本" in written


def test_a_line_is_one_line_whatever_a_name_has(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(["note: a\nFix: rm -r ."])
    say_error(LandingError("a\nb", where="c\nd", why="e\nf", fix="g\nh"))
    assert capsys.readouterr() == ("note: a\\nFix: rm -r .\n", "LandingError: c\\nd: a\\nb\n  e\\nf\n  Fix: g\\nh\n")


def run_of(number: int, of: int) -> tuple[Pass, StageRun]:
    batches = BatchRange.of(3, 4)
    return Pass(Stage.RESPONSES, batches, number, of), StageRun(Stage.RESPONSES, batches, "r", {3: {"rows": 7}}, 1.5)


def test_a_terminal_shows_how_many_passes_of_how_many_are_done(terminal: io.StringIO) -> None:
    with Progress() as progress:
        for number in (1, 2):
            work, result = run_of(number, 5)
            progress(work, None)
            assert progress._bar is not None
            progress._bar.refresh()
            progress(work, result)
    shown = plain(terminal.getvalue())
    assert "responses          batch 3..4" in shown
    assert "0/5" in shown
    assert "1/5" in shown
    assert shown.count("responses          batch 3..4         1.5 s  7 rows") == 2
    assert progress._bar is None


def test_the_bar_has_colours_unless_no_color_is_set(terminal: io.StringIO) -> None:
    with Progress() as progress:
        progress(run_of(1, 5)[0], None)
    assert bool(COLOURED.search(terminal.getvalue())) is ("NO_COLOR" not in os.environ)


def test_the_bar_goes_when_a_pass_fails(terminal: io.StringIO) -> None:
    def fail() -> None:
        with progress:
            progress(run_of(1, 5)[0], None)
            raise RuntimeError

    progress = Progress()
    with pytest.raises(RuntimeError):
        fail()
    assert progress._bar is None
    hidden, shown = (terminal.getvalue().rfind(f"\x1b[?25{end}") for end in "lh")
    assert -1 < hidden < shown  # the cursor is there again


def test_a_pipe_gets_a_line_per_pass_and_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        work, result = run_of(1, 5)
        progress(work, None)
        progress(work, result)
    assert capsys.readouterr().err == "responses          batch 3..4         1.5 s  7 rows\n"


CODE = "from fk_pipeline.console import print_table; print_table(['a', 'b'], [['1', 'x']], 'T')"
TERMINAL = os.environ | {"TERM": "xterm-256color"}


def test_a_pipe_gets_no_escape_sequence_whatever_the_terminal_is() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], env=TERMINAL, capture_output=True, text=True, check=True)
    assert done.stdout == "T\na | b\n1 | x\n"


def test_a_process_with_a_terminal_of_its_own_writes_lines() -> None:
    ours, theirs = pty.openpty()
    text = b""
    with subprocess.Popen([sys.executable, "-c", CODE], env=TERMINAL, stdout=theirs) as process:
        os.close(theirs)
        while select.select([ours], [], [], 30)[0]:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            text += part
    os.close(ours)
    assert process.returncode == 0
    assert plain(text.decode()).split() == ["T", "a", "┃", "b", "━━╇━━", "1", "│", "x"]
