"""Random change histories with times, for `as_of`: left rows have a time, right rows are versions that begin at one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.any_order.histories import LEFT, RIGHT, Content, Event, Histories, Key, Place

SCHEMAS = {
    LEFT: "id INT, fk STRING, at BIGINT, v STRING, seq BIGINT",
    RIGHT: "k STRING, since BIGINT, name STRING, seq BIGINT",
}
TIMES = range(8)


@dataclass(frozen=True)
class Dated(Event):
    """An event with a time; a delete has it too."""

    time: int = 0

    def line(self, side: str) -> str:
        named = json.loads(super().line(side))
        return json.dumps(named if self.key is None else named | {"at" if side == LEFT else "since": self.time})

    def __str__(self) -> str:
        return f"time {self.time}, {super().__str__()}"


class DatedHistories(Histories):
    """Draws contents with times, and computes the expected joins."""

    def _event(self, side: str, world: int) -> Event:
        drawn = super()._event(side, world)
        return Dated(drawn.key, drawn.seq, drawn.row, self.random.choice(TIMES))

    def as_of_time(
        self, landed: Mapping[Place, Content], join: str, _: Iterable[str] = ()
    ) -> dict[Key, tuple[str | None, ...]]:
        """Returns, per left key, `v`, `fk`, and `name` and `since` of the version that held at its time."""
        versions = {
            key: event.row for key, (_, event) in self.last(landed, RIGHT, lambda _, e: (e.key, time_of(e))).items()
        }
        out: dict[Key, tuple[str | None, ...]] = {}
        for key, (_, event) in self.last(landed, LEFT, lambda _, event: event.key).items():
            if event.row is None:
                continue
            since = max((t for k, t in versions if k == event.row["fk"] and t <= time_of(event)), default=None)
            row = None if since is None else versions[event.row["fk"], since]
            self._add(out, key, event.row, row, since, join)
        return out

    def as_of_batch(
        self, landed: Mapping[Place, Content], join: str, _: Iterable[str] = ()
    ) -> dict[Key, tuple[str | None, ...]]:
        """Returns the same with the right table as the batches up to that of the left row left it."""
        right: dict[int, dict[Key, Event]] = {}
        ends: set[int] = set()
        for (batch, side), content in landed.items():
            if side == RIGHT:
                last = self.last({(batch, side): content}, RIGHT, lambda _, event: event.key)
                right[batch] = {key: event for key, (_, event) in last.items()}
                if any(event.key is None for event in content.events):
                    ends.add(batch)
        out: dict[Key, tuple[str | None, ...]] = {}
        for key, (batch, event) in self.last(landed, LEFT, lambda _, event: event.key).items():
            if event.row is None:
                continue
            seen = None
            for earlier in sorted(n for n in right if n <= batch):
                seen = right[earlier].get(event.row["fk"] or "", None if earlier in ends else seen)
            since = None if seen is None else time_of(seen)
            self._add(out, key, event.row, None if seen is None else seen.row, since, join)
        return out

    @staticmethod
    def _add(
        out: dict[Key, tuple[str | None, ...]],
        key: Key,
        left: Mapping[str, str | None],
        right: Mapping[str, str | None] | None,
        since: int | None,
        join: str,
    ) -> None:
        if right is not None:
            out[key] = (left["v"], left["fk"], right["name"], str(since))
        elif join != "inner":
            out[key] = (left["v"], left["fk"], None, None)


def time_of(event: Event) -> int:
    """Returns the time of an event."""
    assert isinstance(event, Dated)
    return event.time
