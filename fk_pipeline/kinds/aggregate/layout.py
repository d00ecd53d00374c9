"""The tables of an aggregate, with the types that only Spark can determine: those of expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.blocks.aggregates import computed_on_rows
from fk_pipeline.blocks.calls import calls_in
from fk_pipeline.blocks.current import CurrentRows, secret_columns
from fk_pipeline.blocks.input_types import (
    check_conditions,
    check_of_one_row,
    declared_sequence_type,
    empty_rows,
    sequence_type,
    type_of,
)
from fk_pipeline.blocks.refresh.tables import analysed_table, declared_table
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.frames import empty, sql_over
from fk_pipeline.identity import Side
from fk_pipeline.kinds.aggregate.kind import AT, AggregateStage, by
from fk_pipeline.kinds.aggregate.spec import AggregateSpec
from fk_pipeline.kinds.aggregate.windows import MICROS, Windows
from fk_pipeline.spec.load import file_and_line
from fk_pipeline.spec.model import UNKNOWN_TYPE
from fk_pipeline.spec.sql import GENERATORS, KEY_TYPES_REFUSED, parse_expression
from fk_pipeline.store import schemas as s
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.schemas import Table, changelog_table

_FLOATING = ("FLOAT", "DOUBLE")


def layout_of(session: SparkSession, spec: AggregateSpec) -> Layout:
    """Returns the tables; Spark analyses every expression of the pipeline file on empty rows.

    Raises:
        PipelineFileError: Spark refuses an expression, a group is no key, or a time is none.
    """
    rows = empty_rows(session, spec, spec.input)
    types = {by(name): _group_type(spec, rows, name) for name in spec.group_names}
    if spec.window is not None:
        types[AT] = _time_type(spec, rows)
    check_conditions(session, spec, Side.INPUT)
    sequence = sequence_type(session, spec, Side.INPUT)
    stored = _stored(spec, sequence, types)
    no_rows = empty(session, stored.columns)
    for text in spec.aggregates:
        check_of_one_row(spec, rows, computed_on_rows(text), "aggregates", shown=text)
    tables, read = {stored.name: stored}, {stored.name: no_rows}
    block = spec.block_of(AggregateStage.AGGREGATED, tables.__getitem__)
    written = "aggregates, having or select"
    for text, measure in zip(spec.aggregates, spec.measures, strict=True):
        if any(call.name in GENERATORS for call in calls_in(measure.text)):
            place = file_and_line(spec.file, "aggregates", text)
            raise PipelineFileError(f"{written}: {text!r} makes several rows of a group", where=place)
    result = analysed_table(spec, tables, block, read, hashed=True, written=written)
    groups = sql_over(
        {alias.name: no_rows for alias in block.aliases}, replace(block, keep=None, columns=block.named).of
    )
    check_of_one_row(spec, groups, [] if spec.having is None else [spec.having], "having")
    check_of_one_row(spec, groups, [output.sql for output in spec.outputs], "select")
    return _layout(spec, sequence, stored, result)


def _group_type(spec: AggregateSpec, rows: DataFrame, name: str) -> str:
    """Returns the type of a group, which must be one whose values can be told apart."""
    sql = spec.grouped_by[name]
    dtype = type_of(spec, rows, sql, "group_by").simpleString()
    base = dtype.upper().split("<")[0].split("(")[0].split(" ")[0]
    collated = " COLLATE " in dtype.upper()
    if base in KEY_TYPES_REFUSED or base in _FLOATING or collated:
        fix = f"CAST(({sql}) AS DECIMAL(18, 6))" if base in _FLOATING else f"TO_JSON({sql})"
        fix = f"LOWER(CAST({sql} AS STRING))" if collated else fix
        raise PipelineFileError(
            f"group_by {name!r} is {dtype}, whose values cannot be told apart as keys",
            where=file_and_line(spec.file, "group_by", sql),
            fix=f"group by another value, for example {fix} AS {name}",
        )
    return dtype


def _time_type(spec: AggregateSpec, rows: DataFrame) -> str:
    """Returns the type of the times of windows: TIMESTAMP or BIGINT."""
    assert spec.window is not None
    dtype = type_of(spec, rows, spec.window.time, "window.time").simpleString().upper()
    if dtype not in MICROS:
        raise PipelineFileError(
            f"window.time is {dtype}, which is no time",
            where=file_and_line(spec.file, "window.time", ""),
            fix="make it TIMESTAMP, or BIGINT (milliseconds), for example with CAST",
        )
    if dtype == "BIGINT" and spec.window.local:
        raise PipelineFileError(
            f"window.zone is {spec.window.zone}, and window.time is BIGINT",
            where=file_and_line(spec.file, "window.zone", ""),
            fix=f"make it TIMESTAMP: TIMESTAMP_MILLIS({spec.window.time})",
        )
    windows = Windows.of(spec.window, dtype)
    if not (windows.size and windows.step):
        place = file_and_line(spec.file, "window", "")
        raise PipelineFileError("window: times in milliseconds have no window shorter than that", where=place)
    return dtype


def declared_layout(spec: AggregateSpec) -> Layout:
    """Returns the tables as far as the pipeline file alone tells: the type of an expression is `expression`."""

    def declared(sql: str) -> str:
        expression = parse_expression(sql)
        return (spec.input.type_of(expression.reads[0]) if expression.plain else None) or UNKNOWN_TYPE

    types = {by(name): declared(sql) for name, sql in spec.grouped_by.items()}
    if spec.window is not None:
        types[AT] = declared(spec.window.time)
    sequence = declared_sequence_type(spec.input)
    stored = _stored(spec, sequence, types)
    tables = {stored.name: stored}
    result = declared_table(spec, tables, spec.block_of(AggregateStage.AGGREGATED, tables.__getitem__))
    return _layout(spec, sequence, stored, result)


def _stored(spec: AggregateSpec, sequence: str, types: Mapping[str, str]) -> Table:
    return CurrentRows.of(spec, Side.INPUT).table(sequence, types, secret_columns(spec, Side.INPUT))


def _layout(spec: AggregateSpec, sequence: str, stored: Table, result: Table) -> Layout:
    log = changelog_table(AggregateStage.CHANGELOG, spec.input, sequence, format_of(spec.input).has_holes)
    log = replace(log, sensitive=secret_columns(spec, Side.INPUT) & {*log.names})
    return Layout((log, stored, result, s.quarantine_table()))
