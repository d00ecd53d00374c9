"""How far versions of right rows go back (`history`): the horizon, and the versions that maintenance may remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame

from fk_pipeline.blocks.as_of import newest_version, removable
from fk_pipeline.blocks.horizon import horizon_at, micros_since_1970
from fk_pipeline.contract import Role
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec.durations import length_of, micros
from fk_pipeline.store import schemas as s


class EndedVersions:
    """The versions that ended before `history` (ADR 0035)."""

    sides = (Side.RIGHT,)
    order = (Role.LOG, Role.STATE)
    waits = False  # what has ended answers nobody, removed or not

    def __init__(self, spec: ForeignKeySpec) -> None:
        assert spec.history is not None
        self._history = length_of(spec.history)

    def horizon(self, states: Mapping[Side, DataFrame], now: datetime) -> str | None:
        """Returns the horizon of some versions: so long before the newest, or before now if that begins in the future.

        A whole number is in the unit of the times, for which there is no now.
        """
        newest = newest_version(states[Side.RIGHT], isinstance(self._history, timedelta))
        if newest is None:
            return None
        if isinstance(self._history, int):
            return horizon_at(newest - self._history, False)
        return horizon_at(min(newest, micros_since_1970(now)) - micros(self._history), True)

    def removable(self, _: Side, state: DataFrame, keys: Sequence[str], horizon: str, settled: str) -> DataFrame:
        """Returns the keys of the versions that had ended by the horizon and cannot hold again."""
        return removable(state, [key for key in keys if key != s.VALID_FROM], horizon, settled)


def closing_of(spec: ForeignKeySpec) -> EndedVersions | None:
    """Returns what maintenance may remove; None if all versions answer for ever."""
    return None if spec.history is None else EndedVersions(spec)
