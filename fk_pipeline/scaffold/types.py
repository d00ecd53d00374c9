"""The Spark type of a column: from the schema that came with the data, else from the values.

`docs/reference/formats.md` describes how a format converts a value; a type here reads every value of the sample without
loss.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from fk_pipeline.scaffold.nested import decimal_of, nested
from fk_pipeline.spec.formats import LogicalType
from fk_pipeline.spec.sql import FORBIDDEN_IN_NAMES, quote
from fk_pipeline.words import counted


@dataclass(frozen=True)
class Inferred:
    """The type of a column.

    Attributes:
        type: the Spark type, in DDL.
        logical: the way in which the source writes its values, if their text does not show it.
        doubt: the part of it that is a guess; empty if the source declares the type.
    """

    type: str
    logical: LogicalType | None = None
    doubt: str = ""


_PRIMITIVE = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "bytes": "BINARY",
}
_NAMED = {
    "io.debezium.time.Date": Inferred("DATE"),
    "io.debezium.time.IsoDate": Inferred("DATE"),
    "org.apache.kafka.connect.data.Date": Inferred("DATE"),
    "io.debezium.time.Timestamp": Inferred("TIMESTAMP", "epoch_millis"),
    "org.apache.kafka.connect.data.Timestamp": Inferred("TIMESTAMP", "epoch_millis"),
    "io.debezium.time.MicroTimestamp": Inferred("TIMESTAMP", "epoch_micros"),
    "io.debezium.time.NanoTimestamp": Inferred("TIMESTAMP", "epoch_nanos"),
    "io.debezium.time.ZonedTimestamp": Inferred("TIMESTAMP"),
    "io.debezium.time.IsoTimestamp": Inferred("TIMESTAMP"),
    "io.debezium.data.geometry.Point": Inferred("STRUCT<x: DOUBLE, y: DOUBLE>"),
    "io.debezium.data.VariableScaleDecimal": Inferred(
        "DECIMAL(38,9)", doubt="the source's numbers have no scale of their own; values are rounded to this one"
    ),
}
"""The types for logical types of Kafka Connect and of Debezium, by the `name` of a field's schema."""

_WIDEST = 38


def of_connect(field: dict[str, Any]) -> Inferred:
    """Returns the type of a field from its description in Kafka Connect's schema (`type`, `name`, `parameters`)."""
    dtype, name, parameters = field.get("type"), field.get("name"), field.get("parameters") or {}
    if name in _NAMED:
        return _NAMED[name]
    if name == "org.apache.kafka.connect.data.Decimal":
        scale = int(parameters.get("scale", 0))
        precision = int(parameters.get("connect.decimal.precision", _WIDEST))
        fits = 0 <= scale <= _WIDEST and precision <= _WIDEST
        doubt = "" if fits else f"the source has DECIMAL({precision},{scale}), Spark at most {_WIDEST} digits"
        scale = min(max(scale, 0), _WIDEST)
        return Inferred(f"DECIMAL({min(precision, _WIDEST)},{scale})", "decimal_bytes", doubt)
    if dtype == "array":
        items = of_connect(field.get("items") or {})
        if items.logical is None and items.type != "STRING":
            return Inferred(f"ARRAY<{items.type}>")
        return Inferred("ARRAY<STRING>" if items.type == "STRING" else "STRING")
    if dtype == "struct" and (fields := field.get("fields")):
        parts = {str(member.get("field")): of_connect(member) for member in fields}
        if all(part.logical is None for part in parts.values()) and not any(FORBIDDEN_IN_NAMES & {*n} for n in parts):
            return Inferred(f"STRUCT<{', '.join(f'{quote(name)}: {part.type}' for name, part in parts.items())}>")
    if dtype == "map" and (field.get("values") or {}).get("type") == "string":
        return Inferred("MAP<STRING, STRING>")
    return Inferred(_PRIMITIVE.get(str(dtype), "STRING"))


def of_arrow(dtype: Any) -> Inferred:
    """Returns the type of a column of a Parquet file or Delta table, from its Arrow type."""
    import pyarrow as pa

    is_a = pa.types
    if is_a.is_decimal(dtype):
        return Inferred(f"DECIMAL({dtype.precision},{dtype.scale})")
    if is_a.is_timestamp(dtype):
        doubt = "Spark does not read timestamps in nanoseconds" if dtype.unit == "ns" else ""
        return Inferred("TIMESTAMP" if dtype.tz else "TIMESTAMP_NTZ", doubt=doubt)
    if is_a.is_list(dtype) or is_a.is_large_list(dtype):
        return Inferred(f"ARRAY<{of_arrow(dtype.value_type).type}>")
    if is_a.is_map(dtype):
        return Inferred(f"MAP<{of_arrow(dtype.key_type).type}, {of_arrow(dtype.item_type).type}>")
    if is_a.is_struct(dtype):
        fields = ", ".join(f"`{dtype.field(i).name}`: {of_arrow(dtype.field(i).type).type}" for i in range(len(dtype)))
        return Inferred(f"STRUCT<{fields}>")
    if is_a.is_dictionary(dtype):
        return of_arrow(dtype.value_type)
    tests = (
        (is_a.is_boolean, "BOOLEAN"),
        (is_a.is_int8, "TINYINT"),
        (is_a.is_int16, "SMALLINT"),
        (is_a.is_uint8, "SMALLINT"),
        (is_a.is_int32, "INT"),
        (is_a.is_uint16, "INT"),
        (is_a.is_int64, "BIGINT"),
        (is_a.is_uint32, "BIGINT"),
        (is_a.is_uint64, "DECIMAL(20,0)"),
        (is_a.is_float32, "FLOAT"),
        (is_a.is_floating, "DOUBLE"),
        (is_a.is_date, "DATE"),
        (is_a.is_binary, "BINARY"),
        (is_a.is_large_binary, "BINARY"),
    )
    return Inferred(next((name for test, name in tests if test(dtype)), "STRING"))


_LONG = 1 << 63
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?")
_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_FRACTION = re.compile(r"-?(0|[1-9]\d*)\.(\d+)")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_NAMES_A_TIME = re.compile(r"(_at|_on|_ts|time|timestamp|date|created|updated|modified)$", re.IGNORECASE)
_NAMES_A_DATE = re.compile(r"(date|birthday|_on|_day)$", re.IGNORECASE)
_EPOCHS: tuple[tuple[LogicalType, int], ...] = (
    ("epoch_seconds", 1),
    ("epoch_millis", 10**3),
    ("epoch_micros", 10**6),
    ("epoch_nanos", 10**9),
)
_YEARS = (dt.datetime(1990, 1, 1, tzinfo=dt.UTC), dt.datetime(2100, 1, 1, tzinfo=dt.UTC))
_DAYS = range(1, 60_000)
_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_MOST_EXACT = 6
"""The largest number of digits after the point in a number that may be an exact amount."""
_NOT_EXACT = "it keeps 15 to 17 digits: DECIMAL(p,s) if it is an exact amount"


def of_values(name: str, values: Sequence[Any], *, is_text: bool, is_debezium: bool) -> Inferred:
    """Returns the type that reads all values of a column without loss.

    Args:
        name: the name of the column; numbers are taken as times only if the name also suggests it.
        values: JSON values with fractions as `Decimal`, without nulls; texts for a CSV file.
        is_text: the values are texts because their file has only texts, such as CSV.
        is_debezium: dates and times may be numbers, and exact numbers may be bytes.
    """
    if not values:
        return Inferred("STRING", doubt="only nulls in the sample")
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return Inferred("BOOLEAN")
    if kinds == {int}:
        return _of_integers(name, values, is_debezium=is_debezium)
    if kinds <= {int, Decimal}:
        return _of_fractions(values)
    if kinds <= {int, Decimal, float}:
        return Inferred("DOUBLE", doubt=f"NaN or Infinity is among the values; {_NOT_EXACT}")
    texts = [value for value in values if isinstance(value, str)]
    if kinds <= {int, Decimal, float, str} and len(texts) < len(values) and set(texts) <= _NOT_FINITE:
        return Inferred("DOUBLE", doubt=f"NaN or Infinity is among the values; {_NOT_EXACT}")
    if kinds == {dict} and all(set(value) == {"scale", "value"} for value in values):
        scale = min(max(0, *(int(value["scale"]) for value in values)), _WIDEST)
        return Inferred(f"DECIMAL({_WIDEST},{scale})", doubt="the most digits in the sample")
    if kinds & {dict, list}:
        dtype = nested(values)
        if dtype is None:
            return Inferred("STRING", doubt="the text of JSON whose values have no type in common")
        return Inferred(dtype, doubt="as far as the sample goes: other fields are left out; STRING keeps the text")
    if kinds == {str}:
        return _of_texts(values, is_text=is_text, is_debezium=is_debezium)
    if kinds <= {int, Decimal, str} and all(_NUMBER.fullmatch(str(value)) for value in values):
        return _of_texts(list(map(str, values)), is_text=True, is_debezium=is_debezium)
    return Inferred("STRING", doubt="values of several types")


def _of_integers(name: str, values: Sequence[int], *, is_debezium: bool) -> Inferred:
    if not all(-_LONG <= value < _LONG for value in values):
        return _of_large(values)
    if is_debezium and _NAMES_A_DATE.search(name) and all(value in _DAYS for value in values):
        return Inferred("DATE", doubt="numbers that look like days since 1970")
    if _NAMES_A_TIME.search(name):
        for how, per_second in _EPOCHS:
            first, last = (moment.timestamp() * per_second for moment in _YEARS)
            if all(first <= value < last for value in values):
                return Inferred(
                    "TIMESTAMP", how, doubt=f"numbers that look like {how.removeprefix('epoch_')} since 1970"
                )
    return Inferred("BIGINT")


def _of_fractions(values: Sequence[int | Decimal]) -> Inferred:
    """Returns the type of numbers, some with a fraction: DECIMAL, or DOUBLE if there are too many digits."""
    dtype = decimal_of(values)
    places = max(max(0, -int(value.as_tuple().exponent)) for value in map(Decimal, values))
    if dtype is None or places > _MOST_EXACT:
        return Inferred("DOUBLE", doubt=f"up to {counted(places, 'digit')} after the point; {_NOT_EXACT}")
    return Inferred(
        dtype, doubt=f"at most {counted(places, 'digit')} after the point; DOUBLE if it is measured, not counted"
    )


def _of_large(values: Sequence[int]) -> Inferred:
    """Returns the type of whole numbers beyond 64 bits."""
    if all(abs(value) < 10**_WIDEST for value in values):
        return Inferred(f"DECIMAL({_WIDEST},0)")
    return Inferred("STRING", doubt=f"numbers of more than {_WIDEST} digits")


def _of_texts(values: Sequence[str], *, is_text: bool, is_debezium: bool) -> Inferred:
    def all_are(pattern: re.Pattern[str]) -> bool:
        return all(pattern.fullmatch(value) for value in values)

    if all_are(_DATE) and all(map(_is_a_moment, values)):
        return Inferred("DATE")
    if all_are(_TIMESTAMP) and all(map(_is_a_moment, values)):
        return Inferred("TIMESTAMP")
    if is_text:
        if {value.lower() for value in values} <= {"true", "false"}:
            return Inferred("BOOLEAN")
        if all_are(_INTEGER):
            whole = [int(value) for value in values]
            return Inferred("BIGINT") if all(-_LONG <= value < _LONG for value in whole) else _of_large(whole)
        if all(_INTEGER.fullmatch(value) or _FRACTION.fullmatch(value) for value in values):
            return _of_fractions(list(map(Decimal, values)))
        if all_are(_NUMBER):
            return Inferred("DOUBLE", doubt=f"numbers with an exponent; {_NOT_EXACT}")
    elif is_debezium and _look_like_bytes(values):
        return Inferred(
            "STRING",
            doubt="looks like bytes in Base64: of a numeric, declare DECIMAL(p,s) and logical type decimal_bytes",
        )
    return Inferred("STRING")


def _is_a_moment(value: str) -> bool:
    """Returns whether a date or time exists in the calendar: 2024-02-31 and MySQL's 0000-00-00 do not."""
    try:
        dt.datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _look_like_bytes(values: Sequence[str]) -> bool:
    """Returns whether texts are short Base64, some with the padding that ordinary words do not have."""
    if not any(value.endswith("=") for value in values):
        return False
    try:
        return all(0 < len(base64.b64decode(value, validate=True)) <= 16 for value in values)
    except (binascii.Error, ValueError):
        return False
