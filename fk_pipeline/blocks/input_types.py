"""What only Spark can tell of the expressions in the pipeline file: their types, and whether they are of one row."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.blocks.outputs import select_outputs, with_names
from fk_pipeline.cdc.reader import format_of
from fk_pipeline.environment.spark_life import is_lost
from fk_pipeline.errors import PipelineFileError
from fk_pipeline.failures import is_from_spark
from fk_pipeline.frames import empty
from fk_pipeline.identity import Side
from fk_pipeline.spec import Output, PipelineSpec, SideSpec
from fk_pipeline.spec.join import JoinSpec
from fk_pipeline.spec.load import file_and_line
from fk_pipeline.spec.model import UNKNOWN_TYPE
from fk_pipeline.spec.sql import parse_expression

_WRITTEN = ", written: INT"
"""DDL of what orders the rows of one commit in the files of a feed of Delta."""


def empty_rows(session: SparkSession, spec: PipelineSpec, side: SideSpec) -> DataFrame:
    """Returns an empty frame with the declared columns of an input; refuses a type that Spark does not know."""
    try:
        return empty(session, [(c.name, c.type) for c in side.columns])
    except PySparkException as error:
        raise PipelineFileError(f"schema: {first_line(error)}", where=str(spec.file)) from None


def type_of(spec: PipelineSpec, frame: DataFrame, text: str, where: str) -> T.DataType:
    """Returns the type of an expression, with or without `AS name`, over one row of a frame.

    `where` is its key in the pipeline file.

    Raises:
        PipelineFileError: Spark refuses the expression, or it is not of one row.
    """
    try:
        dtype = frame.select(F.expr(text).alias("x")).schema["x"].dataType
    except PySparkException as error:
        place = file_and_line(spec.file, where, text)
        raise PipelineFileError(f"{where}: {text!r}: {first_line(error)}", where=place) from None
    check_of_one_row(spec, frame, [text], where)
    return dtype


def output_types(spec: JoinSpec, joined: DataFrame) -> list[tuple[str, str]]:
    """Returns the columns of the result (name, type), given joined rows as `blocks.outputs` takes them.

    Raises:
        PipelineFileError: Spark refuses an expression of `select`, or one is not of one row.
    """
    texts, named = [output.sql for output in spec.outputs], with_names(joined, spec, ())
    try:
        fields = select_outputs(joined, spec).schema.fields
    except PySparkException as error:
        raise refused(spec, named, texts, "select", error) from None
    check_of_one_row(spec, named, texts, "select")
    return [(field.name, field.dataType.simpleString()) for field in fields]


def refused(
    spec: PipelineSpec, frame: DataFrame, texts: Iterable[str], where: str, error: Exception
) -> PipelineFileError:
    """Returns the error for expressions over a frame that Spark refused together.

    Raises:
        PipelineFileError: Spark refuses one of them by itself.
    """
    for text in texts:
        type_of(spec, frame, text, where)
    return PipelineFileError(f"{where}: {first_line(error)}", where=file_and_line(spec.file, where, ""))


def check_of_one_row(
    spec: PipelineSpec, frame: DataFrame, texts: Iterable[str], where: str, *, shown: str | None = None
) -> None:
    """Refuses expressions that do not give one value per row of a frame.

    Args:
        spec: the pipeline.
        frame: rows.
        texts: expressions over its columns that Spark takes in a projection, each with or without `AS name`.
        where: their key in the pipeline file.
        shown: the text in the file of which they are parts; default: they stand there themselves.

    Raises:
        PipelineFileError: there is such an expression.
    """
    computed = [text for text in texts if not parse_expression(text).plain]
    if not computed or are_of_one_row(frame, *computed):
        return
    wrong = shown or next((text for text in computed if not are_of_one_row(frame, text)), computed[0])
    raise PipelineFileError(
        f"{where}: {wrong!r} does not give one value per row: it makes rows, leaves rows out or reads other rows",
        where=file_and_line(spec.file, where, wrong),
        fix="write an expression over one row: DATE_TRUNC in place of WINDOW, which leaves out rows without a time; "
        "or count rows per window with kind: aggregate",
    )


def are_of_one_row(frame: DataFrame, *texts: str) -> bool:
    """Returns whether each of some expressions, which Spark takes in a projection, gives one value per row of a frame.

    For one that makes rows, leaves rows out or reads others, Spark changes the plan of the projection (Generate,
    Expand, Filter, Aggregate, Window). In the condition of a join it has no such plan, and refuses the expression.
    """
    single = frame.sparkSession.range(1).select(F.lit(1).alias("_fk_one"))
    try:
        _ = frame.join(single, F.expr(f"STRUCT({', '.join(texts)}) IS NULL")).schema
    except Exception as error:
        if not is_from_spark(error) or is_lost(error):
            raise
        return False
    return True


def sequence_type(session: SparkSession, spec: PipelineSpec, side: Side) -> str:
    """Returns the type of the sequence that orders the versions of an input, as its tables store it."""
    side_spec = spec.side(side)
    if side_spec.sequence_by is None:
        return format_of(side_spec).sequence_type
    dtype = type_of(spec, empty_rows(session, spec, side_spec), side_spec.sequence_by, f"{side}.sequence_by")
    return f"STRUCT<value: {dtype.simpleString()}{_WRITTEN if side_spec.feed_of_delta else ''}>"


def declared_sequence_type(side: SideSpec) -> str:
    """Returns the type of the sequence of an input as far as the pipeline file alone tells it."""
    if side.sequence_by is None:
        return format_of(side).sequence_type
    return f"STRUCT<value: expression{_WRITTEN if side.feed_of_delta else ''}>"


def declared_type(spec: JoinSpec, output: Output) -> str:
    """Returns the type of a column of the result as far as the pipeline file alone tells it."""
    expression = parse_expression(output.sql)
    return (spec.type_of(expression.reads[0]) if expression.plain else None) or UNKNOWN_TYPE


def check_conditions(session: SparkSession, spec: PipelineSpec, side: Side) -> None:
    """Refuses a `delete_when` or `where` that is not a condition.

    Raises:
        PipelineFileError: its type is not BOOLEAN.
    """
    side_spec = spec.side(side)
    for name, sql in (("delete_when", side_spec.delete_when), ("where", side_spec.where)):
        if sql is None:
            continue
        dtype = type_of(spec, empty_rows(session, spec, side_spec), sql, f"{side}.{name}")
        if dtype != T.BooleanType():
            raise PipelineFileError(
                f"{side}.{name}: {sql!r} is {dtype.simpleString().upper()}, not BOOLEAN",
                where=file_and_line(spec.file, f"{side}.{name}", sql),
                fix="write a condition: is_deleted = 'true', deleted_at IS NOT NULL",
            )


def first_line(error: Exception) -> str:
    """Returns the first line of an error, without the details that Spark adds."""
    return str(error).strip().splitlines()[0]
