"""The rules of `history` as a model, in the schedules of `tests.any_order.as_of_model` with times of the source.

`compact` moves a horizon to some time before the newest version, and removes versions that ended by then. Times that no
version answers any more are closed: what a result row has for them stays, and a left row that asks later gets no right
row. A result row of a closed time must have what once was right, or nothing; every other one what is right.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from fk_pipeline.identity import Side
from tests.any_order.as_of_model import ENDLESS, KINDS, AsOfModel, AsOfSchedule, seen
from tests.any_order.model import Content, Join, Row, partition, winner

RULES = {
    "what ended by the horizon does not answer": "an old version that lands late answers for those that were removed",
    "the horizon is recorded first": "a time whose versions were removed looks as if there had been none",
    "closed times stay": "a stage that runs again asks for removed versions, and takes right rows from the result",
    "a time may close before the response is applied": "it counts as stale, and the row of an older left row stays",
    "nobody hears of closed times": "a late version is told to left rows that versions since removed had answered",
    "an opened version is told": "the one that ended it is withdrawn, but nobody had heard of it when it landed",
    "a removed version cannot come back": "it is removed though the version that ended it may be withdrawn",
    "a truncate takes both": "it is removed though a truncate may take away only the version that ended it",
    "nothing is due": "versions are removed of which left rows have not heard yet",
}
"""Per rule that can be left out, the consequence of leaving it out."""

EXPIRED = "expired"
"""Since when the version of a closed time holds: it is not known any more."""

NEVER, LATEST = float("-inf"), 12


class HistoryModel(AsOfModel):
    """A pipeline with `as_of` and `history`."""

    def __init__(self, *, join: Join, width: int, without: str | None = None) -> None:
        super().__init__(join=join, by_batch=False, without=without)
        self.width, self.horizon = width, NEVER

    def expire(self) -> None:
        """Moves the horizon, and removes versions that ended by then and cannot come back."""
        rows = {key: row for key, row in self._versions() if row.value is not None}
        horizon = max([self.horizon, *(at - self.width for _, at in rows)])
        if not self._lacks("the horizon is recorded first"):
            self.horizon = horizon
        settled = {key: row for key, row in rows.items() if self._is_settled(row)}
        for (right, since), row in settled.items():
            later = [one for (other, at), one in settled.items() if other == right and since < at <= horizon]
            if any(one.sequence >= row.sequence or self._lacks("a truncate takes both") for one in later):
                del self.states[Side.RIGHT][right, since]
                for batch in self.folded & self.logs[Side.RIGHT].keys():
                    self.logs[Side.RIGHT][batch].rows.pop((right, since), None)

    def _is_settled(self, row: Row) -> bool:
        """Returns whether no batch can withdraw the version any more."""
        return {row.owner, row.applied_in} <= self.folded or self._lacks("a removed version cannot come back")

    def _version(self, left: Any) -> tuple[Any, Any]:
        if left is None:
            return None, None
        closed = self._until(left[0], left[1]) <= self.horizon
        if closed and not self._lacks("what ended by the horizon does not answer"):
            return EXPIRED, None
        return super()._version(left)

    def _answers(self, since: Any, value: Any) -> bool:
        return since == EXPIRED or super()._answers(since, value)

    def _reached(self, batch: int) -> list[tuple[Any, float, float]]:
        times = super()._reached(batch)
        if self._lacks("nobody hears of closed times"):
            return times
        return [(right, self._since(right, since), until) for right, since, until in times if until > self.horizon]

    def _since(self, right: Any, since: float) -> float:
        """Returns since when left rows hear of a version; a withdrawn one had closed the version before it."""
        withdrawn = self.states[Side.RIGHT][right, since].value is None
        if not withdrawn or since > self.horizon or self._lacks("an opened version is told"):
            return since
        earlier = [key[1] for key, row in self._versions() if key[0] == right and row.value is not None]
        return max((at for at in earlier if at < since), default=NEVER)

    def _resolve(self, batch: int) -> None:
        kept = self.responses.get(batch, [])
        due = [self._by_now(*one) for one in self._due(batch)]
        if not self._lacks("closed times stay"):
            due = [one for one in due if one[2] != EXPIRED or not self._stands(*one[:2])]
        self.responses[batch] = due
        super()._resolve(batch)
        self.responses[batch] = kept

    def _by_now(self, key: Any, left: Any, since: Any, value: Any) -> tuple[Any, Any, Any, Any]:
        """Returns a response; that of a time which is closed by now says so."""
        closed = self._version(left)[0] == EXPIRED and not self._lacks(
            "a time may close before the response is applied"
        )
        return (key, left, EXPIRED, None) if closed else (key, left, since, value)

    def _stands(self, key: str, left: Any) -> bool:
        """Returns whether the result has the left row, with any right row."""
        return key in self.result and self.result[key][0] == left


class HistorySchedule(AsOfSchedule):
    """One random schedule with times of the source, which go on as batches land."""

    def __init__(self, seed: int, *, join: Join, without: str | None = None) -> None:
        self.width = seed % 4
        self.once: dict[tuple[Any, int], set[Any]] = {}
        """Per right key and time, every content that was right at some point of the schedule, and None."""
        self.answered: dict[Any, tuple[Any, set[Any]]] = {}
        """Per left key whose row had its answer before its time was closed: the row, and all that was right since."""
        super().__init__(2 * seed, join=join, without=without)
        self._remember()

    def _model(self, without: str | None) -> HistoryModel:
        return HistoryModel(join=self.join, width=self.width, without=without)

    def _old_enough(self, done: list[int]) -> list[int]:
        return done[: self.random.randint(0, len(done))]

    def _time(self) -> int:
        return max(0, min(LATEST, self.clock // 4) - self.random.choice([0, 0, 1, 1, 2, 4, 6]))

    def _fold(self) -> None:
        super()._fold()
        model = self.model
        assert isinstance(model, HistoryModel)
        if not self.due:
            versions, rows = self._known()
            for key, left in rows.items():
                if not self._is_closed(versions, left):
                    self.answered[key] = left, {seen(versions, (), left)}
        if not self.due or self._lacks("nothing is due"):
            model.expire()

    def _surprise(self) -> None:
        if self.random.random() < 0.5:  # compact moves the horizon only when nothing is due
            while self.due:
                self._run_due()
            self._fold()
        super()._surprise()
        self._remember()

    def _remember(self) -> None:
        versions, rows = self._known()
        for right in "xy":
            for time in range(LATEST + 1):
                self.once.setdefault((right, time), {None}).add(seen(versions, (), (right, time)))
        for key, (left, answers) in [*self.answered.items()]:
            if rows.get(key) == left:
                answers.add(seen(versions, (), left))
            else:
                del self.answered[key]

    def _known(self) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Returns the last writers of all that landed: the contents of versions, and left rows."""
        found = []
        for side in (Side.RIGHT, Side.LEFT):
            log = {n: partition(self._seen(content)[side]) for n, content in self.contents.items()}
            last = {key: winner(log, key) for part in log.values() for key in part.rows}
            found.append({key: won[1] for key, won in last.items() if won is not None and won[1] is not None})
        return found[0], found[1]

    def _wanted(self, _: Mapping[int, Content]) -> dict[Any, Any]:
        """Returns what is right; for closed times what there is, if it once was right."""
        (versions, rows), found = self._known(), {}
        for key, left in rows.items():
            answer = seen(versions, (), left)
            if self._is_closed(versions, left):
                there = self.model.result.get(key)
                has = None if there is None else there[2][1]
                allowed = self.answered[key][1] if key in self.answered else self.once[left[:2]]
                answer = has if has in allowed else "what once was right"
            if answer is not None or self.join != "inner":
                found[key] = left, answer
        return found

    def _is_closed(self, versions: Mapping[Any, Any], left: Any) -> bool:
        """Returns whether a left row asks for what ended by the horizon, or for the time before all versions."""
        model = self.model
        assert isinstance(model, HistoryModel)
        later = (since for right, since in versions if right == left[0] and since > left[1])
        return bool(min(later, default=ENDLESS) <= model.horizon)


def wrong(schedules: int, without: str | None = None) -> int:
    """Returns the number of schedules that end with a wrong result."""
    return sum(
        not HistorySchedule(seed, join=KINDS[seed // 4 % 2], without=without).is_right() for seed in range(schedules)
    )


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    for rule, then in [(None, "all rules hold"), *RULES.items()]:
        name = then if rule is None else f"without {rule!r} {then}"
        sys.stdout.write(f"{wrong(number, rule):6,} of {number:,} wrong: {name}\n")
