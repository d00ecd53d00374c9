"""The rules of `as_of` as a model, in the schedules of `tests.any_order.model`.

A left row is (foreign key, time, value). A right row is a version: its key is (right key, time since which it holds),
its content a value, or `GONE` for a deletion. With times of the source, a truncate withdraws versions; with `as_of:
batch` the time of a row is its batch, and a truncate ends every version that holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from tests.any_order.model import (
    EVERY_KEY,
    JOINS,
    Content,
    Event,
    Join,
    Model,
    Partition,
    Row,
    Schedule,
    partition,
    winner,
)

GONE = "gone"
ENDLESS = float("inf")

RULES = {
    "a changed version is told": "no left row hears of it",
    "a withdrawn version is told": "left rows that saw it hear nothing, because it holds no more",
    "the version that held is checked": "a response about another version is written",
    "a truncate is told": "left rows that saw a version which it ended hear nothing",
    "a truncate that went is told": "only a truncate that is there is told, not one that the batch had before",
}
"""Per rule that can be left out, the consequence of leaving it out."""


@dataclass
class Dated(Partition):
    """The right rows of a batch, with `as_of: batch`; `ends` says that it has a truncate, and rows after it only."""

    ends: bool = False


def after_truncate(part: Partition) -> dict[Any, tuple[float, Any]]:
    """Returns the rows of a batch that came after its last truncate."""
    return {key: row for key, row in part.rows.items() if part.truncate is None or row[0] > part.truncate}


class AsOfModel(Model):
    """A pipeline with `as_of`."""

    def __init__(self, *, join: Join, by_batch: bool, without: str | None = None) -> None:
        super().__init__(join=join, without=without)
        self.by_batch = by_batch
        self.truncated: set[int] = set()
        """The batches that have or ever had a truncate on the right, as far as runs have started with it."""

    def run(self, stage: Stage, batch: int, content: Content, writes: bool = True) -> None:
        self._note(stage, batch, content)
        super().run(stage, batch, content, writes)

    def commits(self, stage: Stage, batch: int, content: Content, writes: bool = True) -> list[Callable[[], None]]:
        self._note(stage, batch, content)
        return super().commits(stage, batch, content, writes)

    def _note(self, stage: Stage, batch: int, content: Content) -> None:
        if stage is Stage.RIGHT_TABLE and any(key == EVERY_KEY for key, *_ in content[Side.RIGHT]):
            self.truncated.add(batch)

    def _bring(self, side: Side, batch: int, events: list[Event]) -> None:
        super()._bring(side, batch, events)
        if self.by_batch and side == Side.RIGHT:
            part = self.logs[side][batch]
            rows = after_truncate(part)
            self.logs[side][batch] = Dated(rows, None, part.generation, ends=part.truncate is not None)

    def _ends(self) -> list[int]:
        """Returns the batches with a truncate, ascending."""
        return sorted(n for n, part in self.logs[Side.RIGHT].items() if isinstance(part, Dated) and part.ends)

    def _version(self, left: Any) -> tuple[Any, Any]:
        """Returns the version that a left row sees: since when it holds, and its content; None if there is none."""
        if left is None:
            return None, None
        right, time = left[:2]
        versions = [
            (key[1], row.value)
            for key, row in self._versions()
            if key[0] == right and row.value is not None and key[1] <= time
        ]
        since, value = max(versions, default=(None, None))
        if since is None or any(since < end <= time for end in self._ends()):
            return None, None
        return (since, None if value == GONE else value)

    def _versions(self) -> Iterable[tuple[Any, Row]]:
        return self.states[Side.RIGHT].items()

    def _asked(self, batch: int) -> Iterable[tuple[str, Any, Any, Any]]:
        for key, row in self.states[Side.LEFT].items():
            if row.applied_in == batch:
                seen = self._version(row.value)
                if not self.inner or row.seen_before or self._answers(*seen):
                    yield key, row.value, *seen

    def _answers(self, _: Any, value: Any) -> bool:
        """Returns whether what a left row sees is told to a new left row of an inner join."""
        return value is not None

    def _told(self, batch: int) -> Iterable[tuple[str, Any, Any, Any]]:
        times = self._reached(batch)
        for key, left in self.states[Side.LEFT].items():
            for right, since, until in times:
                if left.value and right in (None, left.value[0]) and since <= left.value[1] < until:
                    yield key, left.value, *self._version(left.value)

    def _reached(self, batch: int) -> list[tuple[Any, float, float]]:
        """Returns the times for which the changes of a batch concern left rows: right key (None: all), since, until."""
        times: list[tuple[Any, float, float]] = []
        for (right, since), row in self._versions():
            withdrawn = row.value is None
            if row.applied_in == batch and not self._lacks(
                "a withdrawn version is told" if withdrawn else "a changed version is told"
            ):
                times.append((right, since, self._until(right, since)))
        has_truncate = batch in (self._ends() if self._lacks("a truncate that went is told") else self.truncated)
        if self.by_batch and has_truncate and not self._lacks("a truncate is told"):
            times.append((None, batch, min((end for end in self._ends() if end > batch), default=ENDLESS)))
        return times

    def _until(self, right: Any, since: float) -> float:
        """Returns when the next version of a right key that exists begins."""
        later = [key[1] for key, row in self._versions() if key[0] == right and row.value is not None]
        return min((at for at in later if at > since), default=ENDLESS)

    def _resolve(self, batch: int) -> None:
        for key, left, *seen in self._due(batch):
            row = self.states[Side.LEFT].get(key) or Row(None, None, None, 0, batch, seen_before=False)
            stale = self._version(left) != tuple(seen) and not self._lacks("the version that held is checked")
            if row.value != left or stale:
                continue
            if left is None or (seen[1] is None and self.inner):
                self.result.pop(key, None)
                continue
            stored = None if row.owner is None else self.logs[Side.LEFT][row.owner].version(key)
            if stored is not None and stored[1] == left:
                self.result[key] = left, tuple(seen), (left, seen[1])

    def refused(self) -> set[tuple[str, Any, Any]]:
        return set()


def seen(versions: Mapping[tuple[Any, int], Any], ends: Iterable[int], left: Any) -> Any:
    """Returns the content that a left row sees; None if no version holds at its time."""
    of_key = [(since, value) for (right, since), value in versions.items() if right == left[0] and since <= left[1]]
    since, value = max(of_key, default=(0, GONE))
    return None if value == GONE or any(since < end <= left[1] for end in ends) else value


class AsOfSchedule(Schedule):
    """One random schedule; every second is by batch."""

    def __init__(self, seed: int, *, join: Join, without: str | None = None) -> None:
        self.by_batch = seed % 2 == 1
        super().__init__(seed, join=join, without=without)

    def _model(self, without: str | None) -> Model:
        return AsOfModel(join=self.join, by_batch=self.by_batch, without=without)

    def _content(self, batch: int) -> Content:
        choose, number = self.random.choice, self.random.randint

        def event(key: Any, value: Any, truncates: float = 0.06) -> Event:
            self.clock += 1
            key = EVERY_KEY if self.random.random() < truncates else key
            return key, self.clock + choose([0, 0, 0, -15.5]) + self.random.random() / 10, value

        def time() -> int:
            return batch if self.by_batch else self._time()

        def left() -> Event:
            gone = self.random.random() < 0.2
            return event(choose("abc"), None if gone else (choose("xy"), time(), number(0, 1)))

        def right() -> Event:
            return event((choose("xy"), time()), choose([GONE, *map(str, (0, 1, 2))]), 0.2 if self.by_batch else 0.06)

        return {
            Side.LEFT: [left() for _ in range(number(0, 3))],
            Side.RIGHT: [right() for _ in range(number(0, 3))],
        }

    def _time(self) -> int:
        """Returns a time of a row."""
        return self.random.randint(0, 6)

    def _wanted(self, contents: Mapping[int, Content]) -> dict[Any, Any]:
        logs = {side: {n: partition(content[side]) for n, content in contents.items()} for side in SIDES}
        left, right = logs[Side.LEFT], logs[Side.RIGHT]
        ends: list[int] = []
        if self.by_batch:  # a batch has only the rows after its truncate, and older batches keep theirs
            ends = [n for n, part in right.items() if part.truncate is not None]
            own = {n: after_truncate(part) for n, part in right.items()}
            versions = {key: value for rows in own.values() for key, (_, value) in rows.items()}
        else:
            last = {key: winner(right, key) for part in right.values() for key in part.rows}
            versions = {key: won[1] for key, won in last.items() if won is not None and won[1] is not None}
        found = {}
        for key in {key for part in left.values() for key in part.rows}:
            won = winner(left, key)
            if won is not None and won[1] is not None:
                answer = seen(versions, ends, won[1])
                if answer is not None or self.join != "inner":
                    found[key] = won[1], answer
        return found


KINDS: tuple[Join, ...] = JOINS[:2]


def wrong(schedules: int, without: str | None = None) -> int:
    """Returns the number of schedules that end with a wrong result."""
    return sum(
        not AsOfSchedule(seed, join=KINDS[seed // 2 % 2], without=without).is_right() for seed in range(schedules)
    )


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    for rule, then in [(None, "all rules hold"), *RULES.items()]:
        name = then if rule is None else f"without {rule!r} {then}"
        sys.stdout.write(f"{wrong(number, rule):6,} of {number:,} wrong: {name}\n")
