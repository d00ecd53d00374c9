"""A period, and the commits that runs made to the result in it. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fk_pipeline.cdc.table_versions import are_kept
from fk_pipeline.errors import StateError, UsageError
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.clock import moment_of
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import WRITTEN_SUFFIX, Commit, commits


@dataclass(frozen=True)
class Period:
    """The time from a moment on, up to another moment that is not in it; None: without an end. Both are in UTC."""

    since: datetime
    until: datetime | None = None

    @classmethod
    def of(cls, since: str | datetime, until: str | datetime | None = None) -> Period:
        """Returns a period from texts: days or times in ISO 8601, in UTC if they have no offset.

        Raises:
            UsageError: a text is no day and no time, or the period ends before it begins.
        """
        period = cls(_in_utc(since, "since"), None if until is None else _in_utc(until, "until"))
        if period.until is not None and period.until <= period.since:
            raise UsageError(
                f"--since {since} is not before --until {until}",
                why=f"they are {_shown(period.since)} and {_shown(period.until)}",
                fix="name a later time with --until, or leave it out",
            )
        return period

    def __contains__(self, moment: datetime) -> bool:
        return self.since <= moment and (self.until is None or moment < self.until)

    def __str__(self) -> str:
        return f"since {_shown(self.since)}" + (f" until {_shown(self.until)}" if self.until is not None else "")


def _in_utc(given: str | datetime, name: str) -> datetime:
    """Returns a moment in UTC.

    Raises:
        UsageError: the text is none; `name` is that of the option.
    """
    try:
        moment = moment_of(given) if isinstance(given, str) else given
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        fix = "for example 2026-05-01, 2026-05-01T13:00 or 2026-05-01T13:00+02:00"
        raise UsageError(f"--{name}: {error}", fix=fix) from None


def _shown(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=None).isoformat()} UTC"


def commits_in(spec: PipelineSpec, ledger: Ledger, period: Period) -> list[Commit]:
    """Returns the commits that runs made to the result in a period, in their order.

    The time of a commit is the one that its entry in the log of the table has. The commits of rebuilds are not
    returned: their changes belong to no batch.

    Raises:
        StateError: one of them cannot be read any more.
    """
    kind = spec.definition
    name, path = kind.result.name, f"{spec.home}/{kind.result.name}"
    newest = ledger.logs.version(path)
    known = [commit for commit in commits(path, range(0 if newest is None else newest + 1)) if commit.at is not None]
    made = [
        commit
        for commit in known
        if commit.stage == kind.result_stage and commit.batches and commit.at is not None and commit.at in period
    ]
    written = {  # of commits that the log of the table has lost, the ledger knows about when they were
        version
        for row in ledger.entries.rows("runs")
        if (version := _written_by(row, kind.result_stage, name)) is not None and row["recorded_at"] in period
    } - {commit.version for commit in known}
    versions = sorted({commit.version for commit in made} | written)
    refuse_gone(f"the changes {period}", [v for v in versions if not are_kept(f"{path}@{v}..{v}")], name, path)
    return made


def _written_by(row: Mapping[str, Any], stage: str, table: str) -> int | None:
    """Returns the version of a table that a row of `runs` says a run of a stage wrote; None if it says none."""
    if row["event"] != "succeeded" or row["stage"] != stage:
        return None
    version: int | None = dict(row["versions"] or ()).get(f"{table}{WRITTEN_SUFFIX}")
    return version


def refuse_gone(what: str, gone: list[int], name: str, path: str) -> None:
    """Refuses to read changes of which versions are gone; `what` names the changes.

    Raises:
        StateError: there are such versions.
    """
    if gone:
        raise StateError(
            f"{what} are not kept any more: version {min(gone)} of {name} is gone",
            where=path,
            why="the change feed is removed with the versions that it belongs to (settings.retention_hours)",
            fix="read the whole result instead",
        )
