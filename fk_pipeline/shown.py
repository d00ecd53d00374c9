"""A pipeline as people look at it: its state, rows of its tables, its quarantine, its report, itself in a notebook."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fk_pipeline.errors import or_by_spark
from fk_pipeline.identity import BatchRange
from fk_pipeline.readable import ReadablePipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fk_pipeline.quarantine_in_process import QuarantineListing
    from fk_pipeline.report.document import Document
    from fk_pipeline.shown_rows import ShownRows
    from fk_pipeline.status import Status


class ShownPipeline(ReadablePipeline):
    """A pipeline whose state and rows are shown. Nothing is changed; Spark starts only when a method needs it."""

    def __repr__(self) -> str:
        from fk_pipeline.report.notebook import line_of

        return line_of(self)

    def _repr_html_(self) -> str:
        from fk_pipeline.report.notebook import html_of

        return html_of(self)

    def status(self, *, sizes: bool = False) -> Status:
        """Returns what the result has, per batch and stage what is done, due or failed, and totals; needs no Spark.

        Args:
            sizes: whether also the files and bytes of every table.

        Raises:
            StateError, PipelineFileError, LandingError: as with `look`.
        """
        from fk_pipeline.status import status_of

        return status_of(self, sizes=sizes)

    def result(self) -> DataFrame:
        """Returns the rows of the result, with the columns of `select` and none of our own.

        Raises:
            StateError: as with `table`.
        """
        from fk_pipeline.spec import quote

        names = [quote(output.name) for output in self.spec.outputs]
        return self.table(self.spec.definition.result.name).select(*names)

    def show(
        self,
        table: str | None = None,
        batch: int | None = None,
        where: str | None = None,
        columns: str | None = None,
        order_by: str | None = None,
        limit: int = 20,
        *,
        everything: bool = False,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> ShownRows:
        """Returns rows of a table with values as JSON has them, read without Spark where that is possible.

        Args:
            table: the table, or `changes`; default: the result.
            batch: only rows of this batch.
            where: only rows that meet this condition in Spark's SQL.
            columns: only these columns, with commas between them, in this order.
            order_by: in the order of these columns, with commas between them, each may have DESC.
            limit: at most so many rows.
            everything: our own columns, too, after those of the user. A table without columns of the user has them.
            since: of `changes`, without a batch: from which time on, as `changes` takes it.
            until: with `since`, up to which time.
            notify: is called with the reason if Spark has to read the rows.

        Raises:
            UsageError: the table or a column does not exist, Spark refuses the condition, the table has no batches, or
                a time is none.
            StateError: the changes are not kept any more, or nothing was ever run.
        """
        from fk_pipeline.shown_rows import ShowOptions, rows_of

        name = self.spec.definition.result.name if table is None else table
        choice = ShowOptions(name, batch, where, columns, order_by, everything, limit, since, until)
        return rows_of(self, choice, notify)

    def quarantine(
        self,
        batches: str | Sequence[BatchRange] | None = None,
        side: str | None = None,
        limit: int = 20,
        notify: Callable[[str], None] = lambda _: None,
    ) -> QuarantineListing:
        """Returns the number of records in the quarantine, the most frequent reasons, and the first records.

        Args:
            batches: only those of these batches, for example `3,7,9..12`.
            side: only those of this input.
            limit: at most so many records, and so many reasons.
            notify: is called with the reason if Spark has to read the records.
        """
        from fk_pipeline import quarantine_in_process

        def by_spark() -> QuarantineListing:
            from fk_pipeline.quarantine import listing

            return listing(self.quarantined(batches, side), limit)

        return or_by_spark(
            lambda: quarantine_in_process.listing(self.quarantined_in_process(batches, side), limit), by_spark, notify
        )

    def report(self, file: str | Path | None = None) -> Document:
        """Returns what a report tells: state, lineage, batches, checks, the rows that changed last; needs no Spark.

        Args:
            file: where to write the page, too; default: nowhere.

        Raises:
            StateError: nothing was ever run, or the ledger is damaged.
        """
        from fk_pipeline.privacy import concealing
        from fk_pipeline.report.document import Effort, document_of, facts_of

        begun = time.monotonic()
        with concealing(self.spec):
            self.refuse_never_run()
            document = document_of([facts_of(self, Effort())], begun)
        if file is not None:
            from fk_pipeline.report.files import write_page
            from fk_pipeline.report.page import page_of

            write_page(page_of(document), str(file))
        return document
