"""The reader of one run of a stage: tables at fixed versions, the past of the batches, the choice of a strategy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fk_pipeline.blocks.landed_versions import newest_version
from fk_pipeline.cdc.table_versions import Seen, table_id
from fk_pipeline.effects import Messages
from fk_pipeline.identity import BatchId, BatchRange, Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store.history import RunHistory
from fk_pipeline.store.planner import Planner
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.tables import StoredTables


class StageReader(TableReader):
    """The input of a stage; see `fk_pipeline.effects.Reader`."""

    batches: BatchRange

    def __init__(
        self,
        warehouse: StoredTables,
        tables: Iterable[Table],
        spec: PipelineSpec,
        history: RunHistory,
        batches: BatchRange,
        *,
        generations: Mapping[int, int],
        evaluator: Evaluator,
    ) -> None:
        """Creates the reader of a run.

        Args:
            warehouse: the stored tables.
            tables: the tables.
            spec: the pipeline.
            history: what the ledger knows about the batches.
            batches: the range that the stage runs for.
            generations: per batch, the generation of its partition.
            evaluator: evaluates the expressions of the pipeline file.
        """
        super().__init__(warehouse, tables, batches)
        self.spec, self.history, self.generations, self.evaluator = spec, history, generations, evaluator
        stage = spec.definition.stage(history.stage)
        self.planner = Planner(stage, spec.settings.strategy_of(stage.name), self, isolating=evaluator.isolating)

    @property
    def stage(self) -> str:
        """The stage."""
        return self.history.stage

    def seen(self, name: str) -> Seen | None:
        """Returns the version of a table that the run reads; of an input that lies elsewhere, the newest found."""
        if name in self.spec.sides:
            return newest_version(self.spec, self.history.ledger, Side(name))
        self.pin(name)
        version, path = self.versions.get(name), self.warehouse.path(name)
        return None if version is None else Seen(path, table_id(f"{path}@..{version}"), version)

    @property
    def known(self) -> Sequence[BatchId]:
        """The known batches of the range."""
        return self.history.known

    def lookup_limit(self, changes: int, name: str) -> int:
        """Chooses the strategy for changed rows of a table; returns the number of rows up to which it looks them up."""
        return self.planner.lookup_limit(changes, name)

    def fits_memory(self, name: str) -> bool:
        """Returns whether a table is small enough for Spark to keep in memory for a join."""
        return self.warehouse.bytes(self.table_of(name)) <= self.sizes.broadcast_bytes

    def names_keys(self, name: str, number: int) -> bool:
        """Returns whether a commit to a table can name the keys of `number` rows, more than the driver collects."""
        return max(self.few, 0) < number <= self.warehouse.nameable(self.table_of(name))

    def unchanged_since(self, messages: Messages, stages: Sequence[str], tables: Sequence[str]) -> bool:
        """Returns whether some tables are unchanged since messages were computed from them: then no message is stale.

        The ledger is read after the versions of the tables are fixed: no run of their stages may have started since,
        and none may have been under way. The versions must be the same as well; that alone is not enough (rule 8).
        """
        for name in tables:
            self.pin(name)
        self.history.ledger.refresh()
        return (
            messages.since is not None
            and self.history.ledger.runs.unchanged_since(stages, messages.since)
            and all(read.get(name) == self.versions.get(name) for read in messages.versions for name in tables)
        )

    def never_rewritten(self, stage: str) -> bool:
        """Returns whether no partition of the log of a stage that reads landing files was ever rewritten.

        The ledger is read after the version of the log is fixed; it records a rewrite before the partition is
        rewritten.
        """
        self.pin(self._log(stage))
        self.history.ledger.refresh()
        return not self.history.ledger.runs.generations(stage)

    def has_one_version_per_key(self, stage: str, state: str) -> bool:
        """Returns whether the log of a stage has only these batches, and every row of it is the current one of its key.

        That is so if the log and the state have the same number of rows, and nothing in the log was truncated.
        """
        log, ledger = self._log(stage), self.history.ledger
        states = [ledger.state(stage, batch) for batch in ledger.batches]
        if any(one.attempts != one.successes or one.totals.get("truncates") for one in states):
            return False
        pinned = all(self.warehouse.version(name) == self.versions.get(name) for name in (log, state))
        return pinned and self.history.rows_read(stage) == self.rows(log) == self.rows(state)

    def _log(self, stage: str) -> str:
        """Returns the name of the log of a stage that reads landing files."""
        kind = self.spec.definition
        return next(one.log for one in kind.inputs if one.stage == stage)
