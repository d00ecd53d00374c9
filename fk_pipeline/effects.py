"""The changes that a stage returns: its effects. Data only.

A stage is a function from a `fk_pipeline.stage_input.Reader` to effects. The effects are applied in order, with one
commit for each that has something to write. After a crash between two of them the stage is still due and is computed
again from the start (architecture, rule 8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fk_pipeline.stage_input import Counts, RowSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class CountBy:
    """How rows are counted as they are written: per batch, by the values of a column.

    Attributes:
        batch: the column with the batch that a row is counted for.
        column: the column whose values determine the counts.
        name: function from a value of that column to the name of its count.
        stored: the batch column of the table, by which the first rows of an empty table are counted.
        first: SQL over these stored rows, the value of `column`; empty if the table does not tell it.
        new: the values of rows whose keys the table does not have; empty: no value says so.
        unwritten: the values of rows that are counted and not written.
    """

    batch: str
    column: str
    name: Callable[[Any], str] = str
    stored: str = ""
    first: str = ""
    new: Collection[str] = ()
    unwritten: Collection[str] = ()


@dataclass(frozen=True)
class ReplaceBatches:
    """Replaces the rows of the batches in a table: afterwards the batches have these rows and no others.

    Attributes:
        table: a log, or messages.
        rows: the rows.
        counted: how they are counted; None: the stage has counted them.
        retained: batches whose rows stay as they are.
        origin: in a table that several stages write, only rows of this origin are replaced.
    """

    table: str
    rows: RowSet
    counted: CountBy | None = None
    retained: Collection[int] = ()
    origin: str = ""


@dataclass(frozen=True)
class Index:
    """The index of a large state; its entries are written before the rows of the state.

    Attributes:
        table: the index.
        keys: the key columns that the index is sorted by.
        entries: function that returns the index entries of rows that are about to be stored, or of the stored rows.
    """

    table: str
    keys: Sequence[str]
    entries: Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Upsert:
    """Writes rows to a table in place of the rows with the same keys.

    The entries of the rows in the index of a state (`contract.TableDef.index`) are written as well.

    Attributes:
        table: a state, or the result.
        rows: the rows.
        delete_when: SQL condition on the rows: a row that meets it is removed from the table instead.
        counted: how they are counted; None: the stage has counted them.
        metadata: facts about the rows that the commit carries; `TableFacts.metadata` returns them.
        always: whether the facts are committed also if no row changes.
    """

    table: str
    rows: RowSet
    delete_when: str | None = None
    counted: CountBy | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    always: bool = False


@dataclass(frozen=True)
class Reject:
    """Replaces the records of one origin that the batches have in the quarantine.

    Attributes:
        rows: `_fk_batch`, `_fk_file`, `_fk_line`, `_fk_reason`, `_fk_raw`; not used if `number` is 0.
        number: their number.
        origin: the input that the records came from, or `join`.
    """

    rows: DataFrame | None
    number: int
    origin: str


@dataclass(frozen=True)
class Report:
    """The counts and texts that the run reports.

    Attributes:
        counts: per batch, the counts by name.
        notes: information for people.
        warnings: probable mistakes in the pipeline file.
        strategy: how the stage goes about it, `incremental` or `full`, and why, if it chooses itself; None: as it
            chose for its writes (`RunLimits.lookup_limit`).
    """

    counts: Counts = field(default_factory=dict)
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    strategy: tuple[Literal["incremental", "full"], str] | None = None


@dataclass(frozen=True)
class Reopen:
    """Makes the stage due for other batches, although the input of these batches is unchanged."""

    batches: Sequence[int]


Effect = ReplaceBatches | Upsert | Reject | Report | Reopen
"""One element of the list that a stage returns; the list is applied in order."""
