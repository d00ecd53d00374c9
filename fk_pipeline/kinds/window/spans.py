"""The window of a join in the units of its times: which times match, and when a row without a match is closed.

A BIGINT is a time in milliseconds, a TIMESTAMP one in microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fk_pipeline.blocks.select.block import NearMatch
from fk_pipeline.blocks.times import limited
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.kind import BUCKET, TIME
from fk_pipeline.spec.durations import micros, span
from fk_pipeline.store.schemas import Table

if TYPE_CHECKING:
    from fk_pipeline.kinds.window.spec import WindowSpec

LEAST, GREATEST = -(2**63 - 1), 2**63 - 1
"""The bounds of a clock: no row lives; every row is closed."""

UNITS_PER_SECOND = {"BIGINT": 1000, "TIMESTAMP": 1_000_000}
"""Per possible type of a time, how many of its units are a second."""


@dataclass(frozen=True)
class Spans:
    """The window of a join.

    Attributes:
        dtype: the type of the times, BIGINT or TIMESTAMP.
        before: how much earlier than the left row the right row of a pair may have happened, in units of the type.
        after: how much later.
        grace: how much longer than its window a row waits.
    """

    dtype: str
    before: int
    after: int
    grace: int

    @classmethod
    def of(cls, spec: WindowSpec, dtype: str) -> Spans:
        """Returns the window of a pipeline whose times have a type."""
        unit = UNITS_PER_SECOND[dtype.upper()]
        lengths = (spec.before, spec.after, span(spec.grace))
        before, after, grace = (micros(length) * unit // 1_000_000 for length in lengths)
        return cls(dtype.upper(), before, after, grace)

    @classmethod
    def of_state(cls, spec: WindowSpec, state: Table) -> Spans:
        """Returns the window of a pipeline, given one of its states."""
        return cls.of(spec, dict(state.columns)[TIME])

    @property
    def width(self) -> int:
        """The length of the window, both ends included: the rows of a pair are in near buckets (`near`)."""
        return self.before + self.after + 1

    def ticks(self, time: str) -> str:
        """SQL (BIGINT): a time in units; so far from the ends of the type that the spans can be added."""
        time = limited(time, self.dtype)
        return f"({time})" if self.dtype == "BIGINT" else f"UNIX_MICROS({time})"

    def wait(self, side: Side) -> int:
        """Returns how long after its time a row of a side without a match is closed."""
        return (self.after if side == Side.LEFT else self.before) + self.grace

    def around(self, side: Side) -> tuple[int, int]:
        """Returns how much earlier, and later, than a row of a side the other row of a pair may have happened."""
        return (self.before, self.after) if side == Side.LEFT else (self.after, self.before)

    def older(self, spec: WindowSpec, source: Side) -> int:
        """Returns how much older than its partners a row of a state may be; the state may serve both sides."""
        lengths = {Side.LEFT: self.after, Side.RIGHT: self.before}
        return max(0, *(length for side, length in lengths.items() if k.source(spec, side) == source))

    def near(self, side: Side) -> NearMatch:
        """Returns how far the bucket of the other row of a pair is from that of a row of a side."""
        earlier, later = self.around(side)
        return NearMatch(BUCKET, -earlier // self.width, -(-later // self.width))

    def matches(self, left: str, right: str) -> str:
        """SQL (BOOLEAN): the times of a left and a right row, in units, are near enough for a pair."""
        return f"({right} BETWEEN {left} - ({self.before}) AND {left} + ({self.after}))"

    def closed_at(self, side: Side, clock: int) -> int:
        """Returns the time, in units, before which rows of a side are closed at a clock."""
        return max(LEAST, min(GREATEST, clock - self.wait(side)))

    def literal(self, ticks: int) -> str:
        """SQL of a time in units, as a value of the type."""
        return str(ticks) if self.dtype == "BIGINT" else f"TIMESTAMP_MICROS({ticks})"

    def bucket(self, ticks: str) -> str:
        """SQL (BIGINT): the number of the bucket of a time."""
        return f"({ticks} DIV {self.width} - IF({ticks} % {self.width} < 0, 1, 0))"
