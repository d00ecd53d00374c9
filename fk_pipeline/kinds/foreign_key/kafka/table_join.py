"""The join of two tables by their common key, event by event, as Kafka Streams 4.3 does it: inner, left and outer.

A change of one side looks up the latest row of the other side and emits at once; there are no messages between
partitions, and so no hashes. Keys and values are bytes; timestamps are milliseconds.

Kafka emits more than the join needs: an inner join emits a tombstone when an absent row is deleted while the other side
has one, a left and an outer join emit the row that stays once more. The recorded cases show each of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fk_pipeline.kinds.foreign_key.kafka.reference import ReferenceStep, Result
from fk_pipeline.kinds.foreign_key.kafka.stores import PlainStore, TableStore


@dataclass
class TableJoin:
    """A join of two tables by key, with its stores and its result.

    Attributes:
        keeps_left: whether a left row without a right row is in the result (left and outer join).
        keeps_right: whether a right row without a left row is in the result (outer join).
        left_table: the store of the left table.
        right_table: the store of the right table.
        result: the result as a table.
    """

    keeps_left: bool
    keeps_right: bool
    left_table: TableStore = field(default_factory=PlainStore)
    right_table: TableStore = field(default_factory=PlainStore)
    result: dict[bytes, Result] = field(default_factory=dict)

    def process(self, side: str, key: bytes | None, value: bytes | None, timestamp: int) -> ReferenceStep:
        """Takes a row or a tombstone of a side (`left` or `right`), and emits what follows from it.

        A null key, and a row that a versioned store refuses, are dropped and counted. The timestamp of a result is the
        later one of its two rows.
        """
        own, other = (self.left_table, self.right_table) if side == "left" else (self.right_table, self.left_table)
        before = own.rows.get(key) if key is not None else None
        if key is None or not own.put(key, value, timestamp):
            return ReferenceStep(dropped=1)
        match = other.rows.get(key)
        keeps_own, keeps_other = (
            (self.keeps_left, self.keeps_right) if side == "left" else (self.keeps_right, self.keeps_left)
        )
        if match is None and (not keeps_own or (before is None and value is None)):
            return ReferenceStep()
        own_value, other_value = value, match.value if match else None
        if value is None and not keeps_other:
            other_value = None
        left, right = (own_value, other_value) if side == "left" else (other_value, own_value)
        result = Result(key, left, right, max(timestamp, match.timestamp) if match else timestamp)
        if result.is_tombstone:
            self.result.pop(key, None)
        else:
            self.result[key] = result
        return ReferenceStep(results=[result])

    def batch_join(self) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        """Returns the expected result: the join of the two tables as they are, left and right value per key."""
        left = {key: row.value for key, row in self.left_table.rows.items()}
        right = {key: row.value for key, row in self.right_table.rows.items()}
        pairs = {key: (left.get(key), right.get(key)) for key in left.keys() | right.keys()}
        return {
            key: (left_value, right_value)
            for key, (left_value, right_value) in pairs.items()
            if (left_value is not None or self.keeps_right) and (right_value is not None or self.keeps_left)
        }

    def result_as_table(self) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        """Returns the result: left and right value per key."""
        return {key: (row.left, row.right) for key, row in self.result.items()}
