"""The join of two streams within a span of time, event by event, as Kafka Streams 4.3 does it.

Two records of a key match if `left - before <= right <= left + after`. A record without a match waits until its window
and the grace period have passed in the time of the streams (KIP-633), and is emitted by the next record that moves this
time; with the old `JoinWindows.of().grace()` it is emitted at once. Keys and values are bytes; times are milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fk_pipeline.kinds.window.kafka.window_store import WindowStore

LEFT, RIGHT = "left", "right"


@dataclass(frozen=True)
class Pair:
    """A record of the result: the values of both sides, None on the side without a record."""

    key: bytes | None
    left: bytes | None
    right: bytes | None
    timestamp: int


@dataclass(frozen=True)
class PairStep:
    """The records that one record caused, in order; `dropped` is the increase of `dropped-records-total`."""

    results: list[Pair] = field(default_factory=list)
    dropped: int = 0


@dataclass(frozen=True)
class Window:
    """The span of time of a join, in milliseconds.

    Attributes:
        before: how much earlier than the left record the right one may be; may be negative.
        after: how much later it may be; may be negative.
        grace: how long after the window late records are still taken.
    """

    before: int
    after: int
    grace: int

    @property
    def retention_ms(self) -> int:
        """How long a store keeps the records of a side."""
        return self.before + self.after + self.grace


@dataclass
class WindowJoin:
    """A join of two streams.

    Attributes:
        keeps: the sides whose records are emitted without a match.
        window: the span of time.
        eager: whether they are emitted at once instead of after their window.
        stores: the records of each side.
        waiting: the records without a match whose window is open, by time, side (right first) and key.
        stream_time: the largest timestamp of both sides.
        looked_from: the time of the record at which Kafka stopped its last look at the waiting ones, or of an older one
            that came since. It looks again only when the window of a record of that time has passed, by the span of the
            side that looks: so rows come out later than they might.
    """

    keeps: tuple[str, ...]
    window: Window
    eager: bool = False
    stores: dict[str, WindowStore] = field(init=False)
    waiting: dict[tuple[int, bool, bytes], list[bytes]] = field(default_factory=dict)
    stream_time: int = -1
    looked_from: float = math.inf

    def __post_init__(self) -> None:
        """Makes both stores."""
        self.stores = {side: WindowStore(self.window.retention_ms) for side in (LEFT, RIGHT)}

    def process(self, side: str, key: bytes | None, value: bytes | None, timestamp: int) -> PairStep:
        """Takes a record of a side."""
        if key is None and value is not None and side in self.keeps:
            return PairStep([_pair(side, None, value, None, timestamp)])
        self.stream_time = max(self.stream_time, timestamp)
        if key is None or value is None:
            return PairStep(dropped=1)
        dropped = 0 if self.stores[side].put(key, value, timestamp) else 1
        results = self._closed(side) if timestamp == self.stream_time else []
        other = RIGHT if side == LEFT else LEFT
        before, after = self._span(side)
        last = max(0, timestamp + after)
        matches = self.stores[other].fetch(key, max(0, timestamp - before), last)
        for at, other_value in matches:
            self.waiting.pop((at, other == LEFT, key), None)
            results.append(_pair(side, key, value, other_value, max(timestamp, at)))
        if not matches and side in self.keeps:
            if self.eager or last < self.stream_time:
                results.append(_pair(side, key, value, None, timestamp))
            else:
                self.looked_from = min(self.looked_from, timestamp)
                self.waiting.setdefault((timestamp, side == LEFT, key), []).append(value)
        return PairStep(results, dropped)

    def _span(self, side: str) -> tuple[int, int]:
        """Returns how much earlier and how much later than a record of a side the other one may be."""
        before, after = self.window.before, self.window.after
        return (before, after) if side == LEFT else (after, before)

    def _closed(self, by: str) -> list[Pair]:
        """Takes out the waiting records whose window and grace period have passed, if Kafka looks for them.

        Args:
            by: the side whose record moved the time.
        """
        if self.looked_from + self._span(by)[1] + self.window.grace >= self.stream_time:
            return []
        closed: list[Pair] = []
        still_open: set[str] = set()
        self.looked_from = math.inf
        for at, of_left, key in sorted(self.waiting):
            side, self.looked_from = LEFT if of_left else RIGHT, at
            if len(still_open) == len((LEFT, RIGHT)):
                break
            if at + self._span(side)[1] + self.window.grace >= self.stream_time:
                still_open.add(side)
            else:
                closed += [_pair(side, key, value, None, at) for value in self.waiting.pop((at, of_left, key))]
        return closed


def _pair(side: str, key: bytes | None, value: bytes, other: bytes | None, timestamp: int) -> Pair:
    return Pair(key, value, other, timestamp) if side == LEFT else Pair(key, other, value, timestamp)


@dataclass
class SelfJoin:
    """A join of a stream with itself in two stores, as any other join: every record comes on both sides."""

    join: WindowJoin

    def process(self, _: str, key: bytes | None, value: bytes | None, timestamp: int) -> PairStep:
        """Takes a record."""
        both = [self.join.process(side, key, value, timestamp) for side in (LEFT, RIGHT)]
        return PairStep([pair for step in both for pair in step.results], sum(step.dropped for step in both))


@dataclass
class SingleStoreSelfJoin:
    """A join of a stream with itself in one store (KIP-862, `single.store.self.join`).

    It emits every record with itself, also if the window does not contain it, and drops records without a key in a left
    or outer join, too: Kafka's rule does not look at the type of the join.

    Attributes:
        window: the span of time.
        store: the records.
    """

    window: Window
    store: WindowStore = field(init=False)

    def __post_init__(self) -> None:
        """Makes the store."""
        self.store = WindowStore(self.window.retention_ms)

    def process(self, _: str, key: bytes | None, value: bytes | None, timestamp: int) -> PairStep:
        """Takes a record."""
        if key is None or value is None:
            return PairStep(dropped=1)
        before, after = self.window.before, self.window.after
        itself = Pair(key, value, value, timestamp)
        expired = timestamp <= self.store.time - self.window.retention_ms + 1
        earlier = self.store.fetch(key, max(0, timestamp - before), max(0, timestamp + after))
        later = self.store.fetch(key, max(0, timestamp - after), max(0, timestamp + before))
        results = [Pair(key, value, other_value, max(timestamp, at)) for at, other_value in earlier]
        for at, other_value in later:
            if at > timestamp and itself not in results and not expired:
                results.append(itself)
            results.append(Pair(key, other_value, value, max(timestamp, at)))
        if itself not in results and not expired:
            results.append(itself)
        return PairStep(results, 0 if self.store.put(key, value, timestamp) else 1)
