"""`status --fail-on`: which of the states that somebody must look at hold, and what to do about each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fk_pipeline.errors import UsageError
from fk_pipeline.words import counted, did_you_mean


def _due(status: Mapping[str, Any], file: Path) -> str:
    batches, files = len(status["due_batches"]), status["new_files"] + status["changed_files"]
    parts = [counted(batches, "batch", "batches")] if batches else []
    parts += [counted(files, "landed file")] if files else []
    return f"{' and '.join(parts)}: 'fk-pipeline run {file}' does it" if parts else ""


def _quarantine(status: Mapping[str, Any], file: Path) -> str:
    number = status["quarantined"]
    return f"{counted(number, 'record')}: 'fk-pipeline quarantine {file}' tells why" if number else ""


def _red(status: Mapping[str, Any], file: Path) -> str:
    checks = [f"{failure['check']} of {failure['stage']}" for failure in status["failed_checks"]]
    behind = [f"{lag['table']} is behind the ledger" for lag in status["behind"]]
    return _first([*checks, *behind], f"'fk-pipeline status {file}' says what mends it")


def _failed(status: Mapping[str, Any], file: Path) -> str:
    if status["refused"]:
        return f"nothing runs, {status['refused']['text']}: {status['refused']['mended_by']}"
    errors = [f"{where}: {error.splitlines()[0] if error else ''}" for where, error in status["errors"].items()]
    return _first(errors, f"'fk-pipeline run {file}' tries again")


def _first(what: Sequence[str], remedy: str) -> str:
    """Returns the first of some things, how many more there are, and the remedy; empty if there are none."""
    if not what:
        return ""
    return f"{what[0]}{f' and {len(what) - 1:,} more' if len(what) > 1 else ''}: {remedy}"


ALARMS: dict[str, Callable[[Mapping[str, Any], Path], str]] = {
    "due": _due,
    "quarantine": _quarantine,
    "red": _red,
    "failed": _failed,
}
"""Per word of `--fail-on`, a function of a status and the pipeline file that returns what holds and what to do about
it; empty: it does not hold."""


def words_of(text: str | None) -> tuple[str, ...]:
    """Returns the words of `--fail-on`, given with commas between them; none if the option is not given.

    Raises:
        UsageError: a word is not among `ALARMS`.
    """
    words = [] if text is None else [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in ALARMS:
            fix = f"one or several of {','.join(ALARMS)}"
            raise UsageError(f"--fail-on: there is no {word!r}{did_you_mean(word, ALARMS)}", fix=fix)
    return tuple(dict.fromkeys(words))


def alarms(status: Mapping[str, Any], file: Path, words: Sequence[str]) -> dict[str, str]:
    """Returns, per word of `--fail-on` that holds, what holds and what to do about it."""
    return {word: text for word in words if (text := ALARMS[word](status, file))}
