"""What a case compares: the rows of a result as `show --format json` writes them, and the records of the quarantine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fk_pipeline.errors import or_by_spark
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.project import with_inline
from fk_pipeline.testing.cases import RowValues
from fk_pipeline.testing.difference import ColumnType, ResultRows, ValueType

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_BY_SPARK = {
    "decimal": ValueType.DECIMAL,
    "double": ValueType.FLOATING,
    "float": ValueType.FLOATING,
    "timestamp": ValueType.TIME,
    "timestamp_ntz": ValueType.TIME,
}
"""Per name of a type of Spark, how its values compare."""


def rows_of_result(pipeline: Any) -> ResultRows:
    """Returns the rows of the result of a pipeline, with the columns of its file, in the order of their texts."""
    names = [output.name for output in pipeline.spec.outputs]
    return or_by_spark(lambda: _in_process(pipeline, names), lambda: _by_spark(pipeline, names), lambda _: None)


def quarantined_of(pipeline: Any, opened: Callable[[PipelineSpec], Any]) -> tuple[RowValues, ...]:
    """Returns the records in the quarantine of a pipeline, and of those of its inline inputs: side, batch, reason, raw.

    Args:
        pipeline: the pipeline.
        opened: makes the pipeline of an inline input.
    """
    records: list[RowValues] = []
    for spec in with_inline([pipeline.spec]):
        if spec.definition.rejecting:
            records += _records(pipeline if spec.file == pipeline.spec.file else opened(spec))
    return tuple({name: record[name] for name in ("side", "batch", "reason", "raw")} for record in records)


def _records(pipeline: Any) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = or_by_spark(
        lambda: pipeline.quarantined_in_process().to_pylist(),
        lambda: [row.asDict() for row in pipeline.quarantined().collect()],
        lambda _: None,
    )
    return records


def _in_process(pipeline: Any, names: list[str]) -> ResultRows:
    from fk_pipeline.arrow_text import json_lines
    from fk_pipeline.store.rows_in_process import RowRequest

    table = pipeline.relation(pipeline.spec.definition.result.name).read(RowRequest(names))
    types: dict[str, ColumnType] = {field.name: _by_arrow(field.type) for field in table.schema}
    return ResultRows(_parsed(json_lines(table, hexadecimal=True)), types)


def _by_spark(pipeline: Any, names: list[str]) -> ResultRows:
    from fk_pipeline.export import json_texts
    from fk_pipeline.spec import quote

    frame = pipeline.table(pipeline.spec.definition.result.name).select(*map(quote, names))
    types: dict[str, ColumnType] = {field.name: _by_spark_type(field.dataType) for field in frame.schema.fields}
    return ResultRows(_parsed(json_texts(frame)), types)


def _parsed(lines: Iterable[str]) -> tuple[RowValues, ...]:
    return tuple(json.loads(line, parse_float=Decimal) for line in sorted(lines))


def _by_spark_type(dtype: DataType) -> ColumnType:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(dtype, StructType):
        return {field.name: _by_spark_type(field.dataType) for field in dtype.fields}
    if isinstance(dtype, (ArrayType, MapType)):
        return [_by_spark_type(dtype.elementType if isinstance(dtype, ArrayType) else dtype.valueType)]
    return _BY_SPARK.get(dtype.typeName(), ValueType.OTHER)


def _by_arrow(dtype: pa.DataType) -> ColumnType:
    if pa.types.is_struct(dtype):
        return {field.name: _by_arrow(field.type) for field in dtype}
    if pa.types.is_list(dtype) or pa.types.is_map(dtype):
        return [_by_arrow(dtype.value_type if pa.types.is_list(dtype) else dtype.item_type)]
    if pa.types.is_decimal(dtype):
        return ValueType.DECIMAL
    if pa.types.is_floating(dtype):
        return ValueType.FLOATING
    return ValueType.TIME if pa.types.is_timestamp(dtype) else ValueType.OTHER
