"""The verdict on every response: the stored verdicts, and those that follow from the responses (ADR 0021)."""

from __future__ import annotations

from pyspark.sql import DataFrame

from fk_pipeline.identity import ranges_sql
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.resolved_join import decided_batches, every_verdict
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
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
    return every_verdict(responses, stored, decided, spec)
