"""The windows of time of an aggregate, as SQL over times. A window has a number, from which its bounds follow.

The number is the start of the window: in milliseconds for a BIGINT, in microseconds for a TIMESTAMP, and in days since
1970-01-01 for windows of whole days of a time zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fk_pipeline.blocks.times import limited
from fk_pipeline.kinds.aggregate.kind import AT
from fk_pipeline.spec.durations import micros, span
from fk_pipeline.spec.sql import text

if TYPE_CHECKING:
    from fk_pipeline.kinds.aggregate.spec import AggregateSpec, TimeWindow

DAY_MICROS = 86_400_000_000
"""Microseconds of a day that has 24 hours."""

MICROS = {"BIGINT": 1_000, "TIMESTAMP": 1}
"""Per possible type of a time, how many microseconds its unit has."""


@dataclass(frozen=True)
class Windows:
    """The windows of a pipeline.

    Attributes:
        dtype: the type of the times, BIGINT or TIMESTAMP.
        size: how long a window is, in numbers.
        step: how far apart two starts are, in numbers.
        zone: the time zone of windows of days; None: windows are counted from 1970-01-01 in UTC.
    """

    dtype: str
    size: int
    step: int
    zone: str | None

    @classmethod
    def of(cls, window: TimeWindow, dtype: str) -> Windows:
        """Returns the windows of a pipeline whose times have a type."""
        size, step, unit = micros(span(window.size)), micros(span(window.step)), MICROS[dtype.upper()]
        number = DAY_MICROS if window.local else unit
        zone = window.zone if window.local else None
        return cls(dtype.upper(), size // number, step // number, zone)

    @property
    def per_row(self) -> int:
        """The most windows in which a row counts."""
        return -(-self.size // self.step)

    def ticks(self, time: str) -> str:
        """SQL (BIGINT): a time in units of its type."""
        time = limited(time, self.dtype)
        return f"({time})" if self.dtype == "BIGINT" else f"UNIX_MICROS({time})"

    def numbers(self, time: str) -> str:
        """SQL (ARRAY<BIGINT>): the windows in which a row with a time counts."""
        place, last = self.number(time), self.pane(time)
        if self.per_row == 1:
            return f"ARRAY({last})"
        back = (self.per_row - 1) * self.step
        if self.size % self.step:  # the first of them may have ended
            back_sql = f"IF({last} - {back} > {place} - {self.size}, {back}, {back - self.step})"
            return f"SEQUENCE({last}, {last} - {back_sql}, {-self.step}L)"
        return f"SEQUENCE({last}, {last} - {back}L, {-self.step}L)"

    def pane(self, time: str) -> str:
        """SQL (BIGINT): the number of the last window that begins at a time or before it."""
        place = self.number(time)
        return f"({place} - PMOD({place}, {self.step}))"

    def number(self, time: str) -> str:
        """SQL (BIGINT): the number of a window that would begin at a time."""
        if self.zone is None:
            return self.ticks(time)
        day = f"TO_DATE(FROM_UTC_TIMESTAMP({limited(time, self.dtype)}, {text(self.zone)}))"
        return f"CAST(UNIX_DATE({day}) AS BIGINT)"

    def start(self, number: str) -> str:
        """SQL: the time at which a window begins; it belongs to the window."""
        if self.zone is not None:
            day = f"CAST(DATE_FROM_UNIX_DATE(CAST({number} AS INT)) AS TIMESTAMP)"
            return f"TO_UTC_TIMESTAMP({day}, {text(self.zone)})"
        return number if self.dtype == "BIGINT" else f"TIMESTAMP_MICROS({number})"

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


def windows_of(spec: AggregateSpec, types: Mapping[str, str]) -> Windows | None:
    """Returns the windows of a pipeline, given the types of the columns of the table; None if it has none."""
    return None if spec.window is None else Windows.of(spec.window, types[AT])
