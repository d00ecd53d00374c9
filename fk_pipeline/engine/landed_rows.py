"""The records of landing files, and the rows of the changelog that they become, computed together if they are few."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from fk_pipeline.blocks.changelog import RECORD
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store.materialised import Materialised


class LandedRows:
    """The records of the files of some batches, with a mark on the last one of each key.

    Attributes:
        lines: the lines of the files with their place.
        log: the rows of the changelog, if they are in the driver; else None.
    """

    def __init__(self, lines: DataFrame, computed: RowSet) -> None:
        """Takes the records.

        Args:
            lines: the lines of the files.
            computed: the records; or, each with its row of the changelog, what `changelog.with_records` returns.
        """
        self.lines, self._computed = lines, computed
        self.log: RowSet | None = None
        self._local: pa.Table | None = None
        rows = computed.local
        if rows is not None and RECORD in rows.column_names:
            record = rows[RECORD].combine_chunks()
            self._local = pa.Table.from_arrays(record.flatten(), names=[field.name for field in record.type])
            log = rows.drop_columns([RECORD]).filter(self._local["last"])
            self.log = Materialised(lambda: computed.frame.where(f"{RECORD}.last").drop(RECORD), local=log)

    @cached_property
    def records(self) -> DataFrame:
        """The records, for Spark."""
        frame = self._computed.frame
        return frame.select(f"{RECORD}.*") if RECORD in frame.columns else frame

    def counts(self, batch: str, *names: str) -> dict[int, dict[tuple[Any, ...], int]]:
        """Returns, per batch, the number of records for every combination of values of some columns."""
        return Materialised(lambda: self.records, local=self._local).counts(batch, *names)
