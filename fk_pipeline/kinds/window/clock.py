"""The clock that the result of a windowed join stands for, as the commit carries it and as people read it. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

CLOCK, CLOCK_KIND, OPEN = "clock", "clock_type", "open_rows"
"""In the metadata of a commit to the result: the clock that its rows stand for, in units of the times; their type; the
number of rows whose close has not come: with a match or without, they may still get one."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(ticks: int, dtype: str) -> str:
    """Returns a time in units as text: a number of milliseconds for BIGINT, otherwise a moment in UTC."""
    if dtype.upper() == "BIGINT":
        return str(ticks)
    try:
        return (_EPOCH + timedelta(microseconds=ticks)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{ticks} microseconds since 1970"


def stands_for(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Returns what the result stands for, by the metadata of its last commit: clock and open rows, if it has them."""
    if CLOCK not in metadata:
        return {}
    facts = {"clock": time_text(metadata[CLOCK], metadata[CLOCK_KIND])}
    return {**facts, "open rows": f"{metadata[OPEN]:,}"} if OPEN in metadata else facts
