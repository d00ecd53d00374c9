"""Chooses by size how a stage reads and writes the rows that a run concerns (docs/benchmark.md).

*Incremental*: it reads those rows by point look-ups and replaces them. *Full*: it reads and rewrites whole tables.
Both leave the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fk_pipeline.contract import StageDef
from fk_pipeline.identity import BatchRange
from fk_pipeline.spec.settings import Strategy
from fk_pipeline.store.limits import Limits, sendable
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.sizes import MEASURED, UNKNOWN, Sizes
from fk_pipeline.words import counted

if TYPE_CHECKING:
    from fk_pipeline.store.tables import StoredTables

AUTO: Strategy = "auto"
INCREMENTAL: Strategy = "incremental"
FULL: Strategy = "full"


@dataclass(frozen=True)
class Choice:
    """The chosen strategy, and the reason as text for a person."""

    strategy: Strategy
    reason: str

    @property
    def full(self) -> bool:
        """Whether tables are read and written whole."""
        return self.strategy == FULL


def choose(
    stage: StageDef,
    declared: Strategy,
    changes: int | None,
    rows: int,
    *,
    indexed: bool = True,
    isolating: bool = False,
    nameable: int = 0,
    sizes: Sizes = MEASURED,
) -> Choice:
    """Returns the strategy of a stage, with the reason.

    Args:
        stage: the stage.
        declared: the strategy in the pipeline file.
        changes: an upper bound of the rows that the run changes or looks up; None if that is not known before.
        rows: the number of rows of the table in which they are looked up; 0 if nothing is stored yet.
        indexed: whether the index that the stage needs exists.
        isolating: whether row-error isolation is on: rows on which an expression of the pipeline file fails are found.
        nameable: the most rows that a commit to the table can name by their keys; 0 for a log, to which rows are added.
        sizes: the sizes at which the other strategy is quicker.
    """
    if stage.full_share is None:
        return Choice(INCREMENTAL, "batches are added to a log")
    if not rows:
        return Choice(FULL, "nothing is stored yet: what these batches bring is the whole table")
    if isolating:
        return Choice(INCREMENTAL, "the rows on which an expression fails are looked for one by one")
    if stage.index and not indexed:
        return Choice(FULL, f"a {stage.looks_up_in.replace('_', ' ')} of {counted(rows, 'row')} is joined whole")
    if stage.index and changes is None:
        return Choice(FULL, "how much changes is not known before: both tables are joined whole")
    if declared != AUTO:
        return Choice(declared, "the pipeline file says so")
    if changes is None:
        return Choice(INCREMENTAL, "how much changes is not known before")
    share = f"{changes:,} of {counted(rows, 'row')}"
    named = not stage.looks_up_in and changes <= nameable  # the stage writes the table in which it looks rows up
    if changes > sizes.small_change and changes > rows * (sizes.named_share if named else stage.full_share):
        return Choice(FULL, f"{share}: reading and writing all is quicker")
    return Choice(INCREMENTAL, f"{share}: looking them up is quicker")


class Planner(Limits):
    """Chooses the strategy for one run of a stage, again each time the number of rows is known more exactly.

    Attributes:
        choice: the last choice; None if there was nothing to choose.
    """

    def __init__(
        self,
        stored: StoredTables,
        tables: Mapping[str, Table],
        versions: Mapping[str, int],
        batches: BatchRange,
        stage: StageDef,
        declared: Strategy,
        *,
        isolating: bool,
    ) -> None:
        """Plans a run; the first four arguments are those of `Limits`.

        Args:
            stored: the stored tables.
            tables: the declarations, by name.
            versions: per table that was read so far, its version.
            batches: the batches of the run.
            stage: the stage.
            declared: the strategy in the pipeline file.
            isolating: whether row-error isolation is on.
        """
        super().__init__(stored, tables, versions, batches)
        self._stage, self._declared, self._isolating = stage, declared, isolating
        self.choice = choose(stage, AUTO, None, 0) if stage.full_share is None else None

    def lookup_limit(self, changes: int, name: str) -> int:
        """Chooses the strategy for a number of changed rows of a table.

        Returns:
            The number of rows up to which point look-ups are used; below 0 if there must be none.
        """
        stage, stored, table = self._stage, self._stored, self._tables[name]
        rows = stored.rows([table])
        self.choice = choose(
            stage,
            self._declared,
            None if changes >= UNKNOWN else changes,
            rows,
            indexed=bool(stage.index) and bool(stored.rows([self._tables[stage.index]])),
            isolating=self._isolating,
            nameable=stored.nameable(table),
            sizes=self.sizes,
        )
        if self.choice.full:
            return -1 if rows else self.in_driver
        return sendable(table, table.keys, self.sizes)
