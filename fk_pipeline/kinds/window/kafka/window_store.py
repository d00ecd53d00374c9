"""The store of one side of a windowed join: every record of the last while, equal ones too."""

from __future__ import annotations

from dataclasses import dataclass, field

SEGMENT_MS = 60_000
"""The shortest segment of a store: it forgets whole segments."""


@dataclass
class WindowStore:
    """The records of one side, by key and time.

    Attributes:
        retention_ms: how long a record is found, in the time of this store.
        rows: per key the records, time and value, in the order of their times; equal times in the order of arrival.
        time: the largest timestamp that this store has seen.
    """

    retention_ms: int
    rows: dict[bytes, list[tuple[int, bytes]]] = field(default_factory=dict)
    time: int = -1

    def put(self, key: bytes, value: bytes, timestamp: int) -> bool:
        """Takes a record; returns False if its segment is forgotten already."""
        self.time = max(self.time, timestamp)
        segment = max(self.retention_ms // 2, SEGMENT_MS)
        if timestamp // segment < (self.time - self.retention_ms) // segment:
            return False
        rows = self.rows.setdefault(key, [])
        rows.append((timestamp, value))
        rows.sort(key=lambda row: row[0])
        return True

    def fetch(self, key: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        """Returns the records of a key with times from `first` to `last` that are not older than the retention."""
        oldest = max(first, self.time - self.retention_ms + 1)
        return [row for row in self.rows.get(key, []) if oldest <= row[0] <= last]
