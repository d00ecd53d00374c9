"""Reads the rows of a table for `show`: hashes as hex, everything else as `export` writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fk_pipeline.arrow_text import json_lines
from fk_pipeline.console import say_by_spark
from fk_pipeline.errors import UsageError, or_by_spark
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.reads import Order, column_of, condition, order_of
from fk_pipeline.store import schemas as s

BATCH_COLUMNS = (s.BATCH, s.APPLIED_IN, "batch")
"""The columns that may hold the batch of a row, in order of preference."""

OWN_PREFIX = "_fk_"
"""The beginning of the names of columns of our own."""

Shown = tuple[list[str], list[list[Any]]]
"""The names of columns, and rows."""


@dataclass(frozen=True)
class ShowOptions:
    """What is to be shown of a table.

    Attributes:
        table: the table, or `changes`.
        batch: only rows of this batch.
        where: only rows that meet this condition in Spark's SQL.
        columns: only these columns, with commas between them.
        order_by: rows in the order of these columns.
        everything: of the result also our own columns.
        limit: at most so many rows.
    """

    table: str
    batch: int | None = None
    where: str | None = None
    columns: str | None = None
    order_by: str | None = None
    everything: bool = False
    limit: int = 20

    def columns_of(self, pipeline: Pipeline, names: Sequence[str]) -> list[str]:
        """Returns the columns that are shown, of all columns of the table.

        Raises:
            UsageError: the table has not got one of them.
        """
        if self.columns is not None:
            return [*dict.fromkeys(column_of(name, names) for name in self.columns.split(","))]
        if self.table != pipeline.spec.definition.result.name:
            return [*names]
        users = [name for name in names if not name.startswith(OWN_PREFIX)]
        return [*users, *(name for name in names if name.startswith(OWN_PREFIX))] if self.everything else users

    def batch_column(self, names: Sequence[str]) -> str | None:
        """Returns the column with the batch of a row; None if no batch is wanted.

        Raises:
            UsageError: the table has no batches.
        """
        if self.batch is None or self.table == "changes":
            return None
        column = next((name for name in BATCH_COLUMNS if name in names), None)
        if column is None:
            raise UsageError(f"table {self.table} does not know batches", fix="leave out --batch")
        return column

    def order(self, names: Sequence[str]) -> Order:
        """Returns the columns by which the rows are ordered.

        Raises:
            UsageError: the table has not got one of them.
        """
        return [] if self.order_by is None else order_of(self.order_by, names)


def rows_of(pipeline: Pipeline, choice: ShowOptions) -> Shown:
    """Returns the column names and the rows of a table.

    Raises:
        UsageError: the table or a column does not exist, Spark refuses the condition, or the table has no batches.
        StateError: the changes of this batch are not kept any more, or nothing was ever run.
    """
    if choice.table == "changes" and choice.batch is None:
        raise UsageError("changes are those of one batch", fix=f"show {pipeline.spec.file} changes --batch N")
    return or_by_spark(lambda: read_in_process(pipeline, choice), lambda: read_by_spark(pipeline, choice), say_by_spark)


def read_in_process(pipeline: Pipeline, choice: ShowOptions) -> Shown:
    """Returns what `rows_of` does, read in this process.

    Raises:
        LeftToSpark: only Spark can read it.
    """
    from fk_pipeline.conditions import equals
    from fk_pipeline.feed import VERSION
    from fk_pipeline.store.rows_in_process import RowRequest

    of_batch = choice.table == "changes" and choice.batch is not None
    rows = pipeline.changes_in_process(int(choice.batch or 0)) if of_batch else pipeline.relation(choice.table)
    names = rows.schema.names
    columns, batch = choice.columns_of(pipeline, names), choice.batch_column(names)
    order = choice.order(names) or ([(VERSION, False)] if of_batch else [])
    where = [] if choice.where is None else [condition(choice.where, rows)]
    if batch is not None and choice.batch is not None:
        where = [equals(batch, choice.batch, rows.schema.field(batch).type), *where]
    table = rows.read(RowRequest(columns, where, order, choice.limit))
    lines = [json.loads(line) for line in json_lines(table, hexadecimal=True)]
    return columns, [[line[name] for name in columns] for line in lines]


def read_by_spark(pipeline: Pipeline, choice: ShowOptions) -> Shown:
    """Returns what `rows_of` does, read by Spark."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    from fk_pipeline.export import json_rows
    from fk_pipeline.feed import VERSION
    from fk_pipeline.privacy import message_of
    from fk_pipeline.spec import quote

    if choice.table == "changes" and choice.batch is not None:
        frame = pipeline.changes(choice.batch).orderBy(VERSION)
    else:
        frame = pipeline.table(choice.table)
    columns, order = choice.columns_of(pipeline, frame.columns), choice.order(frame.columns)
    batch = choice.batch_column(frame.columns)
    if batch is not None:
        frame = frame.where(F.col(batch) == F.lit(choice.batch))
    try:
        if choice.where is not None:
            frame = frame.where(choice.where)
        if order:
            frame = frame.orderBy(
                *[F.desc(quote(name)) if descends else F.asc(quote(name)) for name, descends in order]
            )
        rows = json_rows(frame.limit(choice.limit).select(*map(quote, columns)))
    except PySparkException as error:
        raise UsageError(f"--where: {message_of(error, pipeline.spec)}") from None
    return columns, [[row.get(name) for name in columns] for row in rows]
