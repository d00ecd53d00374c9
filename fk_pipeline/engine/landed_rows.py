"""The records of landing files, and the rows of the changelog that they become, computed together if they are few."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from fk_pipeline.blocks.changelog import OF_RECORD
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store.materialised import Materialised


class LandedRows:
    """The records of the files of some batches, with a mark on the last one of each key.

    Attributes:
        lines: the lines of the files with their place.
        log: the rows of the changelog, if they were computed with the records; else None.
    """

    def __init__(self, lines: DataFrame, computed: RowSet, *, with_rows: bool) -> None:
        """Takes the records.

        Args:
            lines: the lines of the files.
            computed: the records.
            with_rows: whether each has its row of the changelog beside it (`changelog.with_records`).
        """
        self.lines, self._computed, self._with_rows = lines, computed, with_rows
        self.log: RowSet | None = None
        self._local: pa.Table | None = None
        if not with_rows:
            return
        log = None
        if computed.local is not None:
            record = computed.local[OF_RECORD].combine_chunks()
            self._local = pa.Table.from_arrays(record.flatten(), names=[field.name for field in record.type])
            log = computed.local.drop_columns([OF_RECORD]).filter(self._local["last"])
        self.log = Materialised(
            lambda: computed.frame.where(f"{OF_RECORD}.last").drop(OF_RECORD), local=log, cached=True
        )

    @cached_property
    def records(self) -> DataFrame:
        """The records, for Spark."""
        return self._computed.frame.select(f"{OF_RECORD}.*") if self._with_rows else self._computed.frame

    def counts(self, batch: str, *names: str) -> dict[int, dict[tuple[Any, ...], int]]:
        """Returns, per batch, the number of records for every combination of values of some columns."""
        return Materialised(lambda: self.records, local=self._local).counts(batch, *names)
