"""The logs of Delta tables, followed without Spark: which version a table is at, and which files that version is.

Reading a log costs Spark several jobs and this a few milliseconds. A log is read once and followed from there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

Mark = tuple[int, int]
"""Inode and time of a commit."""

UNKNOWN = 1 << 40


@dataclass(frozen=True)
class PlainFiles:
    """A version of a table as nothing but Parquet files: their paths, and the schema as Spark's own JSON."""

    paths: tuple[str, ...]
    schema: dict[str, Any]


class DeltaLogs:
    """Keeps what was read of every log. A table that was removed and made anew is noticed."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[DeltaTable, Mark | None]] = {}

    def table(self, path: str) -> DeltaTable | None:
        """A table at its current version; None when there is none."""
        known, mark = self._tables.get(path, (None, None))
        if known is not None and mark is not None and mark == _mark(path, known.version()):
            if not _commit(path, known.version() + 1).exists():
                return known
            known.update_incremental()
        elif DeltaTable.is_deltatable(path):
            known = DeltaTable(path)
        else:
            self._tables.pop(path, None)
            return None
        self.keep(path, known)
        return known

    def keep(self, path: str, table: DeltaTable) -> None:
        """Remembers a table that was just read or written."""
        self._tables[path] = table, _mark(path, table.version())

    def version(self, path: str) -> int | None:
        """The current version of a table; None when there is none."""
        table = self.table(path)
        return table.version() if table is not None else None

    def rows(self, path: str) -> int:
        """How many rows a table has, by the statistics of its files; a file without any counts as very many."""
        table = self.table(path)
        if table is None:
            return 0
        counts = pa.table(table.get_add_actions(flatten=True)).column("num_records").to_pylist()
        return sum(UNKNOWN if count is None else count for count in counts)

    def plain_files(self, path: str, version: int, at_most: int) -> PlainFiles | None:
        """The files of a version, if their Parquet content is all there is to it and they are few.

        None for a table with partitions, deletion vectors, column mapping or other features of the reader, for a
        version that is not the current one, and in an object store: reading these is Delta's business.
        """
        table = self.table(path)
        if table is None or "://" in path or table.version() != version or table.protocol().min_reader_version > 1:
            return None
        if table.metadata().partition_columns:
            return None
        names = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        if len(names) > at_most:
            return None
        return PlainFiles(tuple(f"{path}/{name}" for name in names), json.loads(table.schema().to_json()))


def _commit(path: str, version: int) -> Path:
    return Path(path, "_delta_log", f"{version:020d}.json")


def _mark(path: str, version: int) -> Mark | None:
    """What tells a commit from one of the same number in a table made anew; None in an object store."""
    if "://" in path:
        return None
    try:
        found = _commit(path, version).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
