"""What the command prints: JSON on stdout for machines, tables for people; logs and progress go to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from fk_pipeline.pipeline import Pass
    from fk_pipeline.stages.runner import StageRun
    from fk_pipeline.verify.report import VerifyReport


class OutputFormat(StrEnum):
    """`--format`."""

    TEXT = "text"
    JSON = "json"


out = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 240)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any, *, one_line: bool = False) -> None:
    """One JSON value on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str, indent=None if one_line else 2) + "\n")
    sys.stdout.flush()


def print_lines(lines: Iterable[str]) -> None:
    """Sentences for people."""
    for line in lines:
        print(line)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """A table for people; None is shown as NULL."""
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(name)
    for row in rows:
        table.add_row(*["NULL" if v is None else str(v) for v in row])
    out.print(table)


def print_due(due: Mapping[str, Sequence[int]]) -> None:
    """Per stage the batches that are due, for people."""
    print_table(["stage", "batches"], [[stage, ", ".join(map(str, batches))] for stage, batches in due.items()])


def print_verification(report: VerifyReport) -> None:
    """The report for people."""
    verdict = "equal to the join of the two tables" if report.ok else "WRONG"
    print(f"{report.rows:,} result rows: {verdict}")
    if not report.ok or report.pending:
        print(
            f"missing {report.missing:,}, stale {report.stale:,}, unexpected {report.unexpected:,}, "
            f"explained by work still due {report.pending:,}"
        )
    if report.due:
        print(f"{report.due:,} stage runs are due; 'fk-pipeline run' does them")
    for row in report.sample:
        print(f"- {row['difference']} {row['key']}")
        expected, found = row["expected"] or {}, row["found"] or {}
        for name in expected or found:
            if expected.get(name) != found.get(name) or not (expected and found):
                print(f"    {name}: expected {expected.get(name)!r}, found {found.get(name)!r}")


def say(text: str) -> None:
    """A line of progress, on stderr."""
    err.print(text, markup=False)


class Progress:
    """Shows what runs while it runs (on a terminal), and a line for what is done."""

    def __init__(self) -> None:
        self._status: Any = None

    def __call__(self, work: Pass, result: StageRun | None) -> None:
        if result is None:
            if err.is_terminal:
                self._status = err.status(f"{work.stage}  batch {work.batches}")
                self._status.start()
            return
        if self._status is not None:
            self._status.stop()
            self._status = None
        totals: dict[str, int] = {}
        for counts in result.counts.values():
            for name, number in counts.items():
                totals[name] = totals.get(name, 0) + number
        shown = ", ".join(f"{number:,} {name}" for name, number in totals.items() if number)
        say(f"{work.stage:<18} batch {work.batches!s:<9} {result.seconds:6.1f} s  {shown or 'nothing to do'}")
        for note in result.notes:
            say(f"  note: {note}")
