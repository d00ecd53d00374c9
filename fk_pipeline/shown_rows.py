"""Reads the rows of a table for `show`: hashes as hex, everything else as `export` writes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fk_pipeline.arrow_text import json_lines
from fk_pipeline.errors import UsageError, or_by_spark
from fk_pipeline.readable import ReadablePipeline
from fk_pipeline.reads import Order, column_of, condition, order_of
from fk_pipeline.store import schemas as s

BATCH_COLUMNS = (s.BATCH, s.APPLIED_IN, "batch")
"""The columns that may hold the batch of a row, in order of preference."""

OWN_PREFIX = "_fk_"
"""The beginning of the names of columns of our own."""

CHANGES_TABLE = "changes"
"""The name by which the changes of the result are shown."""


@dataclass(frozen=True)
class ShownRows:
    """Rows of a table.

    Attributes:
        columns: the names of the columns.
        rows: the values of each row, in this order, as JSON has them.
    """

    columns: list[str]
    rows: list[list[Any]]

    def as_json(self) -> list[dict[str, Any]]:
        """Returns one object per row: its values by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class ShowOptions:
    """What is to be shown of a table.

    Attributes:
        table: the table, or `changes`.
        batch: only rows of this batch.
        where: only rows that meet this condition in Spark's SQL.
        columns: only these columns, with commas between them.
        order_by: rows in the order of these columns.
        everything: our own columns, too, after those of the user.
        limit: at most so many rows.
        since: of the changes those whose commits were made at this time or later.
        until: with `since`, only those made before this time.
    """

    table: str
    batch: int | None = None
    where: str | None = None
    columns: str | None = None
    order_by: str | None = None
    everything: bool = False
    limit: int = 20
    since: str | datetime | None = None
    until: str | datetime | None = None

    @property
    def of_changes(self) -> bool:
        """Whether the changes of the result are shown, and not the rows of a table."""
        return self.table == CHANGES_TABLE

    def columns_of(self, names: Sequence[str]) -> list[str]:
        """Returns the columns that are shown, of all columns of the table.

        A table that has only columns of our own shows them.

        Raises:
            UsageError: the table has not got one of them.
        """
        if self.columns is not None:
            return [*dict.fromkeys(column_of(name, names) for name in self.columns.split(","))]
        users = [name for name in names if not name.startswith(OWN_PREFIX)]
        own = [name for name in names if name.startswith(OWN_PREFIX)]
        return users + own if self.everything or not users else users

    def batch_column(self, names: Sequence[str]) -> str | None:
        """Returns the column with the batch of a row; None if no batch is wanted.

        Raises:
            UsageError: the table has no batches.
        """
        if self.batch is None or self.of_changes:
            return None
        column = next((name for name in BATCH_COLUMNS if name in names), None)
        if column is None:
            raise UsageError(f"table {self.table} does not know batches", fix="leave out --batch")
        return column

    def order(self, names: Sequence[str]) -> Order:
        """Returns the columns by which the rows are ordered; changes are in the order of their commits.

        Raises:
            UsageError: the table has not got one of them.
        """
        from fk_pipeline.feed import VERSION

        if self.order_by is not None:
            return order_of(self.order_by, names)
        return [(VERSION, False)] if self.of_changes else []


def rows_of(pipeline: ReadablePipeline, choice: ShowOptions, notify: Callable[[str], None]) -> ShownRows:
    """Returns rows of a table; `notify` is called with the reason if Spark has to read them.

    Raises:
        UsageError: the table or a column does not exist, Spark refuses the condition, the table has no batches, or a
            time is none.
        StateError: the changes are not kept any more, or nothing was ever run.
    """
    if not choice.of_changes and (choice.since is not None or choice.until is not None):
        raise UsageError(
            f"--since and --until do not choose rows of {choice.table}",
            why="they name the times of changes of the result",
            fix=f"fk-pipeline show {pipeline.spec.file} {CHANGES_TABLE} --since TIME; or leave them out",
        )
    return or_by_spark(lambda: read_in_process(pipeline, choice), lambda: read_by_spark(pipeline, choice), notify)


def read_in_process(pipeline: ReadablePipeline, choice: ShowOptions) -> ShownRows:
    """Returns what `rows_of` does, read in this process.

    Raises:
        LeftToSpark: only Spark can read it.
    """
    from fk_pipeline.conditions import equals
    from fk_pipeline.store.rows_in_process import RowRequest

    if choice.of_changes:
        rows = pipeline.changes_in_process(choice.batch, choice.since, choice.until)
    else:
        rows = pipeline.relation(choice.table)
    names = rows.schema.names
    columns, batch = choice.columns_of(names), choice.batch_column(names)
    where = [] if choice.where is None else [condition(choice.where, rows)]
    if batch is not None and choice.batch is not None:
        where = [equals(batch, choice.batch, rows.schema.field(batch).type), *where]
    table = rows.read(RowRequest(columns, where, choice.order(names), choice.limit))
    lines = [json.loads(line) for line in json_lines(table, hexadecimal=True)]
    return ShownRows(columns, [[line[name] for name in columns] for line in lines])


def read_by_spark(pipeline: ReadablePipeline, choice: ShowOptions) -> ShownRows:
    """Returns what `rows_of` does, read by Spark."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    from fk_pipeline.export import json_rows
    from fk_pipeline.privacy import message_of
    from fk_pipeline.spec import quote

    if choice.of_changes:
        frame = pipeline.changes(choice.batch, choice.since, choice.until)
    else:
        frame = pipeline.table(choice.table)
    columns, order = choice.columns_of(frame.columns), choice.order(frame.columns)
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
    return ShownRows(columns, [[row.get(name) for name in columns] for row in rows])
