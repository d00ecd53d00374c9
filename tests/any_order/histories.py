"""Random change histories of many independent keys, and their expected join: last writer wins, in plain Python.

A *world* is two left keys and three right keys that refer to nothing outside it. Every batch holds events of many
worlds, so that one pass of Spark tests many histories at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

LEFT, RIGHT = "left", "right"
SCHEMAS = {LEFT: "id INT, fk STRING, v STRING, unused STRING, seq BIGINT", RIGHT: "k STRING, name STRING, seq BIGINT"}
KEYS = {LEFT: "id", RIGHT: "k"}
MORE = {LEFT: "extra", RIGHT: "more"}
"""Per side, a text field that some rows have and that the schemas do not declare."""

Place = tuple[int, str]
"""A batch and a side."""

Key = int | str


@dataclass(frozen=True)
class Event:
    """One line of a landing file: a new row of a key, a delete (no row), or a truncate (no key)."""

    key: Key | None
    seq: int
    row: Mapping[str, str | None] | None

    def line(self, side: str) -> str:
        """Returns the event as a line of `format: rows`."""
        op = "t" if self.key is None else "d" if self.row is None else "u"
        names = {"seq": self.seq} | ({} if self.key is None else {KEYS[side]: self.key})
        return json.dumps({"op": op, **names, **(self.row or {})})

    def __str__(self) -> str:
        return f"seq {self.seq}: " + ("truncate" if self.key is None else str(dict(self.row)) if self.row else "delete")


@dataclass
class Content:
    """The content of a batch on one side: events in file order, and lines that cannot be used."""

    events: list[Event] = field(default_factory=list)
    bad_lines: list[str] = field(default_factory=list)

    def text(self, side: str) -> str:
        """Returns the text of the landing file."""
        lines = [event.line(side) for event in self.events]
        for i, line in enumerate(self.bad_lines):
            lines.insert(i * 7 % (len(lines) + 1), line)
        return "".join(line + "\n" for line in lines)


class Histories:
    """Draws the content of batches, and computes the expected tables once all of some batches have been applied.

    Args:
        random: the source of every choice.
        worlds: the number of worlds.
        sequenced: events carry a sequence of their source, and may come late; otherwise their order is that of arrival.
    """

    def __init__(self, random: Random, worlds: int, sequenced: bool) -> None:
        self.random, self.worlds, self.sequenced = random, worlds, sequenced
        self.clock = 0
        self.late = self.events = self.truncates = 0
        self._newest: dict[tuple[str, Key | None], int] = {}

    @property
    def left_keys(self) -> int:
        """The number of left keys."""
        return 2 * self.worlds

    def content(self, side: str, share: float) -> Content:
        """Draws new content of a batch, in which a share of the worlds change."""
        drawn = Content()
        for world in range(self.worlds):
            if self.random.random() < share:
                drawn.events += [self._event(side, world) for _ in range(self.random.choice((1, 1, 2)))]
        self.random.shuffle(drawn.events)
        if self.random.random() < 0.08:
            drawn.events.insert(
                self.random.randint(0, len(drawn.events)), Event(None, self._next(side, None, 40), None)
            )
            self.truncates += 1
        if self.random.random() < 0.2:
            drawn.bad_lines = ['{"op": "u", "seq": ' + str(self.clock), '{"op": "u", "seq": 5, "v": "x"}']
        self.events += len(drawn.events)
        return drawn

    def _event(self, side: str, world: int) -> Event:
        choose = self.random.choice
        if side == LEFT:
            key: Key = 2 * world + choose((0, 1))
            foreign_keys = (f"{world}a", f"{world}a", f"{world}b", f"{world}c", f"{world}never", None)
            row: dict[str, str | None] = {"fk": choose(foreign_keys), "v": choose("xy"), "unused": choose("pq")}
        else:
            key = f"{world}{choose('aabc')}"
            row = {"name": choose("NM")}
        if self.random.random() < 0.4:
            row[MORE[side]] = choose("ef")
        gone = self.random.random() < 0.22
        return Event(key, self._next(side, key, choose((0, 0, 0, 0, 3, 60))), None if gone else row)

    def _next(self, side: str, key: Key | None, lateness: int) -> int:
        """Draws a sequence, sometimes the newest of its key again; only truncates have odd sequences."""
        self.clock += 1
        newest = self._newest.get((side, key), 0)
        seq = max(0, 2 * (self.clock - (self.random.randint(0, lateness) if lateness else 0))) + (key is None)
        if key is not None and self.random.random() < 0.05:
            seq = newest
        if self.sequenced:
            self.late += seq < newest
            self._newest[side, key] = max(seq, newest)
        return seq

    def table(self, landed: Mapping[Place, Content], side: str) -> dict[Key, Mapping[str, str | None]]:
        """Returns the rows of the last writers: by sequence, ties by batch, then by the position in the file."""
        last = self.last(landed, side, lambda _, event: event.key)
        return {key: event.row for key, (_, event) in last.items() if event.row is not None}

    def last(
        self, landed: Mapping[Place, Content], side: str, by: Callable[[int, Event], Any]
    ) -> dict[Any, tuple[int, Event]]:
        """Returns the last events with a key and their batches, unless a truncate came later.

        Args:
            landed: the contents of the batches.
            side: the side.
            by: function from batch and event to what identifies it.
        """
        newest: dict[Any, tuple[tuple[int, int, int], Event]] = {}
        truncated = (-1, -1, -1)
        for (batch, of), content in landed.items():
            for position, event in enumerate(content.events if of == side else ()):
                order = (event.seq if self.sequenced else batch, batch, position)
                if event.key is None:
                    truncated = max(truncated, order)
                elif (key := by(batch, event)) not in newest or order > newest[key][0]:
                    newest[key] = order, event
        return {key: (order[1], event) for key, (order, event) in newest.items() if order > truncated}

    def join(
        self, landed: Mapping[Place, Content], join: str, declared: Iterable[str] = ()
    ) -> dict[Key, tuple[str | None, ...]]:
        """Returns, per left key, `v`, `fk`, the `name` of the right row, and the declared fields of `MORE`.

        In an outer join also, per right key without a left row, the same with nulls on the left.
        """
        more = sorted(declared)
        right = self.table(landed, RIGHT)
        out: dict[Key, tuple[str | None, ...]] = {}
        alone = dict(right) if join == "outer" else {}
        for key, row in self.table(landed, LEFT).items():
            match = right.get(row["fk"]) if row["fk"] is not None else None
            if match is not None or join != "inner":
                both = {**(match or {}), **row}
                out[key] = (row["v"], row["fk"], match["name"] if match else None, *map(both.get, more))
            alone.pop(row["fk"] or "", None)
        return out | {key: (None, None, row["name"], *map(row.get, more)) for key, row in alone.items()}


def story(key: Key, landings: Iterable[tuple[str, Place, Content]]) -> tuple[int, str]:
    """Describes every event that concerns a key: those of a left key and of the right keys of its world.

    Args:
        key: the left key; or a right key, which concerns both left keys of its world.
        landings: the action on a landing file, its batch and side, and its content from then on.

    Returns:
        The number of these events, and the description.
    """
    world, number, lines = key // 2 if isinstance(key, int) else int(re.sub("[a-z]+$", "", key)), 0, []
    lefts = {key} if isinstance(key, int) else {2 * world, 2 * world + 1}
    concerned = {None, *lefts, *(f"{world}{letter}" for letter in "abc")}
    for what, (batch, side), content in landings:
        mine = [event for event in content.events if event.key in concerned]
        number += len(mine)
        lines.append(f"{what} batch {batch} {side}: " + ("; ".join(f"{e.key} {e}" for e in mine) or "nothing of it"))
    return number, "\n".join(lines)
