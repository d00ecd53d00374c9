"""The logs of Delta tables, followed without Spark: which version a table is at, and which files that version is.

Reading a log costs Spark several jobs and this a few milliseconds. A log is read once and followed from there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from fk_pipeline.environment import storage
from fk_pipeline.environment.storage import Refusal, ask_s3, is_s3
from fk_pipeline.store.damage import Damage, DamagedTableError, other_size
from fk_pipeline.store.skipping import Condition

Mark = tuple[int, int] | str
"""Inode and time of a commit; in S3 its ETag."""

UNKNOWN_SIZE = 1 << 40

READABLE = {"deletionVectors"}
"""Features of a table's reader that we can do without Delta."""


@dataclass(frozen=True)
class PlainFiles:
    """A version of a table as Parquet files, or those that conditions leave.

    Attributes:
        paths: of the files.
        schema: as Spark's own JSON.
        rows: how many they have together.
        bytes: their size.
        deleted: by name of a file, without folder, the indices (from 0) of the rows that its deletion vector marks,
            ascending; of files that have some.
    """

    paths: tuple[str, ...]
    schema: dict[str, Any]
    rows: int
    bytes: int
    deleted: dict[str, pa.Array]

    @property
    def marked(self) -> int:
        """How many rows deletion vectors mark."""
        return sum(map(len, self.deleted.values()))


@dataclass(frozen=True)
class _Version:
    """What the log says about one version of a table: its files with their statistics, and the deleted rows."""

    number: int
    files: dict[str, list[Any]]
    deleted: dict[str, pa.Array]


class DeltaLogs:
    """Keeps what was read of every log. A table that was removed and made anew is noticed."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[DeltaTable, Mark | None]] = {}
        self._versions: dict[str, tuple[Mark | None, _Version]] = {}

    def table(self, path: str) -> DeltaTable | None:
        """A table at its current version; None when there is none."""
        known, mark = self._tables.get(path, (None, None))
        now, goes_on = _look(path, known.version()) if known is not None and mark is not None else (None, True)
        if known is not None and mark is not None and mark == now:
            if not goes_on:
                return known
            known.update_incremental()
        elif DeltaTable.is_deltatable(path, options := storage.delta_options(path)):
            known = DeltaTable(path, storage_options=options)
        else:
            self._tables.pop(path, None)
            return None
        self.keep(path, known)
        return known

    def keep(self, path: str, table: DeltaTable) -> None:
        """Remembers a table that was just read or written."""
        self._tables[path] = table, _look(path, table.version())[0]

    def version(self, path: str) -> int | None:
        """The current version of a table; None when there is none."""
        table = self.table(path)
        return table.version() if table is not None else None

    def rows(self, path: str) -> int:
        """How many rows a table has, by the statistics of its files; a file without any counts as very many."""
        table = self.table(path)
        if table is None:
            return 0
        stored = self._version(path, table)
        return sum(_counts(stored.files)) - sum(map(len, stored.deleted.values()))

    def bytes(self, path: str) -> int:
        """How many bytes the files of a table have."""
        table = self.table(path)
        return 0 if table is None else sum(self._version(path, table).files["size_bytes"])

    def span(self, path: str, column: str) -> tuple[int, int] | None:
        """The least and greatest value of an integer column in all files; None where a file does not tell."""
        table = self.table(path)
        files = {} if table is None else self._version(path, table).files
        low, high = (files.get(f"{which}.{column}") for which in ("min", "max"))
        if not low or not high or not all(isinstance(value, int) for value in (*low, *high)):
            return None
        return min(low), max(high)

    def plain_files(self, path: str, version: int, at_most: int, where: Sequence[Condition] = ()) -> PlainFiles | None:
        """The files of a version that may have wanted rows, if they are few and Spark can read them without Delta.

        None for a table with partitions, column mapping or other features of the reader, for a version that is not the
        current one, and in an object store: reading these is Delta's business.

        Args:
            path: the table.
            version: its version.
            at_most: how many files are few.
            where: what all wanted rows meet.

        Raises:
            DamagedTableError: one of these files is gone, or has another size than the log says: Spark would read what
                lies there, by the names of its columns, and find nulls where another table's rows lie.
        """
        table = self.table(path)
        if table is None or "://" in path or table.version() != version or not _is_readable(table):
            return None
        stored = self._version(path, table)
        names, counts = stored.files["path"], _counts(stored.files)

        def wanted(i: int) -> bool:
            def bounds(column: str) -> tuple[Any, Any] | None:
                low, high = (stored.files.get(f"{which}.{column}") for which in ("min", "max"))
                if low is None or high is None or low[i] is None or high[i] is None:
                    return None
                return low[i], high[i]

            return all(condition.may_meet(bounds) for condition in where)

        chosen = [i for i in range(len(names)) if wanted(i)]
        if len(chosen) > at_most:
            return None
        deleted = {name: stored.deleted[name] for i in chosen if len(stored.deleted.get(name := names[i], ()))}
        paths = tuple(f"{path}/{names[i]}" for i in chosen)
        for file, logged in zip(paths, (stored.files["size_bytes"][i] for i in chosen), strict=True):
            _expect(path, file, logged)
        rows, size = (sum(numbers[i] for i in chosen) for numbers in (counts, stored.files["size_bytes"]))
        return PlainFiles(paths, json.loads(table.schema().to_json()), rows, size, deleted)

    def _version(self, path: str, table: DeltaTable) -> _Version:
        known = self._versions.get(path)
        mark = self._tables[path][1]
        if known is None or mark is None or known[0] != mark or known[1].number != table.version():
            files = {name: column.to_pylist() for name, column in _columns(table)}
            known = self._versions[path] = mark, _Version(table.version(), files, _deleted(table))
        return known[1]


def _expect(path: str, file: str, logged: int) -> None:
    try:
        found = Path(file).stat().st_size
    except FileNotFoundError:
        raise DamagedTableError(Damage(Path(path).name, file, "is gone")) from None
    if found != logged:
        raise DamagedTableError(Damage(Path(path).name, file, other_size(found, logged)))


def _columns(table: DeltaTable) -> list[tuple[str, pa.ChunkedArray]]:
    """What is looked at of the files: path, rows, size; bounds of columns whose type `skipping` has conditions for."""
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()  # pa.table: with pandas
    kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
    return [
        (name, actions[name])
        for name in actions.column_names
        if name in ("path", "num_records", "size_bytes")
        or (name.startswith(("min.", "max.")) and any(is_kind(actions[name].type) for is_kind in kinds))
    ]


def _counts(files: dict[str, list[Any]]) -> list[int]:
    return [UNKNOWN_SIZE if count is None else count for count in files["num_records"]]


def _is_readable(table: DeltaTable) -> bool:
    protocol = table.protocol()
    if table.metadata().partition_columns:
        return False
    return protocol.min_reader_version <= 1 or (
        protocol.min_reader_version == 3 and set(protocol.reader_features or ()) <= READABLE
    )


def _deleted(table: DeltaTable) -> dict[str, pa.Array]:
    """Per file that has a deletion vector, the indices of the deleted rows."""
    protocol = table.protocol()
    if protocol.min_reader_version < 3 or "deletionVectors" not in (protocol.reader_features or ()):
        return {}
    import pyarrow.compute as pc  # half as long to load as the rest of pyarrow, and most tables do without

    found = {}
    for batch in table.deletion_vectors():
        kept = pa.record_batch(batch)
        for uri, keep in zip(kept["filepath"].to_pylist(), kept["selection_vector"], strict=True):
            rows = pc.indices_nonzero(pc.invert(keep.values)).cast(pa.int64())
            found[uri.rsplit("/", 1)[1]] = rows
    return found


def _look(path: str, version: int) -> tuple[Mark | None, bool]:
    """Whether a log is still the one that was read.

    Returns:
        What tells a commit from one of the same number in a table made anew, None where that cannot be seen; and
        whether there is a commit after it.
    """
    commit, following = (f"{path}/_delta_log/{number:020d}.json" for number in (version, version + 1))
    if is_s3(path):
        return _look_into_s3(commit, following)
    if "://" in path:
        return None, True
    try:
        found = Path(commit).stat()
    except FileNotFoundError:
        return None, True
    return (found.st_ino, found.st_mtime_ns), Path(following).exists()


def _look_into_s3(commit: str, following: str) -> tuple[str | None, bool]:
    folder, name = commit.rsplit("/", 1)
    just_before = f"{folder.split('/', 3)[3]}/{name.removesuffix('.json')}"
    # Newer than the two are few, and between them at most a checksum and the parts of a checkpoint.
    answer = ask_s3("list_objects_v2", f"{folder}/", StartAfter=just_before, MaxKeys=1000)
    if isinstance(answer, Refusal) or answer["IsTruncated"]:
        return None, True
    found = {one["Key"].rsplit("/", 1)[1]: one["ETag"] for one in answer.get("Contents", ())}
    return found.get(name), following.rsplit("/", 1)[1] in found
