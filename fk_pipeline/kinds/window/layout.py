"""The tables of a windowed join, with the types that only Spark can determine: those of expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.blocks.current import CurrentRows, secret_columns
from fk_pipeline.blocks.input_types import (
    check_conditions,
    declared_sequence_type,
    declared_type,
    empty_rows,
    output_types,
    sequence_type,
    type_of,
)
from fk_pipeline.blocks.refresh.tables import declared_table
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.kind import TIME, WindowStage, on_columns
from fk_pipeline.kinds.window.spans import UNITS_PER_SECOND
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec.load import file_and_line
from fk_pipeline.spec.model import UNKNOWN_TYPE
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.store import schemas as s
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.schemas import changelog_table, skippable


def layout_of(session: SparkSession, spec: WindowSpec) -> Layout:
    """Returns the tables; Spark analyses every expression of the pipeline file on empty rows.

    Raises:
        PipelineFileError: Spark refuses an expression, the types of `on` differ, or a time is none.
    """
    rows = {side: empty_rows(session, spec, spec.side(side)) for side in SIDES}
    on_types = [_on_type(spec, rows, i) for i in range(len(spec.left.on))]
    time = _time_type(spec, rows)
    joined = rows[Side.LEFT].select(F.struct("*").alias("left")).join(
        rows[Side.RIGHT].select(F.struct("*").alias("right")), F.lit(True)
    )  # fmt: skip
    outputs = output_types(spec, joined)
    for side in SIDES:
        check_conditions(session, spec, side)
    orders = [sequence_type(session, spec, side) for side in SIDES]
    return _layout(spec, orders, outputs, on_types, time)


def _on_type(spec: WindowSpec, rows: dict[Side, DataFrame], i: int) -> str:
    """Returns the type of an expression of `on`, which must be the same on both sides."""
    left, right = (type_of(spec, rows[side], spec.side(side).on[i], f"{side}.on") for side in SIDES)
    if left != right:
        raise PipelineFileError(
            f"left.on {spec.left.on[i]!r} is {left.simpleString()}, right.on {spec.right.on[i]!r} is "
            f"{right.simpleString()}",
            where=file_and_line(spec.file, "left.on", spec.left.on[i]),
            fix=f"make the types equal, for example with CAST(({spec.left.on[i]}) AS {right.simpleString()})",
        )
    return left.simpleString()


def _time_type(spec: WindowSpec, rows: dict[Side, DataFrame]) -> str:
    """Returns the type of the times, which must be the same on both sides: TIMESTAMP or BIGINT."""
    dtypes = {
        side: type_of(spec, rows[side], spec.side(side).time, f"{side}.time").simpleString().upper() for side in SIDES
    }
    for side, dtype in dtypes.items():
        if dtype not in UNITS_PER_SECOND:
            raise PipelineFileError(
                f"{side}.time is {dtype}, which is no time",
                where=file_and_line(spec.file, f"{side}.time", ""),
                fix="make both TIMESTAMP, or both BIGINT (milliseconds), for example with CAST",
            )
    if dtypes[Side.LEFT] != dtypes[Side.RIGHT]:
        raise PipelineFileError(
            f"left.time is {dtypes[Side.LEFT]}, right.time is {dtypes[Side.RIGHT]}",
            where=file_and_line(spec.file, "right.time", ""),
            fix="make the types equal, for example with CAST",
        )
    return dtypes[Side.LEFT]


def declared_layout(spec: WindowSpec) -> Layout:
    """Returns the tables as far as the pipeline file alone tells: the type of an expression is `expression`."""
    orders = [declared_sequence_type(spec.side(side)) for side in SIDES]
    types = [(output.name, declared_type(spec, output)) for output in spec.outputs]
    on_types = [_declared(spec, sql) for sql in spec.left.on]
    return _layout(spec, orders, types, on_types, _declared(spec, spec.left.time))


def _declared(spec: WindowSpec, sql: str) -> str:
    expression = parse_expression(sql)
    return (spec.left.type_of(expression.reads[0]) if expression.plain else None) or UNKNOWN_TYPE


def _layout(
    spec: WindowSpec, orders: Sequence[str], outputs: list[tuple[str, str]], on_types: Sequence[str], time: str
) -> Layout:
    logs, states = [], []
    types = {**dict(zip(on_columns(spec), on_types, strict=True)), TIME: time}
    for side, order in zip(SIDES, orders, strict=True):
        rows, secret = CurrentRows.of(spec, side), secret_columns(spec, side)
        log = changelog_table(rows.log, rows.source, order, format_of(rows.source).has_holes)
        logs.append(replace(log, sensitive=secret & {*log.names}))
        states.append(rows.table(order, types, secret))
    tables = {table.name: table for table in states}
    result = declared_table(spec, tables, spec.block_of(WindowStage.RESOLVED_JOIN, tables.__getitem__))
    keys = dict([*k.part_columns(spec, Side.LEFT), *k.part_columns(spec, Side.RIGHT)])
    known_types = {**keys, **dict.fromkeys(k.HASH_OF.values(), "BINARY"), **dict(outputs)}
    result = replace(
        result,
        columns=tuple((name, known_types.get(name, dtype)) for name, dtype in result.columns),
        skip_by=(*result.skip_by, *skippable(tuple(keys.items()))),
    )
    return Layout((*logs, *states, result, s.quarantine_table()))
