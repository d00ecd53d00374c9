"""Types of an input that only Spark can determine: those of the expressions in the pipeline file."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.cdc.reader import format_of
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.frames import empty
from fk_pipeline.identity import Side
from fk_pipeline.spec import Output, PipelineSpec, SideSpec
from fk_pipeline.spec.join import JoinSpec
from fk_pipeline.spec.model import UNKNOWN_TYPE
from fk_pipeline.spec.sql import parse_expression


def empty_rows(session: SparkSession, spec: PipelineSpec, side: SideSpec) -> DataFrame:
    """Returns an empty frame with the declared columns of an input; refuses a type that Spark does not know."""
    try:
        return empty(session, [(c.name, c.type) for c in side.columns])
    except PySparkException as error:
        raise PipelineFileError(f"schema: {first_line(error)}", where=str(spec.file)) from None


def type_of(spec: PipelineSpec, frame: DataFrame, text: str, where: str) -> T.DataType:
    """Returns the type of an expression over the columns of a frame; `where` is its place in the pipeline file."""
    try:
        return frame.select(F.expr(f"({text})").alias("x")).schema["x"].dataType
    except PySparkException as error:
        raise PipelineFileError(f"{where}: {text!r}: {first_line(error)}", where=str(spec.file)) from None


def sequence_type(session: SparkSession, spec: PipelineSpec, side: Side) -> str:
    """Returns the type of the sequence that orders the versions of an input, as its tables store it."""
    side_spec = spec.side(side)
    if side_spec.sequence_by is None:
        return format_of(side_spec).sequence_type
    kind = type_of(spec, empty_rows(session, spec, side_spec), side_spec.sequence_by, f"{side}.sequence_by")
    return f"STRUCT<value: {kind.simpleString()}>"


def declared_sequence_type(side: SideSpec) -> str:
    """Returns the type of the sequence of an input as far as the pipeline file alone tells it."""
    return "STRUCT<value: expression>" if side.sequence_by else format_of(side).sequence_type


def declared_type(spec: JoinSpec, output: Output) -> str:
    """Returns the type of a column of the result as far as the pipeline file alone tells it."""
    expression = parse_expression(output.sql)
    return spec.resolve(expression.reads[0])[1].type if expression.plain else UNKNOWN_TYPE


def check_delete_when(session: SparkSession, spec: PipelineSpec, side: Side) -> None:
    """Refuses a `delete_when` that is not a condition.

    Raises:
        PipelineFileError: its type is not BOOLEAN.
    """
    side_spec = spec.side(side)
    if side_spec.delete_when is None:
        return
    kind = type_of(spec, empty_rows(session, spec, side_spec), side_spec.delete_when, f"{side}.delete_when")
    if kind != T.BooleanType():
        raise PipelineFileError(
            f"{side}.delete_when: {side_spec.delete_when!r} is {kind.simpleString().upper()}, not BOOLEAN",
            where=str(spec.file),
            fix="write a condition: is_deleted = 'true', deleted_at IS NOT NULL",
        )


def first_line(error: Exception) -> str:
    """Returns the first line of an error, without the details that Spark adds."""
    return str(error).strip().splitlines()[0]
