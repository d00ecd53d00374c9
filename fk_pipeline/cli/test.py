"""The command `test`: runs a user's own cases of a pipeline, and shows what is otherwise than they expect."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fk_pipeline.cli.options import Debug, FormatOption, PipelineFile
from fk_pipeline.console import OutputFormat, cell, print_json, print_lines, print_table, tell

if TYPE_CHECKING:
    from fk_pipeline.testing.cases import RowValues
    from fk_pipeline.testing.difference import Difference
    from fk_pipeline.testing.run import CaseResult


def own_cases(
    pipeline: PipelineFile,
    cases: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="a file of cases; default: NAME.tests.yaml beside NAME.yaml"),
    ] = None,
    select: Annotated[
        str, typer.Option("-k", metavar="TEXT", help="only cases with this in their name; default: all")
    ] = "",
    any_order: Annotated[
        bool,
        typer.Option("--any-order", help="also with batches in up to two other orders"),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="keep and name the folder of each case")] = False,
    format_: FormatOption = OutputFormat.TEXT,
    debug: Debug = False,
) -> None:
    """Runs your cases, of rows given and rows expected, without your tables."""
    from fk_pipeline.pipeline import load
    from fk_pipeline.words import counted

    as_text = format_ is OutputFormat.TEXT
    results = load(pipeline).test(
        cases or (), select, print_case if as_text else lambda _: None, any_order=any_order, keep=keep
    )
    failed = sum(not result.passed for result in results)
    if as_text:
        tell(f"{counted(len(results), 'case')}: {len(results) - failed:,} ok, {failed:,} failed")
    else:
        print_json({"passed": len(results) - failed, "failed": failed, "cases": [*map(as_json, results)]})
    if failed:
        raise typer.Exit(1)


def print_case(result: CaseResult) -> None:
    """Prints the line of a case, and if it failed, what is otherwise than it expects."""
    tell(f"{'ok' if result.passed else 'FAILED':<6}  {result.seconds:5.1f} s  {result.name}")
    if result.where and not result.passed:
        tell(result.where)
    print_lines(result.error.splitlines())
    print_difference(result.difference)
    if result.folder is not None:
        tell(f"its files: {result.folder}")
    sys.stdout.flush()


def print_difference(difference: Difference) -> None:
    """Prints rows that differ as a table, then their numbers; and what else is otherwise than expected."""
    names, rows = table_of(difference)
    if rows:
        print_table(["", *names, "differs in"], rows)
        tell(difference.counts())
    if difference.quarantined_expected is not None:
        tell(f"{len(difference.quarantined):,} in the quarantine, expected {difference.quarantined_expected:,}")
        records = [[record["side"], str(record["batch"]), record["reason"]] for record in difference.quarantined]
        if records:
            print_table(["input", "batch", "reason"], records)
    if difference.unproved:
        numbers = ", ".join(f"{number:,} {name}" for name, number in difference.unproved.items() if number)
        tell(f"verify: the result is not that of the inputs: {numbers}")


def table_of(difference: Difference) -> tuple[list[str], list[list[str]]]:
    """Returns the columns and rows of the table of a difference: the columns that the case names, if it names any."""
    expected = [*difference.missing, *(changed.expected for changed in difference.changed)]
    names = list(dict.fromkeys(name for row in expected or difference.unexpected for name in row))
    return names, [[*row] for row in _rows(difference, names)]


def _rows(difference: Difference, names: Sequence[str]) -> Iterator[Sequence[str]]:
    def cells(row: Any) -> list[str]:
        return [cell(row[name]) if name in row else "" for name in names]

    for row in difference.missing:
        yield "missing", *cells(row), ""
    for row in difference.unexpected:
        yield "unexpected", *cells(row), ""
    for changed in difference.changed:
        yield "expected", *cells(changed.expected), ""
        yield "stored", *cells(changed.stored), ", ".join(changed.columns)


def as_json(result: CaseResult) -> dict[str, Any]:
    """Returns the result of a case as JSON."""
    difference = result.difference
    return {
        "name": result.name,
        "passed": result.passed,
        "seconds": round(result.seconds, 3),
        **({"where": result.where} if result.where and not result.passed else {}),
        **({"error": result.error} if result.error else {}),
        **({"difference": difference_as_json(difference)} if difference else {}),
        **({"folder": str(result.folder)} if result.folder is not None else {}),
    }


def difference_as_json(difference: Difference) -> dict[str, Any]:
    """Returns a difference as JSON: rows by the ways in which they differ, and the other parts where they differ."""
    quarantined = {"expected": difference.quarantined_expected, "records": difference.quarantined}
    return {
        "missing": [*map(_plain, difference.missing)],
        "unexpected": [*map(_plain, difference.unexpected)],
        "changed": [
            {"expected": _plain(changed.expected), "stored": _plain(changed.stored), "columns": changed.columns}
            for changed in difference.changed
        ],
        "equal": difference.equal,
        **({"quarantined": quarantined} if difference.quarantined_expected is not None else {}),
        **({"verify": difference.unproved} if difference.unproved else {}),
    }


def _plain(row: RowValues) -> Any:
    """Returns a row whose numbers are those of JSON."""
    from fk_pipeline.testing.cases import line_of_row

    return json.loads(line_of_row(row))


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "test",
        epilog="Example: fk-pipeline test pipeline.yaml -k late",
        short_help="Runs your own cases of a pipeline.",
    )(own_cases)
