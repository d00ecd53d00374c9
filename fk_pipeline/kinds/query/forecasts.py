"""What the next run of each block should do and take, by the logs of its tables. No Spark, and no row is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fk_pipeline.blocks.landed_versions import newest_version
from fk_pipeline.blocks.refresh.costs import (
    Numbers,
    Run,
    Way,
    decide,
    decision_of,
    earlier_runs,
    numbers_of,
    predicted,
    share_of,
)
from fk_pipeline.blocks.refresh.since import changed_between, seen_then, why_another, why_lost
from fk_pipeline.blocks.refresh.sums import ROWS, sums_of
from fk_pipeline.blocks.refresh.tables import relation_keys
from fk_pipeline.blocks.select.block import Block
from fk_pipeline.cdc.table_versions import Seen, table_id
from fk_pipeline.contract import Forecast
from fk_pipeline.identity import LandedFile, Side
from fk_pipeline.kinds.query.spec import QuerySpec
from fk_pipeline.kinds.query.tables import declared_layout
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.ledger.commits import READ, row_metadata
from fk_pipeline.store.reader import ABSENT


def forecasts(
    spec: QuerySpec, ledger: Ledger, discovered: Sequence[LandedFile], due: Collection[str]
) -> dict[str, Forecast]:
    """Returns what the next run of each due block should do and take, by the name of the block.

    Args:
        spec: the pipeline.
        ledger: its ledger.
        discovered: versions of inputs that the ledger does not have yet.
        due: the blocks that are due, or will be.
    """
    ahead = _Ahead(spec, ledger, discovered)
    for block in spec.blocks.blocks:
        if block.name in due:
            ahead.add(block)
    return ahead.forecasts


def forecast_of(facts: Mapping[str, Any]) -> Forecast | None:
    """Returns the forecast that was made before the run whose commit has some facts."""
    decision = decision_of(facts)
    if decision is None:
        return None
    full = decision.way is not Way.REFRESH
    return Forecast(decision.way, full, decision.why, decision.numbers.changed, decision.seconds)


class _Ahead:
    """The forecasts of blocks, one after the other: what a block is expected to change, a later one has to read."""

    def __init__(self, spec: QuerySpec, ledger: Ledger, discovered: Sequence[LandedFile]) -> None:
        self.spec, self.ledger = spec, ledger
        self.tables = {table.name: table for table in declared_layout(spec).tables}
        self.inputs = {name: newest_version(spec, ledger, Side(name), discovered) for name in spec.inputs}
        self.expected: dict[str, int | None] = {}
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
        self.forecasts[block.name] = self._forecast(self._why_whole(facts, then, now), number, numbers, earlier)

    def _forecast(self, why: str, changed: int | None, numbers: Numbers, earlier: Sequence[Run]) -> Forecast:
        """Returns the forecast of a block; `why` it can be computed whole only, if so."""
        if why:
            way = Way.WHOLE if numbers.stored else Way.FIRST
            return Forecast(way, True, why, changed, predicted(way, numbers, earlier))
        if changed is None:
            return Forecast(Way.REFRESH, False, "how much changed is not known before", None, None)
        found = decide(numbers, earlier, may_be_whole=self.spec.refresh != "incremental")
        return Forecast(found.way, found.way is Way.WHOLE, found.why, changed, found.seconds)

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
        return self.ledger.logs.rows(path) if path else 0

    def _why_whole(
        self, facts: Mapping[str, Any], then: Mapping[str, Seen | None], now: Mapping[str, Seen | None]
    ) -> str:
        """Returns why nothing but the whole is possible, as far as the logs tell; empty if a refresh is."""
        refused = "; refresh is incremental and refuses it" if self.spec.refresh == "incremental" else ""
        if self.spec.refresh == "full":
            return "refresh is full"
        if not facts:
            return "for the first time"
        why = (why_another(name, then[name], after) or why_lost(name, then[name], after) for name, after in now.items())
        return next((one + refused for one in why if one), "")
