"""The verdict on every response: the stored verdicts, and those that follow from the responses (ADR 0021)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.identity import BatchId, ranges_sql
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.kinds.foreign_key.resolved_join import IMPLIED_SQL
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger

if TYPE_CHECKING:
    from fk_pipeline.store.reader import TableReader


def verdicts(read: TableReader, ledger: Ledger, spec: ForeignKeySpec) -> DataFrame:
    """Returns every verdict on the stored responses, with the columns of the table `verdicts`.

    Verdicts that do not stand in the table are left out for batches that a run decides, or responds to again, while the
    tables are opened.

    Args:
        read: reads the tables.
        ledger: has the decided batches.
        spec: the pipeline.
    """
    before = decided_batches(ledger)
    responses, stored = read.read(k.RESPONSES), read.read(k.VERDICTS)
    ledger.refresh()
    now = decided_batches(ledger)
    decided = ranges_sql(s.BATCH, [b for b, runs in now.items() if before.get(b) == runs], ledger.batches)
    others = responses.where(decided).join(stored, [s.BATCH, *k.pk_names(spec), s.CAUSE], "left_anti")
    return stored.unionByName(others.withColumn(k.VERDICT, F.expr(IMPLIED_SQL)))


def decided_batches(ledger: Ledger) -> dict[BatchId, tuple[int, int]]:
    """Returns the batches whose responses are stored and have verdicts.

    Per batch the value is the ledger entries of the last starts of the stages `responses` and `resolved_join`.
    """
    runs = {}
    for batch in ledger.batches:
        states = [ledger.state(stage, batch) for stage in (Stage.RESPONSES, Stage.RESOLVED_JOIN)]
        finished = all(state.last_event == "succeeded" for state in states)
        if finished and not states[0].is_unwritten and not ledger.due.has(Stage.RESOLVED_JOIN, batch):
            runs[batch] = (states[0].started, states[1].started)
    return runs
