"""Clocks: an input of one row, the start of the step that a clock on the wall is in. No Spark.

A clock has versions as a Delta table has, so that batches and commits name them in the same way: the version is the
start of the step in seconds since 1970. A step begins where the clock on the wall of the zone shows a multiple of its
length since midnight, a week on Monday; one across a change to summer time is shorter, or longer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator

from fk_pipeline.spec.base import problem
from fk_pipeline.spec.durations import span

WALL = "clock://wall"
"""Stands for the location of every clock in the ledger; its length and zone are in the id of a step."""

DAY, WEEK = timedelta(days=1), timedelta(weeks=1)

POSSIBLE = "write 1 week, 1 day, or whole minutes or hours of which a day is a multiple: 12 hours, 1 hour, 15 minutes"
"""The lengths of a step, as an error has them."""

_PLACE = re.compile(r"clock://(\d+)/(.+)")


@dataclass(frozen=True)
class Clock:
    """A clock: the length of its steps, and the zone of the wall that it hangs on."""

    length: timedelta
    zone: str

    @classmethod
    def of(cls, length: str, zone: str) -> Clock:
        """Returns the clock of a pipeline file.

        Raises:
            ValueError: the steps do not divide a day or a week evenly.
        """
        step = span(length)
        if not step or (step not in (DAY, WEEK) and (step % timedelta(minutes=1) or DAY % step)):
            raise ValueError(f"{length!r} is no step of a clock; {POSSIBLE}")
        return cls(step, zone)

    @classmethod
    def at(cls, place: str) -> Clock:
        """Returns the clock of a place, as `place` has it."""
        match = _PLACE.fullmatch(place)
        if match is None:
            raise ValueError(f"{place!r} is no clock")
        return cls(timedelta(seconds=int(match[1])), match[2])

    @property
    def place(self) -> str:
        """The id of the clock, and its location where a table has one."""
        return f"clock://{int(self.length.total_seconds())}/{self.zone}"

    def step(self, moment: datetime) -> int:
        """Returns the step that a moment is in, as its start in seconds since 1970.

        Args:
            moment: without an offset it is what the clock on the wall of the zone shows.

        Raises:
            ValueError: the step begins before 1970.
        """
        zone = zone_named(self.zone)
        now = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=zone).astimezone(UTC)
        start = int(self._start(now, zone).timestamp())
        if start < 0:
            raise ValueError(f"{moment.isoformat()} is before 1970")
        return start

    def _start(self, now: datetime, zone: ZoneInfo) -> datetime:
        local = now.astimezone(zone).replace(tzinfo=None)
        midnight = datetime.combine(local.date(), time())
        if self.length >= DAY:
            first = midnight - timedelta(days=midnight.weekday()) if self.length == WEEK else midnight
            return first.replace(tzinfo=zone)
        shown = midnight + (local - midnight) // self.length * self.length
        around = timedelta(hours=1) // self.length + 1  # a time on the wall may come twice, or not at all
        walls = (shown + number * self.length for number in range(-around, around))
        starts = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for wall in walls for fold in (0, 1))
        return max(start for start in starts if start <= now and self._begins(start.astimezone(zone)))

    def _begins(self, local: datetime) -> bool:
        """Returns whether a step begins at a time on the wall."""
        wall = local.replace(tzinfo=None)
        return not (wall - datetime.combine(wall.date(), time())) % self.length

    def day(self, version: int) -> date:
        """Returns the day on which a step begins, in the zone."""
        return datetime.fromtimestamp(version, zone_named(self.zone)).date()

    def shown(self, version: int) -> str:
        """Returns the start of a step for people: a day, or a time with its offset."""
        start = datetime.fromtimestamp(version, zone_named(self.zone))
        return start.date().isoformat() if self.length >= DAY else start.isoformat(timespec="minutes")


def is_clock(location: str) -> bool:
    """Returns whether a location is that of a clock, and not of a table."""
    return location.startswith("clock://")


def zone_named(name: str) -> ZoneInfo:
    """Returns a time zone.

    Raises:
        ValueError: there is none of this name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone; write one as Europe/Berlin") from None


def _known(name: str) -> str:
    try:
        zone_named(name)
    except ValueError as error:
        raise problem(str(error)) from None
    return name


Zone = Annotated[str, AfterValidator(_known)]
"""The name of a time zone, `Europe/Berlin`."""


def moment_of(text: str) -> datetime:
    """Returns a moment from its text: a day, or a time, with an offset or without one.

    Raises:
        ValueError: the text is no moment.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no day and no time; write 2026-05-01, or 2026-05-01T13:00") from None
