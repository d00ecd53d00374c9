"""The rules of `retention` as a model, in the schedules of `tests.any_order.window_model` with streams of events.

`compact` moves a horizon to some time before the clock, and removes rows that no younger one meets. A row that lands
later and is older than the horizon expires: it has no pairs and does not stand alone. What the result has of removed
rows stays. Everything else must be right.

One rule the tables of the product do not have: "a row that was there does not expire" (ADR 0055). One of 50,000
schedules needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fk_pipeline.identity import SIDES, Side
from tests.any_order.model import JOINS, Content, Event, Join, Row
from tests.any_order.window_model import TABLE_OF, Pair, Tables, WindowModel, WindowSchedule

RULES = {
    "what is older than the horizon expires": "a late row does not meet the rows that were removed",
    "a row that is there does not expire": "its batch lands again, with another row more: its pairs go",
    "a row that was there does not expire": "its batch is withdrawn before an older version lands: that expires",
    "an expired row is remembered": "an older version of it lands later, and lives until the newer runs again",
    "what is not known stays": "a stage that runs again takes from the result what was removed",
    "a row that expired unheard is not known": "a row that was removed lands again: its pairs go",
    "a row with a pair of an unknown row is not alone": "beside its pair, which stays, it stands alone as well",
    "partners are kept longer": "rows are removed that still meet younger ones",
    "a removed row cannot be withdrawn": "its batch lands again, without it: its pairs stay",
    "nothing is due": "rows are removed of which the result has not heard yet",
}
"""Per rule that can be left out, the consequence of leaving it out."""

NEVER, UNHEARD = float("-inf"), -1
"""The horizon before there is one; the batch that a row was propagated in which expired before anyone heard of it."""

Rows = dict[Side, dict[str, Any]]


@dataclass(frozen=True)
class Expired(Row):
    """A row of a state that was older than the horizon when it landed; its value is None."""

    at: int = 0


class RetentionModel(WindowModel):
    """A pipeline of `kind: window` with `retention`."""

    def __init__(self, *, join: Join, seed: int, without: str | None = None) -> None:
        super().__init__(join=join, seed=seed, without=without)
        self.retention, self.horizon = self.grace + seed // 32 % 4, NEVER
        self.moved = dict.fromkeys(SIDES, 0)
        """Per side, the newest version of its table when the horizon last moved."""

    def _row(self, side: Side, key: str, before: Row | None, taken: Row) -> Row:
        is_old = taken.value is not None and taken.value[1] < self.horizon
        if not is_old or self._was_there(side, key, before) or self._lacks("what is older than the horizon expires"):
            return taken
        sequence = taken.sequence if not self._lacks("an expired row is remembered") else None
        applied_in = UNHEARD if before is None else before.applied_in
        return Expired(sequence, None, taken.owner, taken.generation, applied_in, taken.seen_before, taken.value[1])

    def _was_there(self, side: Side, key: str, before: Row | None) -> bool:
        """Returns whether a row lives in the table, or did since the horizon last moved."""
        is_there = before is not None and before.value is not None
        if self._lacks("a row that is there does not expire"):
            return False
        if self._lacks("a row that was there does not expire"):
            return is_there
        return is_there or any(key in version.rows for version in self.versions[side][self.moved[side] :])

    def _is_heard(self, row: Row) -> bool:
        return row.applied_in != UNHEARD or self._lacks("a row that expired unheard is not known")

    def _stays(self, pair: Pair, now: Tables) -> bool:
        return not self._lacks("what is not known stays") and not self._is_known(pair, now)

    def _has_a_pair_that_stays(self, side: Side, key: str, now: Tables) -> bool:
        place = SIDES.index(side)
        pairs = (pair for pair in self.result if None not in pair and pair[place] == key)
        is_left_out = self._lacks("a row with a pair of an unknown row is not alone")
        return not is_left_out and any(not self._is_known(pair, now) for pair in pairs)

    def _is_known(self, pair: Pair, now: Tables) -> bool:
        """Returns whether the tables tell what became of the rows of a row of the result."""
        return all(key is None or key in now[side].known for side, key in zip(SIDES, pair, strict=True))

    def expire(self, settled: set[int], *, dies: bool) -> set[tuple[Side, str]]:
        """Moves the horizon, and removes rows that no younger one meets.

        Args:
            settled: the batches that cannot be withdrawn.
            dies: whether the process dies after it has removed rows of the states.

        Returns:
            Side and key of the removed rows.
        """
        times = [
            row.value[1] for side in SIDES for row in self.states[side].values() if row.value and row.owner in settled
        ]
        gone: set[tuple[Side, str]] = set()
        self.horizon = max(self.horizon, max(times, default=NEVER) - self.retention)
        for side in SIDES:
            older = max(self.after, self.before) if self.to_itself else self.after if side == Side.LEFT else self.before
            bound = self.horizon - (0 if self._lacks("partners are kept longer") else older)
            for key, row in [*self.states[side].items()]:
                at = row.at if isinstance(row, Expired) else None if row.value is None else row.value[1]
                written_in = {n for n, part in self.logs[side].items() if key in part.rows}
                final = {row.owner, row.applied_in} - {UNHEARD} | written_in <= settled
                if at is None or at >= bound or not (final or self._lacks("a removed row cannot be withdrawn")):
                    continue
                del self.states[side][key]
                gone |= {(one, key) for one in (SIDES if self.to_itself else [side])}
                for n in written_in & settled if not dies else ():
                    del self.logs[side][n].rows[key]
        for stage in TABLE_OF:
            self._add_version(stage)
        self.moved = {side: len(versions) - 1 for side, versions in self.versions.items()}
        return gone


class RetentionSchedule(WindowSchedule):
    """One random schedule of streams whose times go on as batches land."""

    def __init__(self, seed: int, *, join: Join, without: str | None = None) -> None:
        self.rows: Rows = {side: {} for side in SIDES}
        """Per side, the rows that lived when the horizon last moved."""
        self.writers: list[Rows] = []
        """The last writers since the horizon last moved, after each batch that landed."""
        self.kept: dict[Any, Any] = {}
        """The rows of the result that rows had which are removed."""
        self.removed: dict[tuple[Side, str], Any] = {}
        """The rows that were removed, None for those that had expired."""
        super().__init__(seed, join=join, without=without)
        self._remember()

    def _model(self, without: str | None) -> RetentionModel:
        return RetentionModel(join=self.join, seed=self.seed, without=without)

    @property
    def retaining(self) -> RetentionModel:
        """The model."""
        assert isinstance(self.model, RetentionModel)
        return self.model

    def _content(self, batch: int) -> Content:
        choose, number = self.random.choice, self.random.randint

        def event(place: int) -> Event:
            self.clock += 1
            key = f"{batch}-{place}" if self.random.random() < 0.7 else choose("abc")
            time = max(0, self.clock // 3 - choose([0, 0, 0, 1, 2, 4, 8])) + (12 if self.random.random() < 0.05 else 0)
            row = choose(["x", "x", "y", None]), time, number(0, 1)
            return key, self.clock + choose([0, 0, 0, -15.5]) + self.random.random() / 10, row

        return {side: [event(place) for place in range(number(0, 3))] for side in SIDES}

    def _is_in_time(self, side: Side, event: Event) -> bool:
        return super()._is_in_time(side, event) and (side, event[0]) not in self.removed

    def _old_enough(self, done: list[int]) -> list[int]:
        return done[: self.random.randint(0, len(done))]

    def _surprise(self) -> None:
        if self.random.random() < 0.6:
            while self.due:
                self._run_due()
            self._fold()
        super()._surprise()
        self._remember()

    def _fold(self) -> None:
        super()._fold()
        if self.due and not self._lacks("nothing is due"):
            return
        living = self._living()
        result = dict(self.model.result)
        gone = self.retaining.expire({*self.model.folded}, dies=self.random.random() < 0.2)
        self.removed |= {(side, key): living[side].get(key) for side, key in gone}
        for pair, row in result.items():
            if (Side.LEFT, pair[0]) in gone or (Side.RIGHT, pair[1]) in gone:
                self.kept[pair] = row[2]
        self.rows = {
            side: {k: v for k, v in rows.items() if (side, k) not in self.removed} for side, rows in living.items()
        }
        self.writers = self.writers[-1:]

    def _remember(self) -> None:
        self.writers.append(self._written())

    def _written(self) -> Rows:
        return self._last({n: self._seen(content) for n, content in self.contents.items()})

    def _living(self) -> Rows:
        """Returns the rows that live: no rows that were removed, and none that had expired when they landed."""
        found: Rows = {side: {} for side in SIDES}
        for side, written in self._written().items():
            read = Side.LEFT if self.retaining.to_itself else side
            for key, row in written.items():
                lives = row[1] >= self.retaining.horizon
                landed = [one[side].get(key) for one in self.writers]
                if not lives and (key in self.rows[side] or self._was_younger(read, key)):
                    # It depends on whether a stage ran while the row was younger, or was not there.
                    lives = (key in self.rows[side] and all(landed)) or key in self.retaining.live(read)
                if lives and (side, key) not in self.removed:
                    found[side][key] = row
        return found

    def _was_younger(self, side: Side, key: str) -> bool:
        """Returns whether any version of a row that ever landed is younger than the horizon."""
        events = (event for contents in self.history.values() for content in contents for event in content[side])
        return any(event[0] == key and event[2][1] >= self.retaining.horizon for event in events)

    def _wanted(self, _: Mapping[int, Content]) -> dict[Any, Any]:
        model, rows = self.retaining, self._living()
        every = {
            side: of_side | {key: row for (one, key), row in self.removed.items() if one == side and row}
            for side, of_side in rows.items()
        }
        found: dict[Any, Any] = {
            (lk, rk): (one, other)
            for lk, one in every[Side.LEFT].items()
            for rk, other in every[Side.RIGHT].items()
            if model.matches(one, other) and self._is_open(lk, one, rk, other)
        }
        return self._with_alone(rows, self.kept | found)

    def _is_open(self, left_key: str, left: Any, right_key: str, right: Any) -> bool:
        """Returns whether both rows of a pair live, or one does that is younger than the horizon."""
        gone = [(Side.LEFT, left_key) in self.removed, (Side.RIGHT, right_key) in self.removed]
        return not any(gone) or (not all(gone) and (right if gone[0] else left)[1] >= self.retaining.horizon)


def wrong(schedules: int, without: str | None = None) -> int:
    """Returns the number of schedules that end with a wrong result."""
    return sum(
        not RetentionSchedule(seed, join=JOINS[seed // 2 % 3], without=without).is_right() for seed in range(schedules)
    )


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    for rule, then in [(None, "all rules hold"), *RULES.items()]:
        name = then if rule is None else f"without {rule!r} {then}"
        sys.stdout.write(f"{wrong(number, rule):6,} of {number:,} wrong: {name}\n")
