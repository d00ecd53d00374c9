"""Reads from the log of a Delta table which files were added, with all that the log tells about each.

delta-rs tells the bounds and the deleted rows of a file, and not where the log has its deletion vector.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from fk_pipeline.environment import storage

Action = dict[str, Any]
"""An action of the Delta protocol: its fields."""

CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
"""The name of a checkpoint in one file, with its version."""

FIELDS = ("path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags", "deletionVector")
"""The fields of an added file, in tables without row tracking."""


def added_files(path: str, version: int) -> dict[str, Action] | None:
    """Returns the files of a version of a table.

    Args:
        path: the path or URI of the table.
        version: its version.

    Returns:
        Per name of a file, its `add` action. None if the log does not have all commits since its last checkpoint, or
        has no checkpoint of one file.
    """
    fs, log = storage.filesystem(f"{path}/_delta_log")
    present = {file.rsplit("/", 1)[1] for file in fs.ls(log, detail=False)}
    checkpoints = [int(match[1]) for name in present if (match := CHECKPOINT.fullmatch(name))]
    start = max((number for number in checkpoints if number <= version), default=-1)
    commits = [f"{number:020d}.json" for number in range(start + 1, version + 1)]
    if not present.issuperset(commits):
        return None
    files: dict[str, Action] = {}
    try:
        with storage.as_os_errors():
            if start >= 0:
                with fs.open(f"{log}/{start:020d}.checkpoint.parquet") as checkpoint:
                    files = {file["path"]: file for file in _of_checkpoint(checkpoint)}
            contents = fs.cat([f"{log}/{name}" for name in commits]) if commits else {}  # at once: requests in S3
    except FileNotFoundError:  # another process has removed it since
        return None
    for name in commits:
        apply(files, _actions(contents[f"{log}/{name}"]))
    return files


def apply(files: dict[str, Action], actions: Iterable[Action]) -> None:
    """Applies the actions of a commit to the files of the version before it."""
    added = []
    for action in actions:
        if "add" in action:
            added.append(action["add"])
        elif "remove" in action:
            files.pop(action["remove"]["path"], None)
    files.update((file["path"], file) for file in added)  # a file that gets a deletion vector is removed and added


def _actions(commit: bytes) -> Iterator[Action]:
    for line in commit.splitlines():
        if line and not line.startswith((b'{"commitInfo"', b'{"cdc"')):  # these may have megabytes
            yield json.loads(line)


def _of_checkpoint(file: BinaryIO) -> Iterator[Action]:
    added = pq.read_table(file, columns=["add"])["add"].drop_null().combine_chunks()
    names = [name for name in FIELDS if added.type.get_field_index(name) >= 0]
    for row in pa.table({name: added.field(name) for name in names}).to_pylist():
        yield {name: _plain(name, value) for name, value in row.items() if value is not None}


def _plain(name: str, value: Any) -> Any:
    if name in ("partitionValues", "tags"):
        return dict(value)
    if name == "deletionVector":
        return {key: part for key, part in value.items() if part is not None and key != "maxRowIndex"}
    return value
