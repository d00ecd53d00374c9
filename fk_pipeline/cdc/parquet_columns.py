"""The columns of a Parquet file that are read: those that are declared, with the types that Spark gives them.

Spark refuses a file with a column whose type it does not know, or with two names that differ in case only, if it reads
all columns. So it gets the columns to read, from the footer of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
import sqlglot
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type
from sqlglot import exp

from fk_pipeline.environment import storage
from fk_pipeline.errors import LandingError, UnreadableFileError
from fk_pipeline.spec.sql import DIALECT

_UNKNOWN = (pt.is_time, pt.is_interval, pt.is_float16, pt.is_decimal256)
_STORED_AS: tuple[tuple[Callable[[pa.DataType], bool], T.DataType], ...] = (
    (pt.is_uint8, T.ShortType()),
    (pt.is_uint16, T.IntegerType()),
    (pt.is_uint32, T.LongType()),
    (pt.is_uint64, T.DecimalType(20, 0)),
    (pt.is_duration, T.LongType()),
    (pt.is_fixed_size_binary, T.BinaryType()),
    (pt.is_binary_view, T.BinaryType()),
    (pt.is_string_view, T.StringType()),
)
"""The types of Spark that are other than those of the same values in Arrow."""


@dataclass(frozen=True)
class FileColumns:
    """The columns of a file.

    Attributes:
        read: the declared columns that it has, under their names in the file, with their types in Spark.
        names: the names of all its columns.
    """

    read: T.StructType
    names: tuple[str, ...]


def columns_of(path: str, requested: Mapping[str, str], types: Mapping[str, str]) -> FileColumns:
    """Returns the columns of a file, from its footer.

    Args:
        path: the file.
        requested: the columns to read: per name in lower case, the declared name.
        types: per name in lower case, the declared type: of a struct only declared fields are read.

    Raises:
        LandingError: Spark does not read a declared column: by its type, or because two columns have its name.
        UnreadableFileError: the file is not Parquet.
    """
    schema, leaves = _footer(path)
    hidden = [leaf.path for leaf in leaves if _hides(leaf)]
    fields: list[T.StructField] = []
    for field in schema:
        name = field.name.lower()
        if name not in requested:
            continue
        same = [other.name for other in schema if other.name.lower() == name]
        if len(same) > 1:
            raise LandingError(
                f"columns {' and '.join(same)} differ in case only",
                where=path,
                why=f"which of them is {requested[name]} is not known; nothing of the batch was applied",
                fix="write the file with one of them",
            )
        if pt.is_null(field.type):
            continue
        dtype = field.type
        if pt.is_nested(dtype):
            texts = iter([str(leaf.logical_type) == "Enum" for leaf in leaves if leaf.path.split(".")[0] == field.name])
            dtype = _clipped(_with_texts(dtype, texts), _tree(types.get(name, "STRING")))
        known = None if any(_is_within(leaf, field.name, dtype) for leaf in hidden) else _in_spark(dtype)
        if known is None:
            raise _not_read(field, path)
        fields.append(T.StructField(field.name, known))
    return FileColumns(T.StructType(fields), tuple(schema.names))


def _footer(path: str) -> tuple[pa.Schema, list[pq.ColumnSchema]]:
    """Returns the columns of a file, and the values within them."""
    try:
        with storage.opened(path) as stream:
            file = pq.ParquetFile(stream)
            return file.schema_arrow.remove_metadata(), [*file.schema]
    except (OSError, pa.ArrowException) as error:
        raise UnreadableFileError(
            "the file cannot be read as Parquet",
            where=path,
            why=str(error).strip().splitlines()[0],
            fix="replace it by a whole one, or take it out of the landing folder; nothing of its batch was applied",
        ) from None


def _hides(leaf: pq.ColumnSchema) -> bool:
    """Returns whether Spark does not read a value, though it reads other values of the same type in Arrow."""
    logical = str(leaf.logical_type)
    return (leaf.physical_type == "INT64" and "timeUnit=nanoseconds" in logical) or logical in ("Interval", "UUID")


def _is_within(leaf: str, name: str, dtype: pa.DataType) -> bool:
    """Returns whether the path of a value leads into a column, and there to a field that is read."""
    first, *rest = leaf.split(".")
    return first == name and (not pt.is_struct(dtype) or rest[0] in {field.name for field in dtype})


def _not_read(field: pa.Field, path: str) -> LandingError:
    if pt.is_timestamp(field.type):
        what, fix = "timestamps in nanoseconds", "write microseconds (pandas: to_parquet(..., coerce_timestamps='us'))"
    else:
        what = f"values of a type that is not read: {field.type}"
        fix = "write it as a number, a text or a timestamp in microseconds; or take it out of the schema"
    return LandingError(
        f"column {field.name} has {what}",
        where=path,
        why="Spark does not read them; nothing of the batch was applied",
        fix=fix,
    )


def _tree(declared: str) -> exp.Expression:
    tree: exp.Expression = sqlglot.parse_one(f"CAST(x AS {declared})", dialect=DIALECT).args["to"]
    return tree


def _with_texts(dtype: pa.DataType, texts: Iterator[bool]) -> pa.DataType:
    """Returns a type with texts in place of the bytes of an ENUM, which Arrow does not tell apart.

    Args:
        dtype: the type.
        texts: per value within it, in the order of the file, whether it is an ENUM.
    """
    if pt.is_struct(dtype):
        return pa.struct([field.with_type(_with_texts(field.type, texts)) for field in dtype])
    if pt.is_list(dtype) or pt.is_large_list(dtype) or pt.is_fixed_size_list(dtype):
        return pa.list_(_with_texts(dtype.value_type, texts))
    if pt.is_map(dtype):
        return pa.map_(_with_texts(dtype.key_type, texts), _with_texts(dtype.item_type, texts))
    return pa.string() if next(texts, False) else dtype


def _clipped(dtype: pa.DataType, declared: exp.Expression) -> pa.DataType:
    """Returns a type without the fields of its structs that the declared type does not have."""
    named = declared.this.value if isinstance(declared, exp.DataType) else ""
    if pt.is_struct(dtype) and named == "STRUCT":
        inner = {column.this.name.lower(): column.args["kind"] for column in declared.expressions}
        fields = [field.with_type(_clipped(field.type, of)) for field in dtype if (of := inner.get(field.name.lower()))]
        return pa.struct(fields or [dtype.field(0)])  # Spark does not read a struct without fields
    if (pt.is_list(dtype) or pt.is_large_list(dtype)) and named == "ARRAY":
        return pa.list_(_clipped(dtype.value_type, declared.expressions[0]))
    if pt.is_map(dtype) and named == "MAP":
        return pa.map_(dtype.key_type, _clipped(dtype.item_type, declared.expressions[1]))
    return dtype


def _in_spark(dtype: pa.DataType) -> T.DataType | None:
    """Returns the type with which Spark reads a type of Parquet; None if it does not read it."""
    if pt.is_struct(dtype):
        inner = {field.name: _in_spark(field.type) for field in dtype}
        fields = [T.StructField(name, field_type) for name, field_type in inner.items() if field_type is not None]
        return T.StructType(fields) if len(fields) == len(inner) else None
    if pt.is_list(dtype) or pt.is_large_list(dtype) or pt.is_fixed_size_list(dtype):
        element = _in_spark(dtype.value_type)
        return None if element is None else T.ArrayType(element)
    if pt.is_map(dtype):
        key, value = _in_spark(dtype.key_type), _in_spark(dtype.item_type)
        return None if key is None or value is None else T.MapType(key, value)
    if pt.is_dictionary(dtype):
        return _in_spark(dtype.value_type)
    if isinstance(dtype, pa.BaseExtensionType):
        return _in_spark(dtype.storage_type)
    if pt.is_timestamp(dtype) and dtype.unit == "ns":  # INT96
        return T.TimestampType()
    if any(test(dtype) for test in _UNKNOWN):
        return None
    stored_as = next((spark for test, spark in _STORED_AS if test(dtype)), None)
    return from_arrow_type(dtype, prefer_timestamp_ntz=True) if stored_as is None else stored_as
