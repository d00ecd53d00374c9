"""Prints the output of the command: JSON on stdout for machines, tables for people; logs and progress go to stderr.

It is the one place that prints, and it shows control characters of what it prints (`errors.escaped`): names and values
come from the sources, and one of them could otherwise move the cursor of a terminal, or write lines of its own.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console

from fk_pipeline.errors import CONTROL, FkPipelineError, escaped
from fk_pipeline.failures import root_message
from fk_pipeline.words import counted, counts_of

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from fk_pipeline.contract import Kind
    from fk_pipeline.engine.runner import StageRun
    from fk_pipeline.passes import Pass
    from fk_pipeline.verify.report import VerifyReport


class OutputFormat(StrEnum):
    """The values of `--format`."""

    TEXT = "text"
    JSON = "json"


out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_json(value: Any, *, one_line: bool = False) -> None:
    """Writes one JSON value to stdout; control characters in it are escaped as JSON does, which changes no value."""
    text = json.dumps(value, ensure_ascii=False, default=str, indent=None if one_line else 2)
    lines = (CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in text.split("\n"))
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def tell(line: str = "") -> None:
    """Prints one line for people to stdout."""
    print(escaped(line))


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines for people to stdout."""
    for line in lines:
        tell(line)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """Prints a table for people; None is shown as NULL.

    On a terminal the table has rules and fits the width; elsewhere it is plain text (`plain_table`).
    """
    columns = [escaped(name) for name in columns]
    cells = [["NULL" if value is None else escaped(str(value), keep="\n") for value in row] for row in rows]
    if not out.is_terminal:
        print_lines(plain_table(columns, cells, title))
        return
    from rich.table import Table

    table = Table(title=title and escaped(title, keep="\n"), title_justify="left", show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(name)
    for row in cells:
        table.add_row(*row)
    out.print(table)


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> list[str]:
    """Returns the lines of a table in plain characters, for pipes and files.

    A row takes one line, or more if a cell contains line breaks.


    >>> plain_table(["stage", "batches"], [["responses", "3"], ["resolved_join", "3, 4"]])
    ['stage         | batches', 'responses     | 3', 'resolved_join | 3, 4']
    """
    lines = [[cell.split("\n") for cell in row] for row in (columns, *rows)]
    widths = [max(len(line) for row in lines for line in row[i]) for i in range(len(columns))]
    shown = [
        " | ".join(line.ljust(width) for line, width in zip(parts, widths, strict=True)).rstrip()
        for row in lines
        for parts in zip_longest(*row, fillvalue="")
    ]
    return [*title.split("\n"), *shown] if title else shown


def print_due(due: Mapping[str, Sequence[int]]) -> None:
    """Prints the due batches of each stage, for people."""
    print_table(["stage", "batches"], [[stage, ", ".join(map(str, batches))] for stage, batches in due.items()])


def print_verification(report: VerifyReport, file: str | Path, kind: Kind, matches: str) -> None:
    """Prints a report for people: one sentence, what was compared and is left out, and what is wrong, with remedies.

    `matches` is as of `VerifyReport.in_words`.
    """
    tell(report.in_words(matches))
    lacks = _left_out(report, file)
    verdict = f"equal to {kind.proof.says}{', without what is listed here' if lacks else ''}"
    tell(f"{counted(report.rows, 'result row')}: {verdict if report.ok else 'WRONG'}")
    share = f", a share of {report.share:g}," if report.share < 1 else ""
    rows = f"{counted(report.left_rows, 'left row')}{share} and {counted(report.right_rows, 'right row')}"
    if len(kind.logged) < 2:
        rows = counted(report.left_rows, "row")
    print_lines([f"{kind.proof.recomputed}: {rows}", *lacks])
    if not report.ok or report.pending:
        tell(
            f"missing {report.missing:,}, stale {report.stale:,}, unexpected {report.unexpected:,}, "
            f"explained by work still due {report.pending:,}"
        )
    if report.due:
        are = "is" if report.due == 1 else "are"
        tell(f"{counted(report.due, 'stage run')} {are} due; 'fk-pipeline run {file}' does them")
    print_lines(map(difference_of, report.sample))
    if not report.ok:
        tell(f"Fix: fk-pipeline rebuild {file} makes state and result anew from the changelogs")


def _left_out(report: VerifyReport, file: str | Path) -> list[str]:
    """Returns one line per kind of rows or lines that the join leaves out."""
    failing = [
        f"{counted(report.left_out, 'left row')} left out" if report.left_out else "",
        f"{counted(report.unmatched, 'left row')} without the right row" if report.unmatched else "",
    ]
    lines = [f"{' and '.join(filter(None, failing))}, as an expression of select fails on them"] * any(failing)
    if report.quarantined_lines:
        lines.append(f"{counted(report.quarantined_lines, 'line')} of landing files in neither table")
    return [f"- {line}: 'fk-pipeline quarantine {file}' lists them" for line in lines]


def difference_of(row: Mapping[str, Any]) -> str:
    """Returns the line that shows one row of the sample of a report."""
    expected, stored = row["expected"] or {}, row["found"] or {}
    if row["difference"] == "stale":
        values = [f"{name}: expected {cell(expected[name])}, found {cell(stored[name])}" for name in expected]
        return f"- stale {key_of(row['key'])}: {'; '.join(values)}"
    values = [f"{name}={cell(value)}" for name, value in (expected or stored).items()]
    return f"- {row['difference']} {key_of(row['key'])}: {', '.join(values)}"


def key_of(key: Mapping[str, Any]) -> str:
    """Returns a key as text: `name=value` for each of its columns."""
    return ", ".join(f"{name}={cell(value)}" for name, value in key.items())


def cell(value: Any) -> str:
    """Returns a value as text in one line."""
    if value is None:
        return "NULL"
    if value == "":
        return '""'
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list, bool)) else str(value)
    return escaped(text)


def say(line: str = "") -> None:
    """Prints a line of progress to stderr."""
    sys.stdout.flush()
    err.print(escaped(line))


def say_by_spark(why: str) -> None:
    """Prints to stderr why a command that only looks starts Spark."""
    say(f"Spark reads it: {why}.")


def say_error(error: Exception, traced: Exception | None = None) -> None:
    """Prints an error to stderr: its type, text and notes; before them the trace of an error, if one is given."""
    lines = [] if traced is None else "".join(traceback.format_exception(traced)).rstrip("\n").split("\n")
    if isinstance(error, FkPipelineError):
        lines += f"{type(error).__name__}: {error}".split("\n")
    else:
        lines += [
            f"{type(error).__name__}: {root_message(error)}",
            "  Fix: nobody foresaw this. The same command with --debug shows where it happened; please report it",
        ]
    lines += [f"  {note}" for note in getattr(error, "__notes__", ())]
    for line in lines:
        say(line)


class Progress:
    """Prints a line for each finished pass; on a terminal, also a bar with the current pass and their number.

    A context manager: its exit removes the bar, after an error too.

    Attributes:
        runs: the passes that ended, in order.
    """

    def __init__(self) -> None:
        self.runs: list[StageRun] = []
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __call__(self, work: Pass, result: StageRun | None) -> None:
        if result is None:
            if err.is_terminal:
                self._show(work)
            return
        self.runs.append(result)
        totals: dict[str, int] = {}
        for counts in result.counts.values():
            for name, number in counts.items():
                totals[name] = totals.get(name, 0) + number
        shown = ", ".join(counts_of(totals))
        say(f"{work.stage:<18} batch {work.batches!s:<9} {result.seconds:6.1f} s  {shown or 'nothing to do'}")
        for note in result.notes:
            say(f"  note: {note}")
        for warning in result.warnings:
            say(f"  WARNING: {warning}")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=work.number)

    def _show(self, work: Pass) -> None:
        if self._bar is None or self._task is None:
            from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (SpinnerColumn(), "{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=err, transient=True)
            self._task = self._bar.add_task("")
            self._bar.start()
        what = f"{work.stage:<18} batch {work.batches!s:<9}"
        self._bar.update(self._task, description=what, completed=work.number - 1, total=work.of)
