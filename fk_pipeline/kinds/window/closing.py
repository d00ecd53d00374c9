"""How far events go back (`retention`): the horizon, and the events that maintenance may remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import DataFrame

from fk_pipeline.blocks.horizon import horizon_at, micros_since_1970
from fk_pipeline.contract import Role
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.kind import TIME
from fk_pipeline.kinds.window.spans import UNITS_PER_SECOND, Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.durations import micros, span
from fk_pipeline.store import schemas as s


class OldEvents:
    """The events that are older than `retention` (ADR 0037)."""

    order = (Role.STATE, Role.LOG)
    waits = True

    def __init__(self, spec: WindowSpec) -> None:
        assert spec.retention is not None
        self.spec, self.sides = spec, k.sources(spec)
        self._retention = micros(span(spec.retention))

    def horizon(self, states: Mapping[Side, DataFrame], now: datetime) -> str | None:
        """Returns the horizon of some events: so long before the newest, or before now if that is in the future."""
        spans = self._spans(next(iter(states.values())))
        rows = [state.where(f"{s.HASH} IS NOT NULL").select(TIME) for state in states.values()]
        [[at]] = reduce(DataFrame.unionByName, rows).selectExpr(f"MAX({spans.ticks(TIME)})").collect()
        if at is None:
            return None
        unit = 1_000_000 // UNITS_PER_SECOND[spans.dtype]
        return horizon_at(min(at, micros_since_1970(now) // unit) - self._retention // unit, spans.dtype == "TIMESTAMP")

    def removable(self, side: Side, state: DataFrame, keys: Sequence[str], horizon: str, settled: str) -> DataFrame:
        """Returns the keys of the events that no event younger than the horizon meets, and that cannot be withdrawn."""
        spans = self._spans(state)
        bound = f"{spans.ticks(horizon)} - {spans.older(self.spec, side)}"
        return state.where(f"{spans.ticks(TIME)} < {bound} AND {settled}").select(*map(quote, keys))

    def _spans(self, state: DataFrame) -> Spans:
        return Spans.of(self.spec, state.schema[TIME].dataType.simpleString())


def closing_of(spec: WindowSpec) -> OldEvents | None:
    """Returns what maintenance may remove; None if all events stay."""
    return None if spec.retention is None else OldEvents(spec)
