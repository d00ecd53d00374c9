"""Makes three weeks of a log of made-up services, the same every time.

    python examples/service_log/make_data.py FOLDER

    FOLDER/landing/log/20260504.jsonl ...   one file per day; one day is not there yet, one has lines three times
    FOLDER/later/20260513.jsonl             the day that is late
    FOLDER/corrected/20260514.jsonl         the day with every line once

Errors are independent of each other and follow the hour of the day; weekends are quieter. `--days` and `--services`
make less: the first days, the first services.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

FIRST_DAY = datetime(2026, 5, 4, tzinfo=UTC)  # a Monday
DAYS = 21
ERRORS_PER_MINUTE = {"web": 1.5, "search": 0.8, "billing": 0.5}
"""Per service, at the hours of the day that are neither busy nor quiet."""

SERVICES = tuple(ERRORS_PER_MINUTE)
SWING = 0.7
"""How much of that the busiest hour has more, and the quietest less."""

WARNINGS_PER_ERROR = 0.3


class Hours(NamedTuple):
    """Some hours of a day, counted from 0, in which something happens to a service."""

    service: str
    day: int
    first: int
    last: int
    times: int

    def has(self, service: str, day: int, hour: float) -> bool:
        """Whether it happens to a service at an hour."""
        return (self.service, self.day) == (service, day) and self.first <= hour < self.last


INCIDENTS = (
    Hours("search", 8, 10, 12, times=4),  # in the second week
    Hours("web", 15, 14, 16, times=3),  # in the third week: a bad deploy
    Hours("web", 16, 9, 10, times=4),  # a week after the day that is late
    Hours("web", 17, 20, 21, times=3),  # a week after the hour whose lines are there three times
)
"""When a service has more errors, and how many times as many."""

LATE_DAY = 9
"""The Wednesday of the second week: its file arrives after all others."""

SENT_AGAIN = Hours("web", 10, 20, 21, times=3)
"""When a host sent its lines again, and how often they are there."""


class Line(NamedTuple):
    """A line of the log."""

    logged_at: datetime
    service: str
    level: str

    @property
    def text(self) -> str:
        """The line as it is written."""
        at = self.logged_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps({"logged_at": at, "service": self.service, "level": self.level}) + "\n"


def errors_per_minute(service: str, day: int, hour: float) -> float:
    """How many errors are expected."""
    rhythm = 1 + SWING * math.sin(2 * math.pi * (hour - 11) / 24)  # most at 17:00, least at 05:00
    quieter = 0.5 if day % 7 >= 5 else 1.0
    times = math.prod(one.times for one in INCIDENTS if one.has(service, day, hour))
    return ERRORS_PER_MINUTE[service] * rhythm * quieter * times


def arrivals(chance: random.Random, service: str, day: int, level: str) -> Iterator[Line]:
    """Lines of a day that are independent of each other."""
    share = 1.0 if level == "ERROR" else WARNINGS_PER_ERROR
    times = max((one.times for one in INCIDENTS if (one.service, one.day) == (service, day)), default=1)
    most = share * ERRORS_PER_MINUTE[service] * (1 + SWING) * times  # per minute
    minute = chance.expovariate(most)
    while minute < 24 * 60:
        if chance.random() * most < share * errors_per_minute(service, day, minute / 60):
            milliseconds = int(minute * 60_000)
            yield Line(FIRST_DAY + timedelta(days=day, milliseconds=milliseconds), service, level)
        minute += chance.expovariate(most)


def lines_of(day: int, services: Iterable[str] = SERVICES) -> list[Line]:
    """The log of a day, in order of time."""
    found: list[Line] = []
    for service in services:
        for level in ("ERROR", "WARN"):
            found += arrivals(random.Random(f"{service} {level} {day}"), service, day, level)
    return sorted(found)


def with_lines_again(lines: Sequence[Line]) -> list[Line]:
    """The log of a day in which a host sent lines again."""
    again = [one for one in lines if SENT_AGAIN.has(one.service, SENT_AGAIN.day, one.logged_at.hour)]
    return sorted([*lines, *again * (SENT_AGAIN.times - 1)])


def file_name(day: int) -> str:
    """The name of the file of a day: its number is the batch."""
    return f"{FIRST_DAY + timedelta(days=day):%Y%m%d}.jsonl"


def files(days: Iterable[int], services: Iterable[str]) -> Iterator[tuple[str, list[Line]]]:
    """The files by path."""
    for day in days:
        lines, name = lines_of(day, services), file_name(day)
        if day == SENT_AGAIN.day:
            yield f"corrected/{name}", lines
            lines = with_lines_again(lines)
        yield f"{'later' if day == LATE_DAY else 'landing/log'}/{name}", lines


def make(folder: Path, days: Iterable[int] = range(DAYS), services: Sequence[str] = SERVICES) -> None:
    """Writes the files into a folder."""
    for path, lines in files(days, services):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("".join(line.text for line in lines), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Makes three weeks of a log of made-up services.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=int, default=DAYS, help="the first days only")
    parser.add_argument("--services", type=int, default=len(SERVICES), help="the first services only")
    asked = parser.parse_args()
    make(asked.folder, range(asked.days), SERVICES[: asked.services])
    print(f"{asked.days} days of {', '.join(SERVICES[: asked.services])} in {asked.folder}")
