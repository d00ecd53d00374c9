"""The input of a stage: `Reader` and its parts. Protocols only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fk_pipeline.identity import BatchId, BatchRange

Counts = dict[int, dict[str, int]]
"""Per batch, the counts by name."""


class RowSet(Protocol):
    """Rows that are computed or only planned; see `store.materialised.Materialised`.

    Attributes:
        at_most: an upper bound of their number; very large if it is not known.
        local: the rows, if they are in the driver.
        cached: whether reading the rows twice computes them only once.
        keys: a frame with their key columns, where it is cheaper to compute than the rows; else None.
        unique: whether there is one row per key; if not, any of them may be taken.
    """

    at_most: int
    local: pa.Table | None
    cached: bool
    keys: DataFrame | None
    unique: bool

    @property
    def frame(self) -> DataFrame:
        """The rows, for Spark."""
        ...

    def counts(self, batch: str, *names: str) -> dict[int, dict[tuple[Any, ...], int]]:
        """Returns, per batch, the number of rows for every combination of values of some columns."""
        ...

    def but(self, column: str, *values: Any) -> RowSet:
        """Returns all rows except those with certain values in a column; without `keys`."""
        ...

    def only(self, column: str, values: Sequence[Any]) -> RowSet:
        """Returns the rows with certain values in a column; without `keys`."""
        ...

    def bounded(self, number: int) -> RowSet:
        """Returns the same rows with another upper bound of their number."""
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
        unwritten: the batches whose messages the last run that succeeded did not write: what reads them computes them.
    """

    at_most: int
    since: int | None = None
    versions: tuple[Mapping[str, int], ...] = ()
    unwritten: tuple[int, ...] = ()


class History(Protocol):
    """The ledger's knowledge of the batches of the run; a bound where the exact number is not known.

    Attributes:
        stage: the stage.
        known: the known batches of the range.
    """

    stage: str
    known: Sequence[BatchId]

    @property
    def first_time(self) -> bool:
        """Whether the stage cannot have committed anything for any of the batches."""
        ...

    def propagated(self, stage: str, batch: int | None = None) -> int:
        """Returns an upper bound of the rows of the state of a stage that the batches, or one of them, changed."""
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

    def unchanged_since(self, stages: Sequence[str], entry: int) -> bool:
        """Returns whether no run of some stages was started since an entry of the ledger, which is read again now."""
        ...

    def never_rewritten(self, stage: str) -> bool:
        """Returns whether no partition of such a log was ever rewritten, by the ledger, which is read again now.

        It records a rewrite before the partition is rewritten.
        """
        ...

    def has_every_row(self, stage: str) -> bool:
        """Returns whether such a log has every row that its batches brought, and no truncate.

        That is so if every run of the stage, for any batch, succeeded, and none had a truncate.
        """
        ...

    def limit(self, check: str) -> int | None:
        """Returns the largest value of a check that needs no approval; None if the check never needs approval."""
        ...

    def approved(self, check: str) -> Collection[int]:
        """Returns the batches that were approved with their landing files as they are now."""
        ...


class Frames(Protocol):
    """Makes `RowSet`s, and frees what they hold when the run needs them no more."""

    def cached(self, frame: DataFrame, at_most: int | None) -> RowSet:
        """Computes a frame once for several uses; `at_most`: an upper bound of its rows, None: not known."""
        ...

    def known(self, frame: DataFrame) -> RowSet | None:
        """Returns the rows of a frame of the reader that was made of rows in the driver; None of any other frame."""
        ...

    def planned(
        self,
        frame: DataFrame,
        at_most: int,
        *,
        cached: bool = False,
        keys: DataFrame | None = None,
        unique: bool = True,
    ) -> RowSet:
        """Returns a frame that is computed when it is written.

        Args:
            frame: the rows.
            at_most: an upper bound of their number.
            cached: whether its input is cached.
            keys: a frame with their key columns, if it is cheaper to compute than the rows.
            unique: whether there is one row per key; if not, any of them is written.
        """
        ...

    def held(self, rows: pa.Table, columns: Sequence[tuple[str, str]]) -> RowSet:
        """Returns rows that are in the driver; `columns` are their names and types."""
        ...

    def on_release(self, free: Callable[[], None]) -> None:
        """Registers a function that is called when the run needs its frames no more."""
        ...


class RunLimits(Protocol):
    """The numbers of rows up to which rows are read and written in one way, and above which in another."""

    @property
    def sizes(self) -> Any:
        """The sizes at which rows are found in another way (`fk_pipeline.store.sizes.Sizes`)."""
        ...

    @property
    def in_driver(self) -> int:
        """The largest number of rows that are brought to the driver."""
        ...

    def lookup_limit(self, changes: int, name: str) -> int:
        """Chooses the strategy of the stage for a number of changed rows of a table.

        Returns:
            The number of rows up to which they are looked up by their keys; below 0 if no rows are looked up.
        """
        ...

    def fits_memory(self, name: str) -> bool:
        """Returns whether a table is small enough for Spark to keep in memory for a join."""
        ...

    def names_keys(self, name: str, number: int) -> bool:
        """Returns whether a commit to a table can name the keys of `number` rows, more than the driver collects."""
        ...


class TableFacts(Protocol):
    """What is known about a table without reading its rows."""

    @property
    def declared(self) -> Any:
        """Its columns and keys (`fk_pipeline.store.schemas.Table`)."""
        ...

    @property
    def version(self) -> int | None:
        """The version that the run reads; None if there is no table; negative where it is read as not existing."""
        ...

    def fix(self) -> None:
        """Fixes the version that the run reads, if there is a table."""
        ...

    @property
    def is_newest(self) -> bool:
        """Whether there is no newer version than the one that the run reads."""
        ...

    @property
    def rows(self) -> int:
        """The number of rows of its newest version."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the commit that made its rows carries (`effects.Upsert.metadata`); empty if it is not known.

        It is not known if the commit was made by a run that had read an older version than that before the commit.
        """
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
    def history(self) -> History:
        """The ledger's knowledge of these batches."""
        ...

    @property
    def evaluator(self) -> Any:
        """The evaluator of the expressions of the pipeline file (`fk_pipeline.spec.failing.Evaluator`)."""
        ...

    @property
    def frames(self) -> Frames:
        """Makes the row sets of the run from frames."""
        ...

    @property
    def limits(self) -> RunLimits:
        """The limits of the run."""
        ...

    def about(self, name: str) -> TableFacts:
        """Returns what is known about a table."""
        ...

    def seen(self, name: str) -> Any:
        """Returns the version (`cdc.table_versions.Seen`) of a table that the run reads; None if there is no table.

        Of an input that is read where it lies it is the newest that was found.
        """
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
