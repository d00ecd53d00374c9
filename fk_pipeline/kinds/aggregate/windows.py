"""The windows of time of an aggregate, as SQL over times. A window has a number, from which its bounds follow.

The number is the start of the window: in milliseconds for a BIGINT, in microseconds for a TIMESTAMP, and in days since
1970-01-01 for windows of whole days of a time zone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from fk_pipeline.blocks.times import FARTHEST, limited
from fk_pipeline.kinds.aggregate.spec import DAY_MICROS, TimeWindow
from fk_pipeline.spec.durations import micros, span
from fk_pipeline.spec.sql import text

MICROS = {"BIGINT": 1_000, "TIMESTAMP": 1}
"""Per possible type of a time, how many microseconds its unit has."""


@dataclass(frozen=True)
class Windows:
    """The windows of a pipeline.

    Attributes:
        kind: the type of the times, BIGINT or TIMESTAMP.
        size: how long a window is, in numbers.
        step: how far apart two starts are, in numbers.
        zone: the time zone of windows of days; None: windows are counted from 1970-01-01 in UTC.
        length: how long a window is, nominally, in units of the type.
    """

    kind: str
    size: int
    step: int
    zone: str | None
    length: int

    @classmethod
    def of(cls, window: TimeWindow, kind: str) -> Windows:
        """Returns the windows of a pipeline whose times have a type."""
        size, step, unit = micros(span(window.size)), micros(span(window.step)), MICROS[kind.upper()]
        number = DAY_MICROS if window.local else unit
        zone = window.zone if window.local else None
        return cls(kind.upper(), size // number, step // number, zone, size // unit)

    @property
    def per_row(self) -> int:
        """The most windows in which a row counts."""
        return -(-self.size // self.step)

    def ticks(self, time: str) -> str:
        """SQL (BIGINT): a time in units of its type."""
        time = limited(time, self.kind)
        return f"({time})" if self.kind == "BIGINT" else f"UNIX_MICROS({time})"

    def numbers(self, time: str) -> str:
        """SQL (ARRAY<BIGINT>): the windows in which a row with a time counts."""
        place = self.number(time)
        last = f"({place} - PMOD({place}, {self.step}))"
        if self.per_row == 1:
            return f"ARRAY({last})"
        back = (self.per_row - 1) * self.step
        if self.size % self.step:  # the first of them may have ended
            back_sql = f"IF({last} - {back} > {place} - {self.size}, {back}, {back - self.step})"
            return f"SEQUENCE({last}, {last} - {back_sql}, {-self.step}L)"
        return f"SEQUENCE({last}, {last} - {back}L, {-self.step}L)"

    def number(self, time: str) -> str:
        """SQL (BIGINT): the number of a window that would begin at a time."""
        if self.zone is None:
            return self.ticks(time)
        day = f"TO_DATE(FROM_UTC_TIMESTAMP({limited(time, self.kind)}, {text(self.zone)}))"
        return f"CAST(UNIX_DATE({day}) AS BIGINT)"

    def start(self, number: str) -> str:
        """SQL: the time at which a window begins; it belongs to the window."""
        if self.zone is not None:
            day = f"CAST(DATE_FROM_UNIX_DATE(CAST({number} AS INT)) AS TIMESTAMP)"
            return f"TO_UTC_TIMESTAMP({day}, {text(self.zone)})"
        return number if self.kind == "BIGINT" else f"TIMESTAMP_MICROS({number})"

    def end(self, number: str) -> str:
        """SQL: the time at which a window ends; it does not belong to the window."""
        return self.start(f"({number} + {self.size})")

    @property
    def may_begin_together(self) -> bool:
        """Whether two windows may begin at the same time: days from each of two days, of which the zone skipped one."""
        return self.zone is not None and self.step == 1 and self.size > 1

    def key(self, number: str) -> str:
        """SQL: the time that tells a window from all others: its start.

        A day that a zone skipped, as Samoa the 30th of December 2011, begins when the next day does. The key of a
        window from such a day is a microsecond before its start, at which no window begins.
        """
        start = self.start(number)
        if not self.may_begin_together:
            return start
        together = f"{start} = {self.start(f'({number} + 1)')}"
        return f"IF({together}, TIMESTAMP_MICROS(UNIX_MICROS({start}) - 1), {start})"

    def around(self, starts: pa.ChunkedArray) -> tuple[int | None, int | None]:
        """Returns a range of times in units, with at least those in some windows, given their keys.

        The second time is the first one after the range; None: no bound. The range of no windows is empty.
        """
        ends = pc.min_max(starts.cast(pa.int64())).as_py()
        if ends["min"] is None:
            return 0, 0
        moved = 0 if self.zone is None else DAY_MICROS // MICROS[self.kind]  # more than clocks ever change
        low, high = ends["min"] - moved, ends["max"] + self.length + moved
        return None if low <= -FARTHEST else low, None if high >= FARTHEST else high

    def slice(self, ticks: str) -> str:
        """SQL (BIGINT): the number of the span of time, as long as a window, in which a time in units is."""
        return f"({ticks} DIV {self.length} - IF({ticks} % {self.length} < 0, 1, 0))"

    def slices(self, start: str) -> str:
        """SQL (ARRAY<BIGINT>): the spans of time in which rows of a window are, or a few more, given its key."""
        number = self.number(f"TIMESTAMP_MICROS(UNIX_MICROS({start}) + 1)" if self.may_begin_together else start)
        first, last = self.ticks(start), self.ticks(self.end(number))
        return f"SEQUENCE({self.slice(first)}, {self.slice(f'({last} - 1)')})"
