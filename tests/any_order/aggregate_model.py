"""The rules of `kind: aggregate` as a model, in the schedules of `tests.any_order.model`.

A row is (group, time, number). It counts in its group, or in one or more windows of its group. The result has, per
group and window, the number of rows and the sum of their numbers. The stages of the model are the five of a join, of
which three are used: the left changelog is `changelog`, the subscription store is `table`, the resolved join is
`aggregated`, a block that is brought from one version of the table to another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from tests.any_order.model import EVERY_KEY, Content, Event, Model, Schedule, partition, winner

RULES = {
    "the old row counts": "a group that a row left keeps it",
    "changes are those since the last commit": "the rows of the batch alone are looked at, not what others changed",
    "the version is that which was read": "rows that changed while it was computed are taken for done",
    "the version is in the commit of the rows": "a run dies between the two, and what changed is taken for done",
    "a late commit stands for no version": "it takes back what newer runs wrote, and says that it is all there",
}
"""Per rule that can be left out, the consequence of leaving it out."""

Group = tuple[str | None, int | None]
"""A value of `group_by`, and the start of a window; None without windows."""

Rows = Mapping[str, Any]
"""The living rows of a version of the table, by key."""


class AggregateModel(Model):
    """A pipeline of `kind: aggregate`."""

    def __init__(self, *, seed: int, without: str | None = None) -> None:
        super().__init__(join="inner", without=without)
        self.size, self.every = [(None, None), (4, 4), (4, 2), (5, 2), (2, 3)][seed % 5]
        self.versions: list[Rows] = [{}]
        """The versions of the table."""
        self.stands: int | None = None
        """The version of the table that the result stands for, as far as it is known."""
        self.written = 0
        """The version of the result."""

    def run(self, stage: Stage, batch: int, content: Content, _writes: bool = True) -> None:
        if stage is Stage.LEFT_CHANGELOG:
            super().run(stage, batch, content)
        else:
            for commit in self.commits(stage, batch, content):
                commit()

    def commits(self, stage: Stage, batch: int, content: Content, _writes: bool = True) -> list[Callable[[], None]]:
        if stage is Stage.LEFT_CHANGELOG:
            return super().commits(stage, batch, content)
        if stage is Stage.SUBSCRIPTION_STORE:
            return [self._table(batch, content)]
        return self._aggregated(batch) if stage is Stage.RESOLVED_JOIN else [lambda: None]

    def _table(self, batch: int, content: Content) -> Callable[[], None]:
        """Returns the commit of a run of `table`."""
        after = self.copied()
        Model.run(after, Stage.SUBSCRIPTION_STORE, batch, content)
        rows = {k: row for k, row in after.states[Side.LEFT].items() if self.states[Side.LEFT].get(k) != row}

        def commit() -> None:
            self.states[Side.LEFT].update(rows)
            living = {key: row.value for key, row in self.states[Side.LEFT].items() if row.value is not None}
            self.versions.append(living)

        return commit

    def _aggregated(self, batch: int) -> list[Callable[[], None]]:
        """Returns the commits of a run of `aggregated`: one, if no rule is left out."""
        now, read = len(self.versions) - 1, self.written
        rows = self.versions[now]
        expected = {group: self.aggregated(rows, group) for group in self._touched(batch, rows)}

        def version() -> None:
            is_late = read != self.written and not self._lacks("a late commit stands for no version")
            of_now = len(self.versions) - 1 if self._lacks("the version is that which was read") else now
            self.stands = None if is_late else of_now

        def groups() -> None:
            made = {group: (*one, one) for group, one in expected.items() if one is not None}
            self.result = {group: one for group, one in self.result.items() if group not in expected} | made
            self.written += 1

        def both() -> None:
            version()
            groups()

        return [version, groups] if self._lacks("the version is in the commit of the rows") else [both]

    def _touched(self, batch: int, now: Rows) -> set[Group]:
        """Returns the groups that may be others than those of the result: all, if it stands for no version."""
        if self.stands is None:
            return {*self.result, *(group for row in now.values() for group in self.groups(row))}
        then = self.versions[self.stands]
        changed = {key for key in {*then, *now} if then.get(key) != now.get(key)}
        if self._lacks("changes are those since the last commit"):
            changed = {key for key, row in self.states[Side.LEFT].items() if row.applied_in == batch}
        sides = (now,) if self._lacks("the old row counts") else (now, then)
        return {group for key in changed for rows in sides for group in self.groups(rows.get(key))}

    def groups(self, row: Any) -> list[Group]:
        """Returns the groups in which a row counts; none if it is deleted."""
        if row is None:
            return []
        if self.size is None or self.every is None:
            return [(row[0], None)]
        last = row[1] // self.every * self.every
        return [(row[0], start) for start in range(last, row[1] - self.size, -self.every)]

    def aggregated(self, rows: Rows, group: Group) -> tuple[int, int] | None:
        """Returns the number of rows of a group and their sum; None without rows."""
        own = [row for row in rows.values() if group in self.groups(row)]
        return (len(own), sum(row[2] for row in own)) if own else None

    def refused(self) -> set[tuple[str, Any, Any]]:
        return set()


class AggregateSchedule(Schedule):
    """One random schedule: runs often sleep for long, and batches of two in three schedules are rarely folded."""

    sleeps, wakes = 0.15, 0.04

    def __init__(self, seed: int, *, without: str | None = None) -> None:
        self.seed, self.folding = seed, 0.02 if seed % 3 else 0.25
        super().__init__(seed, join="inner", without=without)

    @property
    def _aggregate(self) -> AggregateModel:
        assert isinstance(self.model, AggregateModel)
        return self.model

    def _model(self, without: str | None) -> AggregateModel:
        return AggregateModel(seed=self.seed, without=without)

    def _content(self, _batch: int) -> Content:
        choose, number = self.random.choice, self.random.randint

        def event() -> Event:
            self.clock += 1
            key = EVERY_KEY if self.random.random() < 0.04 else choose("abcd")
            row = None if self.random.random() < 0.2 else (choose(["x", "y", None]), number(0, 9), number(0, 3))
            return key, self.clock + choose([0, 0, 0, -15.5]) + self.random.random() / 10, row

        return {Side.LEFT: [event() for _ in range(number(0, 4))], Side.RIGHT: []}

    def _wanted(self, contents: Mapping[int, Content]) -> dict[Any, Any]:
        log = {n: partition(content[Side.LEFT]) for n, content in contents.items()}
        last = (winner(log, key) for key in {key for part in log.values() for key in part.rows})
        found: dict[Group, list[int]] = {}
        for row in (won[1] for won in last if won is not None and won[1] is not None):
            for group in self._aggregate.groups(row):
                found.setdefault(group, []).append(row[2])
        return {group: (len(numbers), sum(numbers)) for group, numbers in found.items()}


def wrong(schedules: int, without: str | None = None) -> int:
    """Returns the number of schedules that end with a wrong result."""
    return sum(not AggregateSchedule(seed, without=without).is_right() for seed in range(schedules))


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    for rule, then in [(None, "all rules hold"), *RULES.items()]:
        name = then if rule is None else f"without {rule!r} {then}"
        sys.stdout.write(f"{wrong(number, rule):6,} of {number:,} wrong: {name}\n")
