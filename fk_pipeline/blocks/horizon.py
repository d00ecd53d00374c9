"""The horizon: how far back a pipeline goes that does not keep everything (`history`, `retention`).

The ledger has it as text: a timestamp in ISO 8601, or a whole number if the times of the pipeline are numbers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fk_pipeline.spec.durations import micros

_EPOCH, _FIRST = datetime(1970, 1, 1, tzinfo=UTC), datetime.min.replace(tzinfo=UTC)


def horizon_at(ticks: int, timestamps: bool) -> str | None:
    """Returns the horizon at a time: microseconds since 1970, or with `timestamps` false any whole number.

    None if nothing lies before it that has a text: the times before the year 1 stay, and there is no BIGINT so small.
    """
    if ticks < (micros(_FIRST - _EPOCH) if timestamps else -(2**63)):
        return None
    if not timestamps:
        return str(ticks)
    since = _EPOCH + timedelta(microseconds=ticks)
    return since.isoformat(timespec="microseconds").replace("+00:00", "Z")


def ticks_of(horizon: str) -> int:
    """Returns the time that `horizon_at` was made of."""
    return micros_since_1970(datetime.fromisoformat(horizon)) if "T" in horizon else int(horizon)


def is_later(horizon: str, other: str | None) -> bool:
    """Returns whether a horizon lies behind another one of the same pipeline, or there is no other."""
    return other is None or ticks_of(horizon) > ticks_of(other)


def sql_of(horizon: str | None) -> str | None:
    """SQL: a horizon as the ledger has it, a whole number or a timestamp in ISO 8601; None if there is none."""
    if horizon is None:
        return None
    return f"{horizon}L" if horizon.lstrip("-").isdigit() else f"TIMESTAMP'{horizon}'"


def micros_since_1970(moment: datetime) -> int:
    """Returns a moment in microseconds since 1970."""
    return micros(moment - _EPOCH)
