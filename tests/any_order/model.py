"""The rules of `docs/architecture.md` as a model: plain dictionaries, one process, hundreds of schedules per second.

Random batches go through the five stages in every order in which each stage follows its upstream; stages run again
without need, batches are rewritten and land late, a column is declared (so that every batch is read again with other
values), old batches are folded, tombstones are dropped (after which nothing older of their keys lands). At the end, the
result must be the inner, left or outer join of the last writers. With a rule left out, some schedule must give a wrong
result: a model that never finds one proves nothing. `python -m tests.any_order.model [SCHEDULES]` counts the wrong
results of every rule set. The machine beside it does the same to the product on Spark, a thousand times slower.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal, Self

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY, Stage

SIDE_OF = {Stage(one.stage): one.name for one in FOREIGN_KEY.inputs}
UPSTREAM = {Stage(one.name): one.upstream for one in FOREIGN_KEY.stages}


EVERY_KEY = "*"
"""The key of a truncate."""

Event = tuple[str, float, Any]
"""Key, place in the source's order, content (None: deleted). The content of a left row begins with its foreign key."""

Content = dict[Side, list[Event]]

Join = Literal["inner", "left", "outer"]
JOINS: tuple[Join, ...] = ("inner", "left", "outer")

RULES = {
    "both versions are checked": "a stale right row may be written",
    "owner rule": "a rewritten batch acts on rows of others",
    "folding keeps the winner among the folded": "it keeps the winner of all batches",
    "unresolved responses stay": "responses of a folded batch go while its result is still to be made",
    "a folded batch stays folded": "when it runs again it brings back rows whose tombstone was dropped",
    "a tombstone stays while it decides": "it is dropped though another batch has a row of its key",
    "an unanswered tombstone stays": "it is dropped though the result still has its key",
    "a refused pair is without a right row": "it is stored under the hash of its right row: nothing refuses it again",
    "a left join keeps a refused left row": "it leaves the result, as in an inner join",
    "a late commit is noticed": "a paused run commits over what was written since, and dies",
    "a late commit is one of its stage": "it counts as late only where its own batch ran since",
    "what ran since is due": "a late commit makes the batch of its run due, not those that the stage ran for since",
    "a changed right row is asked": "in an outer join, nobody asks whether a right row without subscribers is alone",
    "the old foreign key is asked": "a right row whose last left row refers to another now is not alone",
    "a refused right row is asked again": "a run replaces the records of its batch, and forgets a right row alone",
    "unwritten responses are computed": "a stage that wrote none leaves nothing to resolve",
    "the result tells who is alone": "the store tells it, which may be ahead by a change that is taken back later",
}
"""Per rule that can be left out, the consequence of leaving it out."""


ALWAYS_FAILS, FAILS_TOGETHER, FAILS_ALONE = 2, 1, 0
"""Values on which `select` fails. A left row with value 2 and the foreign key `z` fails by itself. A right row with
value 2 fails beside a left row with value 1 or 0. A left row with value 0 and the foreign key `y` also fails without a
right row."""


def selected(left: Any, right: Any, *, inner: bool) -> tuple[Any, str | None]:
    """Returns a row of the result (None if there is none) and the side that fails: `left`, `right`, or None.

    In a left join, a right row on which an expression fails counts as missing for the whole result row.
    """
    if left[:2] == ("z", ALWAYS_FAILS):
        return None, "left"
    if right == ALWAYS_FAILS and left[1] in (FAILS_TOGETHER, FAILS_ALONE):
        return (None if inner else alone(left)), "right"
    if right is None and alone(left) is None:
        return None, "left"
    return (left, right), None


def right_alone(right: Any) -> Any:
    """Returns the result row of a right row without a left row; None if an expression fails on it."""
    return None if right == FAILS_TOGETHER else (None, right)


def alone(left: Any) -> Any:
    """Returns the result row of a left row without a right row; None if an expression fails on that as well."""
    return None if left[:2] == ("y", FAILS_ALONE) else (left, None)


@dataclass
class Partition:
    """The rows and the truncate that a batch wrote to a changelog."""

    rows: dict[str, tuple[float, Any]] = field(default_factory=dict)
    truncate: float | None = None
    generation: int = 0

    def version(self, key: str) -> tuple[float, Any] | None:
        row = self.rows.get(key)
        if self.truncate is not None and (row is None or self.truncate > row[0]):
            return self.truncate, None
        return row


Log = dict[int, Partition]


@dataclass(frozen=True)
class Row:
    """A row of a state table: its version, the batch that owns it, and the batch in which it was last propagated."""

    sequence: float | None
    value: Any
    owner: int | None
    generation: int
    applied_in: int
    seen_before: bool


def partition(events: Iterable[Event]) -> Partition:
    """Returns the last event per key, and the last truncate."""
    found = Partition()
    for key, sequence, value in events:
        if key == EVERY_KEY:
            found.truncate = max(sequence, sequence if found.truncate is None else found.truncate)
        elif key not in found.rows or sequence > found.rows[key][0]:
            found.rows[key] = sequence, value
    return found


def winner(log: Mapping[int, Partition], key: str) -> tuple[float, Any, int] | None:
    """Returns the last writer of a key over all batches: sequence, content, batch."""
    versions = [(*version, batch) for batch, part in log.items() if (version := part.version(key)) is not None]
    return max(versions, key=lambda version: version[0], default=None)


def _copied(value: Any) -> Any:
    """Returns a copy of an attribute of a model, whose dictionaries, lists, sets and partitions change in place."""
    match value:
        case dict():
            return {key: _copied(one) for key, one in value.items()}
        case Partition():
            return replace(value, rows={**value.rows})
        case list() | set():
            return value.copy()
    return value


class Model:
    """A pipeline. `run` runs a stage for a batch; `fold` and `drop_tombstones` model `compact`."""

    def __init__(self, *, join: Join, without: str | None = None) -> None:
        self.inner, self.outer, self.without = join == "inner", join == "outer", without
        self.logs: dict[Side, Log] = {side: {} for side in SIDES}
        self.states: dict[Side, dict[str, Row]] = {side: {} for side in SIDES}
        self.responses: dict[int, list[tuple[str, Any, Any, Any]] | None] = {}
        """Per batch: left key, its content, right key, its content; None: they are not written."""
        self.result: dict[str, tuple[Any, Any, Any]] = {}
        """Per left key, the two contents that represent its hashes, and the selected values."""
        self.alone: dict[str, tuple[Any, Any]] = {}
        """Per right key without a left row in the result of an outer join, its content and the selected values."""
        self.quarantine: dict[int, set[tuple[str, Any, Any]]] = {}
        """Per batch, the pairs that it refused: left key and both contents."""
        self.read: dict[tuple[Side, int], list[Event]] = {}
        self.generations: dict[tuple[Side, int], int] = {}
        """Per side and batch, the generation in the ledger: that of the last start, whether or not it committed."""
        self.folded: set[int] = set()
        self.dropped: dict[tuple[Side, str], float] = {}
        """Per side and key, the largest sequence of its dropped tombstones."""

    def run(self, stage: Stage, batch: int, content: Content, writes: bool = True) -> None:
        """Runs a stage for a batch; if it does not write responses, they are computed when they are resolved."""
        if stage in SIDE_OF:
            self._bring(SIDE_OF[stage], batch, content[SIDE_OF[stage]])
        if stage is Stage.RIGHT_TABLE:
            self._apply(Side.RIGHT, batch)
        elif stage is Stage.SUBSCRIPTION_STORE:
            self._apply(Side.LEFT, batch)
        elif stage is Stage.RESPONSES:
            self.responses[batch] = self._answers_of(batch) if writes else None
        elif stage is Stage.RESOLVED_JOIN:
            self._resolve(batch)

    def copied(self) -> Self:
        """Returns a copy that shares nothing with the model which changes; `deepcopy` takes most of a schedule."""
        copy = type(self).__new__(type(self))
        vars(copy).update({name: _copied(value) for name, value in vars(self).items()})
        return copy

    def commits(self, stage: Stage, batch: int, content: Content, writes: bool = True) -> list[Callable[[], None]]:
        """Returns the commits of a run that starts now, one per table, to be applied later."""
        after, side = self.copied(), SIDE_OF.get(stage, Side.LEFT)
        after.run(stage, batch, content, writes)
        self.read, self.generations = after.read, after.generations
        part = after.logs[side].get(batch)
        rows = {k: row for k, row in after.states[side].items() if self.states[side].get(k) != row}
        responses = after.responses.get(batch, [])
        made = {k: row for k, row in after.result.items() if self.result.get(k) != row}
        gone = self.result.keys() - after.result.keys()
        rights = after.alone.keys() | self.alone.keys()
        lonely = {k: after.alone.get(k) for k in rights if self.alone.get(k) != after.alone.get(k)}
        refused = after.quarantine.get(batch, set())

        def log() -> None:
            if part is not None:
                self.logs[side][batch] = replace(part, rows={**part.rows})

        def result() -> None:
            self.result = {k: row for k, row in self.result.items() if k not in gone} | made
            self.alone = {k: row for k, row in (self.alone | lonely).items() if row is not None}

        by_stage: dict[Stage, list[Callable[[], None]]] = {
            Stage.LEFT_CHANGELOG: [log],
            Stage.RIGHT_TABLE: [log, lambda: self.states[side].update(rows)],
            Stage.SUBSCRIPTION_STORE: [lambda: self.states[side].update(rows)],
            Stage.RESPONSES: [lambda: self.responses.update({batch: responses})],
            Stage.RESOLVED_JOIN: [lambda: self.quarantine.update({batch: refused}), result],
        }
        return by_stage[stage]

    def reopen(self, stage: Stage, batch: int) -> None:
        """Makes the next run of a stage for a batch write another generation, even if it reads the same content."""
        if stage in SIDE_OF:
            self.read.pop((SIDE_OF[stage], batch), None)

    def fold(self, batches: Iterable[int], settled: Callable[[int], bool]) -> None:
        """Keeps the winner per key among the rows of folded batches, and removes their responses."""
        self.folded |= {*batches}
        for log in self.logs.values():
            old = {batch: part for batch, part in log.items() if batch in self.folded}
            for key in {key for part in old.values() for key in part.rows}:
                best = winner(log if self._lacks("folding keeps the winner among the folded") else old, key)
                for batch, part in old.items():
                    if key in part.rows and best is not None and batch != best[2]:
                        del part.rows[key]
        for batch in self.folded:
            if settled(batch) or self._lacks("unresolved responses stay"):
                self.responses.pop(batch, None)

    def drop_tombstones(self, settled: Callable[[int], bool]) -> None:
        """Removes deleted keys that only folded batches have, once everything that landed was read."""
        for side, log in self.logs.items():
            for key, row in [*self.states[side].items()]:
                deleted = row.value is None and row.owner in {*self.folded, None}
                answered = row.applied_in in self.folded and settled(row.applied_in)
                decides = any(key in part.rows for batch, part in log.items() if batch != row.owner)
                if self._lacks("an unanswered tombstone stays"):
                    answered = True
                if self._lacks("a tombstone stays while it decides"):
                    decides = False
                if deleted and answered and not decides:
                    del self.states[side][key]
                    if row.owner is not None and row.sequence is not None:
                        log[row.owner].rows.pop(key, None)
                        self.dropped[side, key] = max(row.sequence, self.dropped.get((side, key), row.sequence))

    def _lacks(self, rule: str) -> bool:
        return self.without == rule

    def _bring(self, side: Side, batch: int, events: list[Event]) -> None:
        """Writes a batch to the log; the same content gives the same rows and generation again.

        Of a folded batch, only the keys that are still in the log are written.
        """
        log, fresh = self.logs[side], partition(events)
        if batch in self.folded and not self._lacks("a folded batch stays folded"):
            fresh.rows = {key: row for key, row in fresh.rows.items() if key in log[batch].rows}
        if (side, batch) in self.generations:
            changed = self.read.get((side, batch)) != events
            fresh.generation = self.generations[side, batch] + changed
        self.generations[side, batch] = fresh.generation
        log[batch], self.read[side, batch] = fresh, events

    def _apply(self, side: Side, batch: int) -> None:
        """Applies the owner rule (2), unchanged rows (5) and repeated propagation (6) to the keys of a batch.

        These are the keys that the batch has in the log or owns; all keys if it has a truncate.
        """
        log, state = self.logs[side], self.states[side]
        if (part := log.get(batch)) is None:
            return
        keys = {*part.rows, *(key for key, row in state.items() if row.owner == batch)}
        keys |= {*state} if part.truncate is not None else set()
        for key in sorted(keys):
            version, row = part.version(key), state.get(key)
            new: tuple[float | None, Any, int | None]
            if row is None:
                if version is None:
                    continue
                truncates = [(p.truncate, None, n) for n, p in log.items() if p.truncate is not None]
                new = max([(*version, batch), *truncates], key=lambda one: one[0])
            elif row.owner == batch or self._lacks("owner rule"):
                holds = self._is_version(row, version) and row.generation == part.generation
                if holds and not self._lacks("owner rule"):
                    continue
                new = winner(log, key) or (None, None, None)
                if self._lacks("owner rule") and new[:2] == (row.sequence, row.value):
                    continue
            elif version is not None and (row.sequence is None or version[0] > row.sequence):
                new = (*version, batch)
            else:
                continue
            generation = 0 if new[2] is None else log[new[2]].generation
            fresh = self._row(side, key, row, Row(*new, generation, batch, row is not None))
            if row is not None and fresh.value == row.value:
                unread = row.owner is not None and log[row.owner].generation != row.generation
                if not unread:
                    fresh = replace(fresh, applied_in=row.applied_in, seen_before=row.seen_before)
            state[key] = fresh

    def _is_version(self, row: Row, version: tuple[float, Any] | None) -> bool:
        """Returns whether the row of a state is a version of its owner."""
        return version == (row.sequence, row.value)

    def _row(self, _side: Side, _key: str, _before: Row | None, taken: Row) -> Row:
        """Returns the row of a state whose version is taken."""
        return taken

    def _right(self, key: str | None) -> Any:
        row = self.states[Side.RIGHT].get(key or "")
        return row.value if row is not None else None

    def _answers_of(self, batch: int) -> list[tuple[str, Any, Any, Any]]:
        """Returns the responses of a batch, by the states as they are."""
        return [*self._asked(batch), *self._told(batch)]

    def _due(self, batch: int) -> list[tuple[str, Any, Any, Any]]:
        """Returns the responses that a run resolves: those that are written, else computed."""
        stored = self.responses.get(batch, [])
        if stored is None:
            stored = [] if self._lacks("unwritten responses are computed") else self._answers_of(batch)
        return stored

    def _asked(self, batch: int) -> Iterable[tuple[str, Any, str | None, Any]]:
        for key, row in self.states[Side.LEFT].items():
            if row.applied_in == batch:
                right = row.value[0] if row.value else None
                if not self.inner or row.seen_before or self._right(right) is not None:
                    yield key, row.value, right, self._right(right)

    def _told(self, batch: int) -> Iterable[tuple[str, Any, str | None, Any]]:
        for key, right in self.states[Side.RIGHT].items():
            if right.applied_in == batch:
                hearing = [(pk, r.value) for pk, r in self.states[Side.LEFT].items() if r.value and r.value[0] == key]
                yield from ((pk, value, key, right.value) for pk, value in hearing)

    def _resolve(self, batch: int) -> None:
        asked: set[str | None] = set()
        if not self._lacks("a refused right row is asked again"):
            asked |= {key for key, left, _ in self.quarantine.get(batch, ()) if left is None}
        self.quarantine[batch] = set()
        if not self._lacks("a changed right row is asked"):
            asked |= {key for key, row in self.states[Side.RIGHT].items() if row.applied_in == batch}
        for key, left, right_key, right in self._due(batch):
            asked.add(right_key)
            if key in self.result and not self._lacks("the old foreign key is asked"):
                asked.add(self.result[key][0][0])
            row = self.states[Side.LEFT].get(key) or Row(None, None, None, 0, batch, seen_before=False)
            stale_right = self._right(right_key) != right and not self._lacks("both versions are checked")
            if row.value != left or stale_right:
                continue
            if left is None or (right is None and self.inner):
                self.result.pop(key, None)
                continue
            stored = None if row.owner is None else self.logs[Side.LEFT][row.owner].version(key)
            if self.result.get(key, ())[:2] != (left, right) and stored is not None and stored[1] == left:
                self._write(batch, key, left, right)
        if self.outer:
            for right_key in sorted(asked - {None}, key=str):
                self._leave_alone(batch, str(right_key))

    def _leave_alone(self, batch: int, key: str) -> None:
        """Writes the row of a right row that lives and that no row of the result has; removes any other.

        The result itself tells it, after the same commit.
        """
        right, rows = self._right(key), [row[:2] for row in self.result.values()]
        if self._lacks("the result tells who is alone"):
            rows = [(one.value, right) for one in self.states[Side.LEFT].values() if one.value is not None]
        joined_to = any(left[0] == key and match is not None for left, match in rows)
        values = None if right is None or joined_to else right_alone(right)
        if right is not None and not joined_to and values is None:
            self.quarantine[batch].add((key, None, right))
        if values is None:
            self.alone.pop(key, None)
        else:
            self.alone[key] = right, values

    def _write(self, batch: int, key: str, left: Any, right: Any) -> None:
        values, failed = selected(left, right, inner=self.inner or self._lacks("a left join keeps a refused left row"))
        if failed is not None:
            self.quarantine[batch].add((key, left, right))
        if values is None:
            self.result.pop(key, None)
            return
        if failed is not None and not self._lacks("a refused pair is without a right row"):
            right = None
        self.result[key] = left, right, values

    def refused(self) -> set[tuple[str, Any, Any]]:
        """Returns the pairs of current rows on which `select` fails, except those propagated by folded batches only."""
        found = set()
        for key, row in self.states[Side.LEFT].items():
            if row.value is None:
                continue
            right = self.states[Side.RIGHT].get(row.value[0] or "")
            pair = row.value, right.value if right is not None else None
            announced = {row.applied_in, *([] if right is None else [right.applied_in])}
            if (pair[1] is None and self.inner) or announced <= self.folded:
                continue
            if selected(*pair, inner=self.inner)[1] is not None:
                found.add((key, *pair))
        rights = {
            key: row.value for key, row in self.states[Side.RIGHT].items() if self.outer and row.value is not None
        }
        joined_to = {left[0] for left, match, _ in self.result.values() if match is not None}
        alone = {(key, None, right) for key, right in rights.items() if self.outer and key not in joined_to}
        return found | {one for one in alone if right_alone(one[2]) is None}


def join_of(left: Mapping[str, Any], right: Mapping[str, Any], join: Join) -> dict[Any, Any]:
    """Returns the join of two tables with the selected values, by left key; a right row alone by (None, its key)."""
    found: dict[Any, Any] = {}
    lonely = {*right} if join == "outer" else set()
    for key, row in left.items():
        match = right.get(row[0])
        if match is None and join == "inner":
            continue
        values, failed = selected(row, match, inner=join == "inner")
        if match is not None and failed is None:
            lonely.discard(row[0])
        if values is not None:
            found[key] = values
    return found | {(None, key): values for key in lonely if (values := right_alone(right[key])) is not None}


def joined(contents: Mapping[int, Content], *, join: Join) -> dict[Any, Any]:
    """Returns the join of the last writers: see `join_of`."""
    tables = {}
    for side in SIDES:
        log = {n: partition(content[side]) for n, content in contents.items()}
        last = {key: winner(log, key) for part in log.values() for key in part.rows}
        tables[side] = {key: won[1] for key, won in last.items() if won is not None and won[1] is not None}
    return join_of(tables[Side.LEFT], tables[Side.RIGHT], join)


@dataclass
class Paused:
    """A run that sleeps before a commit; `since` is the number of runs that had started when it fell asleep."""

    stage: Stage
    batch: int
    since: int
    commit: Callable[[], None]


class Schedule:
    """One random schedule, repeatable by its seed.

    Attributes:
        sleeps: the probability that a due run falls asleep.
        wakes: the probability that a sleeping run wakes before the next step.
        folding: the probability that finished batches are folded before the next step.
    """

    sleeps, wakes, folding = 0.05, 0.15, 0.25

    def __init__(self, seed: int, *, join: Join, without: str | None = None) -> None:
        self.random, self.clock, self.join = Random(seed), 0, join
        self.writing = Random(seed)
        self.model = self._model(without)
        self.declared, self.folds = False, 0
        self.contents = {n: self._content(n) for n in self.random.sample(range(9), self.random.randint(2, 6))}
        self.history = {n: [content] for n, content in self.contents.items()}
        self.due = {(stage, n) for stage in Stage for n in self.contents}
        self.runs: list[tuple[Stage, int]] = []
        """Every start of a stage for a batch, in order."""
        self.paused: list[Paused] = []
        self.unnoticed: list[Paused] = []
        """The paused runs that woke up and committed over what newer runs of their stage had written."""
        self.late = 0

    def is_right(self) -> bool:
        """Runs the schedule; returns whether the result is the join and the quarantine has the refused pairs."""
        surprises, haste = self.random.choice([(self.random.randint(0, 4), 0.12), (self.random.randint(0, 12), 0.3)])
        while self.due or surprises or self.paused or self.unnoticed:
            if self.paused and (not self.due or self.random.random() < self.wakes):
                self._wake(self.paused.pop(self.random.randrange(len(self.paused))))
            if not self.due or self.random.random() < 0.3:
                self._notice()
            if self.random.random() < self.folding:
                self._fold()
            if surprises and (not self.due or self.random.random() < haste):
                surprises -= 1
                self._surprise()
            elif self.contents and self.random.random() < 0.15:
                self._run_again()
            else:
                self._run_due()
        result: dict[Any, Any] = {key: row[2] for key, row in self.model.result.items()}
        result |= {(None, key): values for key, (_, values) in self.model.alone.items()}
        told = set().union(*self.model.quarantine.values())
        wanted = self._wanted({n: self._seen(c) for n, c in self.contents.items()})
        return result == wanted and self.model.refused() <= told

    def _model(self, without: str | None) -> Model:
        return Model(join=self.join, without=without)

    def _wanted(self, contents: Mapping[int, Content]) -> dict[Any, Any]:
        return joined(contents, join=self.join)

    def _content(self, _batch: int) -> Content:
        def event(keys: str, value: Any) -> Event:
            self.clock += 1
            key = EVERY_KEY if self.random.random() < 0.06 else self.random.choice(keys)
            return key, self.clock + self.random.choice([0, 0, 0, -15.5]) + self.random.random() / 10, value

        def left() -> Any:
            row = (self.random.choice(["x", "y", "z", None]), self.random.randint(0, 2))
            return None if self.random.random() < 0.25 else row

        def right() -> Any:
            return None if self.random.random() < 0.35 else self.random.randint(0, 2)

        return {
            Side.LEFT: [event("abc", left()) for _ in range(self.random.randint(0, 3))],
            Side.RIGHT: [event("xyz", right()) for _ in range(self.random.randint(0, 2))],
        }

    def _seen(self, content: Content) -> Content:
        """Returns the content that a stage reads of a batch: with one more left column once it is declared."""
        if not self.declared:
            return content
        left = [(key, at, (*row, "more") if row is not None else None) for key, at, row in content[Side.LEFT]]
        return {**content, Side.LEFT: left}

    def _fold(self) -> None:
        """Folds the finished batches from the first one on, and drops tombstones.

        Paused runs are discarded first: the late commit of a run that was paused before a fold is refused.
        """
        self._notice()
        self.paused.clear()
        unsettled = {n for _, n in self.due}
        done = []
        for n in sorted(self.contents):
            if n in unsettled:
                break
            done.append(n)
        done = self._old_enough(done)
        self.model.fold(done, lambda n: n not in unsettled)
        self.folds += bool(done)
        if not any(stage in (*SIDE_OF, Stage.SUBSCRIPTION_STORE) for stage, _ in self.due):
            self.model.drop_tombstones(lambda n: n not in unsettled)

    def _old_enough(self, done: list[int]) -> list[int]:
        """Returns those of the finished batches that are folded."""
        return done

    def _surprise(self) -> None:
        """Lands or rewrites a batch that is not folded, possibly with an older content; or declares a column."""
        if not self.declared and self.random.random() < 0.15:
            self.declared = True
            self.due |= {(Stage.LEFT_CHANGELOG, n) for n in self.contents}
            return
        n = self.random.choice(sorted({*range(9)} - self.model.folded) or [max(self.contents) + 1])
        old = self.history.setdefault(n, [])
        content = self.random.choice(old) if old and self.random.random() < 0.5 else self._content(n)
        self.contents[n] = {side: [e for e in events if self._is_in_time(side, e)] for side, events in content.items()}
        old.append(self.contents[n])
        self.due |= {(stage, n) for stage in Stage}

    def _is_in_time(self, side: Side, event: Event) -> bool:
        return event[1] > self.model.dropped.get((side, event[0]), float("-inf"))

    def _run_again(self) -> None:
        """Runs a stage that need not run, possibly before its upstream."""
        stage, n = self.random.choice(list(Stage)), self.random.choice(sorted(self.contents))
        if stage not in SIDE_OF or (stage, n) not in self.due:
            if self.random.random() < 0.5:
                self._run(stage, n)
            else:  # a run whose output equals what was there, so nothing downstream becomes due
                self.runs.append((stage, n))
                self.model.run(stage, n, self._seen(self.contents[n]), self._writes())

    def _run_due(self) -> None:
        ready = [(s, n) for s, n in self.due if not any((up, n) in self.due for up in UPSTREAM[s])]
        if ready:
            stage, n = self.random.choice(sorted(ready))
            if self.random.random() < self.sleeps:
                self._pause(stage, n)
                return
            self.due.discard((stage, n))
            self._run(stage, n)

    def _pause(self, stage: Stage, n: int) -> None:
        """Starts a run that falls asleep before one of its commits; to all other runs it looks killed."""
        commits = self.model.commits(stage, n, self._seen(self.contents[n]), self._writes())
        self.runs.append((stage, n))
        awake = self.random.randrange(len(commits))
        for commit in commits[:awake]:
            commit()
        self.paused.append(Paused(stage, n, len(self.runs), commits[awake]))

    def _wake(self, run: Paused) -> None:
        """Wakes a run: it commits, finds that its lease is lost, and dies before it can report that."""
        run.commit()
        newer = {n for stage, n in self.runs[run.since :] if stage is run.stage}
        if newer if not self._lacks("a late commit is one of its stage") else run.batch in newer:
            self.late += 1
            self.unnoticed.append(run)

    def _notice(self) -> None:
        """Looks for late commits, and makes due the batches whose rows they may have undone."""
        for run in self.unnoticed if not self._lacks("a late commit is noticed") else ():
            ran = {run.batch, *(n for stage, n in self.runs[run.since :] if stage is run.stage)}
            for n in [run.batch] if self._lacks("what ran since is due") else sorted(ran):
                self.model.reopen(run.stage, n)
                self.due.add((run.stage, n))
        self.unnoticed.clear()

    def _lacks(self, rule: str) -> bool:
        return self.model.without == rule

    def _writes(self) -> bool:
        """Returns whether the next run of a stage writes its responses."""
        return self.writing.random() < 0.6

    def _run(self, stage: Stage, n: int) -> None:
        """Runs a stage for a batch, and makes the stages that read its output due for the batch."""
        self.runs.append((stage, n))
        self.model.run(stage, n, self._seen(self.contents[n]), self._writes())
        self.due |= {(after, n) for after in Stage if stage in UPSTREAM[after]}


def wrong(schedules: int, without: str | None = None) -> int:
    """Returns the number of schedules that end with a wrong result; every third is an inner, left or outer join."""
    return sum(not Schedule(seed // 3, join=JOINS[seed % 3], without=without).is_right() for seed in range(schedules))


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    for rule, then in [(None, "all rules hold"), *RULES.items()]:
        name = then if rule is None else f"without {rule!r} {then}"
        sys.stdout.write(f"{wrong(number, rule):6,} of {number:,} wrong: {name}\n")
