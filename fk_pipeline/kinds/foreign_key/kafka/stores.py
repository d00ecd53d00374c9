"""The latest row of every key, as Kafka's two kinds of table store keep it.

A plain store takes every row in the order of arrival. A versioned store (KIP-914) takes the row with the latest
timestamp, refuses rows older than its history, and has a quirk that `VersionedStore` describes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

HISTORY_RETENTION_MS = 3_600_000
"""The default history of a versioned store, in milliseconds: one hour."""


@dataclass(frozen=True)
class Row:
    """A row of a table: the serialised value and its timestamp, in milliseconds."""

    value: bytes
    timestamp: int


class TableStore(Protocol):
    """The interface of a table's store as the join uses it."""

    rows: dict[bytes, Row]
    """The latest row per key; a deleted key is absent."""

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> bool:
        """Takes a row or a tombstone; returns False if it is not the latest of its key and must be ignored."""
        ...


@dataclass
class PlainStore:
    """A store in which the row that arrived last is the latest, whatever its timestamp."""

    rows: dict[bytes, Row] = field(default_factory=dict)

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> bool:
        """Takes the row or tombstone as the latest of its key; always returns True."""
        _set(self.rows, key, value, timestamp)
        return True


@dataclass
class VersionedStore:
    """A store in which the row with the latest timestamp is the latest; among equal timestamps, the last to arrive.

    Of the older versions the store keeps only the time until which a key is known to have had another row or none; rows
    before that time are late. A tombstone with the timestamp of the key's row overwrites the row and leaves no trace of
    itself, so a row that arrives afterwards with an older timestamp is taken. Kafka's stores do that; the recorded
    cases `versioned-same-ts-tombstone-*` show it.
    """

    history_retention_ms: int = HISTORY_RETENTION_MS
    rows: dict[bytes, Row] = field(default_factory=dict)
    closed_until: dict[bytes, int] = field(default_factory=dict)
    """Per key the timestamp at which its known history ends; rows with an older timestamp are not the latest."""
    stream_time: int = -1
    """The largest timestamp seen, over all keys."""

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> bool:
        """Takes a row or tombstone unless it is older than the key's row, its history, or the store's retention."""
        self.stream_time = max(self.stream_time, timestamp)
        if timestamp < self.stream_time - self.history_retention_ms:
            return False
        row = self.rows.get(key)
        if timestamp < (row.timestamp if row else self.closed_until.get(key, timestamp)):
            return False
        if (row and row.timestamp < timestamp) or (row is None and value is None):
            self.closed_until[key] = timestamp
        _set(self.rows, key, value, timestamp)
        return True


def _set(rows: dict[bytes, Row], key: bytes, value: bytes | None, timestamp: int) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = Row(value, timestamp)
