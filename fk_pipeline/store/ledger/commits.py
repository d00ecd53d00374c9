"""Commits of the data tables, as the ledger and as the Delta log of a table record them. No Spark."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fk_pipeline.contract import Kind
from fk_pipeline.environment import storage
from fk_pipeline.store import schemas as s

WRITTEN_SUFFIX = " written"
"""The suffix of the name of a version that a run wrote; without it, the name is of the version that it read."""

READ = "read"
"""In the facts that a commit carries about its rows: the version that its run had read."""

_SAME_ROWS = (
    "OPTIMIZE", "VACUUM", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD COLUMNS", "CHANGE COLUMN",
    "UPGRADE PROTOCOL",
)  # fmt: skip
"""Beginnings of the names of operations after which a table has the same rows."""


class CommitLog:
    """Knows the table versions and the run starts that the ledger has recorded."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.versions: dict[str, int] = {}
        """Per table, the version up to which all commits are accounted for and need no check."""
        self.unexplained: set[str] = set()
        """Tables that a rebuild replaced without recording their versions, and that no run has written since."""
        self.starts: dict[str, tuple[str, int]] = {}
        """Per run id, its stage and the entry of its first start."""
        self.newest: dict[str, str] = {}
        """Per stage, the id of the run that was started last."""
        self.versions_after: dict[str, tuple[int, Mapping[str, int]]] = {}
        """Per run id, the entry at which the next run of its stage began, and the table versions that it found."""
        self._known: dict[str, int] = {}
        self._writes: dict[str, list[tuple[int, int, str]]] = {}

    def fold(self, row: Mapping[str, Any]) -> None:
        """Applies a row of `runs`; rows must come in the order of their entries."""
        stage, entry, versions = row["stage"], row["entry"], dict(row.get("versions") or ())
        if row["event"] == "started":
            before = self.newest.get(stage)
            if before is not None and before != row["run_id"]:
                self.versions_after.setdefault(before, (entry, versions))
            self.starts.setdefault(row["run_id"], (stage, entry))
            self.newest[stage] = row["run_id"]
        elif row["event"] == "reopened":
            if versions:  # a table may be older than before: its next versions have numbers that it had already
                self._forget_versions_after({stage}, entry)
            self._account(versions, entry)
        elif row["event"] == "succeeded":
            own = (*self._kind.written_by(stage), s.QUARANTINE)
            for table in own:
                version = versions.get(f"{table}{WRITTEN_SUFFIX}")
                if version is not None:
                    self._writes.setdefault(table, []).append((entry, version, stage))
                elif table != s.QUARANTINE:
                    version = versions.get(table)
                if version is not None:  # the quarantine is written by stages that do not wait for each other
                    self._account({table: max(version, self.versions.get(table, -1))}, entry)

    def fold_rebuild(self, row: Mapping[str, Any]) -> None:
        """Applies a row of `rebuilds`, after all runs: it forgets the writes before the rebuild."""
        if row["event"] != "finished":
            return
        versions = dict(row.get("versions") or ())
        self._forget_versions_after({*(row["stages"] or ())}, row["entry"])
        for table in [name for stage in row["stages"] or () for name in self._kind.written_by(stage)]:
            if self._known.get(table, 0) < row["entry"]:
                self.versions.pop(table, None)
                self.unexplained.add(table)
            self._writes[table] = [write for write in self._writes.get(table, ()) if write[0] > row["entry"]]
        for table, version in versions.items():
            if self._known.get(table, 0) < row["entry"]:
                self._account({table: version}, row["entry"])

    def _account(self, versions: Mapping[str, int], entry: int) -> None:
        for table, version in versions.items():
            self.versions[table], self._known[table] = version, entry
            self.unexplained.discard(table)

    def found_at(self, commit: Commit, table: str) -> int | None:
        """Returns the entry at which the next run of its stage began and found a commit; None if it did not find it."""
        entry, versions = self.versions_after.get(commit.run_id, (0, {}))
        return entry if commit.version <= versions.get(table, -1) else None

    def _forget_versions_after(self, stages: Collection[str], entry: int) -> None:
        """Forgets the versions that runs of some stages found before an entry."""
        self.versions_after = {
            run_id: start
            for run_id, start in self.versions_after.items()
            if start[0] > entry or self.starts[run_id][0] not in stages
        }

    def after(self, table: str, version: int | None) -> int:
        """Returns the entry of the last recorded write of a table up to a version; 0 if no run wrote it up to there."""
        writes = self._writes.get(table, ())
        return max((entry for entry, written, _ in writes if version is not None and written <= version), default=0)

    def writers(self, table: str, version: int | None) -> set[str]:
        """Returns the stages that wrote a version of a table later than the given one; None: every writer."""
        lost = -1 if version is None else version
        return {stage for _, written, stage in self._writes.get(table, ()) if written > lost}


@dataclass(frozen=True)
class Commit:
    """One commit of a table.

    Attributes:
        version: the version that it created.
        stage: the stage in its metadata; empty where they have none.
        batches: the batches in its metadata, as text.
        run_id: the id of the run in its metadata.
        restored: for a RESTORE, the version that it restored, 0 where its log does not have it; otherwise None.
        appends: whether it appended rows, whatever the table had then.
        at: when it was made, as its entry in the log says; None if that has no time.
    """

    version: int
    stage: str
    batches: str
    run_id: str
    restored: int | None
    appends: bool
    at: datetime | None


def commits(path: str, versions: Iterable[int]) -> Iterator[Commit]:
    """Yields the commits of a table with the given versions from its Delta log, without those that the log has lost."""
    for version, info in _infos(path, versions):
        if info is None:
            continue
        metadata, how = _user_metadata(info), info.get("operationParameters") or {}
        restored = int(how.get("version") or 0) if info.get("operation") == "RESTORE" else None
        yield Commit(
            version,
            str(metadata.get("stage", "")),
            str(metadata.get("batches", "")),
            str(metadata.get("run_id", "")),
            restored,
            info.get("operation") == "WRITE" and how.get("mode") == "Append" and "only_at" not in metadata,
            _time_of(info),
        )


def _time_of(info: Mapping[str, Any]) -> datetime | None:
    """Returns the time of a commit, which its log has in milliseconds since 1970."""
    milliseconds = info.get("timestamp")
    if not isinstance(milliseconds, int):
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def row_metadata(path: str, version: int) -> dict[str, Any]:
    """Returns the facts that the commit which made the rows of a version carries (`effects.Upsert.metadata`).

    Empty if it carries none, if the log has lost it, or if another commit came between it and the version that its run
    had read: then the facts may be about other rows.
    """
    facts: dict[str, Any] = {}
    for number, info in _infos(path, range(version, -1, -1)):
        if facts and number == facts[READ]:
            return facts
        if info is None:
            return {}
        if str(info.get("operation", "")).startswith(_SAME_ROWS):
            continue
        if facts:
            return {}
        facts = dict(_user_metadata(info).get("rows") or {})
        if READ not in facts:
            return {}
    return facts if facts and facts[READ] < 0 else {}


def _infos(path: str, versions: Iterable[int]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yields versions of a table, each with the information about its commit; None if the log has lost it."""
    fs, root = storage.filesystem(path)
    for version in versions:
        try:
            text = fs.cat_file(f"{root}/_delta_log/{version:020d}.json").decode()
        except FileNotFoundError:
            yield version, None
            continue
        yield version, next((i for line in text.splitlines() if (i := _info(line)) is not None), {})


def _info(line: str) -> dict[str, Any] | None:
    if '"commitInfo"' not in line:
        return None
    try:
        info = json.loads(line).get("commitInfo")
    except ValueError:
        return None
    return info if isinstance(info, dict) else None


def _user_metadata(info: Mapping[str, Any]) -> dict[str, Any]:
    try:
        metadata = json.loads(info.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}
