"""The tables of a join, with the types that only Spark can determine: those of expressions in the pipeline file."""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.blocks.input_types import (
    check_conditions,
    check_of_one_row,
    declared_sequence_type,
    declared_type,
    empty_rows,
    output_types,
    refused,
    sequence_type,
    type_of,
)
from fk_pipeline.blocks.outputs import with_names
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.identity import SIDES
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.resolved_join import with_result_key
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec.load import file_and_line
from fk_pipeline.store import schemas as s
from fk_pipeline.store.layout import Layout
from fk_pipeline.store.schemas import Table

TIMES = ("TIMESTAMP", "BIGINT")
"""The types of the times that an expression of `as_of` and `valid_from` may have."""


def layout_of(session: SparkSession, spec: ForeignKeySpec) -> Layout:
    """Returns the tables; Spark analyses every expression of the pipeline file on empty rows.

    Raises:
        PipelineFileError: Spark refuses an expression, or the type of a foreign key is not that of the right key.
    """
    left = empty_rows(session, spec, spec.left)
    right = empty_rows(session, spec, spec.right)
    for text, key in zip(spec.left.foreign_key, spec.right.key_columns, strict=True):
        expected = right.schema[key.name].dataType
        actual = type_of(spec, left, text, "left.foreign_key")
        if actual != expected:
            raise PipelineFileError(
                f"foreign_key {text!r} is {actual.simpleString()}, the right key {key.name!r} is "
                f"{expected.simpleString()}",
                where=file_and_line(spec.file, "left.foreign_key", text),
                fix=f"make the types equal, for example with CAST(({text}) AS {expected.simpleString()})",
            )
    time = _time_type(spec, left, right)
    more = [F.lit(None).cast(time).alias(c.name) for c in spec.columns_of_validity]
    rights = right.select(F.struct("*", *more).alias("right"))
    joined = left.select(F.struct("*").alias("left")).join(rights, F.lit(True))
    types = output_types(spec, joined)
    texts, named = [o.sql for o in spec.key_outputs], with_names(joined, spec, ())
    try:
        chosen = with_result_key(_key_rows(joined, spec), spec).select(*[k.chosen(o.name) for o in spec.key_outputs])
    except PySparkException as error:
        raise refused(spec, named, texts, "result_key", error) from None
    check_of_one_row(spec, named, texts, "result_key")
    keys = [(o.name, f.dataType.simpleString()) for o, f in zip(spec.key_outputs, chosen.schema.fields, strict=True)]
    for side in SIDES:
        check_conditions(session, spec, side)
    left_order, right_order = (sequence_type(session, spec, side) for side in SIDES)
    return _layout(spec, left_order, right_order, types, keys, time)


def _time_type(spec: ForeignKeySpec, left: DataFrame, right: DataFrame) -> str:
    """Returns the type of the times that `as_of` compares.

    Raises:
        PipelineFileError: it is not TIMESTAMP or BIGINT, or those of both sides differ.
    """
    if spec.as_of is None or spec.as_of_batch:
        return spec.time_type
    since = spec.right.valid_from
    assert since is not None
    types = {"as_of": type_of(spec, left, spec.as_of, "as_of").simpleString().upper()}
    types["right.valid_from"] = (
        "TIMESTAMP"
        if spec.right.holds_since_commit
        else type_of(spec, right, since, "right.valid_from").simpleString().upper()
    )
    for name, dtype in types.items():
        if dtype not in TIMES:
            raise PipelineFileError(
                f"{name} is {dtype}, which is no time",
                where=file_and_line(spec.file, name, ""),
                fix="make both TIMESTAMP, or both BIGINT, for example with CAST",
            )
    if len({*types.values()}) > 1:
        raise PipelineFileError(
            f"as_of is {types['as_of']}, right.valid_from is {types['right.valid_from']}",
            where=file_and_line(spec.file, "as_of", ""),
            fix="make the types equal, for example with CAST",
        )
    fitting, written = (int, "a whole number") if types["as_of"] == "BIGINT" else (str, "a span of time, 90 days")
    if not isinstance(spec.history, fitting | None):
        raise PipelineFileError(
            f"as_of is {types['as_of']}, and history is {spec.history!r}",
            where=file_and_line(spec.file, "history", ""),
            fix=f"write {written}",
        )
    return types["as_of"]


def _key_rows(joined: DataFrame, spec: ForeignKeySpec) -> DataFrame:
    """Returns joined rows as those of the result have their keys: `_fk_pk_*` and `_fk_fk_*`."""
    pks = [F.col("left")[c.name].alias(k.pk(c.name)) for c in spec.left.key_columns]
    return joined.select(*pks, *[F.col("right")[c.name].alias(k.fk(c.name)) for c in spec.right.key_columns])


def foreign_key_of_filled_rows(spec: ForeignKeySpec) -> list[str]:
    """Returns what a left row subscribes to, if the left format may leave out values, which are filled later."""
    if not format_of(spec.left).has_holes:
        return []
    return [*spec.left.foreign_key, *([] if spec.as_of is None or spec.as_of_batch else [spec.as_of])]


def declared_layout(spec: ForeignKeySpec) -> Layout:
    """Returns the tables as far as the pipeline file alone tells: the type of an expression is `expression`."""
    types, keys = ([(o.name, declared_type(spec, o)) for o in outputs] for outputs in (spec.outputs, spec.key_outputs))
    orders = [declared_sequence_type(spec.side(side)) for side in SIDES]
    return _layout(spec, orders[0], orders[1], types, keys, spec.time_type)


def _layout(
    spec: ForeignKeySpec,
    left_order: str,
    right_order: str,
    types: list[tuple[str, str]],
    key_types: list[tuple[str, str]],
    time: str,
) -> Layout:
    keys = k.sensitive_names(spec)
    left, right = (k.sensitive_names(spec, side) for side in SIDES)

    def marked(table: Table, names: frozenset[str] = keys) -> Table:
        return replace(table, sensitive=names & {*table.names})

    tables = (
        marked(k.left_changelog(spec, left_order, format_of(spec.left).has_holes), left),
        marked(k.right_changelog(spec, right_order, format_of(spec.right).has_holes, time), right),
        marked(k.right_table(spec, right_order, time), right),
        marked(k.subscription_store(spec, left_order, time)),
        marked(k.subscribers(spec, time)),
        marked(k.responses(spec, time)),
        marked(k.resolved_join(spec, types, key_types), keys | spec.sensitive_outputs | k.sensitive_chosen(spec)),
        marked(k.verdicts(spec, time)),
        s.quarantine_table(),
    )
    return Layout(tables)
