"""A pipeline whose tables are read: rows, changes, stories, records of the quarantine, and whether all is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fk_pipeline.answers import AnyImpact
from fk_pipeline.contract import loaded
from fk_pipeline.errors import LeftToSpark, UsageError, or_by_spark
from fk_pipeline.identity import BatchRange, Side
from fk_pipeline.opened import OpenPipeline, ranges_of
from fk_pipeline.store import LEDGER_TABLES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fk_pipeline.blocks.story import Story
    from fk_pipeline.period import Period
    from fk_pipeline.store.rows_in_process import Relation
    from fk_pipeline.verify.inputs.report import InputsReport
    from fk_pipeline.verify.report import VerifyReport


class ReadablePipeline(OpenPipeline):
    """A pipeline whose tables can be read. Nothing is changed; Spark starts only when a method needs it."""

    def table(self, name: str) -> DataFrame:
        """Returns the current rows of one of its tables; for `verdicts` also the implied verdicts.

        Raises:
            UsageError: the table does not exist.
            StateError: a rebuild died while its tables were swapped in, or nothing was ever run.
        """
        from fk_pipeline.frames import empty

        runner = self.runner
        if name in LEDGER_TABLES:
            if runner.warehouse.version(name) is not None:
                return self.session.read.format("delta").load(runner.warehouse.path(name))
            self.refuse_never_run()
            return empty(self.session, [("entry", "BIGINT")])
        self.refuse_unfinished()
        _refuse_unknown(name, runner.layout.tables)
        self.refuse_never_run()
        view = self.spec.definition.views.get(name)
        read = runner.reader()
        return read.read(name) if view is None else loaded(view)(read, self._ledger, self.spec)

    def relation(self, name: str) -> Relation:
        """Returns the current rows of one of its tables as `table` does, but read in this process; needs no Spark.

        Raises:
            LeftToSpark: only Spark can read them.
            UsageError, StateError: as with `table`; or the stored tables were made with another pipeline file.
        """
        self.check_fingerprints()
        if name not in LEDGER_TABLES:
            self.refuse_unfinished()
            _refuse_unknown(name, self.spec.definition.tables)
        self.refuse_never_run()
        return self._relation(name)

    def _relation(self, name: str) -> Relation:
        from fk_pipeline.reads import relation

        return relation(self.spec, self._ledger, self.sizes, name)

    def changes(
        self, batch: int | None = None, since: str | datetime | None = None, until: str | datetime | None = None
    ) -> DataFrame:
        """Returns the rows that runs changed in the result, as `fk_pipeline.feed.changes` has them.

        Args:
            batch: those of the runs for this batch; or
            since: those of all runs whose commits of the result were made at this time or later: a day or a time in ISO
                8601, in UTC without an offset. Apply them in the order of `_commit_version`.
            until: with `since`, only those made before this time.

        Raises:
            UsageError: neither a batch nor a time is given, or both; or a time is none.
            StateError: the changes are not kept any more, or nothing was ever run.
        """
        from fk_pipeline import feed

        period = _period(batch, since, until)
        self.refuse_never_run()
        self.refuse_unfinished()
        return feed.changes(self.runner, int(batch or 0)) if period is None else feed.changes_in(self.runner, period)

    def changes_in_process(
        self, batch: int | None = None, since: str | datetime | None = None, until: str | datetime | None = None
    ) -> Relation:
        """Returns what `changes` returns, read in this process; needs no Spark.

        Raises:
            LeftToSpark: only Spark can read them.
            UsageError, StateError: as with `changes`.
        """
        from fk_pipeline import feed_in_process as feed

        period = _period(batch, since, until)
        self.check_fingerprints()
        self.refuse_never_run()
        self.refuse_unfinished()
        given = self.spec, self._ledger, self.sizes
        return feed.changes(*given, int(batch or 0)) if period is None else feed.changes_in(*given, period)

    def export(self, file: str | Path, notify: Callable[[str], None] = lambda _: None) -> int:
        """Writes the result to a .csv, .jsonl or .parquet file, sorted by key; returns the number of rows.

        Args:
            file: the file; or a folder whose name ends in .delta, for a Delta table, or its next version.
            notify: is called with the reason if Spark has to read the result.
        """
        from fk_pipeline.export import EXPORT_ENDINGS, export, export_in_process
        from fk_pipeline.export_files import check_ending
        from fk_pipeline.privacy import concealing
        from fk_pipeline.reads import result_in_order

        target, name = Path(file), self.spec.definition.result.name
        self.refuse_never_run()
        check_ending(target, EXPORT_ENDINGS)
        with concealing(self.spec):
            return or_by_spark(
                lambda: export_in_process(result_in_order(self.relation(name), self.spec), self.spec, target),
                lambda: export(self.table(name), self.spec, target),
                notify,
            )

    def verify(self, share: float = 1.0) -> VerifyReport:
        """Compares the result with the join of the last writers of both changelogs.

        Args:
            share: the share of the left keys to compare, chosen by a hash of the key; 1 for all.

        Raises:
            StateError: the stored tables do not fit the pipeline file, nothing was ever run, or a file of a table is
                not the one that was written according to its log.
        """
        from fk_pipeline.engine.damage import refuse_damaged
        from fk_pipeline.privacy import concealing
        from fk_pipeline.store.settings import settings, suiting
        from fk_pipeline.verify.verification import verify

        self.refuse_never_run()
        self.refuse_unfinished()
        refuse_damaged(self.spec, zone=self.zone)
        proved = self.spec.definition.proved
        with self.runner.reader() as read:
            tables, suits = {name: read.read(name) for name in proved}, suiting(read.rows(*proved), self.sizes)
            with concealing(self.spec), settings(self.session, suits, optional=True):
                return verify(tables, self.due(), self.spec, self.ledger(), share)

    def verify_inputs(self, share: float | None = None) -> InputsReport:
        """Compares the landing files with the changelogs and the quarantine, by an independent reader.

        Args:
            share: the share of the batches to compare, chosen by a hash of their files' names; 1 for all. None: all of
                them, or a sample if there is much to read.

        Raises:
            StateError: as with `verify`.
        """
        from fk_pipeline.engine.damage import refuse_damaged
        from fk_pipeline.privacy import concealing
        from fk_pipeline.verify.inputs.inputs import verify_inputs

        self.refuse_never_run()
        self.refuse_unfinished()
        refuse_damaged(self.spec, zone=self.zone)
        with concealing(self.spec), self.runner.reader() as read:
            return verify_inputs(self.spec, self.ledger(), self.zone, read, share)

    def explain(self, key: str, notify: Callable[[str], None] = lambda _: None) -> Story:
        """Returns the story of one left key, in an outer join also of a right key: see `Kind.explain`.

        Args:
            key: `17`, or `a=1,b=2` if it has several columns; a right key as `right.17`.
            notify: is called with the reason if Spark has to tell it.
        """
        kind = self.spec.definition
        story: Story = _answer(self, kind.explain_in_process, kind.explain, notify, key)
        return story

    def impact(
        self,
        right_key: str | None = None,
        changes: str | Path | None = None,
        limit: int = 20,
        since: str | None = None,
        notify: Callable[[str], None] = lambda _: None,
        side: str | None = None,
    ) -> AnyImpact:
        """Returns the impact of a change of the right side, or of an input of a query: see `Kind.impact`.

        Changes nothing.

        Args:
            right_key: the key of a right row, or of a row of the input, in the form that `explain` takes; or
            changes: a file as it would land.
            limit: the largest number of right keys, or of rows of the result of a query, to report.
            since: with `as_of` and a right key, the time since which the changed version holds; default: any version.
            notify: is called with the reason if Spark has to find it.
            side: the name of the input; default: the right side, or the only input of a query.

        Raises:
            UsageError: an input is named that is not the right side, of a pipeline that is no query.
        """
        kind, file = self.spec.definition, None if changes is None else Path(changes)
        args: tuple[Any, ...] = (right_key, file, limit, since)
        if kind.named_inputs:
            args = (*args, side)
        elif side not in (None, Side.RIGHT):
            why = "only a query has inputs to choose from"
            raise UsageError(f"--input {side}: {why}", where=str(self.spec.file), fix="leave it out")
        impact: AnyImpact = _answer(self, kind.impact_in_process, kind.impact, notify, *args)
        return impact

    def quarantined(self, batches: str | Sequence[BatchRange] | None = None, side: str | None = None) -> DataFrame:
        """Returns records of the quarantine, all or some: see `fk_pipeline.quarantine.quarantined_records`."""
        from fk_pipeline.quarantine import quarantined_records
        from fk_pipeline.quarantine_in_process import refuse_no_origin

        refuse_no_origin(self.spec, side)
        self.refuse_unfinished()
        return quarantined_records(self.runner, ranges_of(batches, "--batch") or (), side)

    def quarantined_in_process(
        self, batches: str | Sequence[BatchRange] | None = None, side: str | None = None
    ) -> pa.Table:
        """Returns records of the quarantine as `quarantined` does, in Arrow; needs no Spark.

        Raises:
            LeftToSpark: only Spark can read them.
        """
        from fk_pipeline.quarantine_in_process import quarantined_records, refuse_no_origin
        from fk_pipeline.store.schemas import QUARANTINE

        ranges = ranges_of(batches, "--batch") or ()
        refuse_no_origin(self.spec, side)
        self.check_fingerprints()
        self.refuse_unfinished()
        return quarantined_records(self._relation(QUARANTINE), self.spec, ranges, side)

    def export_quarantine(
        self,
        file: str | Path,
        batches: str | Sequence[BatchRange] | None = None,
        side: str | None = None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Writes records of the quarantine to a .csv or .jsonl file, for `correct`; returns their number.

        Args:
            file: the file.
            batches: the batches whose records are written; none: all.
            side: the origin whose records are written; None: all.
            notify: is called with the reason if Spark has to read the records.
        """
        from fk_pipeline.export import write
        from fk_pipeline.export_files import check_ending, write_in_process
        from fk_pipeline.quarantine_in_process import EDITED_ENDINGS

        target = Path(file)
        check_ending(target, EDITED_ENDINGS)
        return or_by_spark(
            lambda: write_in_process(self.quarantined_in_process(batches, side), target, EDITED_ENDINGS, private=True),
            lambda: write(self.quarantined(batches, side), target, EDITED_ENDINGS, private=True),
            notify,
        )

    def changed_rows(self, batch: int) -> tuple[int, int]:
        """Returns the number of result rows whose last change was in `batch`, and the number of all result rows."""
        from fk_pipeline.store.schemas import BATCH

        result = self.table(self.spec.definition.result.name)
        return result.where(f"{BATCH} = {int(batch)}").count(), result.count()


def _period(batch: int | None, since: str | datetime | None, until: str | datetime | None) -> Period | None:
    """Returns the period whose changes are to be read; None: those of the batch.

    Raises:
        UsageError: not exactly one of batch and period is given; or a time is none.
    """
    from fk_pipeline.period import Period

    if (batch is None) == (since is None) or (since is None and until is not None):
        raise UsageError(
            "changes are those of one batch, or of a period",
            fix="give either --batch N, or --since TIME, with or without --until TIME",
        )
    return None if since is None else Period.of(since, until)


def _refuse_unknown(name: str, tables: Iterable[Any]) -> None:
    names = [*(table.name for table in tables), *LEDGER_TABLES]
    if name not in names:
        raise UsageError(f"there is no table {name!r}", fix=f"tables are {', '.join(names)}")


def _answer(pipeline: OpenPipeline, local: str, by_spark: str, tell: Callable[[str], None], *args: Any) -> Any:
    """Returns the answer of a kind.

    Args:
        pipeline: the pipeline.
        local: the function of the kind that needs no Spark (`Kind.explain_in_process`, for example); empty if it has
            none.
        by_spark: its function that Spark answers.
        tell: is called with the reason if Spark has to answer.
        args: what both functions take besides tables, pipeline file and ledger.
    """
    return or_by_spark(
        lambda: answer_in_process(pipeline, local, *args), lambda: _answer_by_spark(pipeline, by_spark, *args), tell
    )


def answer_in_process(
    pipeline: OpenPipeline, reference: str, *args: Any, tables: Callable[[str], Relation] | None = None
) -> Any:
    """Returns the answer of a function of the kind that reads the stored rows in this process.

    Args:
        pipeline: the pipeline.
        reference: the function.
        args: what it takes besides tables, pipeline file and ledger.
        tables: opens a stored table; default: as it is now. Who asks for many answers opens each once.

    Raises:
        LeftToSpark: only Spark can answer.
        UsageError, StateError: as with `ReadablePipeline.relation`.
    """
    from fk_pipeline.privacy import concealing
    from fk_pipeline.reads import stored
    from fk_pipeline.store.rows_in_process import leaving_errors

    pipeline.check_fingerprints()
    pipeline.refuse_unfinished()
    pipeline.refuse_never_run()
    spec = pipeline.spec
    if not reference:
        raise LeftToSpark(f"the kind {spec.kind} is told by Spark")
    with concealing(spec), leaving_errors():
        return loaded(reference)(tables or partial(stored, spec, pipeline.sizes), spec, pipeline.ledger(), *args)


def _answer_by_spark(pipeline: OpenPipeline, reference: str, *args: Any) -> Any:
    """Returns the answer of a function of the kind that evaluates expressions of the pipeline file by Spark."""
    from fk_pipeline.privacy import concealing
    from fk_pipeline.store.settings import GUARDED, settings, suiting

    pipeline.refuse_never_run()
    pipeline.refuse_unfinished()
    runner = pipeline.runner
    suits = suiting(runner.warehouse.rows(runner.layout.tables), pipeline.sizes)
    with (
        concealing(pipeline.spec),
        settings(pipeline.session, suits, optional=True),
        settings(pipeline.session, GUARDED),
        runner.reader() as read,
    ):
        return loaded(reference)(read, pipeline.spec, runner.ledger, *args)
