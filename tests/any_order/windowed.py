"""Random change histories of rows with times that go on, for `kind: window`: pairs of the rows of a world."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.any_order.dated import Dated, DatedHistories, time_of
from tests.any_order.histories import LEFT, RIGHT, Content, Event, Key, Place

BEFORE, AFTER, GRACE = 1, 2, 1

FILE = f"within: {{before: {BEFORE} milliseconds, after: {AFTER} milliseconds}}\ngrace: {GRACE} milliseconds\n"
"""The lines of the pipeline file about the window."""

WORLD = "REGEXP_REPLACE({}, '[a-z]+$', '')"
"""SQL: the world of a key or of a foreign key; null if there is none."""


class WindowedHistories(DatedHistories):
    """Draws contents whose times go on with every event, and computes the expected pairs."""

    def _event(self, side: str, world: int) -> Event:
        drawn = super()._event(side, world)
        time = self.clock // max(1, self.worlds // 2) + self.random.choice(range(8))
        return Dated(drawn.key, drawn.seq, drawn.row, time)

    def pairs(
        self, landed: Mapping[Place, Content], join: str, declared: Iterable[str] = (), *, waits: bool = True
    ) -> dict[Key, tuple[Any, ...]]:
        """Returns, per left key, its pairs by right key: `v`, `name` and the declared fields; alone with None.

        In an outer join also, per right key that stands alone, the same with nulls on the left.
        """
        rows: dict[str, dict[Key, Event]] = {}
        for side in (LEFT, RIGHT):
            last = self.last(landed, side, lambda _, event: event.key)
            rows[side] = {key: event for key, (_, event) in last.items() if event.row is not None}
        clock = max((time_of(event) for of_side in rows.values() for event in of_side.values()), default=0)
        more = sorted(declared)
        out: dict[Key, tuple[Any, ...]] = {}
        paired = set()
        for key, left in rows[LEFT].items():
            assert left.row is not None
            found: list[tuple[Any, ...]] = []
            world = None if left.row["fk"] is None else re.sub("[a-z]+$", "", left.row["fk"])
            for letter in "abc" if world is not None else "":
                right = rows[RIGHT].get(f"{world}{letter}")
                if right is None or not -BEFORE <= time_of(right) - time_of(left) <= AFTER:
                    continue
                both = {**(right.row or {}), **left.row}
                found.append((right.key, left.row["v"], both["name"], *map(both.get, more)))
                paired.add(right.key)
            closed = not waits or time_of(left) + AFTER + GRACE < clock
            if not found and closed and join != "inner":
                found.append((None, left.row["v"], None, *map(left.row.get, more)))
            if found:
                out[key] = tuple(sorted(found, key=str))
        for key, right in rows[RIGHT].items():
            assert right.row is not None
            if join == "outer" and key not in paired and (not waits or time_of(right) + BEFORE + GRACE < clock):
                out[key] = (None, right.row["name"], *map(right.row.get, more))
        return out

    def pairs_at_once(
        self, landed: Mapping[Place, Content], join: str, declared: Iterable[str] = ()
    ) -> dict[Key, tuple[Any, ...]]:
        """Returns the same where a row does not wait for a match."""
        return self.pairs(landed, join, declared, waits=False)
