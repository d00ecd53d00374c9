"""The story of one row of a windowed join, as data and in words: its versions and pairs, and whether it is alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fk_pipeline.blocks.left_out import DOES_NOT_PASS
from fk_pipeline.blocks.story import (
    OF_RIGHT,
    JsonRow,
    PlaceOf,
    RowVersion,
    Story,
    StoryEvent,
    by_batch,
    file_of,
    key_of_side,
)
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.clock import time_text
from fk_pipeline.kinds.window.evidence import RowEvidence, lives_at
from fk_pipeline.kinds.window.kind import TIME
from fk_pipeline.kinds.window.spans import UNITS_PER_SECOND, Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec.keys import shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.rows_in_process import Relation
from fk_pipeline.words import counted

if TYPE_CHECKING:
    from fk_pipeline.store.reader import TableReader


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

    key: JsonRow
    time: str
    batch: int | None
    written_in: int | None
    matches: bool
    late_by: str | None


@dataclass(frozen=True)
class WindowStory(Story):
    """A row, its partners, and whether the result has it alone.

    Attributes, besides those of `Story`:
        side: the side of the row.
        key: its key.
        versions: its versions, by batch.
        time: its time; None if it does not live.
        window: the first and the last time of a partner.
        close: the time that the clock must pass before the row stands alone; None if rows do not wait.
        clock: the greatest time of all rows; None if there is none, or rows do not wait.
        partners: the rows of the other side.
        unmatched_in: the batch that last wrote the row alone; None if the result does not have it so.
        belongs_unmatched: whether it should stand alone.
        horizon: with `retention`, the time before which events expire when they land; None without.
        expired_at: the time of the row if it was older than that when it landed; None if it was not.
        forgotten: whether the states do not have the row, though the result does: it became too old.
    """

    side: Side
    key: JsonRow
    versions: tuple[RowVersion, ...]
    time: str | None
    window: tuple[str, str] | None
    close: str | None
    clock: str | None
    partners: tuple[Partner, ...]
    unmatched_in: int | None
    belongs_unmatched: bool
    due: dict[str, list[int]] = field(default_factory=dict)
    horizon: str | None = None
    expired_at: str | None = None
    forgotten: bool = False

    @property
    def pairs(self) -> int:
        """The number of pairs of the row that the result has."""
        return sum(partner.written_in is not None for partner in self.partners)

    @property
    def matches(self) -> int:
        """The number of rows with which it is a pair now."""
        return sum(partner.matches for partner in self.partners)

    @property
    def as_expected(self) -> bool:
        """Whether the result has the pairs of the row, or the row alone, as the definition has them."""
        if self.forgotten:
            return True
        pairs = all(partner.matches == (partner.written_in is not None) for partner in self.partners)
        return pairs and self.belongs_unmatched == (self.unmatched_in is not None)

    @property
    def heading(self) -> str:
        """The name of the row."""
        return f"{self.side.capitalize()} row {shown(self.key)}"

    def events(self) -> list[StoryEvent]:
        """Returns the pairs and the versions, by batch."""
        events = []
        for partner in self.partners:
            late = "" if partner.late_by is None else f", late by {partner.late_by}: it stood alone until then"
            what = f"{shown(partner.key)} at {partner.time}{late}"
            events.append((-1 if partner.batch is None else partner.batch, "match", what, ""))
        return by_batch([*events, *(version.event(f"row ({version.op})") for version in self.versions)])

    def sentences(self, place: PlaceOf = file_of) -> list[str]:
        """Returns the present state in sentences: the conclusion, then why, and the version that counts."""
        has = f"has {counted(self.pairs, 'pair')} of it" if self.pairs else "does not have it"
        if self.unmatched_in is not None:
            has = f"has it without a match since batch {self.unmatched_in}"
        last = next((version for version in self.versions if version.current), None)
        key = None if last is None or last.op == "t" else self.key
        brought = [] if last is None else last.brought_by("its version that counts", self.side, key, place)
        return [self.concluded(has), *self._state(), *brought]

    def _state(self) -> list[str]:
        """Returns the sentences before the conclusion."""
        if self.forgotten:
            return [f"It is older than the pipeline goes back, to {self.horizon}: what the result has of it stays."]
        if self.expired_at is not None:
            why = f"it happened at {self.expired_at}, and events before {self.horizon} are not joined any more"
            return [f"It expired: {why}."]
        if self.time is None or self.window is None:
            last = next((version for version in self.versions if version.current), None)
            if last is not None and last.left_out:
                return [f"Its last version, of batch {last.batch}, {DOES_NOT_PASS}."]
            return ["Its last version is a deletion." if self.versions else "No batch has brought this key."]
        sentences = [
            f"It happened at {self.time} and matches from {self.window[0]} to {self.window[1]}.",
            f"It has {counted(self.matches, 'match', 'matches')}.",
        ]
        if not self.matches and self.close is not None:
            passed = "has passed" if self.belongs_unmatched else "has not passed"
            sentences.append(f"The clock, {self.clock}, {passed} its close, {self.close}.")
        return sentences


def explain(read: TableReader, spec: WindowSpec, ledger: Ledger, text: str) -> WindowStory:
    """Returns the story of a left row, or of a right row, which is written as `right.KEY`.

    Raises:
        UsageError: the text is not a key of the side.
    """
    from fk_pipeline.kinds.window.evidence_by_spark import evidence_by_spark

    return _story(evidence_by_spark(read, spec, *key_of_side(text, spec)), ledger)


def explain_in_process(table: Callable[[str], Relation], spec: WindowSpec, ledger: Ledger, text: str) -> WindowStory:
    """Returns what `explain` does, without Spark; `table` opens a stored table.

    Raises:
        LeftToSpark: it is not certain that Spark tells the same.
        UsageError: the text is not a key of the side.
    """
    from fk_pipeline.kinds.window.evidence_in_process import evidence_in_process

    return _story(evidence_in_process(table, spec, *key_of_side(text, spec)), ledger)


def _text(ticks: int | None, spans: Spans) -> str | None:
    return None if ticks is None else time_text(ticks, spans.dtype)


def _story(evidence: RowEvidence, ledger: Ledger) -> WindowStory:
    """Returns the story that is told of the stored rows."""
    spec, side, spans, own = evidence.spec, evidence.side, evidence.spans, evidence.own
    at, horizon = lives_at(own), ledger.folds.horizon(k.log_stage(spec, side))
    expired_at = None if own is None or own[s.HASH] is not None else own[TIME]
    earlier, later = spans.around(side)
    clock = max(evidence.greatest.values(), default=None)
    close = at + spans.wait(side) if at is not None and spec.waits else None
    closed = not spec.waits or (close is not None and clock is not None and clock > close)
    may_be_unmatched = side in k.unmatched_on(spec)
    partners = _partners(evidence, close if may_be_unmatched else None, is_limited=horizon is not None)
    other_key, owner = k.parts(spec, k.other(side))[0], None if own is None else own[s.OWNER]
    return WindowStory(
        side=side,
        key=evidence.key,
        versions=tuple(RowVersion.of(row, spec, side, current=row[s.BATCH] == owner) for row in evidence.versions),
        time=_text(at, spans),
        window=None if at is None else (time_text(at - earlier, spans.dtype), time_text(at + later, spans.dtype)),
        close=_text(close, spans),
        clock=_text(clock, spans),
        partners=partners,
        unmatched_in=max((row[s.BATCH] for row in evidence.written if row[other_key] is None), default=None),
        belongs_unmatched=may_be_unmatched
        and at is not None
        and closed
        and not any(partner.matches for partner in partners),
        due=ledger.due.by_stage(),
        horizon=horizon,
        expired_at=_text(expired_at, spans),
        forgotten=horizon is not None and own is None and bool(evidence.written),
    )


def _partners(evidence: RowEvidence, close: int | None, *, is_limited: bool) -> tuple[Partner, ...]:
    """Returns the partners of a row, by time and key, those without a time first.

    The row stands alone if the clock passes `close`; None: it never does. `is_limited`: old rows are removed.
    """
    spec, spans, other = evidence.spec, evidence.spans, k.other(evidence.side)
    names, parts = [column.name for column in spec.side(other).key_columns], k.parts(spec, other)
    matching = {tuple(row[name] for name in names): row for row in evidence.matching}
    known = {tuple(row[name] for name in names): row for row in evidence.paired} | matching
    written = {
        tuple(row[part] for part in parts): row[s.BATCH] for row in evidence.written if row[parts[0]] is not None
    }
    times = {key: lives_at(known.get(key)) for key in {*matching, *written}}
    partners = []
    for key, at in sorted(times.items(), key=lambda item: (item[1] is not None, item[1] or 0, item[0])):
        is_known = key in known and known[key][s.APPLIED_IN] is not None
        batch = (
            max(row[s.OWNER] for row in (evidence.own, matching[key]) if row is not None) if key in matching else None
        )
        before = [time for owner, time in evidence.greatest.items() if batch is not None and owner < batch]
        late = max(before) - close if before and close is not None else 0
        partners.append(
            Partner(
                key=dict(zip(names, key, strict=True)),
                time=_text(at, spans) or ("gone" if is_known else "older"),
                batch=batch,
                written_in=written.get(key),
                matches=batch is not None or (not is_known and is_limited),
                late_by=str(timedelta(seconds=late / UNITS_PER_SECOND[spans.dtype])) if late > 0 else None,
            )
        )
    return tuple(partners)


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


def impact(read: TableReader, spec: WindowSpec, ledger: Ledger, *arguments: Any) -> WindowImpact:
    """Returns the impact of a change of one right row, whose key is the first of `arguments`.

    Raises:
        UsageError: there is no right key, or a file or a time is given, which are not for windows.
    """
    story = explain(read, spec, ledger, _right_row(*arguments))
    return WindowImpact(story.pairs, story.matches)


def impact_in_process(
    table: Callable[[str], Relation], spec: WindowSpec, ledger: Ledger, *arguments: Any
) -> WindowImpact:
    """Returns what `impact` does, without Spark; `table` opens a stored table.

    Raises:
        LeftToSpark: it is not certain that Spark finds the same.
        UsageError: as of `impact`.
    """
    story = explain_in_process(table, spec, ledger, _right_row(*arguments))
    return WindowImpact(story.pairs, story.matches)


def _right_row(right_key: str | None, changes: Path | None, _: int, since: str | None) -> str:
    if right_key is None or changes is not None or since is not None:
        raise UsageError("impact of a windowed join is that of one right row", fix="--right-key KEY, and nothing else")
    return f"{OF_RIGHT}{right_key}"
