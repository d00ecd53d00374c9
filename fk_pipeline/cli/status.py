"""The output of `status` for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fk_pipeline.console import print_lines, print_table, tell
from fk_pipeline.status import Status
from fk_pipeline.store.ledger.checks import AGREEMENT, LANDING
from fk_pipeline.words import counted, counts_of

VERDICTS_SHOWN = 12
"""The number of batches that the table for people shows; the JSON has all."""


def _mending(remedy: str) -> str:
    """Returns a remedy in words."""
    return {LANDING: "a rebuild from the landing files", AGREEMENT: "your agreement"}.get(remedy, f"a {remedy}")


def _line_of_run(last: tuple[str, dict[str, Any]]) -> str:
    """Returns what the last run of a stage took, and was to take."""
    stage, run = last
    predicted, taken = (f"{run[name]:.1f} s" for name in ("predicted_seconds", "seconds"))
    rows = counted(run["changed_rows"], "changed row")
    return f"{stage}: last run {run['way']}, {rows}, {taken} (predicted {predicted})"


def print_status(status: Status, file: Path) -> None:
    """Prints the status of a pipeline file for people: the batches that are not done, or the newest ones."""
    batches = status["batches"]
    open_batches = [b for b in batches if set(b["stages"].values()) != {"done"}]
    shown = (open_batches or batches)[-VERDICTS_SHOWN:]
    number = counted(len(batches), "batch", "batches")
    tell(f"{status['pipeline']}: {number}, {len(open_batches):,} of them with work due")
    if status["refused"]:
        tell(f"nothing runs: {status['refused']['text']}")
        tell(f"fix: {status['refused']['mended_by']}")
    if shown:
        print_table(["batch", *shown[0]["stages"]], [[str(b["batch"]), *b["stages"].values()] for b in shown])
    if status["removed"]:
        tell(f"withdrawn batches: {', '.join(map(str, status['removed']))}")
    for what, number in (("new files", status["new_files"]), ("changed files", status["changed_files"])):
        if number:
            tell(f"{what}: {number:,}")
    print_lines(f"note: {notice['text']}" for notice in status["notices"])
    print_lines(f"warning: {warning['text']}" for warning in status["never_sent"])
    if status["quarantined"]:
        tell(f"quarantined: {status['quarantined']:,}; 'fk-pipeline quarantine {file}' lists them")
    if any(status["verdicts"].values()):
        tell(f"verdicts: {', '.join(counts_of(dict(sorted(status['verdicts'].items()))))}")
    print_lines(f"{name}: {text}" for name, text in status.get("stands_for", {}).items())
    print_lines(map(_line_of_run, status.get("last_runs", {}).items()))
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
