"""The latest row of every key, as Kafka's two kinds of table store keep it.

A plain table takes every row in the order of arrival. A versioned one (KIP-914) takes the row with the latest
timestamp, refuses rows older than its history, and has a quirk that `VersionedStore` describes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

HISTORY_RETENTION_MS = 3_600_000
"""The history of a versioned store where nothing else is said: an hour."""


@dataclass(frozen=True)
class Row:
    """A row of a table: the serialised value and its timestamp, in milliseconds."""

    value: bytes
    timestamp: int


class TableStore(Protocol):
    """What the join needs of a table's store."""

    rows: dict[bytes, Row]
    """The latest row per key; a deleted key is not there."""

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> bool:
        """Takes a row or a tombstone; False where it is not the latest of its key and must be ignored."""
        ...


@dataclass
class PlainStore:
    """The order of arrival decides, whatever the timestamps say."""

    rows: dict[bytes, Row] = field(default_factory=dict)

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> bool:
        """Always the latest."""
        _set(self.rows, key, value, timestamp)
        return True


@dataclass
class VersionedStore:
    """The latest timestamp decides; equal ones, the order of arrival.

    Of the older versions only one thing matters here: until when a key is known to have had another row or none. Rows
    before that are late. A tombstone with the timestamp of the key's row overwrites the row and leaves no trace of
    itself, so that a later row with an older timestamp is taken: Kafka's stores do that, and the recorded cases
    `versioned-same-ts-tombstone-*` show it.
    """

    history_retention_ms: int = HISTORY_RETENTION_MS
    rows: dict[bytes, Row] = field(default_factory=dict)
    closed_until: dict[bytes, int] = field(default_factory=dict)
    """Per key the end of what its history covers; rows with an older timestamp are not the latest."""
    stream_time: int = -1
    """The largest timestamp seen, over all keys."""

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> bool:
        """The latest, unless it is older than the key's row, than its history, or than what the store keeps."""
        self.stream_time = max(self.stream_time, timestamp)
        if timestamp < self.stream_time - self.history_retention_ms:
            return False
        there = self.rows.get(key)
        if timestamp < (there.timestamp if there else self.closed_until.get(key, timestamp)):
            return False
        if (there and there.timestamp < timestamp) or (there is None and value is None):
            self.closed_until[key] = timestamp
        _set(self.rows, key, value, timestamp)
        return True


def _set(rows: dict[bytes, Row], key: bytes, value: bytes | None, timestamp: int) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = Row(value, timestamp)
