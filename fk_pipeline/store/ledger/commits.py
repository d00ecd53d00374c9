"""Commits of the data tables: what the ledger knows of them, and what the log of a table says itself. No Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fk_pipeline.contract import Kind
from fk_pipeline.environment import storage
from fk_pipeline.store import schemas as s

WRITTEN_SUFFIX = " written"
"""Ends the name of a version that a run wrote; without it, the version that it read."""


class CommitLog:
    """What the ledger knows of versions and of starts."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.versions: dict[str, int] = {}
        """By table the version up to which all commits are accounted for: nobody has to look at them."""
        self.unexplained: set[str] = set()
        """Tables that a rebuild made anew without telling their versions, and that no run has written since."""
        self.starts: dict[str, tuple[str, int]] = {}
        """By run its stage, and the entry of its first start."""
        self.newest: dict[str, str] = {}
        """By stage the run that was started last."""
        self._known: dict[str, int] = {}
        self._writes: dict[str, list[tuple[int, int, str]]] = {}

    def fold(self, row: Mapping[str, Any]) -> None:
        """Takes a row of `runs` in; rows come in the order of their entries."""
        stage, entry, versions = row["stage"], row["entry"], dict(row.get("versions") or ())
        if row["event"] == "started":
            self.starts.setdefault(row["run_id"], (stage, entry))
            self.newest[stage] = row["run_id"]
        elif row["event"] == "reopened":
            self._account(versions, entry)
        elif row["event"] == "succeeded":
            own = (*self._kind.written_by(stage), s.QUARANTINE)
            for table in own:
                found = versions.get(f"{table}{WRITTEN_SUFFIX}")
                if found is not None:
                    self._writes.setdefault(table, []).append((entry, found, stage))
                elif table != s.QUARANTINE:
                    found = versions.get(table)
                if found is not None:  # the quarantine is written by stages that do not wait for each other
                    self._account({table: max(found, self.versions.get(table, -1))}, entry)

    def fold_rebuild(self, row: Mapping[str, Any]) -> None:
        """Takes a row of `rebuilds` in, after all runs: what was written before it is gone."""
        if row["event"] != "finished":
            return
        versions = dict(row.get("versions") or ())
        for table in [name for stage in row["stages"] or () for name in self._kind.written_by(stage)]:
            if self._known.get(table, 0) < row["entry"]:
                self.versions.pop(table, None)
                self.unexplained.add(table)
            self._writes[table] = [one for one in self._writes.get(table, ()) if one[0] > row["entry"]]
        for table, version in versions.items():
            if self._known.get(table, 0) < row["entry"]:
                self._account({table: version}, row["entry"])

    def _account(self, versions: Mapping[str, int], entry: int) -> None:
        for table, version in versions.items():
            self.versions[table], self._known[table] = version, entry
            self.unexplained.discard(table)

    def after(self, table: str, version: int | None) -> int:
        """The entry after which everything that a table says of runs is newer than a version; 0: no run wrote it."""
        found = self._writes.get(table, ())
        return max((entry for entry, written, _ in found if version is not None and written <= version), default=0)

    def writers(self, table: str, version: int | None) -> set[str]:
        """The stages that wrote what a version does not have."""
        lost = -1 if version is None else version
        return {stage for _, written, stage in self._writes.get(table, ()) if written > lost}


@dataclass(frozen=True)
class Commit:
    """One commit of a table.

    Attributes:
        version: that it made.
        stage: for which it was made, as its metadata say; empty where nobody said it.
        batches: as text.
        run_id: of the run that made it.
        restored: the version that it brought back, where it is a RESTORE; 0 where it does not say.
        appends: it added rows without a look at what was there.
    """

    version: int
    stage: str
    batches: str
    run_id: str
    restored: int | None
    appends: bool


def commits(path: str, versions: Iterable[int]) -> Iterator[Commit]:
    """What the log of a table says of some of its commits; those that it does not have any more are left out."""
    fs, root = storage.filesystem(path)
    for version in versions:
        try:
            text = fs.cat_file(f"{root}/_delta_log/{version:020d}.json").decode()
        except FileNotFoundError:
            continue
        info = next((i for line in text.splitlines() if (i := _info(line)) is not None), {})
        told, how = _told(info), info.get("operationParameters") or {}
        restored = int(how.get("version") or 0) if info.get("operation") == "RESTORE" else None
        yield Commit(
            version,
            str(told.get("stage", "")),
            str(told.get("batches", "")),
            str(told.get("run_id", "")),
            restored,
            info.get("operation") == "WRITE" and how.get("mode") == "Append",
        )


def _info(line: str) -> dict[str, Any] | None:
    if '"commitInfo"' not in line:
        return None
    try:
        found = json.loads(line).get("commitInfo")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _told(info: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(info.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
