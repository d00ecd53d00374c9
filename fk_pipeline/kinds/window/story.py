"""The story of one row of a windowed join, as data and in words: its versions and pairs, and whether it is alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fk_pipeline.blocks.left_out import DOES_NOT_PASS, is_left_out, values_read
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.clock import time_text
from fk_pipeline.kinds.window.evidence import RowEvidence
from fk_pipeline.kinds.window.kind import WindowStage
from fk_pipeline.kinds.window.spans import UNITS_PER_SECOND, Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec.keys import parse_key, shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.rows_here import Relation

if TYPE_CHECKING:
    from fk_pipeline.store.reader import TableReader

OF_RIGHT_ROW = "right."
"""The beginning of the key of a right row, as people write it."""


@dataclass(frozen=True)
class RowVersion:
    """One version of the row, as a batch read it; `row` is None if it was deleted.

    `left_out`: it has a row, which does not pass `where`.
    """

    batch: int
    op: str
    row: dict[str, Any] | None
    file: str | None
    current: bool
    left_out: bool = False


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
        return f"{self.side.capitalize()} row {shown(self.key)}"

    @property
    def note(self) -> str:
        """The meaning of the mark in the events."""
        return "* the version that counts" if any(one.current for one in self.versions) else ""

    def events(self) -> list[tuple[int, str, str, str]]:
        """Returns the versions and the pairs, by batch."""
        found = []
        for one in self.versions:
            content = "deleted" if one.row is None else ", ".join(f"{n}={v}" for n, v in one.row.items())
            content += f"; {DOES_NOT_PASS}" if one.left_out else ""
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
            last = next((one for one in self.versions if one.current), None)
            what = "Its last version is a deletion." if self.versions else "No batch has brought this key."
            if last is not None and last.left_out:
                what = f"Its last version, of batch {last.batch}, {DOES_NOT_PASS}."
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
        return {**asdict(self), "side": self.side, "as_expected": self.as_expected}


def explain(read: TableReader, spec: WindowSpec, ledger: Ledger, said: str) -> WindowStory:
    """Returns the story of a left row, or of a right row, which is said as `right.KEY`.

    Raises:
        UsageError: the text is not a key of the side.
    """
    from fk_pipeline.kinds.window.evidence_by_spark import RowBySpark

    side, key = _said(spec, said)
    spans = Spans.of_state(spec, read.table_of(WindowStage.LEFT_TABLE))
    try:
        return _Told(RowBySpark(read, spec, side, key, spans), spec, ledger, side, spans).story()
    finally:
        read.release()


def explain_here(table: Callable[[str], Relation], spec: WindowSpec, ledger: Ledger, said: str) -> WindowStory:
    """Returns what `explain` does, without Spark; `table` opens a stored table.

    Raises:
        LeftToSpark: it is not certain that Spark tells the same.
        UsageError: the text is not a key of the side.
    """
    from fk_pipeline.kinds.window.evidence_here import RowHere, spans_here

    side, key = _said(spec, said)
    spans = spans_here(table, spec)
    return _Told(RowHere(table, spec, side, key, spans), spec, ledger, side, spans).story()


def _said(spec: WindowSpec, said: str) -> tuple[Side, dict[str, str]]:
    """Returns the side and the key columns, as text, of a row that people mean."""
    side = Side.RIGHT if said.startswith(OF_RIGHT_ROW) else Side.LEFT
    return side, parse_key(said.removeprefix(OF_RIGHT_ROW), spec.side(side))


class _Told:
    """Tells the story of one row by the evidence about it."""

    def __init__(self, evidence: RowEvidence, spec: WindowSpec, ledger: Ledger, side: Side, spans: Spans) -> None:
        self.evidence, self.spec, self.ledger, self.side, self.spans = evidence, spec, ledger, side, spans

    def story(self) -> WindowStory:
        """Returns the story."""
        spec, side, own = self.spec, self.side, self.evidence.own
        horizon, lives = self._horizon, own is not None and own.lives
        expired = None if own is None or own.lives else own.at
        at = own.at if own is not None and own.lives else None
        batches = self.evidence.greatest() if spec.waits else {}
        clock = max(batches.values(), default=None)
        close = None if at is None or not spec.waits else at + self.spans.wait(side)
        partners = self._partners(close, batches)
        matched = any(one.matches for one in partners)
        closed = not spec.waits or (close is not None and clock is not None and clock > close)
        earlier, later = self.spans.around(side)
        return WindowStory(
            side=side,
            key=self.evidence.key,
            versions=self._versions(),
            time=None if at is None else self._text(at),
            window=None if at is None else (self._text(at - earlier), self._text(at + later)),
            close=None if close is None else self._text(close),
            clock=None if clock is None else self._text(clock),
            partners=partners,
            alone_in=self.evidence.alone_in,
            belongs_alone=side in k.alone_on(spec) and lives and not matched and closed,
            due=self.ledger.due.by_stage(),
            horizon=horizon,
            expired_at=None if expired is None else self._text(expired),
            forgotten=horizon is not None and own is None and self.evidence.in_result,
        )

    @property
    def _horizon(self) -> str | None:
        """The time before which events expire; None if there is none."""
        return self.ledger.folds.horizon(k.log_stage(self.spec, self.side))

    def _versions(self) -> tuple[RowVersion, ...]:
        own = self.evidence.own
        return tuple(
            RowVersion(
                batch=row[s.BATCH],
                op=row[s.OP],
                row=values_read(row, self.spec.side(self.side)),
                file=None if row[s.FILE] is None else self.spec.relative(row[s.FILE]),
                current=own is not None and own.owner == row[s.BATCH],
                left_out=is_left_out(row),
            )
            for row in self.evidence.versions
        )

    def _partners(self, close: int | None, greatest: Mapping[int, int]) -> tuple[Partner, ...]:
        """Returns the rows of the other side that match the row, or are in a pair with it in the result."""
        found = []
        for one in self.evidence.near:
            before = [at for batch, at in greatest.items() if one.batch is not None and batch < one.batch]
            late = (
                None if close is None or not before or self.side not in k.alone_on(self.spec) else max(before) - close
            )
            found.append(
                Partner(
                    key=one.key,
                    time=("gone" if one.told else "older") if one.at is None else self._text(one.at),
                    batch=one.batch,
                    written_in=one.written_in,
                    matches=one.batch is not None or (not one.told and self._horizon is not None),
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


def impact(read: TableReader, spec: WindowSpec, ledger: Ledger, *asked: Any) -> WindowImpact:
    """Returns the impact of a change of one right row.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline.
        ledger: its ledger.
        asked: the key of a right row; a file and a time are not for windows, and there is one key to report.

    Raises:
        UsageError: there is no right key, or a file or a time is given.
    """
    return _impact_of(explain(read, spec, ledger, _right_row(*asked)))


def impact_here(table: Callable[[str], Relation], spec: WindowSpec, ledger: Ledger, *asked: Any) -> WindowImpact:
    """Returns what `impact` does, without Spark; `table` opens a stored table.

    Raises:
        LeftToSpark: it is not certain that Spark finds the same.
        UsageError: as of `impact`.
    """
    return _impact_of(explain_here(table, spec, ledger, _right_row(*asked)))


def _right_row(right_key: str | None, changes: Path | None, _: int, since: str | None) -> str:
    if right_key is None or changes is not None or since is not None:
        raise UsageError("impact of a windowed join is that of one right row", fix="--right-key KEY, and nothing else")
    return f"{OF_RIGHT_ROW}{right_key}"


def _impact_of(story: WindowStory) -> WindowImpact:
    written = sum(one.written_in is not None for one in story.partners)
    return WindowImpact(written, sum(one.matches for one in story.partners))
