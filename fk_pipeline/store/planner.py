"""The planner: how a stage gets at the rows that a run concerns, and writes them, chosen by size (docs/benchmark.md).

*Incremental*: it looks those rows up and puts them in place. *Full*: it reads its tables whole and writes its own anew.
Both leave the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fk_pipeline.contract import StageDef
from fk_pipeline.spec.settings import Strategy
from fk_pipeline.spec.sql import INTEGERS
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import MEASURED, UNKNOWN, Sizes

if TYPE_CHECKING:
    from fk_pipeline.store.reader import TableReader

AUTO: Strategy = "auto"
INCREMENTAL: Strategy = "incremental"
FULL: Strategy = "full"


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
    isolating: bool = False,
    nameable: int = 0,
    sizes: Sizes = MEASURED,
) -> Choice:
    """The strategy of a stage.

    Args:
        stage: the stage.
        wanted: what the pipeline file says.
        changes: rows that the run changes or asks about, at most; None when that is not known before.
        rows: of the table that they are looked up in; 0 when nothing is stored yet.
        indexed: the index that the stage needs is there.
        isolating: rows on which an expression of the pipeline file fails are told apart.
        nameable: rows that a commit to the table can name by their keys, at most; 0 for a log, to which rows are added.
        sizes: at which another way is quicker.
    """
    if stage.full_share is None:
        return Choice(INCREMENTAL, "batches are added to a log")
    if not rows:
        return Choice(FULL, "nothing is stored yet: what these batches bring is the whole table")
    if isolating:
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
    if changes > sizes.small_change and changes > rows * (sizes.named_share if named else stage.full_share):
        return Choice(FULL, f"{share}: reading and writing all is quicker")
    return Choice(INCREMENTAL, f"{share}: looking them up is quicker")


def sendable(table: Table, columns: Iterable[str], sizes: Sizes) -> int:
    """How many keys of a table are at most sent to it: a number takes 16 bytes in memory, other values about 200."""
    kinds = dict(table.columns)
    width = sum(16 if kinds[column].upper() in INTEGERS else 200 for column in columns)
    return sizes.sent_bytes // width


class Planner:
    """Chooses for one run of a stage, each time that it knows better how many rows are concerned.

    Attributes:
        choice: what was chosen last; None where there was nothing to choose.
    """

    def __init__(self, stage: StageDef, wanted: Strategy, read: TableReader, *, isolating: bool) -> None:
        """Plans a run.

        Args:
            stage: the stage.
            wanted: what the pipeline file says.
            read: reads its tables.
            isolating: rows on which an expression of the pipeline file fails are told apart.
        """
        self._stage, self._wanted, self._read, self._isolating = stage, wanted, read, isolating
        self.choice = choose(stage, AUTO, None, 0) if stage.full_share is None else None

    def lookup_limit(self, changes: int, name: str) -> int:
        """Chooses how the stage goes about so many changed rows of a table.

        Returns:
            The number of rows up to which they are looked up by their keys; below 0 when none are.
        """
        read, stage = self._read, self._stage
        table, rows = read.table_of(name), read.rows(name)
        self.choice = choose(
            stage,
            self._wanted,
            None if changes >= UNKNOWN else changes,
            rows,
            indexed=bool(stage.index) and bool(read.rows(stage.index)),
            isolating=self._isolating,
            nameable=read.warehouse.nameable(table),
            sizes=read.sizes,
        )
        if self.choice.full:
            return -1 if rows else read.few
        return sendable(table, table.keys, read.sizes)
