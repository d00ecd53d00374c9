"""What a stage reads and what it wants to hold: `Reader` and the effects. Data and protocols only.

A stage is a function from a `Reader` to effects, which are applied in their order, one commit for each that has
something to write. A crash between two of them leaves the stage due; it is computed again from the start
(architecture, rule 8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fk_pipeline.identity import BatchId, BatchRange

Counts = dict[int, dict[str, int]]
"""Per batch, numbers by name."""


class RowSet(Protocol):
    """Rows that are computed, or planned; see `store.materialised.Materialised`."""

    frame: DataFrame
    at_most: int
    local: pa.Table | None
    cached: bool

    def counts(self, batch: str, *names: str) -> dict[int, dict[tuple[Any, ...], int]]:
        """Per batch the number of rows for every combination of values of some columns."""
        ...

    def but(self, column: str, *values: Any) -> RowSet:
        """All rows but those with certain values in a column."""
        ...

    def only(self, column: str, values: Sequence[Any]) -> RowSet:
        """The rows with certain values in a column."""
        ...

    def values(self, columns: Sequence[str]) -> pa.Table | None:
        """Some columns of the rows, in the driver; None where the rows are not computed yet."""
        ...

    def compute(self) -> None:
        """Computes what is only planned so far."""
        ...


@dataclass(frozen=True)
class Messages:
    """What the ledger said of the messages of the batches before they were read.

    Attributes:
        at_most: their number; very many where it is not known.
        since: the entry of the ledger at which the first of the runs that made them was started; None where that is not
            known of all of them.
        versions: of every run that made some, the versions of the tables that it read.
    """

    at_most: int
    since: int | None = None
    versions: tuple[Mapping[str, int], ...] = ()


class History(Protocol):
    """What the ledger says of the batches at hand; bounds where it knows no number."""

    @property
    def first_time(self) -> bool:
        """The stage cannot have committed anything for any of the batches."""
        ...

    def propagated(self, stage: str) -> int:
        """The rows of the state of a stage that changed on behalf of the batches, at most."""
        ...

    def rows_read(self, stage: str) -> int:
        """The rows that the batches have in the log of a stage that reads landing files."""
        ...

    def messages(self, stage: str) -> Messages:
        """The messages that a stage wrote for the batches, as the ledger knows them now."""
        ...

    def never_did(self, stage: str, *counts: str) -> bool:
        """No run of a stage for any of the batches, finished or not, can have counted any of these."""
        ...

    def limit(self, check: str) -> int | None:
        """The largest value of a check that needs no approval; None where it never does."""
        ...

    def approved(self, check: str) -> Collection[int]:
        """The batches that were approved, for what their landing files say now."""
        ...


class Reader(Protocol):
    """The tables as a stage reads them, each at one version for the whole run."""

    @property
    def spec(self) -> Any:
        """The pipeline (`PipelineSpec`)."""
        ...

    @property
    def batches(self) -> BatchRange:
        """The range that the stage runs for."""
        ...

    @property
    def known(self) -> Sequence[BatchId]:
        """The batches of the range."""
        ...

    @property
    def history(self) -> History:
        """What the ledger says of these batches."""
        ...

    @property
    def evaluator(self) -> Any:
        """Evaluates the expressions of the pipeline file (`fk_pipeline.spec.failing.Evaluator`)."""
        ...

    def read(self, name: str) -> DataFrame:
        """All rows of a table."""
        ...

    def of_batches(self, name: str, column: str) -> DataFrame:
        """The rows of a table that a batch column lays at the batches."""
        ...

    def with_keys(
        self, name: str, keys: RowSet, columns: Mapping[str, str], within: str = "", needed: Sequence[str] = ()
    ) -> DataFrame:
        """The rows of a table with some keys, or more.

        Args:
            name: the table.
            keys: rows with the keys.
            columns: by key column of the table, its name in `keys`.
            within: a batch column that lays the rows at the batches besides.
            needed: the columns that are looked at besides its keys; all columns if there are none.
        """
        ...

    def through_index(
        self, index: str, name: str, keys: RowSet, columns: Mapping[str, str], needed: Sequence[str]
    ) -> tuple[DataFrame, int]:
        """The rows of an indexed state that refer to some keys of another table, or more; and a bound of them."""
        ...

    def rows(self, *names: str) -> int:
        """How many rows some tables have together."""
        ...

    def fits_memory(self, name: str) -> bool:
        """Spark may hold a table in memory to join it."""
        ...

    def names_keys(self, name: str, number: int) -> bool:
        """A commit to a table may name the keys of so many rows, more than are brought to the driver."""
        ...

    def lookup_limit(self, changes: int, name: str) -> int:
        """Chooses how the stage goes about so many changed rows of a table; the rows up to which to look them up."""
        ...

    def cached(self, frame: DataFrame, at_most: int | None) -> RowSet:
        """A frame that is used several times, computed once; `at_most` of None: let the frame itself tell."""
        ...

    def planned(self, frame: DataFrame, at_most: int, cached: bool = False) -> RowSet:
        """A frame that is computed where it is written; `cached`: what it is computed from is."""
        ...

    def unchanged_since(self, messages: Messages, stages: Sequence[str], tables: Sequence[str]) -> bool:
        """Some tables are as they were when messages were computed from them (architecture, rule 3)."""
        ...

    def never_rewritten(self, stage: str) -> bool:
        """No partition of the log of a stage that reads landing files was ever rewritten."""
        ...

    def has_one_version_per_key(self, stage: str, state: str) -> bool:
        """The batches are all there is in the log of a stage, and the log has as many rows as a state has keys."""
        ...


@dataclass(frozen=True)
class CountBy:
    """How rows are counted as they are written: per batch, by the values of a column.

    Attributes:
        batch: the column with the batch that a row counts for.
        column: its values name the counts.
        name: what a count is called, by the value.
        stored: the batch column of the table, by which the first rows of an empty table are counted.
        first: what these are called.
    """

    batch: str
    column: str
    name: Callable[[Any], str] = str
    stored: str = ""
    first: str = ""


@dataclass(frozen=True)
class ReplaceBatches:
    """The batches have these rows in a table, and no others.

    Attributes:
        table: a log, or messages.
        rows: the rows.
        number: how many they are at most; default: as the rows say.
        counted: how they are counted; None: the stage has counted them.
        kept: batches whose rows stay as they are.
        origin: of a table that several stages write, only rows of this origin are replaced.
    """

    table: str
    rows: RowSet
    number: int | None = None
    counted: CountBy | None = None
    kept: Collection[int] = ()
    origin: str = ""


@dataclass(frozen=True)
class Index:
    """The index that must know rows before a state holds them, once the state is large.

    Attributes:
        table: the index.
        keys: the columns of its keys that it is sorted by.
        entries: of rows that are about to be stored, or of the stored rows, the entries of the index.
    """

    table: str
    keys: Sequence[str]
    entries: Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Upsert:
    """Rows stand in a table in place of those with their keys.

    Attributes:
        table: a state, or the result.
        rows: the rows.
        number: how many they are at most; default: as the rows say.
        delete_when: SQL condition on them: the row is removed instead.
        keys: a frame with their keys, if that is less to compute.
        once: there is one row per key; else any of them is taken.
        counted: how they are counted; None: the stage has counted them.
        unless: column and value of rows that are counted and not written.
        index: of the state.
    """

    table: str
    rows: RowSet
    number: int | None = None
    delete_when: str | None = None
    keys: DataFrame | None = None
    once: bool = True
    counted: CountBy | None = None
    unless: tuple[str, Any] | None = None
    index: Index | None = None


@dataclass(frozen=True)
class Reject:
    """The batches have these records in the quarantine, of one origin, and no others.

    Attributes:
        rows: `_fk_batch`, `_fk_file`, `_fk_line`, `_fk_reason`, `_fk_raw`; not looked at when there are none.
        number: how many there are.
        origin: the input that they came in on, or `join`.
    """

    rows: DataFrame | None
    number: int
    origin: str


@dataclass(frozen=True)
class Report:
    """What the run tells.

    Attributes:
        counts: per batch, numbers by name.
        notes: what a person should know.
        warnings: what is probably wrong in the pipeline file.
    """

    counts: Counts = field(default_factory=dict)
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Reopen:
    """The stage is due for other batches, though they read what they read before."""

    batches: Sequence[int]


Effect = ReplaceBatches | Upsert | Reject | Report | Reopen
"""What a stage returns, in the order in which it is applied."""
