"""Versions of a Delta table, addressed like landing files. Needs no Spark.

`<table>@3..7` are the changes of versions 3 to 7, and `<table>@..7` is the whole table at version 7.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyroaring import BitMap64

from fk_pipeline.environment import storage
from fk_pipeline.errors import LandingError
from fk_pipeline.identity import LandedFile
from fk_pipeline.spec.clock import Clock, is_clock
from fk_pipeline.table_features import is_plain, open_table
from fk_pipeline.vector_files import file_of_vector, read_vector

MOST_FEED_FILES = 32
"""Files of a change feed, and versions, up to which they are looked up without Spark."""

MOST_FEED_INDICES = 5_000
"""Rows of deletion vectors, up to which a condition names them."""

INSERTED, DELETED = "insert", "delete"
"""Kinds of changes, as the change feed of Delta names them."""

_PLAIN_NAME = re.compile(r"(_change_data/)?[A-Za-z0-9._-]+")
_RANGE = re.compile(r"(.+)@(\d*)\.\.(\d+)")


@dataclass(frozen=True)
class Seen:
    """A discovered version of a Delta table: the path or URI of the table, its id, and the version.

    Of a clock, both are `Clock.place`, and the version is the step.
    """

    location: str
    id: str
    version: int

    @property
    def is_clock(self) -> bool:
        """Whether it is a step of a clock, and no version of a table."""
        return is_clock(self.id)

    @property
    def shown(self) -> str:
        """The version, for people."""
        return shown_version(self.id, self.version)


def shown_version(of: str, version: int) -> str:
    """Returns a version of a table, or a step of a clock, given its id, for people."""
    return Clock.at(of).shown(version) if is_clock(of) else str(version)


def shown_file(file: LandedFile) -> str:
    """Returns the path of a landing file, or the versions of a table; of a clock what it shows, for people."""
    if not is_clock(file.digest):
        return file.path
    return f"{file.side} {shown_version(file.digest, version_range(file.path)[2])}"


def version_range(path: str) -> tuple[str, int | None, int]:
    """Returns a table's location, and the first and last version of a range; the first is None for the whole table.

    Raises:
        ValueError: the path names no versions.
    """
    match = _RANGE.fullmatch(path)
    if match is None:
        raise ValueError(f"{path!r} names no versions of a table")
    return match[1], int(match[2]) if match[2] else None, int(match[3])


def names_versions(path: str) -> bool:
    """Returns whether a path is a range of versions."""
    return _RANGE.fullmatch(path) is not None


def is_whole(path: str) -> bool:
    """Returns whether a path stands for a whole table at one version."""
    return names_versions(path) and version_range(path)[1] is None


def are_kept(path: str) -> bool:
    """Returns whether the versions that a path names can still be read.

    Their log and their files exist; the change feed was on, and none of them switched it off.
    """
    location, first, last = version_range(path)
    try:
        if first is None:
            return all(_exists(uri) for uri in open_table(location, last).file_uris())
        present = (_has_files(location, version) is not False for version in range(first, last + 1))
        return _feeds_at(location, first) and all(present)
    except (DeltaError, OSError):
        return False


def _may_be_read(location: str, first: int, last: int) -> bool:
    """Returns whether a feed has the changes of some versions; probably, as a vacuum removes the oldest files first."""
    if not _feeds_at(location, first):
        return False
    try:
        states = (_has_files(location, version) for version in range(first, last + 1))
        return next((state for state in states if state is not None), True)
    except OSError:
        return False


@dataclass(frozen=True)
class FeedPart:
    """Changes of one commit in one Parquet file of a table, or in one file of its change feed.

    Attributes:
        file: the path of the file.
        version: the version that the commit made.
        kind: the kind of all these changes; empty for a file of the change feed, whose column `_change_type` has it.
        only: the indices (from 0) of the rows of the file that changed; None: all rows.
        but: the indices of rows that did not.
    """

    file: str
    version: int
    kind: str
    only: BitMap64 | None
    but: BitMap64

    @property
    def named(self) -> int:
        """The number of indices."""
        return len(self.but) + (0 if self.only is None else len(self.only))

    def shares_rows_with(self, other: FeedPart) -> bool:
        """Returns whether a row may have changed in both."""
        if self.file != other.file:
            return False
        if self.only is None:
            return other.only is None or not other.only <= self.but
        return bool(self.only & other.only) if other.only is not None else other.shares_rows_with(self)


@dataclass(frozen=True)
class PlainFeed:
    """The change feed of some versions as rows of Parquet files, which Spark reads without Delta.

    Attributes:
        parts: the changes. No row of a file is in two parts.
        schema: the schema of the table at the last version, as Spark's JSON.
    """

    parts: Sequence[FeedPart]
    schema: Mapping[str, Any]


def plain_feed(path: str) -> PlainFeed | None:
    """Returns the files from which the changes of some versions are read; None if only Delta can read them.

    Delta must read a table that is not on a local disk, has partitions or unknown features, or many rows in deletion
    vectors; a row that came and went again; and versions with other columns or settings: the feed may have been off.
    """
    location, first, last = version_range(path)
    if first is None or "://" in location or last - first >= MOST_FEED_FILES:
        return None
    parts: list[FeedPart] = []
    try:
        table = open_table(location, last)
        for version in range(first, last + 1):
            changes = _plain_changes(location, version)
            if changes is None or any(change.shares_rows_with(other) for change in changes for other in parts):
                return None
            parts += changes
    except (DeltaError, OSError):  # Delta reports it
        return None
    is_small = 0 < len(parts) <= MOST_FEED_FILES and sum(part.named for part in parts) <= MOST_FEED_INDICES
    return PlainFeed(parts, json.loads(table.schema().to_json())) if is_small and is_plain(table) else None


def _plain_changes(location: str, version: int) -> list[FeedPart] | None:
    """Returns the changes of a commit, in the order of its files; None if Delta must read them."""
    actions = _actions_of(f"{location}/_delta_log/{version:020d}.json")
    if any("metaData" in action or _changes_nothing(action.get("commitInfo", {})) for action in actions):
        return None
    per_file: dict[str, dict[str, BitMap64]] = {}
    for entry, kind in _changes_in(actions):
        deleted = read_vector(Path(location), entry.get("deletionVector"))
        if deleted is None or not _PLAIN_NAME.fullmatch(entry["path"]) or kind in per_file.get(entry["path"], {}):
            return None
        per_file.setdefault(entry["path"], {})[kind] = deleted
    parts = []
    for name, deleted_in in per_file.items():
        if len(deleted_in) > 1 and not any(deleted_in.values()):  # no deletion vector has what became of its rows
            return None
        for kind, deleted in deleted_in.items():
            file, after = f"{location}/{name}", deleted_in.get(DELETED if kind == INSERTED else INSERTED)
            if after is None:  # the file came, or went
                parts.append(FeedPart(file, version, kind, None, deleted))
            elif after - deleted:  # it got another vector
                parts.append(FeedPart(file, version, kind, after - deleted, BitMap64()))
    return parts


def _changes_nothing(commit: Mapping[str, Any]) -> bool:
    """Returns whether a commit is a MERGE that only rewrote files: Delta leaves its files out of the feed."""
    metrics = commit.get("operationMetrics") or {}
    counts = [metrics.get(f"numTargetRows{what}") for what in ("Inserted", "Updated", "Deleted")]
    return commit.get("operation") == "MERGE" and all(count == "0" for count in counts)


def _changes_in(actions: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    """Returns the actions of the files with the changes of a commit; of each, the kind of all rows or an empty text."""
    change_files = [(action["cdc"], "") for action in actions if "cdc" in action]
    if change_files:
        return change_files
    kinds = {"add": INSERTED, "remove": DELETED}
    moved = [(action[name], kind) for action in actions for name, kind in kinds.items() if name in action]
    return [(entry, kind) for entry, kind in moved if entry["dataChange"]]


def table_id(path: str) -> str:
    """Returns the current Delta id of the table whose versions a path names; every table has another id."""
    return str(open_table(version_range(path)[0]).metadata().id)


def _files_of(actions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the files from which the changes of a version are read, given the actions of its entry in the log."""
    changed = [entry for entry, _ in _changes_in(actions)]
    vectors = [file_of_vector(entry["deletionVector"]) for entry in changed if entry.get("deletionVector")]
    return [*(unquote(entry["path"]) for entry in changed), *(name for name in vectors if name is not None)]


def _has_files(location: str, version: int) -> bool | None:
    """Returns whether the files with the changes of a version exist; None for a version without changes.

    A version that leaves the table without a change feed has none: Delta refuses every range with it.
    """
    actions = _actions_of(f"{location}/_delta_log/{version:020d}.json")
    settings = [action["metaData"].get("configuration") or {} for action in actions if "metaData" in action]
    if not all(map(_has_feed, settings)):
        return False
    names = _files_of(actions)
    uris = [f"{location}/{name}" if "://" not in name and not name.startswith("/") else name for name in names]
    return all(map(_exists, uris)) if uris else None


def _actions_of(entry: str) -> list[dict[str, Any]]:
    """Returns the actions of an entry of a log."""
    with storage.opened(entry, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _exists(uri: str) -> bool:
    fs, path = storage.filesystem(uri)
    return bool(fs.exists(path))


def new_versions(
    location: str,
    known: Mapping[str, str],
    withdrawn: Collection[str],
    given_up: Collection[str] = (),
    *,
    may_be_another: bool = False,
) -> tuple[str, int, str] | None:
    """Returns the new versions of a table since the last discovery.

    Args:
        location: the location of the table.
        known: the ranges of earlier discoveries, and the id that the table had then.
        withdrawn: the ranges among them that were removed; if the newest is, the whole table is read again.
        given_up: ranges of earlier discoveries that could not be read, which are not among `known`; the whole
            table is read again, unless it was read at the last of these versions or later.
        may_be_another: whether another table than before is read whole, and not refused.

    Returns:
        A range, the number of bytes written for it as far as the log has it, and the table's id; None if there is no
        table or nothing new.

    Raises:
        LandingError: it is another table than before, or at an older version, or its log cannot be read.
    """
    try:
        if not DeltaTable.is_deltatable(location, storage.delta_options(location)):
            return None
        table = open_table(location)
    except DeltaError as error:
        raise LandingError("the table cannot be read", where=location, why=str(error)) from error
    name, now = str(table.metadata().id), table.version()
    ends = {path: version_range(path)[2] for path in known if names_versions(path)}
    last = max((end for path, end in ends.items() if path not in withdrawn), default=None)
    newest = max(ends, key=lambda path: ends[path], default=None)
    if newest is not None and not _goes_on(table, ends[newest], known[newest]):
        if may_be_another:
            return _another(table, location, known)
        raise LandingError(
            f"it is another table than before, or one that was restored: now {name} at version {now}",
            where=location,
            why="which changes it has had since the last look is not known",
            fix="name another warehouse in the pipeline file, and load the table there",
        )
    lacking = max((version_range(path)[2] for path in given_up), default=-1)
    lacks = lacking > max((end for path, end in ends.items() if is_whole(path) and path not in withdrawn), default=-1)
    if (last == now and not lacks) or f"{location}@..{now}" in {*ends, *given_up}:
        return None
    follows = newest is not None and last == ends[newest] and known[newest] == name and not lacks
    if last is not None and follows and _feeds(table) and _may_be_read(location, last + 1, now):
        return f"{location}@{last + 1}..{now}", _written(table, now - last), name
    size = sum(table.get_add_actions(flatten=True)["size_bytes"].to_pylist())
    return f"{location}@..{now}", size, name


def _another(table: DeltaTable, location: str, known: Mapping[str, str]) -> tuple[str, int, str] | None:
    """Returns all versions of another table than before; None if they are known."""
    name, now = str(table.metadata().id), table.version()
    if name in (known.get(path) for path in (f"{location}@..{now}", f"{location}@0..{now}")):
        return None
    path = f"{location}@..{now}" if f"{location}@..{now}" not in known else f"{location}@0..{now}"
    return path, sum(table.get_add_actions(flatten=True)["size_bytes"].to_pylist()), name


def _goes_on(table: DeltaTable, version: int, name: str) -> bool:
    """Returns whether the log of a table still has a version whose table id was `name`.

    `CREATE OR REPLACE` gives a table another id in the same log.
    """
    if str(table.metadata().id) == name:
        return version <= table.version()
    try:
        return version < table.version() and str(open_table(table.table_uri, version).metadata().id) == name
    except DeltaError:
        return False


def _written(table: DeltaTable, commits: int) -> int:
    """Returns the number of bytes that the last commits wrote, as far as their metrics have it."""
    names = ("numOutputBytes", "numAddedBytes", "numTargetBytesAdded")
    metrics = [commit.get("operationMetrics") or {} for commit in table.history(commits)]
    return sum(int(of_commit[name]) for of_commit in metrics for name in names if name in of_commit)


def _feeds(table: DeltaTable) -> bool:
    return _has_feed(table.metadata().configuration)


def _has_feed(settings: Mapping[str, Any]) -> bool:
    return settings.get("delta.enableChangeDataFeed") == "true"


def _feeds_at(location: str, version: int) -> bool:
    """Returns whether the change feed was on at a version; False for a version that is no longer in the log."""
    try:
        return _feeds(open_table(location, version))
    except DeltaError:
        return False
