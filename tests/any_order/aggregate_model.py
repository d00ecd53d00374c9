"""The rules of `kind: aggregate` as a model, in the schedules of `tests.any_order.model`.

A row is (group, time, number). It counts in its group, or in one or more windows of its group. The result has, per
group and window, the number of rows and the sum of their numbers. The stages of the model are the five of a join: the
left ones are `changelog`, `grouping_store`, `touched_groups` and `aggregated`; the right table stays empty.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from tests.any_order.model import EVERY_KEY, Content, Event, Model, Schedule, partition, winner

RULES = {
    "the old group is noted": "a group that a row left keeps it",
    "notes come before the state": "a run dies between the two, and nobody knows which groups it changed",
    "notes are only added": "a run that changes nothing takes the notes of an older one that is not resolved",
    "notes stay until they are resolved": "those of a folded batch go while its result is still to be made",
    "a group is computed when it is written": "it is computed with the notes, and overwrites what is newer",
    "a note counts until the result stands for it": "a run that a crash cut short is taken for one that is resolved",
    "what was undone is told again": "a late commit undoes a step, and its notes are taken for resolved",
    "a result that lost rows is compared whole": "the messages no longer have the groups that it lost",
}
"""Per rule that can be left out, the consequence of leaving it out."""

Group = tuple[str | None, int | None]
"""A value of `group_by`, and the start of a window; None without windows."""


@dataclass(frozen=True)
class Success:
    """A run of a stage that succeeded: its entry, and that of the upstream run whose output it read."""

    entry: int
    upstream: int | None


class AggregateModel(Model):
    """A pipeline of `kind: aggregate`."""

    def __init__(self, *, seed: int, without: str | None = None) -> None:
        super().__init__(join="inner", without=without)
        self.size, self.every = [(None, None), (4, 4), (4, 2), (5, 2), (2, 3)][seed % 5]
        self.notes: dict[int, list[tuple[Group, int]]] = {}
        """Per batch, the groups in which rows stood that it changed, and in which they stand now, and the entry
        at which the run started."""
        self.entry = 0
        """The last entry of the ledger: a start, a success, or a stage that was made due again."""
        self.done: dict[tuple[Stage, int], Success] = {}
        """Per stage and batch, its last success."""
        self.reopened: dict[tuple[Stage, int], int] = {}
        """Per stage and batch, the entry at which it was made due again because a commit of it was undone."""
        self.told: dict[int, int] = {}
        """Per batch, how often `touched_groups` ran."""

    def next_entry(self) -> int:
        """Returns a new entry of the ledger."""
        self.entry += 1
        return self.entry

    def stands(self, stage: Stage, batch: int) -> Success | None:
        """Returns the last success of a stage; None if there is none, or if it was undone since."""
        success = self.done.get((stage, batch))
        undone = self.reopened.get((stage, batch), 0)
        if success is not None and undone > success.entry and not self._lacks("what was undone is told again"):
            return None
        return success

    def resolved(self, batch: int) -> int:
        """Returns the entry before which the notes of a batch are resolved: the result stands for them."""
        result, told = self.stands(Stage.RESOLVED_JOIN, batch), self.stands(Stage.RESPONSES, batch)
        if self._lacks("a note counts until the result stands for it"):
            return 0 if told is None else told.upstream or 0
        if result is None or told is None or result.upstream != told.entry:
            return 0
        stored, undone = told.upstream or 0, self.reopened.get((Stage.SUBSCRIPTION_STORE, batch), 0)
        return 0 if undone > stored and not self._lacks("what was undone is told again") else stored

    def run(self, stage: Stage, batch: int, content: Content) -> None:
        if stage is Stage.SUBSCRIPTION_STORE:
            before = dict(self.states[Side.LEFT])
            super().run(stage, batch, content)
            self._note(batch, before)
        elif stage is Stage.RESPONSES:
            resolved = self.resolved(batch)
            touched = {group for group, entry in self.notes.get(batch, ()) if entry > resolved}
            self.told[batch] = self.told.get(batch, 0) + 1
            self.responses[batch] = [(group, self.aggregated(group)) for group in touched]  # type: ignore[misc]
        elif stage is not Stage.RIGHT_TABLE:
            super().run(stage, batch, content)

    def _note(self, batch: int, before: Mapping[str, Any]) -> None:
        found: list[Group] = []
        entry = self.next_entry()
        for key, row in self.states[Side.LEFT].items():
            old = before.get(key)
            if old is None or (old.value, old.applied_in) != (row.value, row.applied_in):
                found += self.groups(row.value)
                if old is not None and not self._lacks("the old group is noted"):
                    found += self.groups(old.value)
        kept = [] if self._lacks("notes are only added") else self.notes.get(batch, [])
        self.notes[batch] = [*kept, *((group, entry) for group in found)]

    def groups(self, row: Any) -> list[Group]:
        """Returns the groups in which a row counts; none if it is deleted."""
        if row is None:
            return []
        if self.size is None or self.every is None:
            return [(row[0], None)]
        last = row[1] // self.every * self.every
        return [(row[0], start) for start in range(last, row[1] - self.size, -self.every)]

    def aggregated(self, group: Group) -> tuple[int, int] | None:
        """Returns the number of rows of a group and their sum, as the state has them; None without rows."""
        rows = [row.value for row in self.states[Side.LEFT].values() if group in self.groups(row.value)]
        return (len(rows), sum(row[2] for row in rows)) if rows else None

    def commits(self, stage: Stage, batch: int, content: Content) -> list[Callable[[], None]]:
        if stage is Stage.RIGHT_TABLE:
            return [lambda: None]
        if stage is not Stage.SUBSCRIPTION_STORE:
            return super().commits(stage, batch, content)
        after = self.copied()
        after.run(stage, batch, content)
        self.entry = after.entry
        had = 0 if self._lacks("notes are only added") else len(self.notes.get(batch, ()))
        more = after.notes.get(batch, [])[had:]
        rows = {k: row for k, row in after.states[Side.LEFT].items() if self.states[Side.LEFT].get(k) != row}

        def notes() -> None:
            kept = [] if self._lacks("notes are only added") else self.notes.get(batch, [])
            self.notes[batch] = [*kept, *more]

        def state() -> None:
            self.states[Side.LEFT].update(rows)

        return [state, notes] if self._lacks("notes come before the state") else [notes, state]

    def _resolve(self, batch: int) -> None:
        told: list[Any] = [*self.responses.get(batch, [])]
        stands = self.stands(Stage.RESOLVED_JOIN, batch) is not None
        if self.told.get(batch, 0) > 1 and not stands and not self._lacks("a result that lost rows is compared whole"):
            rows = [row.value for row in self.states[Side.LEFT].values()]
            every = {*self.result, *(group for row in rows for group in self.groups(row))}
            told = [(group, self.aggregated(group)) for group in every]
        for group, then in told:
            found: Any = then if self._lacks("a group is computed when it is written") else self.aggregated(group)
            if found is None:
                self.result.pop(group, None)
            else:
                self.result[group] = (*found, found)

    def reopen(self, stage: Stage, batch: int) -> None:
        super().reopen(stage, batch)
        self.reopened[stage, batch] = self.next_entry()

    def fold(self, batches: Any, settled: Callable[[int], bool]) -> None:
        super().fold(batches, settled)
        for batch in self.folded:
            if settled(batch) or self._lacks("notes stay until they are resolved"):
                self.notes.pop(batch, None)

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

    def _run(self, stage: Stage, n: int) -> None:
        model = self._aggregate
        before = {Stage.RESPONSES: Stage.SUBSCRIPTION_STORE, Stage.RESOLVED_JOIN: Stage.RESPONSES}.get(stage)
        read = None if before is None else model.done.get((before, n))
        super()._run(stage, n)
        model.done[stage, n] = Success(model.next_entry(), None if read is None else read.entry)

    def _wanted(self, contents: Mapping[int, Content]) -> dict[Any, Any]:
        log = {n: partition(content[Side.LEFT]) for n, content in contents.items()}
        last = (winner(log, key) for key in {key for part in log.values() for key in part.rows})
        found: dict[Group, list[int]] = {}
        model = self._aggregate
        for row in (won[1] for won in last if won is not None and won[1] is not None):
            for group in model.groups(row):
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
