"""The rows of the ledger tables: append-only Delta tables, written and read without Spark (ADR 0001).

Every row has `entry`, which orders all rows of all tables, and `recorded_at`. What the rows mean is `ledger.py`'s.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from fk_pipeline.tables import faults
from fk_pipeline.tables.logs import DeltaLogs

_TIME = pa.timestamp("us", tz="UTC")
_COUNTS = pa.map_(pa.string(), pa.int64())

FILES = pa.schema(
    [
        ("entry", pa.int64()),
        ("recorded_at", _TIME),
        ("event", pa.string()),
        ("side", pa.string()),
        ("batch", pa.int32()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modified", pa.string()),
        ("digest", pa.string()),
    ]
)
BATCHES = pa.schema(
    [
        ("entry", pa.int64()),
        ("recorded_at", _TIME),
        ("event", pa.string()),
        ("batch", pa.int32()),
        ("side", pa.string()),
        ("version", pa.int32()),
        ("files", pa.list_(pa.string())),
        ("input", pa.string()),
    ]
)
RUNS = pa.schema(
    [
        ("entry", pa.int64()),
        ("recorded_at", _TIME),
        ("event", pa.string()),
        ("run_id", pa.string()),
        ("stage", pa.string()),
        ("batch", pa.int32()),
        ("first", pa.int32()),
        ("last", pa.int32()),
        ("generation", pa.int32()),
        ("input", pa.string()),
        ("upstream", _COUNTS),
        ("counts", _COUNTS),
        ("versions", _COUNTS),
        ("seconds", pa.float64()),
        ("strategy", pa.string()),
        ("reason", pa.string()),
        ("error", pa.string()),
    ]
)
FINGERPRINTS = pa.schema([("entry", pa.int64()), ("recorded_at", _TIME), ("part", pa.string()), ("value", pa.string())])
REBUILDS = pa.schema(
    [
        ("entry", pa.int64()),
        ("recorded_at", _TIME),
        ("event", pa.string()),
        ("rebuild_id", pa.string()),
        ("source", pa.string()),
        ("stages", pa.list_(pa.string())),
        ("fingerprints", pa.map_(pa.string(), pa.string())),
        ("rows", _COUNTS),
        ("seconds", pa.map_(pa.string(), pa.float64())),
    ]
)
CHECKS = pa.schema(
    [
        ("entry", pa.int64()),
        ("recorded_at", _TIME),
        ("event", pa.string()),
        ("check_id", pa.string()),
        ("stage", pa.string()),
        ("name", pa.string()),
        ("severity", pa.string()),
        ("depth", pa.string()),
        ("first", pa.int32()),
        ("last", pa.int32()),
        ("passed", pa.bool_()),
        ("value", pa.float64()),
        ("pending", pa.int64()),
        ("batches", pa.list_(pa.int32())),
        ("cure", pa.string()),
        ("reason", pa.string()),
        ("seconds", pa.float64()),
    ]
)
CORRECTIONS = pa.schema(
    [
        ("entry", pa.int64()),
        ("recorded_at", _TIME),
        ("replay_id", pa.string()),
        ("side", pa.string()),
        ("batch", pa.int32()),
        ("path", pa.string()),
        ("line", pa.int64()),
        ("digest", pa.string()),
        ("text", pa.string()),
    ]
)
FIELDS = pa.schema(
    [
        ("entry", pa.int64()),
        ("recorded_at", _TIME),
        ("side", pa.string()),
        ("name", pa.string()),
        ("always", pa.bool_()),
    ]
)
SCHEMAS = {
    "files": FILES,
    "batches": BATCHES,
    "runs": RUNS,
    "fingerprints": FINGERPRINTS,
    "rebuilds": REBUILDS,
    "checks": CHECKS,
    "corrections": CORRECTIONS,
    "fields": FIELDS,
}

Row = dict[str, Any]


class Entries:
    """The ledger tables under a folder or URI.

    `entry` is the clock in nanoseconds, but always past every entry seen.
    """

    def __init__(self, home: str) -> None:
        self.home = home.rstrip("/")
        self.logs = DeltaLogs()
        self._last = 0
        self._versions: dict[str, int | None] | None = None

    def changed(self) -> bool:
        """Whether somebody else has written since the last time; true the first time."""
        versions = {name: self.logs.version(f"{self.home}/{name}") for name in SCHEMAS}
        known, self._versions = self._versions, versions
        return versions != known

    def forget(self) -> None:
        """What was read cannot be trusted: the next look finds everything changed."""
        self._versions = None

    def rows(self, table: str) -> list[Row]:
        """All rows, in the order of their entries."""
        stored = self.logs.table(f"{self.home}/{table}")
        rows: list[Row] = stored.to_pyarrow_table().to_pylist() if stored is not None else []
        rows.sort(key=lambda row: row["entry"])
        self._last = max(self._last, rows[-1]["entry"] if rows else 0)
        return rows

    def append(self, table: str, rows: Iterable[Row]) -> list[Row]:
        """Writes new rows in one commit; returns them with their entries."""
        first, now = max(time.time_ns(), self._last + 1), datetime.now(UTC)
        full = [{"entry": first + i, "recorded_at": now, **row} for i, row in enumerate(rows)]
        self.add(table, full)
        return full

    def add(self, table: str, full: list[Row]) -> None:
        """Writes rows that have their entries already."""
        if not full:
            return
        self._last = max(self._last, *(row["entry"] for row in full))
        path = f"{self.home}/{table}"
        stored = self.logs.table(path)
        with faults.around(f"entry in {table}"):
            rows = pa.Table.from_pylist(full, schema=SCHEMAS[table])
            widens = stored is not None and len(stored.schema().fields) < len(rows.schema)
            write_deltalake(stored or path, rows, mode="append", schema_mode="merge" if widens else None)
        if stored is not None:
            self.logs.keep(path, stored)
        if self._versions is not None:
            before, after = self._versions[table], self.logs.version(path)
            if after == (0 if before is None else before + 1):  # nobody else wrote: what is in memory is all
                self._versions[table] = after
