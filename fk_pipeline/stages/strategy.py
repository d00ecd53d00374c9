"""Incremental or full: how a stage gets at the rows that a run concerns, chosen by cost (docs/benchmark.md).

*Incremental*: it looks those rows up and puts them in place. *Full*: it reads its tables whole and writes its own anew.
Both leave the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from fk_pipeline.contract import StageDef
from fk_pipeline.spec.model import Strategy

AUTO: Strategy = "auto"
INCREMENTAL: Strategy = "incremental"
FULL: Strategy = "full"

SMALL_CHANGE = 20_000
"""Changed rows up to which looking them up is the quicker way in a table of any size."""

NAMED_SHARE = 0.12
"""In place of a stage's `full_share`, where its commit names the keys of all rows (`store.skipping.exactly`) and needs
no MERGE."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and why, for a person to read."""

    strategy: Strategy
    reason: str

    @property
    def full(self) -> bool:
        """Tables are read and written whole."""
        return self.strategy == FULL


def choose(
    stage: StageDef,
    wanted: Strategy,
    changes: int | None,
    rows: int,
    *,
    indexed: bool = True,
    careful: bool = False,
    nameable: int = 0,
) -> Choice:
    """The strategy of a stage.

    Args:
        stage: the stage.
        wanted: what the pipeline file says.
        changes: rows that the run changes or asks about, at most; None when that is not known before.
        rows: of the table that they are looked up in; 0 when nothing is stored yet.
        indexed: the index that the stage needs is there.
        careful: rows on which an expression of the pipeline file fails are looked for.
        nameable: rows that a commit to the table can name by their keys, at most; answers are added to a log.
    """
    if stage.full_share is None:
        return Choice(INCREMENTAL, "batches are added to a log")
    if not rows:
        return Choice(FULL, "nothing is stored yet: what these batches bring is the whole table")
    if careful:
        return Choice(INCREMENTAL, "the rows on which an expression fails are looked for one by one")
    if stage.index and not indexed:
        return Choice(FULL, f"a {stage.looks_up_in.replace('_', ' ')} of {rows:,} rows is joined whole")
    if stage.index and changes is None:
        return Choice(FULL, "how much changes is not known before: both tables are joined whole")
    if wanted != AUTO:
        return Choice(wanted, "the pipeline file says so")
    if changes is None:
        return Choice(INCREMENTAL, "how much changes is not known before")
    share = f"{changes:,} of {rows:,} rows"
    named = not stage.looks_up_in and changes <= nameable  # it writes the table in which it looks rows up
    if changes > SMALL_CHANGE and changes > rows * (NAMED_SHARE if named else stage.full_share):
        return Choice(FULL, f"{share}: reading and writing all is quicker")
    return Choice(INCREMENTAL, f"{share}: looking them up is quicker")
