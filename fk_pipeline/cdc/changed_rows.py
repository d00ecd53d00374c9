"""About how many rows of a Delta table changed between two versions, as its log tells. No Spark, and no row is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fk_pipeline.environment import storage

MOST_VERSIONS = 200
"""Versions of which the log is read, at most."""

_COUNTED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "MERGE": (
        ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
        ("num_target_rows_inserted", "num_target_rows_updated", "num_target_rows_deleted"),
    ),
    "UPDATE": (("numUpdatedRows",), ("num_updated_rows",)),
    "DELETE": (("numDeletedRows",), ("num_deleted_rows",)),
    "WRITE": (("numOutputRows",), ("num_added_rows",)),
    "CREATE TABLE AS SELECT": (("numOutputRows",),),
    "STREAMING UPDATE": (("numOutputRows",),),
}
"""Per operation, the metrics whose sum is the number of changed rows: as Spark names them, and as delta-rs does."""


def changed_rows(location: str, first: int, last: int) -> int | None:
    """Returns about how many rows some commits of a table changed.

    A row that two commits changed counts twice. A commit that replaces rows counts the rows that it wrote.

    Args:
        location: the path or URI of the table.
        first: the version of the first commit.
        last: the version of the last commit.

    Returns:
        The number; None if the log lacks that of a commit, or if there are too many commits.
    """
    if last - first >= MOST_VERSIONS:
        return None
    try:
        numbers = [
            _changed_by(_actions(f"{location}/_delta_log/{version:020d}.json")) for version in range(first, last + 1)
        ]
    except (OSError, ValueError):
        return None
    return None if None in numbers else sum(number for number in numbers if number is not None)


def _actions(entry: str) -> list[dict[str, Any]]:
    with storage.opened(entry, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _changed_by(actions: Sequence[Mapping[str, Any]]) -> int | None:
    """Returns about how many rows a commit changed: by its metrics, otherwise by the statistics of its files."""
    commit: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    metrics = commit.get("operationMetrics") or {}
    for names in _COUNTED.get(str(commit.get("operation", "")).upper(), ()):
        if any(name in metrics for name in names):
            return sum(int(metrics.get(name) or 0) for name in names)
    return _by_files(actions)


def _by_files(actions: Sequence[Mapping[str, Any]]) -> int | None:
    """Returns about how many rows came or went, whichever are more; None if a file does not tell how many it has."""
    rows: dict[str, dict[str, int]] = {"add": {}, "remove": {}}
    for action in actions:
        if "cdc" in action:  # such an action has no statistics
            return None
        for kind, of in rows.items():
            if kind in action and action[kind].get("dataChange", True):
                number = _living(action[kind])
                if number is None:
                    return None
                of[action[kind]["path"]] = number
    added, removed = rows["add"], rows["remove"]
    both = added.keys() & removed.keys()  # a file that got another deletion vector
    marked = sum(abs(removed[path] - added[path]) for path in both)
    came, went = (sum(number for path, number in of.items() if path not in both) for of in (added, removed))
    return max(came, went + marked)


def _living(file: Mapping[str, Any]) -> int | None:
    """Returns the number of rows of a file that are not deleted; None if the log does not have it."""
    number = json.loads(file.get("stats") or "{}").get("numRecords")
    deleted = (file.get("deletionVector") or {}).get("cardinality", 0)
    return None if number is None else int(number) - int(deleted)
