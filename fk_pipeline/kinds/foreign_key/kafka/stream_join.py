"""The join of a stream with a table, event by event, as Kafka Streams 4.3 does it: KStream with KTable or GlobalKTable.

Only the stream emits; the table only updates its store. A versioned table is looked up as of the time of the stream's
record. With a grace period the records of the stream wait in a buffer, in the order of their times, until the stream's
time has passed by that much. Keys and values are bytes; timestamps are milliseconds.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, field

from fk_pipeline.kinds.foreign_key.kafka.stores import HISTORY_RETENTION_MS, PlainStore, Row

NO_KEY = "java.lang.NullPointerException: key cannot be null"
"""The error with which Kafka dies when a record without a key would have to wait in the buffer of a left join."""


class KafkaDiedError(Exception):
    """Kafka itself dies on an event."""


@dataclass
class HistoryStore:
    """A versioned store (KIP-889) as an as-of join reads it: per key all versions, by time.

    Of two versions of a key with one timestamp the last to arrive counts.
    """

    history_retention_ms: int = HISTORY_RETENTION_MS
    versions: dict[bytes, dict[int, bytes | None]] = field(default_factory=dict)
    stream_time: int = -1
    """The largest timestamp seen, over all keys."""

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> bool:
        """Takes a version or a tombstone; returns False if it is older than the history."""
        self.stream_time = max(self.stream_time, timestamp)
        if timestamp < self.stream_time - self.history_retention_ms:
            return False
        self.versions.setdefault(key, {})[timestamp] = value
        return True

    def get(self, key: bytes, timestamp: int) -> bytes | None:
        """Returns the version that held at a time; None if there is none.

        For a time older than the history it is the latest version, which never expires, or none.
        """
        known = self.versions.get(key, {})
        held = max((at for at in known if at <= timestamp), default=-1)
        if timestamp < self.stream_time - self.history_retention_ms and held != max(known, default=-1):
            return None
        return known.get(held)

    @property
    def rows(self) -> dict[bytes, Row]:
        """The latest row per key; a deleted key is absent."""
        latest = {key: max(known) for key, known in self.versions.items()}
        values = {key: (self.versions[key][at], at) for key, at in latest.items()}
        return {key: Row(value, at) for key, (value, at) in values.items() if value is not None}


@dataclass(frozen=True)
class Emitted:
    """A record of the result: key and value of the stream's record, the value of its row (None without one)."""

    key: bytes | None
    left: bytes
    right: bytes | None
    timestamp: int


@dataclass(frozen=True)
class StreamStep:
    """The records that one record caused, in order; `dropped` is the increase of `dropped-records-total`."""

    results: list[Emitted] = field(default_factory=list)
    dropped: int = 0


@dataclass
class StreamJoin:
    """A join of a stream with a table.

    Attributes:
        keeps_left: whether a record of the stream without a row of the table is emitted (left join).
        lookup_key: function from key and value of a record to the key of its row; None if it has none.
        table: the store of the table.
        grace_ms: how long records wait; None: not at all.
        waiting: the records that wait, in the order in which they are emitted: time, key, number, value.
        stream_time: the largest timestamp of the stream.
    """

    keeps_left: bool
    lookup_key: Callable[[bytes | None, bytes], bytes | None]
    table: PlainStore | HistoryStore
    grace_ms: int | None = None
    waiting: list[tuple[int, bytes, int, bytes]] = field(default_factory=list)
    stream_time: int = -1
    _number: int = 0

    def process(self, side: str, key: bytes | None, value: bytes | None, timestamp: int) -> StreamStep:
        """Takes a record of the stream (`left`) or a row or tombstone of the table (`right`).

        Raises:
            KafkaDiedError: Kafka dies on it.
        """
        if side == "right":
            taken = key is not None and self.table.put(key, value, timestamp)
            return StreamStep(dropped=0 if taken else 1)
        if value is None or (self.lookup_key(key, value) is None and not self.keeps_left):
            return StreamStep(dropped=1)
        if self.grace_ms is None:
            return StreamStep(results=self._joined(key, value, timestamp))
        if key is None:
            raise KafkaDiedError(NO_KEY)
        self.stream_time = max(self.stream_time, timestamp)
        closed = self.stream_time - self.grace_ms
        if timestamp < closed:
            return StreamStep(results=self._joined(key, value, timestamp))
        self._number += 1
        bisect.insort(self.waiting, (timestamp, key, self._number, value))
        due = [record for record in self.waiting if record[0] <= closed]
        self.waiting = self.waiting[len(due) :]
        return StreamStep(results=[row for at, of, _, it in due for row in self._joined(of, it, at)])

    def _joined(self, key: bytes | None, value: bytes, timestamp: int) -> list[Emitted]:
        right = self._right_value(self.lookup_key(key, value), timestamp)
        return [Emitted(key, value, right, timestamp)] if right is not None or self.keeps_left else []

    def _right_value(self, key: bytes | None, timestamp: int) -> bytes | None:
        if key is None:
            return None
        if isinstance(self.table, HistoryStore):
            return self.table.get(key, timestamp)
        row = self.table.rows.get(key)
        return None if row is None else row.value
