"""Names and schemas of the tables: the changelog, which version of each key counts, and the current rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from fk_pipeline.blocks.input_types import check_conditions, declared_sequence_type, empty_rows, sequence_type
from fk_pipeline.blocks.meaning import meaning_in
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.identity import Side
from fk_pipeline.kinds.table.kind import TABLE, VERSIONS, TableStage
from fk_pipeline.kinds.table.spec import TableSpec
from fk_pipeline.spec.keys import shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.schemas import MERGED, Table, changelog_table, skippable, typed_columns, version_columns


def key_columns(spec: TableSpec) -> tuple[tuple[str, str], ...]:
    """Returns (name, type) of the key columns; they have their names in every table."""
    return typed_columns(spec.input.key_columns)


def keys_of(spec: TableSpec, table: str) -> Table:
    """Returns a table with only the columns that identify a row, and the names of all sensitive columns."""
    keys = key_columns(spec) if table in (VERSIONS, TableStage.TABLE) else ()
    return Table(table, keys, keys=tuple(name for name, _ in keys), sensitive=frozenset(spec.input.sensitive))


def shown_keys(spec: TableSpec) -> list[str]:
    """Returns the names of the key columns of the result for people: their own."""
    return [name for name, _ in key_columns(spec)]


def key_of_row(spec: TableSpec, row: Mapping[str, Any]) -> str:
    """Returns the key of a row of the result as `explain` takes it."""
    return shown({c.name: row[c.name] for c in spec.input.key_columns})


def layout_of(session: SparkSession, spec: TableSpec) -> Layout:
    """Returns the tables; Spark analyses the expressions of the pipeline file.

    Raises:
        PipelineFileError: Spark refuses an expression, or a type of the schema.
    """
    empty_rows(session, spec, spec.input)
    check_conditions(session, spec, Side.INPUT)
    return _layout(spec, sequence_type(session, spec, Side.INPUT))


def declared_layout(spec: TableSpec) -> Layout:
    """Returns the tables as far as the pipeline file alone tells: not always the type of the sequence."""
    return _layout(spec, declared_sequence_type(spec.input))


def _layout(spec: TableSpec, sequence: str) -> Layout:
    keys = key_columns(spec)
    names = tuple(name for name, _ in keys)
    secret = {*spec.input.sensitive}
    if spec.input.sequence_by is not None and secret:
        secret.add("value")  # the field of a sequence that `sequence_by` gives
    made = (
        changelog_table(TableStage.CHANGELOG, spec.input, sequence, format_of(spec.input).has_holes),
        Table(  # one row per key ever seen: its version; the values are in the changelog of the batch that owns it
            VERSIONS,
            (*keys, *version_columns(sequence)),
            skip_by=(s.APPLIED_IN, s.OWNER, *skippable(keys)),
            keys=names,
            properties=MERGED,
        ),
        Table(  # one row per living key
            TableStage.TABLE,
            (
                *keys,
                (s.HASH, "BINARY"),
                (s.BATCH, "INT"),
                (s.CHANGED_AT, "TIMESTAMP"),
                *typed_columns(spec.input.value_columns),
            ),
            skip_by=(s.BATCH, *skippable(keys)),
            keys=names,
            properties={**MERGED, s.CHANGE_FEED: "true"},
        ),
        s.quarantine_table(),
    )
    return Layout(tuple(replace(table, sensitive=frozenset(secret)) for table in made))


def meaning(column: str, table: str) -> str | None:
    """Returns a short meaning of a column that the engine adds to a table; None for any other column."""
    return meaning_in(TABLE, {s.HASH: "of the whole row; null: the row is gone"}, column, table)


def lineage(spec: TableSpec, stage: str) -> dict[str, list[tuple[str, str]]]:
    """Returns, per column of a stage's main table, the (stage, column) pairs from which its values come."""
    if stage != TableStage.TABLE:
        return {}
    return {column.name: [(TableStage.CHANGELOG.value, column.name)] for column in spec.input.columns}
