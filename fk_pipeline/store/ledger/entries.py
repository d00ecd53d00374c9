"""The rows of the ledger tables: append-only Delta tables, written and read without Spark (ADR 0001).

Every row has `entry`, which orders all rows of all tables, and `recorded_at`. `ledger.py` defines what the rows mean.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from fk_pipeline.environment import storage
from fk_pipeline.environment.refusals import telling_refusals
from fk_pipeline.environment.storage import is_s3
from fk_pipeline.errors import StateError
from fk_pipeline.store import LEDGER_TABLES, faults
from fk_pipeline.store.damage import Damage, DamagedTableError
from fk_pipeline.store.logs import DeltaLogs
from fk_pipeline.table_features import Can, Protocol, refusal

Columns = tuple[tuple[str, pa.DataType, str], ...]
"""Per column: name, type and meaning, which is empty if the name says it."""

_TIME = pa.timestamp("us", tz="UTC")
_COUNTS = pa.map_(pa.string(), pa.int64())

EVERY: Columns = (
    ("entry", pa.int64(), "a clock in nanoseconds that orders the rows of all tables"),
    ("recorded_at", _TIME, ""),
)
"""The first columns of every table."""

COLUMNS: dict[str, Columns] = {
    "files": (
        ("event", pa.string(), "`discovered`, `changed`; `given up`: unreadable versions of a Delta table"),
        ("side", pa.string(), ""),
        ("batch", pa.int32(), ""),
        ("path", pa.string(), "never changes, [wherever it is moved](landing.md#what-may-be-moved)"),
        ("size", pa.int64(), "bytes"),
        ("modified", pa.string(), "time or etag"),
        ("digest", pa.string(), "of the content"),
    ),
    "batches": (
        ("event", pa.string(), "`listed`; `removed`: the batch was withdrawn"),
        ("batch", pa.int32(), ""),
        ("side", pa.string(), ""),
        ("version", pa.int32(), "of the list of files, from 1"),
        ("files", pa.list_(pa.string()), "paths, in the order of reading"),
        ("input", pa.string(), "digest of paths and contents"),
    ),
    "runs": (
        ("event", pa.string(), "`started`, `succeeded`, `failed`; `reopened`: due again"),
        ("run_id", pa.string(), ""),
        ("stage", pa.string(), ""),
        ("batch", pa.int32(), ""),
        ("first", pa.int32(), ""),
        ("last", pa.int32(), ""),
        ("generation", pa.int32(), "of the changelog partition: one more for other files"),
        ("input", pa.string(), "digest of files, corrections, reader's version; empty without files"),
        ("upstream", _COUNTS, "entry of the last success per stage upstream, at the start"),
        ("counts", _COUNTS, "[what was counted](command.md#counts)"),
        ("versions", _COUNTS, "Delta version of each table read; `<table> written`: of one written"),
        ("seconds", pa.float64(), "of all batches of the run"),
        ("strategy", pa.string(), "[`incremental` or `full`](pipeline-file.md#strategy); null: nothing to do"),
        ("reason", pa.string(), "why that strategy, or why `reopened`"),
        ("error", pa.string(), ""),
    ),
    "fingerprints": (
        ("part", pa.string(), ""),
        ("value", pa.string(), ""),
    ),
    "rebuilds": (
        ("event", pa.string(), "`ready`, before the first table is swapped in; `finished`"),
        ("rebuild_id", pa.string(), "`run_id` in the Delta commits"),
        ("source", pa.string(), "`changelog` or `landing`"),
        ("stages", pa.list_(pa.string()), ""),
        ("fingerprints", pa.map_(pa.string(), pa.string()), "with `ready`: of its file"),
        ("rows", _COUNTS, "by table"),
        ("seconds", pa.map_(pa.string(), pa.float64()), "by stage"),
        ("versions", _COUNTS, "with `finished`: Delta version of every table"),
    ),
    "checks": (
        ("event", pa.string(), "`checked` or `waived`"),
        ("check_id", pa.string(), "of a run of checks; in Dagster its id"),
        ("stage", pa.string(), ""),
        ("name", pa.string(), "the expectation; empty: all of the stage"),
        ("severity", pa.string(), "`critical`, `warning`, of your own also `info`"),
        ("depth", pa.string(), "`batch` or `full`"),
        ("first", pa.int32(), "null: all"),
        ("last", pa.int32(), ""),
        ("looked_at", pa.list_(pa.int32()), "batches checked; null: `first` to `last`"),
        ("passed", pa.bool_(), ""),
        ("value", pa.float64(), "rows that break it, or a share; of all of the stage the expectations that hold"),
        ("pending", pa.int64(), "rows that due work explains"),
        ("batches", pa.list_(pa.int32()), "of the rows that break it; of a waived check its batch"),
        ("cure", pa.string(), "`run`, `rebuild`, `source`; `agreement`: the stage asks first"),
        ("reason", pa.string(), "why it was waived"),
        ("seconds", pa.float64(), ""),
    ),
    "corrections": (
        ("replay_id", pa.string(), "one per `quarantine --replay FILE`"),
        ("side", pa.string(), ""),
        ("batch", pa.int32(), ""),
        ("path", pa.string(), ""),
        ("line", pa.int64(), ""),
        ("digest", pa.string(), "SHA-256 of the quarantined line"),
        ("text", pa.string(), "as it is read; empty: dropped"),
    ),
    "folds": (
        ("side", pa.string(), ""),
        ("batches", pa.list_(pa.int32()), ""),
        ("horizon", pa.string(), "with `history`: versions that ended by then answer no more"),
    ),
    "fields": (
        ("side", pa.string(), ""),
        ("name", pa.string(), "null: the side is compared from here on"),
        ("always", pa.bool_(), "earlier batches may have it too: it was declared then"),
    ),
}
"""Per table, its columns after the two of `EVERY`: name, type, meaning. `docs/reference/ledger.md` shows them."""

SCHEMAS = {
    name: pa.schema([(column, dtype) for column, dtype, _ in (*EVERY, *COLUMNS[name])]) for name in LEDGER_TABLES
}
"""The Arrow schema of each table, used for writing."""

Entry = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _rows(table: DeltaTable) -> list[Entry]:
    """Returns all rows of a ledger table, without loading pandas.

    pyarrow loads pandas, which takes half a second, for its datasets and to convert a timestamp to a Python value. So
    deltalake's own engine reads the rows, and `recorded_at` is computed from its microseconds.
    """
    reader = QueryBuilder().register("entries", table).execute("SELECT * FROM entries")
    stored = pa.RecordBatchReader.from_stream(reader).read_all()
    times = [at for chunk in stored["recorded_at"].chunks for at in chunk.view(pa.int64()).to_pylist()]
    rows = stored.drop_columns(["recorded_at"]).to_pylist()
    return [{**row, "recorded_at": _EPOCH + timedelta(microseconds=at)} for row, at in zip(rows, times, strict=True)]


def rows_in_files(home: str, table: str) -> list[Entry]:
    """Returns the rows that the files of a damaged ledger table still have, without its log: each once, in order."""
    import pyarrow.parquet as pq  # takes a while to load, and is needed after damage only

    fs, root = storage.filesystem(f"{home}/{table}")
    rows: dict[int, Entry] = {}
    for name in fs.find(root):
        if name.endswith(".parquet") and "/_delta_log/" not in name:
            try:
                with fs.open(name) as file:
                    part = pq.read_table(file).select(SCHEMAS[table].names)
            except (pa.ArrowException, OSError, KeyError):
                continue
            rows |= {row["entry"]: row for row in part.to_pylist()}
    return [rows[entry] for entry in sorted(rows)]


class Entries:
    """Reads and writes the ledger tables under a folder or URI.

    `entry` is the clock in nanoseconds, but always greater than every entry seen.
    """

    def __init__(self, home: str) -> None:
        self.home = home.rstrip("/")
        self.logs = DeltaLogs()
        self._last = 0
        self._versions: dict[str, int | None] | None = None
        self._refused: StateError | None = None

    @property
    def versions(self) -> str:
        """The versions of all tables as of the last call of `changed`, as a text: another one means that rows came."""
        return " ".join(f"{name} {version}" for name, version in (self._versions or {}).items())

    def changed(self) -> bool:
        """Returns whether another process has written since the last call; true on the first call."""
        at_once = len(SCHEMAS) if is_s3(self.home) else 1  # each look is a request there
        with telling_refusals(self.home), ThreadPoolExecutor(at_once) as pool:
            stored = pool.map(self.logs.table, (f"{self.home}/{name}" for name in SCHEMAS))
            tables = dict(zip(SCHEMAS, stored, strict=True))
        versions = {name: None if table is None else table.version() for name, table in tables.items()}
        known, self._versions = self._versions, versions
        if versions != known:
            refused = (self._refusal(name, table, Can.COMMIT) for name, table in tables.items())
            self._refused = next((error for error in refused if error is not None), None)
        return versions != known

    def refuse_upgraded(self) -> None:
        """Refuses to write to a ledger of which a table cannot be written, as far as `changed` has found one.

        Raises:
            StateError: somebody has given a table a feature that delta-rs does not write.
        """
        if self._refused is not None:
            raise self._refused

    def _refusal(self, name: str, table: DeltaTable | None, what: Can) -> StateError | None:
        return None if table is None else refusal(f"{self.home}/{name}", Protocol.of(table), what, ledger=True)

    def forget(self) -> None:
        """Discards the versions read so far: the next `changed` returns true, and all is read again."""
        self._versions = None

    def rows(self, table: str) -> list[Entry]:
        """Returns all rows of a table, in the order of their entries.

        Raises:
            DamagedTableError: a row occurs twice, because a file was overwritten with a copy of another.
            StateError: somebody has given the table a feature that delta-rs does not read.
        """
        path = f"{self.home}/{table}"
        stored = self.logs.table(path)
        refused = self._refusal(table, stored, Can.READ)
        if refused is not None:
            raise refused
        rows = _rows(stored) if stored is not None else []
        rows.sort(key=lambda row: row["entry"])
        if any(row["entry"] == after["entry"] and row == after for row, after in pairwise(rows)):
            raise DamagedTableError(Damage(table, path, "has the rows of one of its files twice"))
        self._last = max(self._last, rows[-1]["entry"] if rows else 0)
        return rows

    def append(self, table: str, rows: Iterable[Entry]) -> list[Entry]:
        """Writes new rows in one commit, as `add` does; returns them with their entries."""
        first, now = max(time.time_ns(), self._last + 1), datetime.now(UTC)
        full = [{"entry": first + i, "recorded_at": now, **row} for i, row in enumerate(rows)]
        self.add(table, full)
        return full

    def add(self, table: str, full: list[Entry]) -> None:
        """Writes rows that already have their entries, in one commit.

        Raises:
            StateError: somebody has given a table of the ledger a feature that delta-rs does not write.
        """
        if not full:
            return
        self.refuse_upgraded()
        self._last = max(self._last, *(row["entry"] for row in full))
        path = f"{self.home}/{table}"
        stored = self.logs.table(path)
        refused = self._refusal(table, stored, Can.COMMIT)
        if refused is not None:
            raise refused
        with telling_refusals(path), faults.around(f"entry in {table}"):
            rows = pa.Table.from_pylist(full, schema=SCHEMAS[table])
            widens = stored is not None and len(stored.schema().fields) < len(rows.schema)
            options = None if stored is not None else storage.delta_options(path)
            schema_mode: Literal["merge"] | None = "merge" if widens else None
            write_deltalake(stored or path, rows, mode="append", schema_mode=schema_mode, storage_options=options)
        if stored is not None:
            self.logs.keep(path, stored)
        if self._versions is not None:
            before, after = self._versions[table], self.logs.version(path) if stored is None else stored.version()
            if after == (0 if before is None else before + 1):  # no other process wrote: memory has all rows
                self._versions[table] = after
