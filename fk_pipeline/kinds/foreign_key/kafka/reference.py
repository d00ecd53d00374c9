"""KIP-213 event by event: the foreign-key join of Kafka Streams 4.3 in plain Python, by Kafka's or the engine's rules.

```
left row  -> send --[subscription, by foreign key]--> receive, look up the right row --.
                                                                                        +-[response, by left key]
right row ------------------------------------------> find the subscribers ------------'          |
                                                                        check the hash, join, emit <-'
```

Keys and values are bytes, as on Kafka's topics; timestamps are milliseconds. Messages wait in queues until they are
delivered: one first-in, first-out queue per topic and partition. `process` delivers everything before the next row, as
a test driver does; `left`, `right` and `deliver` let messages lag, as a broker does.

The engine does not run on this class. It is the reference: recorded cases compare it with Kafka, and tests compare the
Spark stages with it (`docs/protocol.md`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar
from zlib import crc32

from fk_pipeline.kinds.foreign_key.kafka.instructions import (
    DELETE_KEY_AND_PROPAGATE,
    DELETE_KEY_NO_PROPAGATE,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,
    engine_messages,
)
from fk_pipeline.kinds.foreign_key.kafka.keys import CombinedKey, kafka_row_hash
from fk_pipeline.kinds.foreign_key.kafka.messages import Response, Subscription
from fk_pipeline.kinds.foreign_key.kafka.stores import PlainStore, Row, TableStore

Extractor = Callable[[bytes, bytes], bytes | None]
"""A function of a left key and value that returns the foreign key; None if there is none."""


@dataclass(frozen=True)
class Rules:
    """The rules in which the engine differs from Kafka; numbers are those of the rules in `docs/architecture.md`."""

    check_right: bool
    """Rule 3: a response must also be about the current right row."""
    always_respond: bool
    """Rule 4: every change of a left key that was seen before requests a response, in the inner join too."""
    silent: bool
    """Rule 5: a row that arrives again with the same content sends nothing."""


KAFKA = Rules(check_right=False, always_respond=False, silent=False)
ENGINE = Rules(check_right=True, always_respond=True, silent=True)


@dataclass(frozen=True)
class SubscriptionMessage:
    """A record on the subscription topic. Its key is the foreign key."""

    foreign_key: bytes | None
    subscription: Subscription
    timestamp: int

    @property
    def primary_key(self) -> bytes:
        """The left key that subscribes."""
        return self.subscription.primary_key


@dataclass(frozen=True)
class ResponseMessage:
    """A record on the response topic. Its key is the left key."""

    primary_key: bytes
    response: Response
    timestamp: int


T = TypeVar("T")


@dataclass(frozen=True)
class Result:
    """A record of the result: the two joined values, None for a side without a row; a tombstone has neither."""

    key: bytes
    left: bytes | None
    right: bytes | None
    timestamp: int

    @property
    def is_tombstone(self) -> bool:
        """Whether the record deletes its key from the result."""
        return self.left is None and self.right is None


@dataclass
class ReferenceStep:
    """The records that one row or delivery caused, in order; `dropped` is the increase of `dropped-records-total`."""

    subscriptions: list[SubscriptionMessage] = field(default_factory=list)
    responses: list[ResponseMessage] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    dropped: int = 0

    def add(self, other: ReferenceStep) -> None:
        """Appends the records of a later step."""
        self.subscriptions += other.subscriptions
        self.responses += other.responses
        self.results += other.results
        self.dropped += other.dropped


def kafka_messages(
    inner: bool, existed: bool, old: bytes | None, exists: bool, new: bytes | None
) -> tuple[list[tuple[bytes | None, str]], int]:
    """Returns the messages of a left change as Kafka Streams 4.1 and later sends them.

    Args:
        inner: whether the join is an inner join.
        existed: whether the row existed before the change.
        old: the foreign key of that row; None if it had none.
        exists: whether the row exists after the change.
        new: the foreign key of that row; None if it has none.

    Returns:
        (foreign key, instruction) of every message, in order, and the number of dropped records.
    """
    unsubscribe = [(old, DELETE_KEY_NO_PROPAGATE)] if old is not None and old != new else []
    if not existed and not exists:
        return [], 0
    if not inner:
        return [*unsubscribe, (new, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)], 0
    if new is not None:
        ask = PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE if unsubscribe else PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
        return [*unsubscribe, (new, ask)], 0
    return ([(old, DELETE_KEY_AND_PROPAGATE)] if old is not None else []), int(exists)


class ForeignKeyJoin:
    """A foreign-key join with its stores and its waiting messages."""

    def __init__(
        self,
        *,
        inner: bool,
        extract: Extractor,
        left: TableStore | None = None,
        right: TableStore | None = None,
        partitions: int = 1,
        rules: Rules = KAFKA,
    ) -> None:
        """Creates an empty join.

        Args:
            inner: whether it is an inner join; otherwise it is a left join.
            extract: returns the foreign key of a left row.
            left: the store of the left table; default: a plain one.
            right: the store of the right table; default: a plain one.
            partitions: number of partitions of each internal topic.
            rules: Kafka's rules or the engine's.
        """
        self.inner, self.extract = inner, extract
        self.left_table: TableStore = left or PlainStore()
        self.right_table: TableStore = right or PlainStore()
        self.subscriptions: dict[bytes, tuple[Subscription, int]] = {}
        """The subscription store: per bytes of a `CombinedKey`, the subscription and its timestamp."""
        self.result: dict[bytes, Result] = {}
        """The result as a table."""
        self.partitions = partitions
        self.waiting_subscriptions: list[deque[SubscriptionMessage]] = [deque() for _ in range(partitions)]
        self.waiting_responses: list[deque[ResponseMessage]] = [deque() for _ in range(partitions)]
        self.rules = rules
        self._seen: set[bytes] = set()
        """Every left key that ever had a row or a tombstone."""

    # ---- rows

    def process(self, side: str, key: bytes | None, value: bytes | None, timestamp: int) -> ReferenceStep:
        """Takes a row of a side (`left` or `right`) and delivers all messages that follow from it."""
        step = self.left(key, value, timestamp) if side == "left" else self.right(key, value, timestamp)
        step.add(self.deliver_all())
        return step

    def left(self, key: bytes | None, value: bytes | None, timestamp: int) -> ReferenceStep:
        """Takes a left row and sends its subscriptions (Kafka's `SubscriptionSendProcessor`)."""
        if key is None:
            return ReferenceStep(dropped=1)
        before = self.left_table.rows.get(key)
        if not self.left_table.put(key, value, timestamp):
            return ReferenceStep(dropped=1)
        if self.rules.silent and value == (before.value if before else None) and key in self._seen:
            return ReferenceStep()
        old = self.extract(key, before.value) if before else None
        new = self.extract(key, value) if value is not None else None
        if self.rules.always_respond:
            messages, dropped = engine_messages(self.inner, key in self._seen, old, value is not None, new), 0
        else:
            messages, dropped = kafka_messages(self.inner, before is not None, old, value is not None, new)
        self._seen.add(key)
        partition = self._partition(key)
        step = ReferenceStep(dropped=dropped)
        for foreign_key, instruction in messages:
            subscription = Subscription(instruction, kafka_row_hash(value), key, partition)
            step.subscriptions.append(SubscriptionMessage(foreign_key, subscription, timestamp))
        for message in step.subscriptions:
            self.waiting_subscriptions[self._partition(message.foreign_key)].append(message)
        return step

    def right(self, key: bytes | None, value: bytes | None, timestamp: int) -> ReferenceStep:
        """Takes a right row and sends a response to every subscriber (`ForeignTableJoinProcessor`).

        The timestamp of a response is that of the right row alone. By Kafka's rules an unchanged row sends responses
        too.
        """
        before = self.right_table.rows.get(key) if key is not None else None
        if key is None or not self.right_table.put(key, value, timestamp):
            return ReferenceStep(dropped=1)
        if self.rules.silent and value == (before.value if before else None):
            return ReferenceStep()
        prefix = CombinedKey.prefix(key)
        step = ReferenceStep()
        for combined in sorted(k for k in self.subscriptions if k.startswith(prefix)):
            subscription, _ = self.subscriptions[combined]
            self._respond(step, subscription, value, timestamp)
        return step

    def result_as_table(self) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        """Returns the result: left and right value per key."""
        return {key: (row.left, row.right) for key, row in self.result.items()}

    def batch_join(self) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        """Returns the expected result: the join of the two tables as they are, left and right value per key."""
        pairs = {key: (row.value, self._right_of(row, key)) for key, row in self.left_table.rows.items()}
        return {key: (left, right) for key, (left, right) in pairs.items() if right is not None or not self.inner}

    # ---- messages

    def waiting(self) -> list[tuple[str, int]]:
        """Returns the partitions with waiting messages, as (topic, partition)."""
        partitions = [("subscription", p) for p, queue in enumerate(self.waiting_subscriptions) if queue]
        return partitions + [("response", p) for p, queue in enumerate(self.waiting_responses) if queue]

    def deliver(self, topic: str, partition: int = 0, position: int = 0) -> ReferenceStep:
        """Delivers a message of a partition of a topic (`subscription` or `response`); Kafka delivers the oldest."""
        if topic == "subscription":
            return self._receive(_take(self.waiting_subscriptions[partition], position))
        return self._resolve(_take(self.waiting_responses[partition], position))

    def deliver_all(self) -> ReferenceStep:
        """Delivers messages, subscriptions first, until none waits."""
        step = ReferenceStep()
        while partitions := self.waiting():
            step.add(self.deliver(*partitions[0]))
        return step

    def _partition(self, key: bytes | None) -> int:
        return crc32(key) % self.partitions if key is not None else 0

    def _receive(self, message: SubscriptionMessage) -> ReferenceStep:
        """Stores or removes a subscription and looks up the right row (`SubscriptionReceive`, `SubscriptionJoin`)."""
        step, subscription = ReferenceStep(), message.subscription
        instruction = subscription.instruction
        right: Row | None = None
        if message.foreign_key is not None:
            key = CombinedKey(message.foreign_key, subscription.primary_key).to_bytes()
            if instruction in (DELETE_KEY_NO_PROPAGATE, DELETE_KEY_AND_PROPAGATE):
                self.subscriptions.pop(key, None)
            else:
                self.subscriptions[key] = (subscription, message.timestamp)
            right = self.right_table.rows.get(message.foreign_key)
        if instruction == DELETE_KEY_NO_PROPAGATE or (instruction == PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE and not right):
            return step
        answer = right.value if right and instruction != DELETE_KEY_AND_PROPAGATE else None
        timestamp = max(message.timestamp, right.timestamp) if right else message.timestamp
        self._respond(step, subscription, answer, timestamp)
        return step

    def _respond(self, step: ReferenceStep, to: Subscription, right: bytes | None, timestamp: int) -> None:
        message = ResponseMessage(to.primary_key, Response(to.hash, right, to.partition), timestamp)
        step.responses.append(message)
        self.waiting_responses[to.partition or 0].append(message)

    def _resolve(self, message: ResponseMessage) -> ReferenceStep:
        """Joins a response whose hash is that of the current left row; drops any other (`ResponseJoinProcessor`)."""
        left = self.left_table.rows.get(message.primary_key)
        if message.response.hash != kafka_row_hash(left.value if left else None):
            return ReferenceStep(dropped=1)
        right = message.response.value
        if self.rules.check_right and right != self._right_of(left, message.primary_key):
            return ReferenceStep(dropped=1)
        result = Result(message.primary_key, left.value if left else None, right, message.timestamp)
        if left is None or (right is None and self.inner):
            result = replace(result, left=None, right=None)
            self.result.pop(result.key, None)
        else:
            self.result[result.key] = result
        return ReferenceStep(results=[result])

    def _right_of(self, left: Row | None, key: bytes) -> bytes | None:
        """Returns the current right value that a left row refers to; None if there is none."""
        foreign_key = self.extract(key, left.value) if left else None
        row = self.right_table.rows.get(foreign_key) if foreign_key is not None else None
        return row.value if row else None


def _take(queue: deque[T], position: int) -> T:
    message = queue[position]
    del queue[position]
    return message
