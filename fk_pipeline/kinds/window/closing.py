"""How far events go back (`retention`): the horizon, and the events that maintenance may remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import DataFrame

from fk_pipeline.blocks.horizon import horizon_at, micros, micros_since_1970
from fk_pipeline.contract import Role
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.kind import TIME
from fk_pipeline.kinds.window.layout import UNITS_PER_SECOND
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.durations import span
from fk_pipeline.store import schemas as s

_SECOND = 1_000_000
"""Microseconds."""


class OldEvents:
    """The events that are older than `retention` (ADR 0037)."""

    order = (Role.STATE, Role.LOG)
    waits = True

    def __init__(self, spec: WindowSpec) -> None:
        assert spec.retention is not None
        self.sides = k.sources(spec)
        self._retention = micros(span(spec.retention))
        older = {Side.LEFT: micros(spec.after), Side.RIGHT: micros(spec.before)}
        self._older = {
            side: max(0, *(older[one] for one in Side if k.source(spec, one) is side)) for side in self.sides
        }
        """How much older than an event of the other side the event of a pair may be, in microseconds."""

    def horizon(self, states: Mapping[Side, DataFrame], now: datetime) -> str | None:
        """Returns the horizon of some events: so long before the newest, or before now if that is in the future."""
        rows = [state.where(f"{s.HASH} IS NOT NULL").select(TIME) for state in states.values()]
        units = _units(rows[0])
        newest = f"UNIX_MICROS(MAX({TIME}))" if units == _SECOND else f"MAX({TIME})"
        [[at]] = reduce(DataFrame.unionByName, rows).selectExpr(newest).collect()
        if at is None:
            return None
        unit = _SECOND // units
        return horizon_at(min(at, micros_since_1970(now) // unit) - self._retention // unit, units == _SECOND)

    def removable(self, side: Side, state: DataFrame, keys: Sequence[str], horizon: str, settled: str) -> DataFrame:
        """Returns the keys of the events that no event younger than the horizon meets, and that cannot be withdrawn."""
        units = _units(state)
        time, bound = (f"UNIX_MICROS({one})" if units == _SECOND else one for one in (TIME, horizon))
        older = self._older[side] * units // _SECOND
        return state.where(f"{time} < {bound} - {older} AND {settled}").select(*map(quote, keys))


def _units(state: DataFrame) -> int:
    return UNITS_PER_SECOND[state.schema[TIME].dataType.simpleString().upper()]
