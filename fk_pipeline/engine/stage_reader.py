"""The reader of one run of a stage: tables at fixed versions, the past of the batches, the choice of a strategy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fk_pipeline.blocks.landed_versions import version_read
from fk_pipeline.cdc.table_versions import Seen
from fk_pipeline.identity import BatchRange
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store.history import RunHistory
from fk_pipeline.store.planner import Planner
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.schemas import Table
from fk_pipeline.store.tables import StoredTables


class StageReader(TableReader):
    """The input of a stage; see `fk_pipeline.stage_input.Reader`."""

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
        strategy, isolating = spec.settings.strategy_of(stage.name), evaluator.isolating
        self.limits: Planner = Planner(
            warehouse, self._tables, self.versions, batches, stage, strategy, isolating=isolating
        )

    def seen(self, name: str) -> Seen | None:
        """Returns the version of a table that the run reads; of an input that lies elsewhere, the newest found."""
        return version_read(self, self.spec, self.history.ledger, name)
