"""The tables of one join, with the types that only Spark can tell: those of the expressions in the pipeline file."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.cdc.reader import format_of
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.frames import empty
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.stages.resolved_join import select_outputs
from fk_pipeline.store import schemas as s
from fk_pipeline.store.schemas import Table


@dataclass(frozen=True)
class Layout:
    """Every table of a foreign-key join."""

    left_changelog: Table
    right_changelog: Table
    right_table: Table
    subscription_store: Table
    subscribers: Table
    responses: Table
    resolved_join: Table
    verdicts: Table
    quarantine: Table

    def table(self, name: str) -> Table | None:
        """A table by name; None where there is none of that name."""
        return next((table for table in self.tables if table.name == name), None)

    def of(self, *names: str) -> list[Table]:
        """Some tables by name, in the order of the names."""
        found = {table.name: table for table in self.tables}
        return [found[name] for name in names]

    @property
    def tables(self) -> list[Table]:
        """All of them."""
        return [getattr(self, one.name) for one in fields(self)]

    def changelog(self, side: Side) -> Table:
        """The changelog of a side."""
        return self.left_changelog if side is Side.LEFT else self.right_changelog


def layout_of(session: SparkSession, spec: PipelineSpec) -> Layout:
    """Lets Spark analyse every expression on empty rows.

    Raises:
        PipelineFileError: Spark refuses an expression, or a foreign key has not the type of the right key.
    """
    left = _empty(session, spec, spec.left)
    right = _empty(session, spec, spec.right)
    for text, key in zip(spec.left.foreign_key, spec.right.key_columns, strict=True):
        wanted = right.schema[key.name].dataType
        found = _type(spec, left, text, "left.foreign_key")
        if found != wanted:
            raise PipelineFileError(
                f"foreign_key {text!r} is {found.simpleString()}, the right key {key.name!r} is "
                f"{wanted.simpleString()}",
                where=str(spec.file),
                fix=f"make the types equal, for example with CAST(({text}) AS {wanted.simpleString()})",
            )
    joined = left.select(F.struct("*").alias("left")).join(right.select(F.struct("*").alias("right")), F.lit(True))
    try:
        outputs = select_outputs(joined, spec).schema.fields
    except PySparkException as error:
        raise PipelineFileError(f"select: {_first_line(error)}", where=str(spec.file)) from None
    types = [(f.name, f.dataType.simpleString()) for f in outputs]
    for side in Side:
        _check_delete_when(session, spec, side)
    left_order, right_order = (_sequence_type(session, spec, side) for side in Side)
    return _layout(spec, left_order, right_order, types)


def declared_layout(spec: PipelineSpec) -> Layout:
    """The tables as far as the pipeline file alone tells: the type of an expression is `expression`."""
    types = []
    for output in spec.outputs:
        expression = parse_expression(output.sql)
        column = spec.resolve(expression.reads[0])[1] if expression.plain else None
        types.append((output.name, column.type if column else "expression"))
    orders = [
        "STRUCT<value: expression>" if spec.side(side).sequence_by else format_of(spec.side(side)).sequence_type
        for side in Side
    ]
    return _layout(spec, orders[0], orders[1], types)


def _layout(spec: PipelineSpec, left_order: str, right_order: str, types: list[tuple[str, str]]) -> Layout:
    keys = s.sensitive_names(spec)
    left, right = (s.sensitive_names(spec, side) for side in Side)

    def marked(table: Table, names: frozenset[str] = keys) -> Table:
        return replace(table, sensitive=names & {*table.names})

    return Layout(
        marked(s.left_changelog(spec, left_order, format_of(spec.left).has_holes), left),
        marked(s.right_changelog(spec, right_order, format_of(spec.right).has_holes), right),
        marked(s.right_table(spec, right_order), right),
        marked(s.subscription_store(spec, left_order)),
        marked(s.subscribers(spec)),
        marked(s.responses(spec)),
        marked(s.resolved_join(spec, types), keys | spec.sensitive_outputs),
        marked(s.verdicts(spec)),
        s.quarantine(),
    )


def _empty(session: SparkSession, spec: PipelineSpec, side: SideSpec) -> DataFrame:
    try:
        return empty(session, [(c.name, c.type) for c in side.columns])
    except PySparkException as error:
        raise PipelineFileError(f"schema: {_first_line(error)}", where=str(spec.file)) from None


def _type(spec: PipelineSpec, frame: DataFrame, text: str, where: str) -> T.DataType:
    try:
        return frame.select(F.expr(f"({text})").alias("x")).schema["x"].dataType
    except PySparkException as error:
        raise PipelineFileError(f"{where}: {text!r}: {_first_line(error)}", where=str(spec.file)) from None


def _sequence_type(session: SparkSession, spec: PipelineSpec, side: Side) -> str:
    side_spec = spec.side(side)
    if side_spec.sequence_by is None:
        return format_of(side_spec).sequence_type
    kind = _type(spec, _empty(session, spec, side_spec), side_spec.sequence_by, f"{side}.sequence_by")
    return f"STRUCT<value: {kind.simpleString()}>"


def _check_delete_when(session: SparkSession, spec: PipelineSpec, side: Side) -> None:
    side_spec = spec.side(side)
    if side_spec.delete_when is None:
        return
    kind = _type(spec, _empty(session, spec, side_spec), side_spec.delete_when, f"{side}.delete_when")
    if kind != T.BooleanType():
        raise PipelineFileError(
            f"{side}.delete_when: {side_spec.delete_when!r} is {kind.simpleString().upper()}, not BOOLEAN",
            where=str(spec.file),
            fix="write a condition: is_deleted = 'true', deleted_at IS NOT NULL",
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
