"""The stage of a block: brings its table from the versions in its last commit to the newest ones, in one commit.

A refresh (`docs/kinds/query.md`) knows nothing of batches. With `then` and `now` for the tables at both versions:

    changed  = per table the old and new version of every row that differs
    anchors  = the anchors of changed rows, old and new, along the joins, through the tables of now
    touched  = groups, or partitions, of the joined rows of anchors, then and now
    expected = the block over now, of these anchors, groups or partitions alone
    commit   = expected against what is stored of them: rows that differ, and no others
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from fk_pipeline.blocks.refresh.advice import advice_on
from fk_pipeline.blocks.refresh.choosing import Chosen, choose
from fk_pipeline.blocks.refresh.costs import COSTS, strategy_of
from fk_pipeline.blocks.refresh.differing import DECIDED, UNMATCHED, all_as_new, differing, unmatched
from fk_pipeline.blocks.refresh.expected import ExpectedRows
from fk_pipeline.blocks.refresh.facts import STANDS_FOR, VERSIONS, standing_for
from fk_pipeline.blocks.refresh.keys import refuse_shared_keys
from fk_pipeline.blocks.refresh.refresh import Refresh
from fk_pipeline.cdc.table_versions import Seen
from fk_pipeline.effects import CountBy, Effect, Report, Upsert
from fk_pipeline.identity import ADDED
from fk_pipeline.stage_input import Reader
from fk_pipeline.store import schemas as s
from fk_pipeline.store.settings import for_many


def block(read: Reader) -> list[Effect]:
    """Returns the effects that bring the table of a block to the newest versions of what it reads."""
    return refreshed(Refresh(read))


def refreshed(refresh: Refresh) -> list[Effect]:
    """Returns the effects that bring the table of a block to the newest versions of what it reads."""
    if refresh.facts and refresh.now == refresh.then and refresh.spec.refresh != "full":
        return [Report(notes=[f"{refresh.block.name} stands for the newest versions already"])]
    chosen = choose(refresh)
    if chosen.why:
        refuse_shared_keys(refresh.spec, refresh.snapshot, refresh.moved)
    is_large = bool(chosen.why) and chosen.decision.numbers.read > refresh.read.limits.sizes.small_rows
    with for_many(refresh.session) if is_large else nullcontext():
        expected = chosen.expected.whole() if chosen.why else chosen.expected.changed_part()
        expected = replace(expected, rows=refresh.own.expected(expected.rows))
        facts = {**_facts(refresh), **refresh.own.facts(), COSTS: chosen.facts()}
        return [_report(refresh, chosen), _upsert(refresh, expected, facts)]


def _report(refresh: Refresh, chosen: Chosen) -> Report:
    """Returns what the run tells: whether the block is computed whole and why, and between which versions."""
    moved = [f"{name} {_version(refresh.then[name])} to {_version(refresh.now[name])}" for name in refresh.moved]
    how = f"whole, {chosen.why}" if chosen.why else "what changed"
    first = () if refresh.facts else advice_on(refresh.spec, refresh.block)
    notes = [f"{refresh.block.name}: {how}; versions of {', '.join(moved) or 'nothing'}", *first]
    return Report(notes=notes, strategy=strategy_of(chosen.decision))


def _upsert(refresh: Refresh, expected: ExpectedRows, facts: dict[str, Any]) -> Upsert:
    """Returns the effect that writes the rows which differ from what is stored, with the versions."""
    is_first, counts = not refresh.read.about(refresh.table.name).rows, refresh.own.counts
    first = f"CONCAT({unmatched(refresh)}, '{ADDED}')" if is_first else ""
    new = (ADDED, f"{UNMATCHED}{ADDED}")
    counted = CountBy(
        s.BATCH, DECIDED, lambda decision: counts.get(decision, decision), stored=s.BATCH, first=first, new=new
    )
    if is_first and expected.keys is None:  # they are written as they are computed, and counted in the table
        anchors = sum(refresh.snapshot.number(part.anchor.relation) for part in refresh.block.parts)
        rows = all_as_new(refresh, expected.rows).bounded(max(refresh.read.limits.in_driver + 1, anchors))
    else:
        rows = refresh.own.settled(differing(refresh, expected))
    return Upsert(refresh.table.name, rows, s.DELETED, counted, facts, always=True)


def _facts(refresh: Refresh) -> dict[str, Any]:
    """Returns what the commit says of its rows: which versions they were made of, and which they stand for."""
    versions = {name: [seen.id, seen.version] for name, seen in refresh.now.items() if seen is not None}
    stands: dict[str, set[tuple[str, int]]] = {}
    for name, seen in refresh.now.items():
        own = {name: [] if seen is None else [(seen.id, seen.version)]}
        of_inputs = own if name in refresh.spec.inputs else standing_for(refresh.read.about(name).metadata)
        for source, some in of_inputs.items():
            stands.setdefault(source, set()).update(some)
    return {VERSIONS: versions, STANDS_FOR: {name: sorted(some) for name, some in stands.items()}}


def _version(seen: Seen | None) -> str:
    return "-" if seen is None else seen.shown
