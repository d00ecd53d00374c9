"""Reads the logs of Delta tables without Spark: the current version of a table, and the files of that version.

Reading a log takes Spark several jobs, and a few milliseconds here. A log is read once, then only its new commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from fk_pipeline.environment import storage
from fk_pipeline.environment.storage import Refusal, ask_s3, is_s3
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.store import LEDGER_TABLES
from fk_pipeline.store.damage import Damage, DamagedTableError, other_size
from fk_pipeline.store.log_bounds import PARTITION, Times, used_columns
from fk_pipeline.store.skipping import Condition
from fk_pipeline.store.table_files import UNMARKED, PlainFiles, StoredFile
from fk_pipeline.table_features import Can, Protocol, beyond, is_plain, open_table, reads_vectors

Mark = tuple[int, int] | str
"""Identifies the file of a commit: its inode and modification time; in S3 its ETag."""

UNKNOWN_SIZE = 1 << 40


@dataclass(frozen=True)
class _Version:
    """One version of a table in its log: its files with their statistics, and the deleted rows."""

    number: int
    files: dict[str, list[Any]]
    timed: frozenset[str]
    times: Times
    deleted: dict[str, pa.Array] | None

    @property
    def is_exact(self) -> bool:
        """Whether all bounds count."""
        return not self.timed or self.times.count(self.number)

    def bounds(self, column: str) -> tuple[list[Any], list[Any]]:
        """Returns the least and the greatest value of a column per file, None where it is not known.

        The lists are empty if the log has none, or if they do not count.
        """
        if column in self.timed and not self.is_exact:
            return [], []
        low, high = (self.files.get(f"{which}.{column}", []) for which in ("min", "max"))
        return low, high

    def has_only_nulls(self, column: str, i: int) -> bool:
        """Returns whether the log tells that a column is null in every row of the file with this index."""
        nulls, rows = (self.files.get(name) for name in (f"null_count.{column}", "num_records"))
        return nulls is not None and rows is not None and nulls[i] is not None and nulls[i] == rows[i]


@dataclass(frozen=True)
class _Known:
    """A table at the version to which its log was read."""

    table: DeltaTable
    mark: Mark | None
    times: Times


class DeltaLogs:
    """Caches what was read of every log, and detects a table that was removed and created again.

    Args:
        version: the version of each table that counts as the current one; None: the newest.
    """

    def __init__(self, version: int | None = None) -> None:
        self._at = version
        self._tables: dict[str, _Known] = {}
        self._looked_at: set[str] | None = None
        """The tables whose logs were looked at; None: each is looked at whenever its table is needed."""
        self._versions: dict[str, tuple[Mark | None, _Version]] = {}

    def table(self, path: str) -> DeltaTable | None:
        """Returns a table at its current version; None if it does not exist.

        Raises:
            StateError: delta-rs cannot open it, because of a feature that somebody has given it.
        """
        known = self._tables.get(path)
        if known is not None and (self._at is not None or path in (self._looked_at or ())):
            return known.table
        table = self._current(path, known)
        if table is not None and self._looked_at is not None:
            self._looked_at.add(path)
        return table

    def _current(self, path: str, known: _Known | None) -> DeltaTable | None:
        """Looks at a log, and returns its table at the current version; None if there is none."""
        if known is not None and known.mark is not None:
            now, goes_on = _look(path, known.table.version())
            if known.mark == now:
                if goes_on:
                    known.table.update_incremental()
                    self.keep(path, known.table)
                return known.table
        self._tables.pop(path, None)
        if not DeltaTable.is_deltatable(path, storage.delta_options(path)):
            return None
        table = open_table(path, self._at, ledger=path.rsplit("/", 1)[1] in LEDGER_TABLES)
        self._tables[path] = _Known(table, _look(path, table.version())[0], Times(path, table.version()))
        return table

    @contextmanager
    def looking_once(self) -> Iterator[None]:
        """Within the block each log is looked at once, and anew after `look_again`: a look into S3 is a request.

        For a stage: it reads each table at one version, and alone writes its own.
        """
        self._looked_at = set()
        try:
            yield
        finally:
            self._looked_at = None

    def look_again(self, path: str) -> None:
        """Looks at a log again when its table is needed next: this process has written, or another one may have."""
        if self._looked_at is not None:
            self._looked_at.discard(path)

    def keep(self, path: str, table: DeltaTable) -> None:
        """Caches a table that `table` returned and that was written since."""
        known = self._tables.get(path)
        times = known.times if known is not None and known.table is table else Times(path, 0)
        self._tables[path] = _Known(table, _look(path, table.version())[0], times)

    def version(self, path: str) -> int | None:
        """Returns the current version of a table; None if it does not exist."""
        table = self.table(path)
        return table.version() if table is not None else None

    def rows(self, path: str) -> int:
        """Returns the number of rows of a table by the statistics of its files.

        A file without statistics counts as `UNKNOWN_SIZE` rows, and deleted rows count where only Spark knows them.
        """
        table = self.table(path)
        if table is None:
            return 0
        stored = self._version(path, table)
        return sum(_counts(stored.files)) - sum(map(len, (stored.deleted or {}).values()))

    def deleted(self, path: str) -> dict[str, pa.Array]:
        """Returns, per file with a deletion vector, the ascending indices of the deleted rows of a plain table."""
        table = self.table(path)
        return {} if table is None else self._version(path, table).deleted or {}

    def bytes(self, path: str) -> int:
        """Returns the size of the files of a table in bytes."""
        table = self.table(path)
        return 0 if table is None else sum(self._version(path, table).files["size_bytes"])

    def span(self, path: str, column: str) -> tuple[int, int] | None:
        """Returns the least and greatest value of an integer column in all files; None if a file does not have them.

        A file in which the column is null in every row has no value that counts.
        """
        table = self.table(path)
        stored = None if table is None else self._version(path, table)
        if stored is None:
            return None
        low, high = (
            [value for i, value in enumerate(values) if not stored.has_only_nulls(column, i)]
            for values in stored.bounds(column)
        )
        if not low or not high or not all(isinstance(value, int) for value in (*low, *high)):
            return None
        return min(low), max(high)

    def has_exact_bounds(self, path: str) -> bool:
        """Returns whether delta-rs knows the bounds of the files of a table as they are, as far as it knows any."""
        table = self.table(path)
        return table is None or self._version(path, table).is_exact

    def floor(self, path: str, version: int, column: str) -> int | None:
        """Returns a number that the greatest value of a column is not below; None if none is known.

        This is the greatest of the least values of files. A file with a deletion vector may have lost that row.

        Args:
            path: the table.
            version: its version; none is known of another one than the current.
            column: a column with integers, or timestamps, which count in microseconds since 1970.
        """
        table = self.table(path)
        stored = None if table is None else self._version(path, table)
        if stored is None or stored.number != version or stored.deleted is None:
            return None
        least, _ = stored.bounds(column)
        known = [
            value
            for name, value in zip(stored.files["path"], least, strict=False)
            if value is not None and not len(stored.deleted.get(name, ()))
        ]
        return max(known, default=None)

    def plain_files(self, path: str, version: int, at_most: int, where: Sequence[Condition] = ()) -> PlainFiles | None:
        """Returns the files of a version that may have wanted rows, if few and if Spark can read them without Delta.

        Returns None for a table with partitions, column mapping or other features of the reader, for a version that is
        not the current one, and in an object store that is not S3: Delta must read these.

        Args:
            path: the table.
            version: its version.
            at_most: the most files that are returned; with more, the result is None.
            where: conditions that all wanted rows meet.

        Raises:
            DamagedTableError: one of these files is gone, or its size is not the size in the log: Spark would read the
                file by the names of its columns, and return nulls for the rows of another table.
        """
        table = self.table(path)
        if table is None or not storage.has_exclusive_writes(path) or table.version() != version or not is_plain(table):
            return None
        stored = self._version(path, table)
        names, counts, vectors = stored.files["path"], _counts(stored.files), stored.deleted or {}

        def may_match(i: int) -> bool:
            def bounds(column: str) -> tuple[Any, ...] | None:
                if stored.has_only_nulls(column, i):
                    return ()
                low, high = stored.bounds(column)
                if not low or not high or low[i] is None or high[i] is None:
                    return None
                return low[i], high[i]

            return all(condition.may_meet(bounds) for condition in where)

        chosen = [i for i in range(len(names)) if may_match(i)]
        if len(chosen) > at_most:
            return None
        deleted = {name: vectors[name] for i in chosen if len(vectors.get(name := names[i], ()))}
        paths = tuple(f"{path}/{names[i]}" for i in chosen)
        sizes = tuple(stored.files["size_bytes"][i] for i in chosen)
        if not is_s3(path):  # where a file cannot be replaced by another one of its name but as a whole
            for file, logged in zip(paths, sizes, strict=True):
                _expect(path, file, logged)
        rows = sum(counts[i] for i in chosen)
        return PlainFiles(paths, json.loads(table.schema().to_json()), rows, sizes, deleted)

    def files(self, path: str) -> list[StoredFile]:
        """Returns the files of the current version of a table, which exists.

        Raises:
            LeftToSpark: only Spark can find the rows of the table, or a file is not the one in the log.
        """
        table = self.table(path)
        assert table is not None
        lacking = beyond(Protocol.of(table), Can.READ)
        if lacking:
            raise LeftToSpark(f"the table has {' and '.join(lacking)}")
        stored = self._version(path, table)
        if stored.deleted is None:
            raise LeftToSpark("the table has deletion vectors that only Spark reads")
        names, columns = stored.files["path"], table.metadata().partition_columns
        values = [stored.files.get(f"{PARTITION}{column}") for column in columns]
        if any("://" in name or name.startswith("/") for name in names) or not all(isinstance(v, list) for v in values):
            raise LeftToSpark("the table has files in other places")
        files = []
        for i, (name, rows, size) in enumerate(
            zip(names, _counts(stored.files), stored.files["size_bytes"], strict=True)
        ):
            file = f"{path}/{name}"
            if "://" not in path and (not Path(file).exists() or Path(file).stat().st_size != size):
                raise LeftToSpark("a file of the table is not the one in its log")
            parts = {column: value[i] for column, value in zip(columns, values, strict=True) if value is not None}
            files.append(StoredFile(file, rows, size, stored.deleted.get(name.rsplit("/", 1)[-1], UNMARKED), parts))
        return files

    def _version(self, path: str, table: DeltaTable) -> _Version:
        known = self._versions.get(path)
        cached = self._tables[path]
        if known is None or cached.mark is None or known[0] != cached.mark or known[1].number != table.version():
            now = _Version(table.version(), *used_columns(table), cached.times, _deleted(table))
            known = self._versions[path] = cached.mark, now
        return known[1]


def _expect(path: str, file: str, logged: int) -> None:
    try:
        size = Path(file).stat().st_size
    except FileNotFoundError:
        raise DamagedTableError(Damage(Path(path).name, file, "is gone")) from None
    if size != logged:
        raise DamagedTableError(Damage(Path(path).name, file, other_size(size, logged)))


def _counts(files: dict[str, list[Any]]) -> list[int]:
    return [UNKNOWN_SIZE if count is None else count for count in files["num_records"]]


def _deleted(table: DeltaTable) -> dict[str, pa.Array] | None:
    """Returns, per file with a deletion vector, the indices of the deleted rows; None if only Spark can tell."""
    protocol = table.protocol()
    if protocol.min_reader_version < 3 or "deletionVectors" not in (protocol.reader_features or ()):
        return {}
    if not reads_vectors(table):
        return None
    import pyarrow.compute as pc  # takes half as long to load as the rest of pyarrow, and most tables do not need it

    deleted = {}
    for batch in table.deletion_vectors():
        vectors = pa.record_batch(batch)
        for uri, keep in zip(vectors["filepath"].to_pylist(), vectors["selection_vector"], strict=True):
            rows = pc.indices_nonzero(pc.invert(keep.values)).cast(pa.int64())
            deleted[uri.rsplit("/", 1)[1]] = rows
    return deleted


def _look(path: str, version: int) -> tuple[Mark | None, bool]:
    """Looks up a commit in a log, to find out whether the log is still the one that was read.

    Returns:
        The mark of the commit, which differs for a commit of the same number in a table that was created again; None if
        it cannot be found out. And whether there is a commit after it, or may be one.
    """
    commit, following = (f"{path}/_delta_log/{number:020d}.json" for number in (version, version + 1))
    if is_s3(path):
        return _look_into_s3(commit, following)
    if "://" in path:
        return None, True
    try:
        status = Path(commit).stat()
    except FileNotFoundError:
        return None, True
    return (status.st_ino, status.st_mtime_ns), Path(following).exists()


def _look_into_s3(commit: str, following: str) -> tuple[str | None, bool]:
    folder, name = commit.rsplit("/", 1)
    just_before = f"{folder.split('/', 3)[3]}/{name.removesuffix('.json')}"
    # Few objects come after the two commits, and between them are at most a checksum and the parts of a checkpoint.
    answer = ask_s3("list_objects_v2", f"{folder}/", StartAfter=just_before, MaxKeys=1000)
    if isinstance(answer, Refusal) or answer["IsTruncated"]:
        return None, True
    tags = {entry["Key"].rsplit("/", 1)[1]: entry["ETag"] for entry in answer.get("Contents", ())}
    return tags.get(name), following.rsplit("/", 1)[1] in tags
