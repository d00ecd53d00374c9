"""What a block costs, in seconds: refreshed, and computed whole. No Spark, and nothing of a table is read.

    numbers  = rows of what the block reads and of its table, and about how many a refresh touches   (`numbers_of`)
    measured = fixed + the rows of each kind * what such a row took                                  (`RATES`)
    seconds  = measured * the median of taken / measured over the last runs like it                  (`predicted`)
    way      = the whole if it should take less than a refresh, and more than a few rows are touched (`decide`)

The rates say how seconds grow with rows. The earlier runs say how quick the machine of this pipeline is, and how dear
its query. A way that was never gone is scaled by runs of the others: a slow machine is slow at each.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

from sqlglot import exp

from fk_pipeline.answers import Forecast
from fk_pipeline.blocks.select.block import Block, Unit
from fk_pipeline.store.logs import UNKNOWN_SIZE
from fk_pipeline.words import counted

COSTS = "costs"
"""The facts in a commit of a block about its run and earlier ones (`facts_of`)."""

ALWAYS_FEW = 10_000
"""Touched rows up to which a block is refreshed without comparing: that takes little, whatever the whole takes."""

LEAST_SHARE = 0.001
"""The least share of expected anchors that a block counts on, however few its refreshes have found."""

REMEMBERED = 8
"""The last runs of each way that a commit remembers: a cold start, or another machine, is soon forgotten."""

ALIKE, ENOUGH_ALIKE, LAST = 2.0, 3, 5
"""Runs are like each other if what was measured for them differs by this factor at most. If there are so many of them,
the last of these count, up to so many; with fewer the last of all runs of the way do."""


_SCANNED = 10
"""Rows that are read to find one of a group or partition; the rows of few groups are looked up."""


class Way(StrEnum):
    """How a run computes a block."""

    REFRESH = "refresh"
    """What the changes touch."""
    WHOLE = "whole"
    """All rows, which are compared with the stored ones."""
    FIRST = "first"
    """All rows, of which none is stored yet."""


@dataclass(frozen=True)
class Numbers:
    """What is known of a block before anything is read.

    Attributes:
        read: rows of all tables of its FROM.
        touched: about how many rows of the anchor a changed row is joined to, and how many passed.
        again: about how many joined rows are in the groups or partitions that a refresh computes from all their rows.
        stored: rows of its own table.
        changed: changed rows of the tables of its FROM.
        single_group: whether all rows are one such group or partition.
        passed: rows of the anchor that a refresh looks at because a condition moved (`Moving`), once they are found.
    """

    read: int
    touched: int
    again: int
    stored: int
    changed: int = 0
    single_group: bool = False
    passed: int = 0


@dataclass(frozen=True)
class Rate:
    """The seconds of a way: `fixed`, and so many per million rows.

    Attributes:
        fixed: whatever the rows.
        read: per row of the tables of the FROM, all of which are read.
        scanned: the same, if a refresh looks for the rows of groups or partitions in all: if there are many.
        touched: per row of the anchor that is found, and joined then and now.
        again: per row of a group or partition that is computed again.
        stored: per row of the stored table.
        written: per row that may be written: a touched row, up to as many as are stored.
    """

    fixed: float
    read: float = 0
    scanned: float = 0
    touched: float = 0
    again: float = 0
    stored: float = 0
    written: float = 0

    def at(self, numbers: Numbers) -> float:
        """Returns the seconds."""
        scanned = min(numbers.read, _SCANNED * numbers.again)
        rows = self.read * numbers.read + self.scanned * scanned
        rows += self.touched * numbers.touched + self.again * numbers.again
        rows += self.stored * numbers.stored + self.written * min(numbers.touched, numbers.stored)
        return self.fixed + rows / 1e6


RATES = {
    Way.REFRESH: Rate(fixed=0.4, scanned=1.5, touched=100, again=0.5, stored=2, written=50),
    Way.WHOLE: Rate(fixed=1.0, read=1.5, stored=8, written=50),
    Way.FIRST: Rate(fixed=1.0, read=1.5, touched=2),
}
"""Measured on two cores, on 29 November 2026, in one session, with orders, their customers and 300,000 lines, or
1,020,000: two pipelines per query, one with `refresh: full`, after UPDATEs of 2,000, 20,000 and 80,000 lines anywhere.
Seconds of a refresh, and of the whole, one run each:

| block over 300,000 lines | 2,000 | 20,000 | 80,000 |
|---|---|---|---|
| rows of three tables | 6.6, 14 | 15, 23 | 58, 36 |
| groups by arithmetic, three tables | 5.9, 14 | 8.2, 9.3 | 38, 9.3 |
| groups with MAX, two tables | 8.6, 7.0 | 13, 6.4 | 28, 2.5 |

Other work had most of the machine, its share was not constant, and the columns ran in this order in a session that was
cold at first. The rates are fitted by hand to the table divided by four: about so much quicker were first loads beside
little other work (8.1, 3.4 and 2.7 s of the three, with 1,020,000 lines). So they are rough. The order of the ways is
what counts, and the first load of a pipeline scales all of them.
"""


@dataclass(frozen=True)
class Run:
    """A run of a block: its way, what was known before it, and the seconds that it took."""

    way: Way
    numbers: Numbers
    seconds: float


@dataclass(frozen=True)
class Decision:
    """How a block is computed.

    Attributes:
        way: how.
        why: the reason.
        seconds: what it should take.
        numbers: what was known.
    """

    way: Way
    why: str
    seconds: float
    numbers: Numbers


def numbers_of(
    block: Block,
    rows: Mapping[str, int],
    keys: Mapping[str, Collection[str]],
    changed: Mapping[str, int],
    stored: int,
    *,
    adds: bool,
    share: float = 1.0,
    passed: int = 0,
) -> Numbers:
    """Returns what is known of a block.

    A changed row of a table touches as many anchors as there are per row of that table; a group, or a partition, has as
    many rows as there are anchors per group. Of a UNION ALL the branches are added.

    Args:
        block: the block.
        rows: the rows of each table of its FROM.
        keys: the key of each such table.
        changed: about how many rows of each changed; a table without changes may be left out.
        stored: the rows of the table of the block.
        adds: whether its groups are kept by arithmetic.
        share: the share of these anchors that changes touch (`share_seen`).
        passed: the anchors that a condition that moves touches.
    """
    anchors = sum(rows[part.anchor.relation] for part in block.parts)
    touched = passed + math.ceil(share * sum(_touched(part, rows, changed) for part in block.parts))
    in_units = block.unit in (Unit.GROUP, Unit.PARTITION) and not adds
    per_unit = max(1.0, _share(anchors, _units(block, rows, keys, stored)))
    again = min(anchors, round(touched * per_unit)) if in_units else 0
    read = sum(rows[alias.relation] for alias in block.aliases)
    return Numbers(read, touched, again, stored, sum(changed.values()), in_units and not block.by, passed)


def _touched(part: Block, rows: Mapping[str, int], changed: Mapping[str, int]) -> int:
    """Returns about how many anchors of a block, or of a branch of it, changed rows are joined to."""
    of_anchor, touched = rows[part.anchor.relation], 0.0
    for alias in part.aliases:
        # Of a compared table of one row those between its old and new value: unknown.
        compared = alias.is_single and part.compared_with(alias) is not None
        per_row = 1.0 if compared else max(1.0, _share(of_anchor, 1 if alias.is_single else rows[alias.relation]))
        touched += changed.get(alias.relation, 0) * per_row
    return min(of_anchor, round(touched))


def _share(number: int, of: int) -> float:
    """Returns the rows per row of another table; 1 if their number is not known: the whole is then never cheaper."""
    return 1.0 if number >= UNKNOWN_SIZE else number / max(1, of)


def _units(block: Block, rows: Mapping[str, int], keys: Mapping[str, Collection[str]], stored: int) -> int:
    """Returns about how many groups or partitions a block has; the number of anchors where nothing tells it."""
    if not block.by:
        return 1
    if block.unit is Unit.GROUP:
        return stored
    by = {(column.table, column.name.lower()) for column in block.by if isinstance(column, exp.Column)}
    for alias in block.aliases:  # a partition per row of a table, if the columns have its key
        equal = {own.lower() for own, of in alias.equal if (alias.parent, of.lower()) in by}
        own = {name for table, name in by if table == alias.name} | equal
        if {key.lower() for key in keys[alias.relation]} <= own:
            return rows[alias.relation]
    return rows[block.anchor.relation]


def predicted(way: Way, numbers: Numbers, earlier: Sequence[Run]) -> float:
    """Returns the seconds that a run should take, by what earlier runs took."""
    measured = RATES[way].at(numbers)
    same = [run for run in earlier if run.way is way]
    like = [run for run in same if measured / ALIKE <= RATES[way].at(run.numbers) <= measured * ALIKE]
    chosen = like if len(like) >= ENOUGH_ALIKE else same or earlier
    ratios = [run.seconds / RATES[run.way].at(run.numbers) for run in chosen[-LAST:]]
    return measured * (statistics.median(ratios) if ratios else 1.0)


def decide(numbers: Numbers, earlier: Sequence[Run], *, may_be_whole: bool = True) -> Decision:
    """Returns the cheaper way of a block that can be refreshed; the refresh if it must not be computed whole."""
    refresh, whole = (predicted(way, numbers, earlier) for way in (Way.REFRESH, Way.WHOLE))
    most = max(numbers.touched, numbers.again)
    passed = f" and {numbers.passed:,} that the clock passed" if numbers.passed else ""
    verb = "touches" if numbers.changed == 1 and not passed else "touch"
    touch = f"{counted(numbers.changed, 'changed row')}{passed} {verb} about {most:,}"
    if not may_be_whole:
        return Decision(Way.REFRESH, f"{touch}, and refresh is incremental", refresh, numbers)
    if numbers.single_group and numbers.touched:
        why = f"{counted(numbers.changed, 'row')} changed, and all rows make one group"
        return Decision(Way.WHOLE, why, whole, numbers)
    if most <= ALWAYS_FEW:
        return Decision(Way.REFRESH, touch, refresh, numbers)
    why = f"{touch}, which should take {_shown(refresh)}, and the whole {_shown(whole)}"
    if whole < refresh:
        return Decision(Way.WHOLE, why, whole, numbers)
    return Decision(Way.REFRESH, why, refresh, numbers)


def strategy_of(decision: Decision) -> tuple[Literal["incremental", "full"], str]:
    """Returns how a run goes about it as the ledger has it, and why, with the seconds that it should take."""
    why = decision.why
    if "should take" not in why:
        why = f"{why}; it should take {_shown(decision.seconds)}"
    return ("incremental" if decision.way is Way.REFRESH else "full"), why


def _shown(seconds: float) -> str:
    """Returns seconds for people."""
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"


_STORED_AS = {"single_group": "alone"}
"""Names that the facts of a commit have for fields of `Numbers`, where they differ."""

_KINDS = ("read", "touched", "again", "stored")
"""The numbers of an earlier run that are kept: those of rows that took time."""


def share_of(facts: Mapping[str, Any]) -> float:
    """Returns the share of anchors that changes touch, by the last commit of a block; 1 where it says nothing."""
    return float((facts.get(COSTS) or {}).get("share", 1.0))


def share_seen(share: float, expected: int, reached: int) -> float:
    """Returns the share of anchors that changes touch, as a refresh has seen it.

    WHERE leaves out others, before they are anchors. The share falls by half at most, as other rows may change next.

    Args:
        share: what it was.
        expected: the anchors that changes touched by numbers of rows alone: with a share of 1.
        reached: the anchors that the refresh found.
    """
    return min(1.0, max(reached / expected, share / 2, LEAST_SHARE)) if expected else share


def facts_of(decision: Decision, earlier: Sequence[Run], share: float = 1.0) -> dict[str, Any]:
    """Returns the facts for the commit of a run: what was known before it, the last runs of each way, and the share."""
    runs = [last for way in Way for last in [run for run in earlier if run.way is way][-REMEMBERED:]]
    return {
        "way": decision.way,
        "numbers": {_STORED_AS.get(name, name): number for name, number in asdict(decision.numbers).items()},
        "seconds": round(decision.seconds, 3),
        "share": round(share, 6),
        "earlier": [[run.way, run.seconds, *(getattr(run.numbers, name) for name in _KINDS)] for run in runs],
    }


def earlier_runs(facts: Mapping[str, Any], seconds: float | None) -> list[Run]:
    """Returns the runs that the last commit of a block knows, and its own; `seconds`: what that took, if it is known.

    A refresh that touched nothing is left out: it took only the look at the changes.
    """
    stored = facts.get(COSTS) or {}
    runs = [Run(Way(way), Numbers(*rows), taken) for way, taken, *rows in stored.get("earlier", ())]
    last = decision_of(facts)
    if last is not None and seconds is not None and (last.numbers.touched or last.way is not Way.REFRESH):
        runs.append(Run(last.way, last.numbers, round(seconds, 3)))
    return runs


def decision_of(facts: Mapping[str, Any]) -> Decision | None:
    """Returns what was decided before the run that made a commit; None if it does not say."""
    stored = facts.get(COSTS)
    if not stored:
        return None
    names = {stored_as: name for name, stored_as in _STORED_AS.items()}
    numbers = Numbers(**{names.get(name, name): number for name, number in stored["numbers"].items()})
    return Decision(Way(stored["way"]), "", stored["seconds"], numbers)


def forecast_of(facts: Mapping[str, Any]) -> Forecast | None:
    """Returns the forecast that was made before the run whose commit has some facts."""
    decision = decision_of(facts)
    if decision is None:
        return None
    full = decision.way is not Way.REFRESH
    return Forecast(decision.way, full, decision.why, decision.numbers.changed, decision.seconds)
