"""The rules of `kind: window` as a model, in the schedules of `tests.any_order.model`.

A row of either side is (key, time, value). Two rows are a pair if their keys are equal and their times are near enough.
A row without a pair stands alone in a left or outer join: at once, or when the clock, the greatest time of all living
rows, has passed its close. Every third seed joins a stream to itself: one changelog and one table for both sides. The
stages are the five of a join, of which four are used: the left changelog, the right table with its changelog, the
subscription store, which is the left table, and the resolved join, a block that is brought from one version of its two
tables to another. Nothing is told in messages.

The block is a union of branches: the pairs, by left key; the left rows alone, by left key; the right rows alone, by
right key. The key is the anchor: of the anchors of a branch that a refresh looks at, the rows are those of the tables
of now.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from tests.any_order.model import EVERY_KEY, JOINS, Content, Event, Join, Model, Row, Schedule, partition, winner

RULES = {
    "the old row asks": "a row that matched the old version of a changed row keeps the pair, or is not alone",
    "what the clock has passed is asked": "a row that nobody changes never stands alone",
    "the clock may turn back": "rows stand alone whose close has not come, after a withdrawn batch",
    "changes are those since the last commit": "the rows of the batch alone are looked at, not what others changed",
    "the versions are those that were read": "rows that changed while it was computed are taken for done",
    "the versions are in the commit of the rows": "a run dies between the two, and what changed is taken for done",
    "a late commit stands for no version": "it takes back what newer runs wrote, and says that it is all there",
    "without a version all that the result has is asked": "rows stay that a late commit wrote of rows that are gone",
}
"""Per rule that can be left out, the consequence of leaving it out."""

TABLE_OF = {Stage.SUBSCRIPTION_STORE: Side.LEFT, Stage.RIGHT_TABLE: Side.RIGHT}
OTHER = {Side.LEFT: Side.RIGHT, Side.RIGHT: Side.LEFT}

Pair = tuple[str | None, str | None]
"""Left key and right key; one of them is None in a row alone."""

Anchor = tuple[Side | None, str]
"""A branch and a key of it: a left key of pairs, which have no side, or the side and the key of a row alone."""


def anchor_of(pair: Pair) -> Anchor:
    """Returns the anchor of a row of the result."""
    left, right = pair
    if left is not None:
        return (Side.LEFT if right is None else None), left
    assert right is not None
    return Side.RIGHT, right


@dataclass(frozen=True)
class Version:
    """A version of a table.

    Attributes:
        rows: the living rows, by key.
        known: the keys of which the table tells that their rows live or are deleted; not those that it lost.
    """

    rows: Mapping[str, Any]
    known: frozenset[str] = frozenset()


Tables = Mapping[Side, Version]


@dataclass(frozen=True)
class Standing:
    """What a result stands for: the number of a version per side, and the clock of both."""

    versions: Mapping[Side, int]
    clock: int


class WindowModel(Model):
    """A pipeline of `kind: window`."""

    def __init__(self, *, join: Join, seed: int, without: str | None = None) -> None:
        super().__init__(join=join, without=without)
        self.join, self.to_itself, self.at_once = join, seed % 3 == 0, seed % 5 == 0
        self.before, self.after, self.grace = seed % 4, seed // 4 % 4, seed // 16 % 2
        self.result: dict[Any, tuple[Any, Any, Any]] = {}
        """Per pair, the two rows, and both."""
        self.versions: dict[Side, list[Version]] = {side: [Version({})] for side in SIDES}
        """Per side, the versions of its table."""
        self.stands: Standing | None = None
        """What the result stands for, as far as it is known."""
        self.written = 0
        """The version of the result."""
        if self.to_itself:
            self.logs[Side.RIGHT], self.states[Side.RIGHT] = self.logs[Side.LEFT], self.states[Side.LEFT]
            self.versions[Side.RIGHT] = self.versions[Side.LEFT]

    def run(self, stage: Stage, batch: int, content: Content, _writes: bool = True) -> None:
        if stage is Stage.RESOLVED_JOIN:
            for commit in self._refreshed(batch):
                commit()
        elif stage is Stage.LEFT_CHANGELOG or self._makes_a_table(stage):
            super().run(stage, batch, content)
            self._add_version(stage)

    def commits(self, stage: Stage, batch: int, content: Content, _writes: bool = True) -> list[Callable[[], None]]:
        if stage is Stage.RESOLVED_JOIN:
            return self._refreshed(batch)
        if stage is not Stage.LEFT_CHANGELOG and not self._makes_a_table(stage):
            return [lambda: None]
        *first, last = super().commits(stage, batch, content)

        def commit() -> None:
            last()
            self._add_version(stage)

        return [*first, commit]

    def drop_tombstones(self, settled: Callable[[int], bool]) -> None:
        super().drop_tombstones(settled)
        for stage in TABLE_OF:
            self._add_version(stage)

    def _makes_a_table(self, stage: Stage) -> bool:
        """Returns whether a stage makes a table of its own: in a self-join, the left table is the right one, too."""
        return stage in TABLE_OF and not (self.to_itself and stage is Stage.RIGHT_TABLE)

    def _add_version(self, stage: Stage) -> None:
        """Makes the rows of the table of a stage, if it makes one, the newest version of the table."""
        if self._makes_a_table(stage):
            side = TABLE_OF[stage]
            known = frozenset(key for key, row in self.states[side].items() if self._is_heard(row))
            self.versions[side].append(Version(self.live(side), known))

    def _is_heard(self, _row: Row) -> bool:
        """Returns whether the row of a table tells what became of its key."""
        return True

    def _newest(self) -> Standing:
        """Returns the newest version of each table, and the clock of both."""
        times = [row[1] for side in SIDES for row in self.versions[side][-1].rows.values()]
        return Standing({side: len(self.versions[side]) - 1 for side in SIDES}, max(times, default=-1))

    def _tables(self, standing: Standing) -> Tables:
        return {side: self.versions[side][number] for side, number in standing.versions.items()}

    def matches(self, left: Any, right: Any) -> bool:
        same = left[0] is not None and left[0] == right[0]
        return same and left[1] - self.before <= right[1] <= left[1] + self.after

    def _meets(self, side: Side, row: Any, other: Any) -> bool:
        """Returns whether a row of a side matches one of the other side."""
        return self.matches(row, other) if side == Side.LEFT else self.matches(other, row)

    def close(self, side: Side, row: Any) -> int:
        """Returns the clock after which a row without a match stands alone."""
        more: int = row[1] + (self.after if side == Side.LEFT else self.before) + self.grace
        return more

    def live(self, side: Side) -> dict[str, Any]:
        return {key: row.value for key, row in self.states[side].items() if row.value is not None}

    def unmatched_on(self) -> tuple[Side, ...]:
        """Returns the sides whose rows may stand alone."""
        return {"inner": (), "left": (Side.LEFT,), "outer": (Side.LEFT, Side.RIGHT)}[self.join]

    def _refreshed(self, batch: int) -> list[Callable[[], None]]:
        """Returns the commits of a run of the block: one, if no rule is left out."""
        read, written = self._newest(), self.written
        now, anchors = self._tables(read), self._anchors(batch, read)
        expected = {pair: row for anchor in anchors for pair, row in self._expected(anchor, now, read.clock).items()}
        made = {pair: (*row, row) for pair, row in expected.items() if self.result.get(pair) != (*row, row)}
        gone = {pair for pair in self.result if anchor_of(pair) in anchors and not self._stays(pair, now)} - {*expected}

        def versions() -> None:
            is_late = written != self.written and not self._lacks("a late commit stands for no version")
            of_now = self._newest() if self._lacks("the versions are those that were read") else read
            self.stands = None if is_late else of_now

        def rows() -> None:
            self.result = {pair: row for pair, row in self.result.items() if pair not in gone} | made
            self.written += 1

        def both() -> None:
            versions()
            rows()

        return [versions, rows] if self._lacks("the versions are in the commit of the rows") else [both]

    def _anchors(self, batch: int, read: Standing) -> set[Anchor]:
        """Returns the anchors whose rows may be others than those of the result: all, if it stands for no version."""
        now, stands = self._tables(read), self.stands
        if stands is None:
            living = {(branch, key) for branch in self._branches() for key in now[branch or Side.LEFT].rows}
            is_left_out = self._lacks("without a version all that the result has is asked")
            return living if is_left_out else living | {anchor_of(pair) for pair in self.result}
        then = self._tables(stands)
        changed = {side: self._changed(side, then[side], now[side], batch) for side in SIDES}
        asked = {side: changed[side] | self._partners(side, changed[OTHER[side]], then, now) for side in SIDES}
        closing = {(side, key) for side in self.unmatched_on() for key in self._closing(side, now[side], stands, read)}
        return closing | {(branch, key) for branch in self._branches() for key in asked[branch or Side.LEFT]}

    def _branches(self) -> tuple[Side | None, ...]:
        """Returns the branches of the block: None for the pairs, a side for its rows alone."""
        return (None, *self.unmatched_on())

    def _changed(self, side: Side, then: Version, now: Version, batch: int) -> set[str]:
        """Returns the keys whose rows differ; a row that was removed from the table, and not deleted, has not changed.

        That saves work: to look at the anchors of removed rows would be right, too.
        """
        if self._lacks("changes are those since the last commit"):
            return {key for key, row in self.states[side].items() if row.applied_in == batch}
        return {key for key in now.known if then.rows.get(key) != now.rows.get(key)}

    def _partners(self, side: Side, changed: set[str], then: Tables, now: Tables) -> set[str]:
        """Returns the rows of now of a side that match an old or a new row of a changed key of the other side."""
        versions = [one[OTHER[side]].rows for one in ((now,) if self._lacks("the old row asks") else (then, now))]
        others = [rows[key] for rows in versions for key in changed if key in rows]
        return {key for key, row in now[side].rows.items() if any(self._meets(side, row, one) for one in others)}

    def _closing(self, side: Side, now: Version, stands: Standing, read: Standing) -> set[str]:
        """Returns the rows that are closed at one of two clocks only."""
        if self.at_once or self._lacks("what the clock has passed is asked"):
            return set()
        low, high = sorted((stands.clock, read.clock))
        if read.clock < stands.clock and self._lacks("the clock may turn back"):
            return set()
        return {key for key, row in now.rows.items() if low <= self.close(side, row) < high}

    def _expected(self, anchor: Anchor, now: Tables, clock: int) -> dict[Pair, Any]:
        """Returns the rows of an anchor, as the tables of now have them."""
        branch, key = anchor
        side = branch or Side.LEFT
        row = now[side].rows.get(key)
        if row is None:
            return {}
        found = {one: other for one, other in now[OTHER[side]].rows.items() if self._meets(side, row, other)}
        if branch is None:
            return {(key, one): (row, other) for one, other in found.items()}
        is_closed = self.at_once or self.close(side, row) < clock
        if found or not is_closed or self._has_a_pair_that_stays(side, key, now):
            return {}
        return {(key, None): (row, None)} if side == Side.LEFT else {(None, key): (None, row)}

    def _stays(self, _pair: Pair, _now: Tables) -> bool:
        """Returns whether a row of the result stays whatever the tables of now tell."""
        return False

    def _has_a_pair_that_stays(self, _side: Side, _key: str, _now: Tables) -> bool:
        """Returns whether the result has a pair of a row whose other row the table does not know."""
        return False

    def refused(self) -> set[tuple[str, Any, Any]]:
        return set()


class WindowSchedule(Schedule):
    """One random schedule: runs often sleep for long, and batches of two in three schedules are rarely folded."""

    sleeps, wakes = 0.15, 0.04

    def __init__(self, seed: int, *, join: Join, without: str | None = None) -> None:
        self.seed, self.folding = seed, 0.02 if seed // 2 % 9 // 3 else 0.25
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
        for side in model.unmatched_on():
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
