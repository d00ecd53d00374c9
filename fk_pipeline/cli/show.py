"""Reads the rows of a table for `show`: hashes as hex, everything else as `export` writes it."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from fk_pipeline.errors import UsageError
from fk_pipeline.export import json_rows
from fk_pipeline.feed import VERSION
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.privacy import message_of
from fk_pipeline.store import schemas as s

BATCH_COLUMNS = (s.BATCH, s.APPLIED_IN, "batch")
"""The columns that may hold the batch of a row, in order of preference."""


def rows_of(
    pipeline: Pipeline, table: str, batch: int | None, where: str | None, limit: int
) -> tuple[list[str], list[list[Any]]]:
    """Returns the column names and the rows of a table.

    Raises:
        UsageError: the table does not exist, Spark refuses the condition, or the table has no batches.
        StateError: the changes of this batch are not kept any more, or nothing was ever run.
    """
    if table == "changes":
        if batch is None:
            raise UsageError("changes are those of one batch", fix=f"show {pipeline.spec.file} changes --batch N")
        frame, batch = pipeline.changes(batch).orderBy(VERSION), None
    else:
        frame = pipeline.table(table)
    if batch is not None:
        column = next((c for c in BATCH_COLUMNS if c in frame.columns), None)
        if column is None:
            raise UsageError(f"table {table} does not know batches", fix="leave out --batch")
        frame = frame.where(F.col(column) == batch)
    try:
        if where is not None:
            frame = frame.where(where)
        rows = json_rows(frame.limit(limit))
    except PySparkException as error:
        raise UsageError(f"--where: {message_of(error, pipeline.spec)}") from None
    return frame.columns, [[row.get(name) for name in frame.columns] for row in rows]
