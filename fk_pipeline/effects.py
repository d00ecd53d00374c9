"""The input of a stage and the changes that it returns: `Reader` and the effects. Data and protocols only.

A stage is a function from a `Reader` to effects. The effects are applied in order, with one commit for each that has
something to write. After a crash between two of them the stage is still due and is computed again from the start
(architecture, rule 8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fk_pipeline.identity import BatchId, BatchRange

Counts = dict[int, dict[str, int]]
"""Per batch, the counts by name."""


class RowSet(Protocol):
    """Rows that are computed or only planned; see `store.materialised.Materialised`."""

    at_most: int
    local: pa.Table | None
    cached: bool

    @property
    def frame(self) -> DataFrame:
        """The rows, for Spark."""
        ...

    def counts(self, batch: str, *names: str) -> dict[int, dict[tuple[Any, ...], int]]:
        """Returns, per batch, the number of rows for every combination of values of some columns."""
        ...

    def but(self, column: str, *values: Any) -> RowSet:
        """Returns all rows except those with certain values in a column."""
        ...

    def only(self, column: str, values: Sequence[Any]) -> RowSet:
        """Returns the rows with certain values in a column."""
        ...

    def values(self, columns: Sequence[str]) -> pa.Table | None:
        """Returns some columns of the rows, in the driver; None if the rows are not computed yet."""
        ...

    def compute(self) -> None:
        """Computes the rows if they are only planned so far."""
        ...


@dataclass(frozen=True)
class Messages:
    """The ledger's knowledge of the messages of the batches, from before they were read.

    Attributes:
        at_most: their number; very large if it is not known.
        since: the entry of the ledger at which the first of the runs that wrote them was started; None if this is not
            known for all of them.
        versions: per run that wrote messages, the versions of the tables that it read.
    """

    at_most: int
    since: int | None = None
    versions: tuple[Mapping[str, int], ...] = ()


class History(Protocol):
    """The ledger's knowledge of the batches of the run; a bound where the exact number is not known."""

    @property
    def first_time(self) -> bool:
        """Whether the stage cannot have committed anything for any of the batches."""
        ...

    def propagated(self, stage: str) -> int:
        """Returns an upper bound of the rows of the state of a stage that the batches changed."""
        ...

    def rows_read(self, stage: str) -> int:
        """Returns the number of rows that the batches have in the log of a stage that reads landing files."""
        ...

    def messages(self, stage: str) -> Messages:
        """Returns what the ledger knows now about the messages that a stage wrote for the batches."""
        ...

    def never_did(self, stage: str, *counts: str) -> bool:
        """Returns whether no run of a stage for these batches, finished or not, can have counted any of `counts`."""
        ...

    def read_nothing(self, stage: str) -> bool:
        """Returns whether the batches have no row in the log of a stage that reads landing files, and never had one."""
        ...

    def is_finished(self, stage: str) -> bool:
        """Returns whether the counts of a stage match the stored rows: its last run for every batch succeeded."""
        ...

    def generations(self, stage: str) -> dict[int, int]:
        """Returns the generation of every batch, of any run, whose partition in the log of a stage was rewritten."""
        ...

    def was_rewritten(self, stage: str) -> bool:
        """Returns whether the partition of one of the batches in such a log was ever rewritten."""
        ...

    def may_be_truncated(self, stage: str) -> bool | None:
        """Returns whether any batch has a truncate in such a log; None if an unfinished run may have written one."""
        ...

    def last_truncate(self, stage: str) -> int | None:
        """Returns the greatest batch that has, or ever had, a truncate in such a log; None if none is known."""
        ...

    def truncated(self, stage: str) -> Sequence[int]:
        """Returns the batches that have, or ever had, a truncate in such a log."""
        ...

    def horizon(self, stage: str) -> str | None:
        """Returns how far back an input goes, given by its stage (`history`, `retention`); None: everything is kept."""
        ...

    def seconds(self, stage: str, read: int) -> float | None:
        """Returns the seconds of the last run of a stage; None if it had not read this version of its main table."""
        ...

    def limit(self, check: str) -> int | None:
        """Returns the largest value of a check that needs no approval; None if the check never needs approval."""
        ...

    def approved(self, check: str) -> Collection[int]:
        """Returns the batches that were approved with their landing files as they are now."""
        ...


class Reader(Protocol):
    """The tables as a stage reads them, each at one fixed version for the whole run."""

    @property
    def spec(self) -> Any:
        """The pipeline (`PipelineSpec`)."""
        ...

    @property
    def batches(self) -> BatchRange:
        """The range that the stage runs for."""
        ...

    @property
    def stage(self) -> str:
        """The stage."""
        ...

    @property
    def known(self) -> Sequence[BatchId]:
        """The known batches of the range."""
        ...

    @property
    def history(self) -> History:
        """The ledger's knowledge of these batches."""
        ...

    @property
    def sizes(self) -> Any:
        """The sizes at which rows are found in another way (`fk_pipeline.store.sizes.Sizes`)."""
        ...

    @property
    def few(self) -> int:
        """The largest number of rows that are brought to the driver."""
        ...

    @property
    def evaluator(self) -> Any:
        """The evaluator of the expressions of the pipeline file (`fk_pipeline.spec.failing.Evaluator`)."""
        ...

    def read(self, name: str) -> DataFrame:
        """Returns all rows of a table."""
        ...

    def of_batches(self, name: str, column: str) -> DataFrame:
        """Returns the rows of a table whose value in a batch column is one of the batches."""
        ...

    def in_range(
        self,
        name: str,
        column: str,
        low: int | None,
        high: int | None,
        keys: Mapping[str, pa.ChunkedArray] | None = None,
    ) -> DataFrame:
        """Returns the rows of a table whose value in a column is at least `low` and less than `high`; null is not.

        Args:
            name: the table.
            column: a column with BIGINT, or with TIMESTAMP, which counts in microseconds since 1970.
            low: the least value; None: any.
            high: the least value above the range; None: any.
            keys: per key column, values; a row with another value may be left out.
        """
        ...

    def greatest(self, name: str, column: str) -> int | None:
        """Returns the greatest value of such a column; None if it has none."""
        ...

    def with_keys(
        self, name: str, keys: RowSet, columns: Mapping[str, str], within: str = "", needed: Sequence[str] = ()
    ) -> DataFrame:
        """Returns the rows of a table that have some keys; the frame may contain other rows too.

        Args:
            name: the table.
            keys: rows with the keys.
            columns: per key column of the table, its name in `keys`.
            within: a batch column; only rows whose value in it is one of the batches are needed.
            needed: the columns that are needed besides the key columns; empty: all columns.
        """
        ...

    def exactly(self, name: str, keys: RowSet, columns: Mapping[str, str], needed: Sequence[str] = ()) -> RowSet:
        """Returns the rows of a table that have some keys (`with_keys`), and no others, computed once."""
        ...

    def through_index(
        self,
        index: str,
        name: str,
        keys: RowSet,
        columns: Mapping[str, str],
        needed: Sequence[str],
        narrow: Callable[[DataFrame], DataFrame] | None = None,
    ) -> tuple[DataFrame, int]:
        """Returns the rows of an indexed state that refer to some keys of another table, and a bound of their number.

        The frame may contain other rows too. `narrow` chooses among the rows of the index with these keys.
        """
        ...

    def seen(self, name: str) -> Any:
        """Returns the version (`cdc.table_versions.Seen`) of a table that the run reads; None if there is no table.

        Of an input that is read where it lies it is the newest that was found.
        """
        ...

    def table_of(self, name: str) -> Any:
        """Returns the declaration of a table: its columns and keys (`fk_pipeline.store.schemas.Table`)."""
        ...

    @property
    def versions(self) -> Mapping[str, int]:
        """Per table that was read, its version; negative where it is read as not existing."""
        ...

    def metadata(self, name: str) -> Mapping[str, Any]:
        """Returns what the commit that made the rows of a table carries (`Upsert.metadata`); empty if it is not known.

        It is not known if the commit was made by a run that had read an older version than that before the commit.
        """
        ...

    def rows(self, *names: str) -> int:
        """Returns the total number of rows of some tables."""
        ...

    def fits_memory(self, name: str) -> bool:
        """Returns whether a table is small enough for Spark to keep in memory for a join."""
        ...

    def names_keys(self, name: str, number: int) -> bool:
        """Returns whether a commit to a table can name the keys of `number` rows, more than the driver collects."""
        ...

    def lookup_limit(self, changes: int, name: str) -> int:
        """Chooses the strategy of the stage for a number of changed rows of a table.

        Returns:
            The number of rows up to which they are looked up by their keys; below 0 if no rows are looked up.
        """
        ...

    def cached(self, frame: DataFrame, at_most: int | None) -> RowSet:
        """Computes a frame once for several uses; `at_most`: an upper bound of its rows, None: not known."""
        ...

    def held(self, rows: pa.Table, columns: Sequence[tuple[str, str]]) -> RowSet:
        """Returns rows that are in the driver; `columns` are their names and types."""
        ...

    def on_release(self, free: Callable[[], None]) -> None:
        """Registers a function that is called when the run needs its frames no more."""
        ...

    def planned(self, frame: DataFrame, at_most: int, cached: bool = False) -> RowSet:
        """Returns a frame that is computed when it is written; `cached`: whether its input is cached."""
        ...

    def unchanged_since(self, messages: Messages, stages: Sequence[str], tables: Sequence[str]) -> bool:
        """Returns whether some tables are unchanged since messages were computed from them (architecture, rule 3)."""
        ...

    def never_rewritten(self, stage: str) -> bool:
        """Returns whether no partition of the log of a stage that reads landing files was ever rewritten."""
        ...

    def has_one_version_per_key(self, stage: str, state: str) -> bool:
        """Returns whether the log of a stage has only these batches, and as many rows as a state has keys."""
        ...


@dataclass(frozen=True)
class CountBy:
    """How rows are counted as they are written: per batch, by the values of a column.

    Attributes:
        batch: the column with the batch that a row is counted for.
        column: the column whose values determine the counts.
        name: function from a value of that column to the name of its count.
        stored: the batch column of the table, by which the first rows of an empty table are counted.
        first: SQL over these stored rows, the value of `column`; empty if the table does not tell it.
    """

    batch: str
    column: str
    name: Callable[[Any], str] = str
    stored: str = ""
    first: str = ""


@dataclass(frozen=True)
class ReplaceBatches:
    """Replaces the rows of the batches in a table: afterwards the batches have these rows and no others.

    Attributes:
        table: a log, or messages.
        rows: the rows.
        number: an upper bound of their number; default: the bound that `rows` has.
        counted: how they are counted; None: the stage has counted them.
        kept: batches whose rows stay as they are.
        origin: in a table that several stages write, only rows of this origin are replaced.
    """

    table: str
    rows: RowSet
    number: int | None = None
    counted: CountBy | None = None
    kept: Collection[int] = ()
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

    Attributes:
        table: a state, or the result.
        rows: the rows.
        number: an upper bound of their number; default: the bound that `rows` has.
        delete_when: SQL condition on the rows: a row that meets it is removed from the table instead.
        keys: a frame with their keys, if it is cheaper to compute than `rows`.
        once: whether there is one row per key; if not, any of them is written.
        counted: how they are counted; None: the stage has counted them.
        new: the values of the counted column for rows whose keys the table does not have; none if none says so.
        unless: column and value; rows with this value are counted but not written.
        index: the index of the state.
        metadata: facts about the rows that the commit carries; `Reader.metadata` returns them.
        always: whether the facts are committed also if no row changes.
    """

    table: str
    rows: RowSet
    number: int | None = None
    delete_when: str | None = None
    keys: DataFrame | None = None
    once: bool = True
    counted: CountBy | None = None
    new: Collection[str] = ()
    unless: tuple[str, Any] | None = None
    index: Index | None = None
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
            chose for its writes (`Reader.lookup_limit`).
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
