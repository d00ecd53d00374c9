"""What a check looks at: the tables of a pipeline at fixed versions, whole or as far as some batches touched them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import BatchId, BatchRange, Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import quote
from fk_pipeline.stages.access import StageTables, sendable
from fk_pipeline.stages.materialised import UNKNOWN, Materialised
from fk_pipeline.tables import schemas as s
from fk_pipeline.tables.ledger import Ledger
from fk_pipeline.tables.schemas import Table
from fk_pipeline.tables.settings import ONE_TASK, SMALL_ROWS, suiting
from fk_pipeline.tables.skipping import Condition, Within
from fk_pipeline.tables.warehouse import CommitInfo, empty

ABSENT = -1
"""The version of a table that is not there."""

FROM_UPSTREAM = (
    "left_changelog",
    "right_changelog",
    "right_table",
    "subscription_store",
    "subscribers",
    "responses",
    "verdicts",
    "resolved_join",
)
"""From upstream to downstream: what a stage commits while they are opened is not older than what it read."""


class Looked(StageTables):
    """The tables that the checks of a stage read, and what is due.

    Args:
        pipeline: the pipeline.
        stage: the stage whose tables are checked.
        batches: only what these touched; None for everything.
    """

    def __init__(self, pipeline: Pipeline, stage: Stage, batches: BatchRange | None = None) -> None:
        runner, ledger = pipeline.runner, pipeline.ledger()
        known = [b for b in ledger.batches if batches is None or b in batches]
        everything = BatchRange(known[0], known[-1]) if known else BatchRange.of(0)
        info = CommitInfo(pipeline.spec.name, stage, batches or everything, run_id="")  # it commits nothing
        super().__init__(runner.warehouse, ledger, runner.layout, pipeline.spec, runner.zone, stage, known, info)
        self.within = batches
        self._read_before: dict[tuple[str, int | None, Within | None], DataFrame] = {}
        self.index_fits = True
        self.due = self._open(pipeline)
        """Per stage, this one and those upstream of it, the batches whose work explains a row."""

    def _open(self, pipeline: Pipeline) -> dict[Stage, list[BatchId]]:
        """Fixes the versions of all tables, of absent ones too; says what is due.

        Raises:
            StateError: a rebuild died while its tables were swapped in.
        """
        while True:
            pipeline.refuse_half_swapped()
            swaps = len(self.ledger.rebuilds)
            # Before and after: a run that ends in between is due before, what it makes due is due after.
            before = unfinished(self.ledger, self.stage)
            for name in FROM_UPSTREAM:
                self._pin(self.table(name))
                self.versions.setdefault(name, ABSENT)
            self.ledger.refresh()
            after = unfinished(self.ledger, self.stage)
            if len(self.ledger.rebuilds) == swaps:
                return {one: sorted({*before[one], *after[one]}) for one in before}
            self.versions = {}

    def _read(self, table: Table, where: Sequence[Condition] = ()) -> DataFrame:
        if self.versions.get(table.name) == ABSENT:
            return empty(self.warehouse.session, table.columns)
        return super()._read(table, where)

    def table(self, name: str) -> Table:
        """A table by name."""
        found = self.layout.table(name)
        assert found is not None, name
        return found

    def whole(self, name: str) -> DataFrame:
        """All rows of a table."""
        return self._once(name)

    def of_batches(self, name: str, column: str) -> DataFrame:
        """The rows of a table that a batch column lays at the batches; all rows where all batches are looked at."""
        return self._once(name, None if self.within is None else Within(column, self.within))

    def _once(self, name: str, where: Within | None = None) -> DataFrame:
        """The rows of a table, the same frame every time."""
        place = name, self.versions.get(name), where
        if place not in self._read_before:
            self._read_before[place] = self._read(self.table(name), [where] if where else [])
        return self._read_before[place]

    def as_of(self, versions: Mapping[str, int]) -> Looked:
        """The same, with some tables at other versions."""
        other = copy(self)
        other.versions = {**self.versions, **versions}
        # The index was begun with the store as it was then: of an older one it may know too little.
        other.index_fits = other.versions[s.SUBSCRIPTION_STORE] == self.versions[s.SUBSCRIPTION_STORE]
        return other

    def keys(self, frame: DataFrame, at_most: int) -> Materialised:
        """Keys to look rows up by: at hand where a table is large, else computed where they are used.

        Args:
            frame: the keys.
            at_most: an upper bound of their number.
        """
        if self.small:
            return Materialised(frame, at_most, computed=True)
        return self._materialise(frame, at_most)

    def rows_of(self, name: str, keys: Materialised, columns: Mapping[str, str]) -> DataFrame:
        """At least the rows of a table with some keys; `columns` says, per column, its name in `keys`."""
        return self._rows_of(self.table(name), keys, columns)

    def touched(self, name: str, keys: Materialised, columns: Mapping[str, str], mark: str) -> DataFrame:
        """The rows of a table with some keys, and those whose batch column lays them at the batches, once each.

        Args:
            name: the table.
            keys: rows with the keys.
            columns: by key column of the table, its name in `keys`.
            mark: the batch column.
        """
        if self.small or keys.at_most > sendable(self.table(name), columns):  # the table is read once
            same = " AND ".join(f"k.{quote(n)} = t.{quote(c)}" for c, n in columns.items())
            return self.warehouse.session.sql(
                f"SELECT t.* FROM {{rows}} AS t WHERE {self.batches.predicate(f't.{mark}')} "
                f"OR EXISTS (SELECT 1 FROM {{keys}} AS k WHERE {same})",
                rows=self.whole(name),
                keys=keys.frame,
            )
        wanted = keys.frame.selectExpr(*[f"{quote(n)} AS {quote(c)}" for c, n in columns.items()]).distinct()
        marked = self._read(self.table(name), [Within(mark, self.batches)])
        return self.rows_of(name, keys, columns).unionByName(
            marked.join(F.broadcast(wanted), list(columns), "left_anti")
        )

    @cached_property
    def stored(self) -> int:
        """Rows of all tables together."""
        return self.warehouse.rows(self.table(name) for name in FROM_UPSTREAM)

    @property
    def small(self) -> bool:
        """All tables together are small: they are joined as they are."""
        return self.stored <= SMALL_ROWS

    def subscribers_of(self, changed: Materialised) -> DataFrame:
        """At least the rows of the subscription store that refer to some right rows, named as foreign keys."""
        fks = {fk: fk for fk in self.right_keys.values()}
        if self.index_fits and self.warehouse.rows([self.layout.subscribers]):
            return self._subscribers_of(changed, fks)[0]
        return self.rows_of(s.SUBSCRIPTION_STORE, changed, fks)

    def announced(self, stage: Stage) -> int:
        """At most so many rows of a state table were changed on behalf of the batches."""
        return self._announced(stage)

    @property
    def may_refuse(self) -> bool:
        """A pair of rows may be in the quarantine: the pipeline selects more than columns."""
        return not all(output.plain for output in self.spec.outputs)

    def brought(self, log_stage: Stage) -> int:
        """At most so many rows stand in a changelog for the batches."""
        return self._at_most(log_stage, lambda counts: counts.get("rows", 0))

    def answered(self) -> int:
        """At most so many answers stand in the responses for the batches."""
        return self._at_most(Stage.RESPONSES, lambda counts: sum(counts.values()))

    def _at_most(self, stage: Stage, rows: Callable[[Mapping[str, int]], int]) -> int:
        """What the last runs of a stage for the batches counted, if all of them were finished."""
        states = [self.ledger.state(stage, batch) for batch in self.known]
        finished = all(state.last_event == "succeeded" for state in states)
        return sum(rows(state.counts) for state in states) if finished else UNKNOWN

    def truncated(self, log_stage: Stage) -> bool:
        """The batches may hold a truncate: they touch every key."""
        states = [self.ledger.state(log_stage, batch) for batch in self.known]
        return any(state.attempts != state.successes or state.totals.get("truncates") for state in states)

    def settings(self) -> dict[str, str]:
        """Spark settings that suit the size of the work."""
        logs = (Stage.LEFT_CHANGELOG, Stage.RIGHT_TABLE)
        touched = max(self.answered(), *(self.brought(log) for log in logs))
        wanted = suiting(self.stored, few_of_them=self.within is not None and touched <= SMALL_ROWS)
        return wanted | ONE_TASK if self.small else wanted


def unfinished(ledger: Ledger, stage: Stage) -> dict[Stage, list[BatchId]]:
    """Per stage, this one and those upstream of it, the due batches that explain a row of its tables.

    A batch of which nothing has been read yet explains nothing: none of it stands in any table.
    """
    found = {}
    for one in (stage, *map(Stage, ledger.all_upstream(stage))):
        read_by = [one, *ledger.all_upstream(one)]
        found[one] = [b for b in ledger.due(one) if any(ledger.state(up, b).attempts for up in read_by)]
    return found
