"""The output of `status` for people: what the result has, then the batches, then what somebody should know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from fk_pipeline.console import print_lines, print_table, tell
from fk_pipeline.identity import BatchRange
from fk_pipeline.result_rows import ResultCounts
from fk_pipeline.store.ledger.checks import AGREEMENT, LANDING
from fk_pipeline.words import counted, counts_of

VERDICTS_SHOWN = 12
"""The number of batches that the table for people shows; the JSON has all."""

DUE_CHARACTERS = 60
"""The most characters of the batches that are due, for people; of more, the first and the last are named."""


def _mending(remedy: str) -> str:
    """Returns a remedy in words."""
    return {LANDING: "a rebuild from the landing files", AGREEMENT: "your agreement"}.get(remedy, f"a {remedy}")


def _line_of_run(last: tuple[str, dict[str, Any]]) -> str:
    """Returns what the last run of a stage took, and was to take."""
    stage, run = last
    predicted, taken = (f"{run[name]:.1f} s" for name in ("predicted_seconds", "seconds"))
    rows = counted(run["changed_rows"], "changed row")
    return f"{stage}: last run {run['way']}, {rows}, {taken} (predicted {predicted})"


def print_status(status: dict[str, Any], file: Path) -> None:
    """Prints the status of a pipeline file for people: the batches that are not done, or the newest ones."""
    batches = status["batches"]
    open_batches = [b for b in batches if set(b["stages"].values()) != {"done"}]
    shown = (open_batches or batches)[-VERDICTS_SHOWN:]
    print_lines(_result_lines(status))
    which = _due_batches(status, file)
    tell(f"{counted(len(batches), 'batch', 'batches')}, {len(open_batches):,} of them with work due{which}")
    if status["refused"]:
        tell(f"nothing runs: {status['refused']['text']}")
        tell(f"fix: {status['refused']['mended_by']}")
    if shown:
        print_table(["batch", *shown[0]["stages"]], [[str(b["batch"]), *b["stages"].values()] for b in shown])
    _print_totals(status, file)
    for where, error in status["errors"].items():
        tell(f"failed: {where}: {error}")
    for failure in status["failed_checks"]:
        where = "the whole table" if failure["batch"] is None else f"batch {failure['batch']}"
        check = f"{failure['check']} of {failure['stage']}, {where}"
        tell(f"failed check: {check}; mended by {_mending(failure['mended_by'])}")
    if "never_run" in status:
        tell(status["never_run"])
    for lag in status["behind"]:
        tell(f"behind the ledger: {lag['what']}; mended by: {lag['mended_by']}")
    tell(f"last run: {status['last_run'] or 'never'}")
    if "sizes" in status:
        _print_sizes(status["sizes"], file)


def _print_totals(status: dict[str, Any], file: Path) -> None:
    """Prints what is there besides the batches: files, warnings, the quarantine, verdicts, the last runs."""
    if status["removed"]:
        tell(f"withdrawn batches: {', '.join(map(str, status['removed']))}")
    for what in ("new_files", "changed_files"):
        if status[what]:
            tell(f"{what.replace('_', ' ')}: {status[what]:,}")
    print_lines(f"note: {notice['text']}" for notice in status["notices"])
    print_lines(f"warning: {warning['text']}" for warning in status["never_sent"])
    if status["quarantined"]:
        tell(f"quarantined: {status['quarantined']:,}; 'fk-pipeline quarantine {file}' lists them")
    if any(status["verdicts"].values()):
        tell(f"verdicts: {', '.join(counts_of(dict(sorted(status['verdicts'].items()))))}")
    print_lines(f"{name}: {text}" for name, text in status.get("stands_for", {}).items())
    print_lines(map(_line_of_run, status.get("last_runs", {}).items()))


def _result_lines(status: dict[str, Any]) -> Iterator[str]:
    """Yields the rows of the result in words, and since when it has them."""
    result = status["result"]
    rows = ResultCounts(**{part.name: result[part.name] for part in fields(ResultCounts)})
    if rows.rows is None:
        yield f"{status['pipeline']}: no result yet"
        return
    words = f": {rows.in_words}" if rows.in_words else ""
    yield f"{status['pipeline']}: {counted(rows.rows, 'row')} in the result{words}"
    if rows.not_counted:
        yield f"rows with and without a match are not counted: {rows.not_counted}"
    if result["written_at"] is not None:
        batch = result["up_to_batch"]
        has = "no batch of which nothing is due" if batch is None else f"all batches up to {batch}"
        at = datetime.fromisoformat(result["written_at"])
        yield f"last brought up to date {at:%Y-%m-%d %H:%M:%S} UTC, with {has}"


def _due_batches(status: dict[str, Any], file: Path) -> str:
    """Returns which batches are due, and the command that does them; empty if none is."""
    due = status["due_batches"]
    if not due:
        return ""
    which = str(BatchRange.covering(due, [batch["batch"] for batch in status["batches"]]))
    if len(which) > DUE_CHARACTERS:
        which = f"the first {due[0]}, the last {due[-1]}"
    return f": {which}; 'fk-pipeline run {file}' does it"


def _print_sizes(sizes: dict[str, Any], file: Path) -> None:
    rows = [*sizes["tables"], {"table": "total", **sizes["total"]}]
    names = ["files", "bytes", "stored", "unneeded"]
    print_table(
        ["table", "files", "bytes", "on disk", "unneeded"],
        [[row["table"], *(f"{row[name]:,}" for name in names)] for row in rows],
    )
    if sizes["total"]["unneeded"]:
        tell(
            f"unneeded: bytes of files that no current version refers to; 'fk-pipeline compact {file}' removes those "
            "that are older than settings.retention_hours"
        )
