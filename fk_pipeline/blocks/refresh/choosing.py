"""Whether a block is computed whole, or what changes touch, and why. The cheaper of both is, where both are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fk_pipeline.blocks.refresh.changes import Changes, changes
from fk_pipeline.blocks.refresh.costs import (
    Decision,
    Numbers,
    Run,
    Way,
    decide,
    earlier_runs,
    facts_of,
    numbers_of,
    predicted,
    share_of,
    share_seen,
)
from fk_pipeline.blocks.refresh.expected import Expected
from fk_pipeline.blocks.refresh.keys import why_unclear
from fk_pipeline.blocks.refresh.refresh import Refresh
from fk_pipeline.blocks.refresh.since import changed_between, lost, why_another, why_lost
from fk_pipeline.cdc.table_versions import Seen
from fk_pipeline.errors import StageError
from fk_pipeline.store.ledger.commits import READ
from fk_pipeline.store.reader import ABSENT


@dataclass(frozen=True)
class Chosen:
    """How a block is brought to the newest versions.

    Attributes:
        why: why it is computed whole; empty: what changes touch is.
        expected: its rows.
        decision: what that should take.
        earlier: its earlier runs.
        share: the share of anchors that changes touch, as it was expected.
        reachable: the anchors that they touch by numbers of rows alone.
    """

    why: str
    expected: Expected
    decision: Decision
    earlier: Sequence[Run]
    share: float
    reachable: int

    def facts(self) -> dict[str, Any]:
        """Returns what the commit says of this, for later runs; the rows of the block are computed."""
        share = self.share
        if not self.why and (reached := self.expected.reached) is not None:
            share = share_seen(share, self.reachable, reached)
        return facts_of(self.decision, self.earlier, share)


def choose(refresh: Refresh) -> Chosen:
    """Returns how a block is brought to the newest versions.

    Raises:
        StageError: `refresh` is `incremental`, it must be computed whole, and it is not the first time.
    """
    choosing = _Choosing(refresh)
    why = choosing.why_whole()
    decision = choosing.decided(why)
    return Chosen(why, choosing.expected, decision, choosing.earlier, choosing.share, choosing.reachable())


class _Choosing:
    """The choice of one run."""

    def __init__(self, refresh: Refresh) -> None:
        self.refresh, self.spec = refresh, refresh.spec
        self.changes: dict[str, Changes] = {}
        self.decision: Decision | None = None
        self.share = share_of(refresh.facts)

    @cached_property
    def expected(self) -> Expected:
        """The rows of the block, with the changes that were read."""
        return Expected(self.refresh, self.refresh.block, self.refresh.snapshot, self.changes)

    def why_whole(self) -> str:
        """Returns why the block is computed whole; empty if only what changed is, which is known then."""
        why = self._must_be_whole()
        if why and self.refresh.facts and self.spec.refresh == "incremental":
            raise StageError(
                f"block {self.refresh.block.name} can only be computed whole: {why}",
                where=str(self.spec.file),
                why="refresh is incremental",
                fix=f"refresh: auto in {self.spec.file}",
            )
        return why

    def _must_be_whole(self) -> str:
        if self.spec.refresh == "full":
            return "refresh is full"
        if not self.refresh.facts:
            return "for the first time"
        if self.refresh.own.whole:
            return self.refresh.own.whole
        for name, after in self.refresh.now.items():
            if why := why_another(name, self.refresh.then[name], after):
                return why
            if self.spec.refresh == "incremental" and (why := why_lost(name, self.refresh.then[name], after)):
                return why  # it is refused before any change is read
        if (why := self._dearer_by_logs()) and not self._may_touch_less():
            return why
        if unread := self._read_changes():
            return unread
        if why and not self.expected.out_of_reach:  # so few changes are traced to know better
            reached = self.expected.reached
            self.share = self.share if reached is None else share_seen(0.0, self.reachable(), reached)
        return self._dearer(self._changed, self.expected.passed) or self.expected.out_of_reach

    def _read_changes(self) -> str:
        """Reads what changed; returns why that is not known, empty if it is."""
        for name, after in self.refresh.now.items():
            before = self.refresh.then[name]
            if before == after or after is None:
                continue
            start = before or Seen(after.location, after.id, -1)
            changed = changes(self.refresh.read, self.refresh.snapshot, name, start, after)
            if changed is None:
                return lost(name, start)
            if changed.number:
                self.changes[name] = changed
            unclear = why_unclear(self.spec, self.refresh.snapshot, name, changed)
            if unclear:
                return unclear
        return ""

    def _may_touch_less(self) -> bool:
        """Returns whether few rows changed, and WHERE may leave out many of the anchors that should be touched."""
        is_small = sum(self._changed_by_logs.values()) <= self.refresh.read.limits.in_driver
        is_filtered = any(part.filters_of(alias) for part in self.refresh.block.parts for alias in part.aliases)
        return is_small and is_filtered and not (self.decision is not None and self.decision.numbers.single_group)

    @property
    def _changed(self) -> dict[str, int]:
        """How many rows changed of each relation, as far as the changes were read."""
        return {name: changed.number for name, changed in self.changes.items()}

    def reachable(self) -> int:
        """Returns about how many anchors the changes touch that were read, by numbers of rows alone."""
        return self._numbers_with(self._changed, 1.0).touched

    def _dearer(self, changed: Mapping[str, int], passed: int = 0) -> str:
        """Returns why a refresh should take longer than the whole; empty if it should not, or if it is wanted."""
        may_be_whole = self.spec.refresh != "incremental"
        self.decision = decide(self._numbers_with(changed, self.share, passed), self.earlier, may_be_whole=may_be_whole)
        return self.decision.why if self.decision.way is Way.WHOLE else ""

    def _dearer_by_logs(self) -> str:
        """Returns what `_dearer` does, before a change is read; empty if the logs do not tell how many there are."""
        changed = self._changed_by_logs
        return self._dearer(changed) if len(changed) == len(self.refresh.moved) else ""

    @cached_property
    def _changed_by_logs(self) -> dict[str, int]:
        """About how many rows changed of each relation that has another version than then, where its log tells."""
        numbers = {
            name: changed_between(self.refresh.then[name], self.refresh.now[name]) for name in self.refresh.moved
        }
        return {name: number for name, number in numbers.items() if number is not None}

    def decided(self, why: str) -> Decision:
        """Returns how the block is computed, and what that should take; `why` it is computed whole, if it is."""
        way = (
            Way.REFRESH
            if not why
            else Way.WHOLE
            if self.refresh.read.about(self.refresh.table.name).rows
            else Way.FIRST
        )
        if self.decision is not None and self.decision.way is way:
            return self.decision
        numbers = self._numbers_with(self._changed_by_logs, self.share)
        return Decision(way, why, predicted(way, numbers, self.earlier), numbers)

    def _numbers_with(self, changed: Mapping[str, int], share: float, passed: int = 0) -> Numbers:
        """Returns what is known of the block, with numbers of changed rows, and a share of the anchors they touch."""
        rows = {name: self.refresh.snapshot.number(name) for name in self.refresh.block.relations}
        keys = {name: relation.keys for name, relation in self.refresh.relations.items()}
        return numbers_of(
            self.refresh.block,
            rows,
            keys,
            changed,
            self.refresh.read.about(self.refresh.table.name).rows,
            adds=self.refresh.sums is not None,
            share=share,
            passed=passed,
        )

    @cached_property
    def earlier(self) -> list[Run]:
        """The earlier runs of the block."""
        version = self.refresh.facts.get(READ, ABSENT)
        return earlier_runs(self.refresh.facts, self.refresh.read.history.seconds(self.refresh.block.name, version))
