"""The story of one row of a windowed join, as data and in words: its versions and pairs, and whether it is alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.errors import UsageError
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.clock import time_text
from fk_pipeline.kinds.window.kind import EXPIRED_ROW, TIME, WindowStage, on_columns
from fk_pipeline.kinds.window.layout import UNITS_PER_SECOND
from fk_pipeline.kinds.window.resolved_join import heard, is_pair, living
from fk_pipeline.kinds.window.spans import Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.keys import is_key, parse_key, shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader

OF_RIGHT_ROW = "right."
"""The beginning of the key of a right row, as people write it."""


@dataclass(frozen=True)
class RowVersion:
    """One version of the row, as a batch read it; `row` is None if it was deleted."""

    batch: int
    op: str
    row: dict[str, Any] | None
    file: str | None
    current: bool


@dataclass(frozen=True)
class Partner:
    """A row of the other side that is near enough now, or with which the result has a pair.

    Attributes:
        key: its key.
        time: its time.
        batch: the batch that brought the later of both rows: without it there is no pair.
        written_in: the batch that last wrote the pair; None if the result does not have it.
        matches: whether both rows are a pair now; also true if the partner was removed (`retention`): the pair stays.
        late_by: how long before that batch the clock had passed the close of the row, which therefore stood alone;
            None if it had not.
    """

    key: dict[str, Any]
    time: str
    batch: int | None
    written_in: int | None
    matches: bool
    late_by: str | None


@dataclass(frozen=True)
class WindowStory:
    """A row, its partners, and whether the result has it alone.

    Attributes:
        side: the side of the row.
        key: its key.
        versions: its versions, by batch.
        time: its time; None if it does not live.
        window: the first and the last time of a partner.
        close: the time that the clock must pass before the row stands alone; None if rows do not wait.
        clock: the greatest time of all rows; None if there is none, or rows do not wait.
        partners: the rows of the other side.
        alone_in: the batch that last wrote the row alone; None if the result does not have it so.
        belongs_alone: whether it should stand alone.
        due: the due batches per stage.
        horizon: with `retention`, the time before which events expire when they land; None without.
        expired_at: the time of the row if it was older than that when it landed; None if it was not.
        forgotten: whether the states do not have the row, though the result does: it became too old.
    """

    side: Side
    key: dict[str, Any]
    versions: tuple[RowVersion, ...]
    time: str | None
    window: tuple[str, str] | None
    close: str | None
    clock: str | None
    partners: tuple[Partner, ...]
    alone_in: int | None
    belongs_alone: bool
    due: dict[str, list[int]] = field(default_factory=dict)
    horizon: str | None = None
    expired_at: str | None = None
    forgotten: bool = False

    @property
    def as_expected(self) -> bool:
        """Whether the result has the pairs of the row, or the row alone, as the definition has them."""
        if self.forgotten:
            return True
        pairs = all(one.matches == (one.written_in is not None) for one in self.partners)
        return pairs and self.belongs_alone == (self.alone_in is not None)

    @property
    def heading(self) -> str:
        """The name of the row."""
        return f"{self.side.value.capitalize()} row {shown(self.key)}"

    @property
    def note(self) -> str:
        """The meaning of the mark in the events."""
        return "* the version that counts" if any(one.current for one in self.versions) else ""

    def events(self) -> list[tuple[int, str, str, str]]:
        """Returns the versions and the pairs, by batch."""
        found = []
        for one in self.versions:
            content = "deleted" if one.row is None else ", ".join(f"{n}={v}" for n, v in one.row.items())
            found.append((one.batch, f"row ({one.op}){' *' if one.current else ''}", content, one.file or ""))
        for partner in self.partners:
            late = "" if partner.late_by is None else f", late by {partner.late_by}: it stood alone until then"
            what = f"{shown(partner.key)} at {partner.time}{late}"
            found.append((-1 if partner.batch is None else partner.batch, "match", what, ""))
        return sorted(found, key=lambda event: event[:2])

    def sentences(self) -> list[str]:
        """Returns the present state in sentences, the conclusion last."""
        if self.forgotten:
            kept = "what the result has of it stays"
            return [f"It is older than the pipeline goes back, to {self.horizon}: {kept}.", self._conclusion()]
        if self.expired_at is not None:
            why = f"it happened at {self.expired_at}, and events before {self.horizon} are not joined any more"
            return [f"It expired: {why}.", self._conclusion()]
        if self.time is None:
            what = "Its last version is a deletion." if self.versions else "No batch has brought this key."
            return [what, self._conclusion()]
        found = []
        if self.window is not None:
            found.append(f"It happened at {self.time} and matches from {self.window[0]} to {self.window[1]}.")
        matching = [one for one in self.partners if one.matches]
        found.append(f"It has {len(matching)} match{'' if len(matching) == 1 else 'es'}.")
        if not matching and self.close is not None:
            passed = "has passed" if self.belongs_alone else "has not passed"
            found.append(f"The clock, {self.clock}, {passed} its close, {self.close}.")
        return [*found, self._conclusion()]

    def _conclusion(self) -> str:
        pairs = sum(one.written_in is not None for one in self.partners)
        has = "has it alone" if self.alone_in is not None else f"has {pairs} pair{'' if pairs == 1 else 's'} of it"
        if self.alone_in is None and not pairs:
            has = "does not have it"
        if self.as_expected:
            return f"The result {has}, as it should."
        if self.due:
            return f"The result {has}; work is due that may change it."
        return f"The result {has}, and that is wrong: fk-pipeline verify tells more."

    def as_json(self) -> dict[str, Any]:
        """Returns the story as a JSON object."""
        return {**asdict(self), "side": self.side.value, "as_expected": self.as_expected}


def explain(read: TableReader, spec: WindowSpec, ledger: Ledger, said: str) -> WindowStory:
    """Returns the story of a left row, or of a right row, which is said as `right.KEY`.

    Raises:
        UsageError: the text is not a key of the side.
    """
    side = Side.RIGHT if said.startswith(OF_RIGHT_ROW) else Side.LEFT
    key = parse_key(said.removeprefix(OF_RIGHT_ROW), spec.side(side))
    try:
        return _Told(read, spec, ledger, side, key).story()
    finally:
        read.release()


class _Told:
    """Collects the story of one row from the tables."""

    def __init__(self, read: TableReader, spec: WindowSpec, ledger: Ledger, side: Side, key: dict[str, str]) -> None:
        self.read, self.spec, self.ledger, self.side, self.key = read, spec, ledger, side, key
        self.other = k.other(side)
        self.spans = Spans.of_state(spec, read.table_of(WindowStage.SUBSCRIPTION_STORE))

    def story(self) -> WindowStory:
        """Returns the story."""
        spec, side = self.spec, self.side
        key = key_row(self.read.warehouse.session, self.key, spec.side(side))
        own = self._state(side).where(is_key(self.key, spec.side(side)))
        old = own.where(EXPIRED_ROW).select(F.expr(self.spans.ticks(TIME)).alias("at")).first()
        horizon = self._horizon
        told = horizon is None or not own.isEmpty()
        row = next(iter(living(own, side, spec).withColumn("at", F.expr(self.spans.ticks(TIME))).collect()), None)
        at = None if row is None else row["at"]
        batches = self._greatest()
        clock = max(batches.values(), default=None) if spec.waits else None
        close = None if at is None or not spec.waits else at + self.spans.wait(side)
        partners = self._partners(own, close, batches)
        matched = any(one.matches for one in partners)
        closed = not spec.waits or (close is not None and clock is not None and clock > close)
        alone = self._result().where(f"NOT ({is_pair(spec)})").agg(F.max(s.BATCH)).first()
        earlier, later = self.spans.before, self.spans.after
        if side is Side.RIGHT:
            earlier, later = later, earlier
        return WindowStory(
            side=side,
            key=key,
            versions=self._versions(),
            time=None if at is None else self._text(at),
            window=None if at is None else (self._text(at - earlier), self._text(at + later)),
            close=None if close is None else self._text(close),
            clock=None if clock is None else self._text(clock),
            partners=partners,
            alone_in=None if alone is None else alone[0],
            belongs_alone=side in k.alone_on(spec) and row is not None and not matched and closed,
            due=self.ledger.due.by_stage(),
            horizon=horizon,
            expired_at=None if old is None else self._text(old["at"]),
            forgotten=not told and not self._result().isEmpty(),
        )

    @property
    def _horizon(self) -> str | None:
        """The time before which events expire; None if there is none."""
        return self.ledger.folds.horizon(k.log_stage(self.spec, self.side))

    def _state(self, side: Side) -> DataFrame:
        return self.read.read(k.STATE_OF[k.source(self.spec, side)])

    def _result(self) -> DataFrame:
        """Returns the rows of the result with the key."""
        is_own = is_key(self.key, self.spec.side(self.side), lambda name: k.part(self.side, name))
        return self.read.read(WindowStage.RESOLVED_JOIN).where(is_own)

    def _greatest(self) -> dict[int, int]:
        """Returns per batch the greatest time of the living rows that it owns."""
        states = [self._state(side) for side in k.sources(self.spec)]
        living_rows = [state.where(f"{s.HASH} IS NOT NULL") for state in states]
        times = [state.select(s.OWNER, F.expr(self.spans.ticks(TIME)).alias("at")) for state in living_rows]
        found = reduce(DataFrame.unionByName, times).where("at IS NOT NULL").groupBy(s.OWNER).agg(F.max("at")).collect()
        return {row[0]: row[1] for row in found}

    def _versions(self) -> tuple[RowVersion, ...]:
        side = self.spec.side(self.side)
        rows = self.read.read(k.LOG_OF[k.source(self.spec, self.side)]).where(is_key(self.key, side))
        current = self._state(self.side).where(is_key(self.key, side)).select(s.OWNER).first()
        found = json_rows(rows.orderBy(s.SEQUENCE, s.BATCH))
        return tuple(
            RowVersion(
                batch=row[s.BATCH],
                op=row[s.OP],
                row=None if row[s.DELETED] else {c.name: row[c.name] for c in side.columns},
                file=None if row[s.FILE] is None else self.spec.relative(row[s.FILE]),
                current=current is not None and current[0] == row[s.BATCH],
            )
            for row in found
        )

    def _partners(self, own: DataFrame, close: int | None, greatest: dict[int, int]) -> tuple[Partner, ...]:
        """Returns the rows of the other side that match the row, or are in a pair with it in the result."""
        spec, names = self.spec, k.parts(self.spec, self.other)
        ours, theirs = (f"{TIME}_{one.value}" for one in (self.side, self.other))
        mine = own.where(f"{s.HASH} IS NOT NULL").select(
            *[F.col(quote(name)).alias(f"{name}_mine") for name in on_columns(spec)],
            F.expr(self.spans.ticks(TIME)).alias(ours),
            F.col(s.OWNER).alias("_fk_mine_of"),
        )
        others = (
            self._state(self.other)
            .where(f"{s.HASH} IS NOT NULL")
            .selectExpr(
                *k.own_key(spec, self.other),
                *map(quote, on_columns(spec)),
                f"{self.spans.ticks(TIME)} AS {theirs}",
                f"{s.OWNER} AS _fk_theirs_of",
            )
        )
        near = self.spans.matches(f"{TIME}_left", f"{TIME}_right")
        condition = " AND ".join([*[f"{name} = {name}_mine" for name in on_columns(spec)], near])
        matching = others.join(F.broadcast(mine), F.expr(condition)).select(
            *map(quote, names), F.lit(True).alias("matches"), F.expr("GREATEST(_fk_mine_of, _fk_theirs_of)").alias("of")
        )
        there = self._result().where(is_pair(spec)).select(*map(quote, names), F.col(s.BATCH).alias("written_in"))
        both = matching.join(there, names, "full")
        both = both.join(others.select(*map(quote, names), theirs), names, "left")
        told = heard(self._state(self.other), self.other, spec).withColumnRenamed("_fk_heard", "told")
        both = both.join(told, names, "left").orderBy(theirs, *map(quote, names))
        keys = json_rows(
            both.select(
                *[F.col(quote(n)).alias(c.name) for n, c in zip(names, spec.side(self.other).key_columns, strict=True)]
            )
        )
        rows = both.select("matches", "of", "written_in", theirs, "told").collect()
        found = []
        for key, row in zip(keys, rows, strict=True):
            before = [at for batch, at in greatest.items() if row["of"] is not None and batch < row["of"]]
            late = None if close is None or not before or self.side not in k.alone_on(spec) else max(before) - close
            found.append(
                Partner(
                    key=key,
                    time=("gone" if row["told"] else "older") if row[theirs] is None else self._text(row[theirs]),
                    batch=row["of"],
                    written_in=row["written_in"],
                    matches=bool(row["matches"]) or (not row["told"] and self._horizon is not None),
                    late_by=None if late is None or late <= 0 else self._length(late),
                )
            )
        return tuple(found)

    def _text(self, ticks: int) -> str:
        """Returns a time as text."""
        return time_text(ticks, self.spans.kind)

    def _length(self, ticks: int) -> str:
        """Returns a span of time as text."""
        return str(timedelta(seconds=ticks / UNITS_PER_SECOND[self.spans.kind]))


@dataclass(frozen=True)
class WindowImpact:
    """The rows that a change of a right row touches.

    Attributes:
        pairs: its pairs in the result.
        matching: the left rows that match it now.
    """

    pairs: int
    matching: int

    def table(self) -> list[list[str]]:
        """Returns the numbers as a table."""
        return [["pairs", "matching left rows"], [f"{self.pairs:,}", f"{self.matching:,}"]]

    def sentences(self) -> Sequence[str]:
        """Returns the numbers in a sentence."""
        return [f"A change of it rewrites {self.pairs:,} pairs; {self.matching:,} left rows match it now."]

    def as_json(self) -> dict[str, Any]:
        """Returns the impact as a JSON object."""
        return asdict(self)


def impact(
    read: TableReader,
    spec: WindowSpec,
    ledger: Ledger,
    right_key: str | None,
    changes: Path | None,
    _: int,
    since: str | None,
) -> WindowImpact:
    """Returns the impact of a change of one right row.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline.
        ledger: its ledger.
        right_key: the key of a right row.
        changes: not for windows.
        _: the largest number of keys to report; there is one key.
        since: not for windows.

    Raises:
        UsageError: there is no right key, or a file or a time is given.
    """
    if right_key is None or changes is not None or since is not None:
        raise UsageError("impact of a windowed join is that of one right row", fix="--right-key KEY, and nothing else")
    story = explain(read, spec, ledger, f"{OF_RIGHT_ROW}{right_key}")
    written = sum(one.written_in is not None for one in story.partners)
    return WindowImpact(written, sum(one.matches for one in story.partners))
