"""What the next run of each block should do and take, by the logs of its tables. No Spark, and no row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fk_pipeline.answers import Forecast
from fk_pipeline.blocks.landed_versions import newest_version
from fk_pipeline.blocks.refresh.costs import (
    Numbers,
    Run,
    Way,
    decide,
    earlier_runs,
    numbers_of,
    predicted,
    share_of,
)
from fk_pipeline.blocks.refresh.refreshed import declared_blocks
from fk_pipeline.blocks.refresh.since import CLOCK_UNKNOWN, changed_between, seen_then, why_another, why_lost
from fk_pipeline.blocks.refresh.sums import ROWS, sums_of
from fk_pipeline.blocks.refresh.tables import relation_keys
from fk_pipeline.blocks.select.block import Block
from fk_pipeline.cdc.table_versions import Seen, table_id
from fk_pipeline.contract import loaded
from fk_pipeline.identity import LandedFile, Side
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import READ, row_metadata
from fk_pipeline.store.reader import ABSENT
from fk_pipeline.store.schemas import Table


def forecasts(
    spec: Any, ledger: Ledger, discovered: Sequence[LandedFile], due: Mapping[str, int | None]
) -> dict[str, Forecast]:
    """Returns what the next run of each due block should do and take, by the name of the block.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        discovered: versions of inputs that the ledger does not have yet.
        due: the stages that are due, or will be, each with about how many rows its batches bring; None: not known. The
            number of a block itself is not looked at.
    """
    tables, blocks = declared_blocks(spec)
    brings = {name: number for name, number in due.items() if name not in [block.name for block in blocks]}
    ahead = _Ahead(spec, ledger, discovered, tables, brings)
    for block in blocks:
        if block.name in due:
            ahead.add(block)
    return ahead.forecasts


class _Ahead:
    """The forecasts of blocks, one after the other: what a stage is expected to change, a later one has to read."""

    def __init__(
        self,
        spec: Any,
        ledger: Ledger,
        discovered: Sequence[LandedFile],
        tables: Mapping[str, Table],
        brings: Mapping[str, int | None],
    ) -> None:
        self.spec, self.ledger, self.tables = spec, ledger, tables
        self.inputs = {name: newest_version(spec, ledger, Side(name), discovered) for name in spec.inputs}
        self.expected = {**brings}
        self.forecasts: dict[str, Forecast] = {}

    def add(self, block: Block) -> None:
        """Adds the forecast of a block."""
        facts, now = self._facts(block.name), {name: self._now(name) for name in block.relations}
        then = {name: seen_then(facts, name, seen) for name, seen in now.items()}
        changed = {name: self._changed(name, then[name], now[name]) for name in block.relations}
        known = {name: number for name, number in changed.items() if number is not None}
        numbers = self._numbers(block, known, share_of(facts))
        number = None if None in changed.values() else numbers.changed
        earlier = earlier_runs(facts, self.ledger.runs.seconds_after(block.name, facts.get(READ, ABSENT)))
        self.expected[block.name] = None if number is None else min(numbers.touched, max(numbers.stored, 1))
        clock = self._clock(block, facts)
        forecast = self._forecast(self._why_whole(facts, clock, then, now), number, numbers, earlier)
        if clock and not forecast.full:
            forecast = replace(forecast, why=f"{forecast.why}; besides, the rows that the clock passes ({clock})")
        self.forecasts[block.name] = forecast

    def _forecast(self, why: str, changed: int | None, numbers: Numbers, earlier: Sequence[Run]) -> Forecast:
        """Returns the forecast of a block; `why` it can be computed whole only, if so."""
        if why:
            way = Way.WHOLE if numbers.stored else Way.FIRST
            is_known = changed is not None or numbers.read > 0
            return Forecast(way, True, why, changed, predicted(way, numbers, earlier) if is_known else None)
        if changed is None:
            return Forecast(Way.REFRESH, False, "how much changed is not known before", None, None)
        decision = decide(numbers, earlier, may_be_whole=self.spec.refresh != "incremental")
        return Forecast(decision.way, decision.way is Way.WHOLE, decision.why, changed, decision.seconds)

    def _clock(self, block: Block, facts: Mapping[str, Any]) -> str | None:
        """Returns what the last commit says of the clock of a block; empty if nothing; None if it has no clock.

        How far the clock goes, only the rows tell that come.
        """
        if all(part.moving is None for part in block.parts):
            return None
        return ", ".join(f"{name} {text}" for name, text in loaded(self.spec.definition.stands_for)(facts).items())

    def _facts(self, name: str) -> dict[str, Any]:
        path = f"{self.spec.home}/{name}"
        version = self.ledger.logs.version(path)
        return {} if version is None else row_metadata(path, version)

    def _now(self, name: str) -> Seen | None:
        """Returns the newest version of what a block reads, before anything runs."""
        if name in self.inputs:
            return self.inputs[name]
        path = f"{self.spec.home}/{name}"
        version = self.ledger.logs.version(path)
        return None if version is None else Seen(path, table_id(f"{path}@..{version}"), version)

    def _changed(self, name: str, then: Seen | None, now: Seen | None) -> int | None:
        """Returns about how many rows of a relation will have changed when the block runs; None if it is not known."""
        ahead, before = self.expected.get(name, 0), changed_between(then, now)
        return None if ahead is None or before is None else ahead + before

    def _numbers(self, block: Block, changed: Mapping[str, int], share: float) -> Numbers:
        rows = {name: self._rows(name) for name in block.relations}
        keys = {name: [key for key, _ in relation_keys(self.spec, self.tables, name)] for name in block.relations}
        adds = sums_of(block) is not None and ROWS in self.tables[block.name].names
        return numbers_of(block, rows, keys, changed, self._rows(block.name), adds=adds, share=share)

    def _rows(self, name: str) -> int:
        seen = self.inputs.get(name)
        if seen is not None and seen.is_clock:
            return 1
        path = f"{self.spec.home}/{name}" if name not in self.inputs else seen.location if seen is not None else ""
        return max(self.ledger.logs.rows(path) if path else 0, self.expected.get(name) or 0)

    def _why_whole(
        self,
        facts: Mapping[str, Any],
        clock: str | None,
        then: Mapping[str, Seen | None],
        now: Mapping[str, Seen | None],
    ) -> str:
        """Returns why nothing but the whole is possible, as far as the logs tell; empty if a refresh is."""
        refused = "; refresh is incremental and refuses it" if self.spec.refresh == "incremental" else ""
        if self.spec.refresh == "full":
            return "refresh is full"
        if not facts:
            return "for the first time"
        if clock == "":
            return CLOCK_UNKNOWN
        why = (why_another(name, then[name], after) or why_lost(name, then[name], after) for name, after in now.items())
        return next((reason + refused for reason in why if reason), "")
