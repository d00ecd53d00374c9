"""The reader of one run of a stage: tables at fixed versions, the past of the batches, the choice of ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fk_pipeline.effects import Messages
from fk_pipeline.identity import BatchId, BatchRange
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.stages.history import RunHistory
from fk_pipeline.store.planner import Planner
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.tables import StoredTables


class StageReader(TableReader):
    """What a stage reads: see `fk_pipeline.effects.Reader`."""

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
        """Reads for a run.

        Args:
            warehouse: where the tables lie.
            tables: the tables.
            spec: the pipeline.
            history: what the ledger says of the batches.
            batches: the range that the stage runs for.
            generations: per batch the generation of its partition.
            evaluator: evaluates the expressions of the pipeline file.
        """
        super().__init__(warehouse, tables, batches)
        self.spec, self.history, self.generations, self.evaluator = spec, history, generations, evaluator
        stage = spec.definition.stage(history.stage)
        self.planner = Planner(stage, spec.settings.strategy_of(stage.name), self, isolating=evaluator.isolating)

    @property
    def known(self) -> Sequence[BatchId]:
        """The batches of the range."""
        return self.history.known

    def lookup_limit(self, changes: int, name: str) -> int:
        """Chooses how the stage goes about so many changed rows of a table; the rows up to which to look them up."""
        return self.planner.lookup_limit(changes, name)

    def fits_memory(self, name: str) -> bool:
        """Spark may hold a table in memory to join it."""
        return self.warehouse.bytes(self.table_of(name)) <= self.sizes.broadcast_bytes

    def names_keys(self, name: str, number: int) -> bool:
        """A commit to a table may name the keys of so many rows, more than are brought to the driver."""
        return max(self.few, 0) < number <= self.warehouse.nameable(self.table_of(name))

    def unchanged_since(self, messages: Messages, stages: Sequence[str], tables: Sequence[str]) -> bool:
        """Some tables are as they were when messages were computed from them: none of these is stale.

        The ledger says so, asked after the versions of the tables are fixed: no run of their stages has started since,
        and none was under way. The versions must be the same as well; that alone would not do (rule 8).
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
        """No partition of the log of a stage that reads landing files was ever rewritten.

        The ledger is asked after the version of the log is fixed, and says so before a partition is rewritten.
        """
        self.pin(self._log(stage))
        self.history.ledger.refresh()
        return not self.history.ledger.runs.generations(stage)

    def has_one_version_per_key(self, stage: str, state: str) -> bool:
        """The batches are all there is in the log of a stage, and every row of it is the current one of its key.

        One row per key in the state and as many in the log, of which nothing was truncated.
        """
        log, ledger = self._log(stage), self.history.ledger
        states = [ledger.state(stage, batch) for batch in ledger.batches]
        if any(one.attempts != one.successes or one.totals.get("truncates") for one in states):
            return False
        pinned = all(self.warehouse.version(name) == self.versions.get(name) for name in (log, state))
        return pinned and self.history.rows_read(stage) == self.rows(log) == self.rows(state)

    def _log(self, stage: str) -> str:
        """The log of a stage that reads landing files."""
        kind = self.spec.definition
        return next(one.log for one in kind.inputs if one.stage == stage)
