"""The rules of `kind: window` as a model, in the schedules of `tests.any_order.model`.

A row of either side is (key, time, value). Two rows are a pair if their keys are equal and their times are near enough.
A row without a pair stands alone in a left or outer join: at once, or when the clock, the greatest time of all living
rows, has passed its close. Every third seed joins a stream to itself: one changelog and one store for both sides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from tests.any_order.model import EVERY_KEY, JOINS, Content, Event, Join, Model, Schedule, partition, winner

RULES = {
    "a pair is looked up again": "a pair of rows that have changed since is written",
    "a pair that stood is looked up again": "a pair that a newer response made is removed by an older one",
    "the pairs of a changed row are looked up": "those of its older version stay",
    "partners are asked": "a row stays alone beside its match, or is missing when the match goes",
    "what time has closed is asked": "a row that nobody changes never stands alone",
    "the clock may turn back": "rows stand alone whose close has not come, after a withdrawn batch",
    "the clock is part of the commit": "a run dies, and has shown rows alone by a clock that nobody knows",
    "a clock of a late commit does not count": "a paused run commits its older clock over newer rows",
    "the result tells who is alone": "the states tell it, which may be ahead by a change that is taken back later",
}
"""Per rule that can be left out, the consequence of leaving it out."""

Pair = tuple[str | None, str | None]
"""Left key and right key; one of them is None in a row alone."""


class WindowModel(Model):
    """A pipeline of `kind: window`."""

    def __init__(self, *, join: Join, seed: int, without: str | None = None) -> None:
        super().__init__(join=join, without=without)
        self.join, self.to_itself, self.at_once = join, seed % 3 == 0, seed % 5 == 0
        self.before, self.after, self.grace = seed % 4, seed // 4 % 4, seed // 16 % 2
        self.at: int | None = None
        """The clock that the result stands for; None if it is not known."""
        self.version = 0
        """The number of commits to the result."""
        if self.to_itself:
            self.logs[Side.RIGHT], self.states[Side.RIGHT] = self.logs[Side.LEFT], self.states[Side.LEFT]

    def run(self, stage: Stage, batch: int, content: Content) -> None:
        if not (self.to_itself and stage is Stage.RIGHT_TABLE):
            super().run(stage, batch, content)

    def commits(self, stage: Stage, batch: int, content: Content) -> list[Callable[[], None]]:
        if self.to_itself and stage is Stage.RIGHT_TABLE:
            return [lambda: None]
        if stage is not Stage.RESOLVED_JOIN:
            return super().commits(stage, batch, content)
        after, read = self.copied(), self.version
        after.run(stage, batch, content)
        made = {pair: row for pair, row in after.result.items() if self.result.get(pair) != row}
        gone = self.result.keys() - after.result.keys()

        def rows() -> None:
            self.result = {pair: row for pair, row in self.result.items() if pair not in gone} | made

        def clock() -> None:
            late = self.version != read and not self._lacks("a clock of a late commit does not count")
            self.at, self.version = None if late else after.at, self.version + 1

        def both() -> None:
            rows()
            clock()

        return [rows, clock] if self._lacks("the clock is part of the commit") else [both]

    def matches(self, left: Any, right: Any) -> bool:
        same = left[0] is not None and left[0] == right[0]
        return same and left[1] - self.before <= right[1] <= left[1] + self.after

    def close(self, side: Side, row: Any) -> int:
        """Returns the clock after which a row without a match stands alone."""
        more: int = row[1] + (self.after if side == Side.LEFT else self.before) + self.grace
        return more

    def live(self, side: Side) -> dict[str, Any]:
        return {key: row.value for key, row in self.states[side].items() if row.value is not None}

    def _was_told(self, side: Side, key: str) -> bool:
        """Returns whether an older version of a row was told: only then can the result have pairs of one."""
        row = self.states[side].get(key)
        return row is None or row.seen_before

    def _is_known(self, _side: Side, _key: str) -> bool:
        """Returns whether the state tells what became of a row."""
        return True

    def alone_on(self) -> tuple[Side, ...]:
        """Returns the sides whose rows may stand alone."""
        return {"inner": (), "left": (Side.LEFT,), "outer": (Side.LEFT, Side.RIGHT)}[self.join]

    def _asked(self, batch: int) -> Iterable[Any]:
        for side in SIDES:
            for key, row in self.states[side].items():
                if row.applied_in == batch:
                    yield side, key, batch

    def _told(self, batch: int) -> Iterable[Any]:
        left, right = self.live(Side.LEFT), self.live(Side.RIGHT)
        news = {side: {key for key, row in self.states[side].items() if row.applied_in == batch} for side in SIDES}
        for lk, one in left.items():
            for rk, other in right.items():
                if (lk in news[Side.LEFT] or rk in news[Side.RIGHT]) and self.matches(one, other):
                    yield lk, rk

    def _resolve(self, batch: int) -> None:
        rows = {side: self.live(side) for side in SIDES}
        was, now = self.at, max((row[1] for side in SIDES for row in rows[side].values()), default=-1)
        messages = self.responses.get(batch, [])
        told: set[Any] = {one for one in messages if len(one) == 2}  # the others are of a changed row, with its batch
        asked = {side: {one[1] for one in messages if one[0] == side} for side in SIDES}
        changed = {side: {key for key in keys if self._was_told(side, key)} for side, keys in asked.items()}
        if self._lacks("the pairs of a changed row are looked up"):
            changed = {side: set() for side in SIDES}
        stood = {
            pair
            for pair in self.result
            if None not in pair and (pair[0] in changed[Side.LEFT] or pair[1] in changed[Side.RIGHT])
        }
        for lk, rk in told | stood:
            if not (self._is_known(Side.LEFT, lk) and self._is_known(Side.RIGHT, rk)):
                continue
            pair = rows[Side.LEFT].get(lk), rows[Side.RIGHT].get(rk)
            is_pair = None not in pair and self.matches(*pair)
            if self._lacks("a pair is looked up again"):
                is_pair = None not in pair and (is_pair or (lk, rk) in told)
            if self._lacks("a pair that stood is looked up again"):
                is_pair = is_pair and (lk, rk) in told
            if is_pair:
                self.result[lk, rk] = (*pair, pair)
            else:
                self.result.pop((lk, rk), None)
        for side in self.alone_on():
            place = 0 if side == Side.LEFT else 1
            if not self._lacks("partners are asked"):
                asked[side] |= {pair[place] for pair in told | stood}
            asked[side] |= self._closing(side, rows[side], was, now)
            for key in asked[side]:
                self._leave(side, key, rows, now)
        self.at, self.version = now, self.version + 1

    def _closing(self, side: Side, rows: Mapping[str, Any], was: int | None, now: int) -> set[str]:
        """Returns the rows whose close lies between two clocks; all rows if one of the clocks is not known."""
        if self.at_once or self._lacks("what time has closed is asked"):
            return set()
        place = 0 if side == Side.LEFT else 1
        if was is None:
            return {*rows, *(pair[place] for pair in self.result if pair[1 - place] is None)}
        low, high = (was if self._lacks("the clock may turn back") else min(was, now)), max(was, now)
        return {key for key, row in rows.items() if low <= self.close(side, row) < high}

    def _leave(self, side: Side, key: str, rows: Mapping[Side, Any], now: int) -> None:
        """Lets a row stand alone if it lives, its close has come and the result has no pair of it; else it does not."""
        if not self._is_known(side, key):
            return
        place, row = (0 if side == Side.LEFT else 1), rows[side].get(key)
        closed = row is not None and (self.at_once or self.close(side, row) < now)
        paired = any(pair[place] == key for pair in self.result if None not in pair)
        if self._lacks("the result tells who is alone"):
            others = rows[Side.RIGHT if side == Side.LEFT else Side.LEFT].values()
            paired = row is not None and any(
                self.matches(row, other) if side == Side.LEFT else self.matches(other, row) for other in others
            )
        at: Any = (key, None) if side == Side.LEFT else (None, key)
        if closed and not paired:
            values = (row, None) if side == Side.LEFT else (None, row)
            self.result[at] = (*values, values)
        else:
            self.result.pop(at, None)

    def refused(self) -> set[tuple[str, Any, Any]]:
        return set()


class WindowSchedule(Schedule):
    """One random schedule."""

    def __init__(self, seed: int, *, join: Join, without: str | None = None) -> None:
        self.seed = seed
        super().__init__(seed, join=join, without=without)

    def _model(self, without: str | None) -> WindowModel:
        return WindowModel(join=self.join, seed=self.seed, without=without)

    def _content(self, _batch: int) -> Content:
        choose, number = self.random.choice, self.random.randint

        def event() -> Event:
            self.clock += 1
            key = EVERY_KEY if self.random.random() < 0.04 else choose("abcd")
            row = None if self.random.random() < 0.2 else (choose(["x", "y", None]), number(0, 15), number(0, 1))
            return key, self.clock + choose([0, 0, 0, -15.5]) + self.random.random() / 10, row

        return {side: [event() for _ in range(number(0, 3))] for side in SIDES}

    def _last(self, contents: Mapping[int, Content]) -> dict[Side, dict[str, Any]]:
        """Returns, per side, the rows of the last writers."""
        rows: dict[Side, dict[str, Any]] = {}
        for side in SIDES:
            read = Side.LEFT if self.windowed.to_itself else side
            log = {n: partition(content[read]) for n, content in contents.items()}
            last = {key: winner(log, key) for part in log.values() for key in part.rows}
            rows[side] = {key: won[1] for key, won in last.items() if won is not None and won[1] is not None}
        return rows

    def _wanted(self, contents: Mapping[int, Content]) -> dict[Any, Any]:
        rows = self._last(contents)
        return self._with_alone(
            rows,
            {
                (lk, rk): (one, other)
                for lk, one in rows[Side.LEFT].items()
                for rk, other in rows[Side.RIGHT].items()
                if self.windowed.matches(one, other)
            },
        )

    def _with_alone(self, rows: Mapping[Side, Mapping[str, Any]], pairs: Mapping[Any, Any]) -> dict[Any, Any]:
        """Returns pairs, and the closed rows that are in none of them."""
        model, found = self.windowed, {**pairs}
        now = max((row[1] for side in SIDES for row in rows[side].values()), default=-1)
        paired = {side: {pair[place] for pair in pairs} for place, side in enumerate(SIDES)}
        for side in model.alone_on():
            for key, row in rows[side].items():
                if key not in paired[side] and (model.at_once or model.close(side, row) < now):
                    found[(key, None) if side == Side.LEFT else (None, key)] = (
                        (row, None) if side == Side.LEFT else (None, row)
                    )
        return found

    @property
    def windowed(self) -> WindowModel:
        """The model."""
        assert isinstance(self.model, WindowModel)
        return self.model


def wrong(schedules: int, without: str | None = None) -> int:
    """Returns the number of schedules that end with a wrong result."""
    return sum(
        not WindowSchedule(seed, join=JOINS[seed // 2 % 3], without=without).is_right() for seed in range(schedules)
    )


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    for rule, then in [(None, "all rules hold"), *RULES.items()]:
        name = then if rule is None else f"without {rule!r} {then}"
        sys.stdout.write(f"{wrong(number, rule):6,} of {number:,} wrong: {name}\n")
