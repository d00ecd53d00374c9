"""The clock that the result of a windowed join stands for, as the commit carries it and as people read it. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

CLOCK, CLOCK_KIND = "clock", "clock_type"
"""In the metadata of a commit to the result: the clock that its rows stand for, in units of the times; their type."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(ticks: int, kind: str) -> str:
    """Returns a time in units as text: a number of milliseconds for BIGINT, otherwise a moment in UTC."""
    if kind.upper() == "BIGINT":
        return str(ticks)
    try:
        return (_EPOCH + timedelta(microseconds=ticks)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{ticks} microseconds since 1970"


def standing(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Returns what the result stands for, from the metadata of its last commit: its clock, if that is known."""
    if CLOCK not in metadata:
        return {}
    return {"clock": time_text(metadata[CLOCK], metadata[CLOCK_KIND])}
