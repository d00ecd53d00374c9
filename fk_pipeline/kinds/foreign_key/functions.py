"""The five stages as functions on DataFrames, for users with their own storage and orchestration.

`Pipeline` reads landing files, commits Delta tables and keeps a ledger around the same functions. Here the caller is
responsible for that: the functions take and return DataFrames, and read and write nothing. `docs/reference/python.md`
lists what the caller has to store.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import changelog, evaluate, mark_last, with_content
from fk_pipeline.blocks.state import MakeState
from fk_pipeline.blocks.versions import OUTCOME
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.cdc.records import ARRIVAL, ARRIVAL_TYPE, BAD, EVENT
from fk_pipeline.errors import UsageError
from fk_pipeline.frames import empty, join_by_key
from fk_pipeline.identity import LATE, SIDES, BatchRange, Side
from fk_pipeline.kinds.foreign_key import resolved_join as resolver
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key import unmatched_rights
from fk_pipeline.kinds.foreign_key.layout import layout_of
from fk_pipeline.kinds.foreign_key.responses import responses
from fk_pipeline.kinds.foreign_key.right_table import right_table
from fk_pipeline.kinds.foreign_key.rights import answering
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.subscription_store import subscription_store
from fk_pipeline.session import SEMANTICS
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import STOPPING
from fk_pipeline.store import schemas as s


class StageFunctions:
    """The stages of one join. `path`, `warehouse` and `settings` of its pipeline file are not used.

    Args:
        spec: the pipeline: `fk_pipeline.load(file).spec`.
        session: a Spark session; it is set to UTC and ANSI mode, and needs no Delta.

    Raises:
        UsageError: a side has a format whose order is not the order of arrival.
        PipelineFileError: Spark refuses an expression.
    """

    def __init__(self, spec: ForeignKeySpec, session: SparkSession) -> None:
        for side in SIDES:
            if format_of(spec.side(side)).sequence_type != ARRIVAL_TYPE:
                raise UsageError(
                    f"{side}.format is {spec.side(side).format}: its order is in the files, and there are none here",
                    where=str(spec.file),
                    fix=f"{side}.format: rows, with sequence_by where the order of arrival is not the right one",
                )
        for name, value in SEMANTICS.items():
            session.conf.set(name, value)
        self.spec, self.session = spec, session
        self._layout = layout_of(session, spec)

    def empty(self, table: str) -> DataFrame:
        """Returns a table of `docs/reference/tables.md` without rows: the initial state for a stage."""
        known = self._layout.table(table)
        if known is None:
            raise UsageError(f"there is no table {table!r}")
        return empty(self.session, known.columns)

    def changelog(
        self, side: Side | str, rows: DataFrame, batch: int, *, deleted: str = "FALSE", generation: int = 0
    ) -> DataFrame:
        """Returns the rows of a batch in the changelog of a side.

        Args:
            side: `left` or `right`.
            rows: the declared columns, by name; other columns are left out. One row per key, unless `sequence_by`
                determines which of several is the last. The query fails if a key is null, or if an expression of the
                pipeline file fails on a row.
            batch: its number.
            deleted: SQL condition over `rows`: the row was deleted, and only its key is used, and with `valid_from` its
                time.
            generation: how often the rows of the batch were replaced before.
        """
        side = Side(side)
        declared, keys = self.spec.side(side), {c.name for c in self.spec.side(side).key_columns}
        values = {c.name: f"CAST({c.quoted} AS {c.type})" for c in declared.columns}
        for name in keys:
            values[name] = f"COALESCE({values[name]}, RAISE_ERROR('a {side} row has no {name}, which is its key'))"
        row = ", ".join(f"{value} AS {quote(name)}" for name, value in values.items())
        records = rows.selectExpr(
            f"{int(batch)} AS batch", f"COALESCE({deleted}, FALSE) AS deleted", f"STRUCT({row}) AS row"
        ).selectExpr(
            *["batch", "deleted", "row", "'' AS file", "0 AS file_number", "0L AS block"],
            "MONOTONICALLY_INCREASING_ID() AS position",
            f"'{EVENT}' AS kind",
            "CAST(NULL AS STRING) AS reason",
            "CAST(NULL AS STRING) AS value",
            "IF(deleted, 'd', 'u') AS op",
            f"{ARRIVAL} AS sequence",
        )
        known = evaluate(records, self.spec, side)
        known = known.withColumn("kind", F.expr(f"IF(kind = '{BAD}', RAISE_ERROR('a {side} row: ' || reason), kind)"))
        log = changelog(mark_last(known, self.spec, side), self.spec, side, {int(batch): generation})
        return log.select(*map(quote, self._layout[self.spec.definition.input(side).log].names))

    def right_table(
        self,
        right_changelog: DataFrame,
        state: DataFrame,
        batches: int | BatchRange,
        generations: Mapping[int, int] | None = None,
    ) -> DataFrame:
        """Returns the rows of the right table that the batches change, for `put`.

        Args:
            right_changelog: the right changelog with all batches.
            state: the right table.
            batches: one batch or a range.
            generations: the generation of each batch whose rows were ever replaced.
        """
        return self._applied(right_table, Side.RIGHT, right_changelog, state, batches, generations)

    def subscription_store(
        self,
        left_changelog: DataFrame,
        state: DataFrame,
        batches: int | BatchRange,
        generations: Mapping[int, int] | None = None,
    ) -> DataFrame:
        """Returns the rows of the subscription store that the batches change, for `put`.

        Args:
            left_changelog: the left changelog with all batches.
            state: the subscription store.
            batches: one batch or a range.
            generations: the generation of each batch whose rows were ever replaced.
        """
        return self._applied(subscription_store, Side.LEFT, left_changelog, state, batches, generations)

    def responses(self, subscription_store: DataFrame, right_table: DataFrame, batches: int | BatchRange) -> DataFrame:
        """Returns all responses of the batches; they replace the responses of an earlier run for these batches."""
        rows = responses(subscription_store, right_table, self.spec, _range(batches))
        return rows.select(*map(quote, self._layout[k.RESPONSES].names))

    def verdicts(
        self,
        responses: DataFrame,
        subscription_store: DataFrame,
        right_table: DataFrame,
        left_changelog: DataFrame,
        result: DataFrame,
    ) -> DataFrame:
        """Returns the verdict on each response: the columns of `verdicts`, and its rows as `left` and `right`."""
        left_changelog = with_content(left_changelog, self.spec, Side.LEFT)
        rights = answering(right_table, self.spec)
        return resolver.decide(responses, subscription_store, rights, left_changelog, result, self.spec, carry=True)

    def resolved_join(self, verdicts: DataFrame) -> DataFrame:
        """Returns the rows of left rows in the result that verdicts change, for `put`.

        Args:
            verdicts: the rows that the method `verdicts` returns.

        Returns:
            The columns of `resolved_join`, and `_fk_deleted`: the row is removed from the result.
        """
        return resolver.rows_changed(resolver.rows_to_write(verdicts, self.spec), self.spec)

    def unmatched_rights(
        self, verdicts: DataFrame, right_table: DataFrame, result: DataFrame, batches: int | BatchRange
    ) -> DataFrame:
        """Returns the rows without a left row that batches change in an outer join, for one `put` with `resolved_join`.

        Args:
            verdicts: the rows that the method `verdicts` returns.
            right_table: the right table.
            result: the result, as it was for `verdicts`.
            batches: one batch or a range.

        Returns:
            The columns of the method `resolved_join`; no rows in another join.
        """
        if not self.spec.outer:
            return self.resolved_join(verdicts.limit(0))
        changed = unmatched_rights.changed_rights(right_table, _range(batches), self.spec)
        return unmatched_rights.of_tables(verdicts, changed, right_table, result, self.spec, STOPPING)

    def put(self, table: str, stored: DataFrame, changed: DataFrame) -> DataFrame:
        """Returns a table with changed rows in place of the rows with the same keys, as after a MERGE.

        Args:
            table: `right_table`, `subscription_store` or `resolved_join`.
            stored: its rows.
            changed: the rows that the method with the name of the table returns.
        """
        known = self._layout.table(table)
        if known is None or not known.keys:
            raise UsageError(f"rows are not put in place in {table!r}", fix="add a batch to a log, or replace it there")
        rows = changed.where(f"NOT {s.DELETED}") if table == k.RESOLVED_JOIN else changed
        names = [*map(quote, known.names)]
        keys, nullable = changed.select(*map(quote, known.keys)), bool(known.nullable_keys)
        stays = join_by_key(stored, keys, known.keys, "left_anti", nullable=nullable)
        return stays.select(*names).unionByName(rows.select(*names))

    def _applied(
        self,
        make: MakeState,
        side: Side,
        log: DataFrame,
        state: DataFrame,
        batches: int | BatchRange,
        generations: Mapping[int, int] | None,
    ) -> DataFrame:
        """Returns the rows of the state of a side that the batches change."""
        rows = make(with_content(log, self.spec, side), state, self.spec, _range(batches), generations or {})
        table = self._layout[self.spec.definition.state_of(side).name]
        return rows.where(F.col(OUTCOME) != LATE).select(*map(quote, table.names))


def _range(batches: int | BatchRange) -> BatchRange:
    return batches if isinstance(batches, BatchRange) else BatchRange.of(batches)
