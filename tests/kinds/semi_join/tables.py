"""Names and schemas of the tables of the semi join. Source columns keep their names; left keys too."""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fk_pipeline.blocks.input_types import (
    check_conditions,
    check_of_one_row,
    declared_sequence_type,
    declared_type,
    empty_rows,
    first_line,
    sequence_type,
)
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.identity import SIDES
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.store import schemas as s
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.schemas import MERGED, Table, changelog_table, typed_columns, version_columns
from tests.kinds.semi_join.kind import LEFT_ROWS, MATCHED_ROWS, RIGHT_KEYS, reference


def key(name: str) -> str:
    """Returns the name of a component of the left key in the result."""
    return f"_fk_key_{name}"


def keys_of(spec: PipelineSpec, table: str) -> Table:
    """Returns a table with only its key columns, and the names of the sensitive columns."""
    left, right = typed_columns(spec.left.key_columns), typed_columns(spec.right.key_columns)
    result = tuple((key(name), kind) for name, kind in left)
    keys = {LEFT_ROWS: left, RIGHT_KEYS: right, MATCHED_ROWS: result}.get(table, ())
    secret = {*spec.left.sensitive, *spec.right.sensitive}
    secret |= {key(c) for c in spec.left.sensitive} | {reference(c) for c in spec.right.sensitive}
    return Table(table, keys, keys=tuple(name for name, _ in keys), sensitive=frozenset(secret))


def shown_keys(spec: PipelineSpec) -> list[str]:
    """Returns the names of the key columns of the result for people."""
    return [column.name for column in spec.left.key_columns]


def payload(spec: PipelineSpec) -> tuple[tuple[str, str], ...]:
    """Returns the columns of `left_rows` that follow the version: right key and values."""
    refers = tuple((reference(c.name), c.type) for c in spec.right.key_columns)
    return (*refers, *typed_columns(spec.left.value_columns))


def layout_of(session: SparkSession, spec: PipelineSpec) -> Layout:
    """Returns the tables, with the types that Spark finds for the expressions of `select`."""
    if spec.right_outputs:
        raise PipelineFileError("select: a semi join has left columns only", where=str(spec.file))
    left = empty_rows(session, spec, spec.left)
    try:
        rows = left.selectExpr("STRUCT(*) AS left", "*")
        outputs = rows.selectExpr(*[output.sql for output in spec.outputs]).schema.fields
    except PySparkException as error:
        raise PipelineFileError(f"select: {first_line(error)}", where=str(spec.file)) from None
    check_of_one_row(spec, rows, [output.sql for output in spec.outputs], "select")
    for side in SIDES:
        check_conditions(session, spec, side)
    orders = [sequence_type(session, spec, side) for side in SIDES]
    return _layout(spec, orders, [(f.name, f.dataType.simpleString()) for f in outputs])


def declared_layout(spec: PipelineSpec) -> Layout:
    """Returns the tables as far as the pipeline file alone tells."""
    types = [(output.name, declared_type(spec, output)) for output in spec.outputs]
    orders = [declared_sequence_type(spec.side(side)) for side in SIDES]
    return _layout(spec, orders, types)


def _layout(spec: PipelineSpec, orders: list[str], outputs: list[tuple[str, str]]) -> Layout:
    logs = [
        changelog_table(f"{side}_changelog", spec.side(side), order, format_of(spec.side(side)).has_holes)
        for side, order in zip(SIDES, orders, strict=True)
    ]
    states = [
        Table(name, (*keys_of(spec, name).columns, *version_columns(order), *values), (s.APPLIED_IN, s.OWNER),
              keys_of(spec, name).keys, MERGED)
        for name, order, values in ((LEFT_ROWS, orders[0], payload(spec)), (RIGHT_KEYS, orders[1], ()))
    ]  # fmt: skip
    keys = keys_of(spec, MATCHED_ROWS)
    columns = (*keys.columns, (s.HASH, "BINARY"), (s.BATCH, "INT"), (s.CHANGED_AT, "TIMESTAMP"), *outputs)
    feed = {**MERGED, "delta.enableChangeDataFeed": "true"}
    result = Table(MATCHED_ROWS, columns, (s.BATCH,), keys.keys, feed)
    tables = [logs[0], states[0], logs[1], states[1], result]
    secret = keys.sensitive | spec.sensitive_outputs
    marked = [replace(table, sensitive=secret & {*table.names}) for table in tables]
    return Layout((*marked, s.quarantine_table()))


def lineage(spec: PipelineSpec, stage: str) -> dict[str, list[tuple[str, str]]]:
    """Returns, per column of a stage's main table, where its values come from."""
    if stage != MATCHED_ROWS:
        return {}
    found = {key(c.name): [(LEFT_ROWS, c.name)] for c in spec.left.key_columns}
    for output in spec.outputs:
        found[output.name] = [(LEFT_ROWS, spec.resolve(r)[1].name) for r in parse_expression(output.sql).reads]
    return found


def meaning(column: str, table: str) -> str | None:
    """Returns a short meaning of a column that the kind adds."""
    return {s.HASH: "of the left row", s.BATCH: "the batch of the last change"}.get(column)
