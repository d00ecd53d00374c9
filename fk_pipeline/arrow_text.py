"""Writes values in Arrow as text, as Spark writes them in `fk_pipeline.export`: letter by letter, or not at all."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from json import JSONEncoder
from typing import Any

import pyarrow as pa

from fk_pipeline.errors import LeftToSpark

Text = Callable[[Any], str]
"""A function from a value, which is not null, to its text."""

_ENCODE = JSONEncoder(ensure_ascii=False).encode
_CONTROL = re.compile(r"\\.(?:[0-9a-f]{4})?")
_SINGLE = struct.Struct("<f")
_MICROS, _DAY = 1_000_000, 86_400

_CERTAIN = (1e-20, 2.0**63)
"""Between these every Java writes the same digits, but for some integers (`_by_java_17`)."""

_INSIGNIFICANT = (0, 0, *(int(n * math.log10(2)) for n in range(2, 40)))
"""By how much 17 cuts the digits of an integer with so many bits more than its type has, and one."""


def json_text(text: str) -> str:
    r"""Returns a text in JSON; control characters have capital digits.

    >>> print(json_text('a"\x1f'))
    "a\"\u001F"
    """
    written = _ENCODE(text)
    if "\\u00" not in written:
        return written
    return _CONTROL.sub(lambda match: match[0][:2] + match[0][2:].upper() if match[0][1] == "u" else match[0], written)


def double_text(value: float) -> str:
    """Returns a DOUBLE as Java's `Double.toString` writes it.

    Raises:
        LeftToSpark: versions of Java write it with different digits.

    >>> double_text(1e7), double_text(0.5), double_text(0.00012)
    ('1.0E7', '0.5', '1.2E-4')
    """
    return _floating(value, repr(abs(value)), 53)


def float_text(value: float) -> str:
    """Returns a FLOAT as Java's `Float.toString` writes it; the same as `double_text` otherwise.

    >>> float_text(0.10000000149011612)
    '0.1'
    """
    if math.isfinite(value) and value:
        stored = _SINGLE.pack(abs(value))
        for digits in range(9):
            text = f"{abs(value):.{digits}e}"
            if _packed(text) == stored:
                return _floating(value, text, 24)
    return _floating(value, repr(abs(value)), 24)


def _packed(text: str) -> bytes | None:
    try:
        return _SINGLE.pack(float(text))
    except OverflowError:
        return None


def _floating(value: float, shortest: str, bits: int) -> str:
    """Returns a number whose absolute value has a shortest text, and whose type has so many bits for its digits."""
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    if value == 0:
        return f"{sign}0.0"
    text = _by_java(*_digits(shortest))
    least, most = _CERTAIN
    if not least <= abs(value) < most or (abs(value) >= 1 << bits and text != _by_java(*_by_java_17(value, bits))):
        raise LeftToSpark("a floating-point number is written with other digits by other versions of Java")
    return sign + text


def _digits(text: str) -> tuple[str, int]:
    """Returns the digits of a positive number, without zeros at both ends, and the place of its point among them."""
    number, _, exponent = text.partition("e")
    whole, _, rest = number.partition(".")
    digits = (whole + rest).lstrip("0")
    return digits.rstrip("0"), len(whole) - (len(whole + rest) - len(digits)) + int(exponent or 0)


def _by_java_17(value: float, bits: int) -> tuple[str, int]:
    """Returns the digits of an integer as versions of Java before 19 choose them."""
    number = int(abs(value))
    more = number.bit_length() - 1 - bits
    cut = _INSIGNIFICANT[more - 1] if more > 0 else 0
    number, rest = divmod(number, 10**cut)
    number += int(cut > 0 and rest >= 10**cut // 2)
    return str(number).rstrip("0"), len(str(number)) + cut


def _by_java(digits: str, point: int) -> str:
    if -3 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    if 0 < point <= 7:
        return f"{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def date_text(days: int) -> str:
    """Returns a date, given as days since 1970; Python has only 9,999 years.

    >>> date_text(0), date_text(3663382), date_text(-719529)
    ('1970-01-01', '+12000-01-01', '-0001-12-31')
    """
    era, day = divmod(days + 719_468, 146_097)  # days since 1 March of the year 0, in cycles of 400 years
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    number = year + era * 400 + int(month >= 10)
    sign = "+" if number > 9_999 else "-" if number < 0 else ""
    return f"{sign}{abs(number):04d}-{(month + 2) % 12 + 1:02d}-{day - (153 * month + 2) // 5 + 1:02d}"


def time_text(micros: int, digits: int = 6) -> str:
    """Returns a time, given as microseconds since 1970, with 6 or 3 digits after the point.

    >>> time_text(0), time_text(-1)
    ('1970-01-01T00:00:00.000000', '1969-12-31T23:59:59.999999')
    """
    seconds, rest = divmod(micros, _MICROS)
    days, second = divmod(seconds, _DAY)
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{date_text(days)}T{clock}.{f'{rest:06d}'[:digits]}"


def json_lines(rows: pa.Table, *, hexadecimal: bool = False) -> Iterator[str]:
    """Yields one JSON object per row, as `export.texts` and TO_JSON make them; `hexadecimal`: BINARY is written so.

    Raises:
        LeftToSpark: a value is certainly written by Spark only.
    """
    names = [f"{json_text(name)}:" for name in rows.column_names]
    for part in _parts(rows):
        columns = []
        for column, field in zip(part.columns, part.schema, strict=True):
            dtype = rows.schema.field(field.name).type
            text = _hexadecimal if hexadecimal and pa.types.is_binary(dtype) else _json_of_column(dtype)
            columns.append(["null" if value is None else text(value) for value in _list(column)])
        for values in zip(*columns, strict=True):
            yield f"{{{','.join(map(''.join, zip(names, values, strict=True)))}}}"


def csv_rows(rows: pa.Table) -> Iterator[list[str | None]]:
    """Yields the texts of the fields of each row of a CSV file; None is null.

    Raises:
        LeftToSpark: a value is certainly written by Spark only.
    """
    for part in _parts(rows):
        columns = []
        for column, field in zip(part.columns, part.schema, strict=True):
            text = _csv_of_column(rows.schema.field(field.name).type)
            columns.append([None if value is None else text(value) for value in _list(column)])
        yield from map(list, zip(*columns, strict=True))


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    """Yields rows in parts, with times and dates as numbers."""
    for start in range(0, len(rows), 10_000):
        yield as_numbers(rows.slice(start, 10_000))


def _list(column: pa.ChunkedArray) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        raise LeftToSpark("a text is not UTF-8") from None
    return values


def as_numbers(rows: pa.Table) -> pa.Table:
    """Returns rows with times and dates as numbers, since 1970: Python has not all of them.

    Raises:
        LeftToSpark: they are where only Spark finds them.
    """
    schema = pa.schema([pa.field(field.name, _numbers(field.type)) for field in rows.schema])
    try:
        return rows if schema == rows.schema else rows.cast(schema)
    except pa.ArrowNotImplementedError:
        raise LeftToSpark("times in a map are written by Spark only") from None


def _numbers(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(dtype):
        return pa.int64()
    if pa.types.is_date32(dtype):
        return pa.int32()
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(field.name, _numbers(field.type)) for field in dtype])
    if pa.types.is_map(dtype):
        return pa.map_(_numbers(dtype.key_type), _numbers(dtype.item_type))
    if pa.types.is_list(dtype):
        return pa.list_(pa.field(dtype.value_field.name, _numbers(dtype.value_type)))
    return dtype


def _csv_of_column(dtype: pa.DataType) -> Text:
    if pa.types.is_string(dtype):
        return str
    if pa.types.is_nested(dtype):
        return _json_of(dtype)
    return _bare(dtype)


def _json_of_column(dtype: pa.DataType) -> Text:
    """Returns the text of values of a column: within another type some are numbers or shorter."""
    if (
        pa.types.is_decimal(dtype)
        or pa.types.is_timestamp(dtype)
        or pa.types.is_date32(dtype)
        or pa.types.is_binary(dtype)
    ):
        bare = _bare(dtype)
        return lambda value: f'"{bare(value)}"'
    return _json_of(dtype)


def _bare(dtype: pa.DataType) -> Text:
    """Returns the text of values that are in no other value, without quotes."""
    if pa.types.is_timestamp(dtype):
        zone = "" if dtype.tz is None else "Z"
        return lambda value: time_text(value) + zone
    if pa.types.is_decimal(dtype):
        return lambda value: f"{value:f}"
    if pa.types.is_date32(dtype):
        return date_text
    if pa.types.is_binary(dtype):
        return _base64
    if pa.types.is_float64(dtype):
        return double_text
    if pa.types.is_float32(dtype):
        return float_text
    return _json_of(dtype)


def _json_of(dtype: pa.DataType) -> Text:
    """Returns the text of values as TO_JSON writes them."""
    if pa.types.is_string(dtype):
        return json_text
    if pa.types.is_boolean(dtype):
        return lambda value: "true" if value else "false"
    if pa.types.is_integer(dtype):
        return str
    if pa.types.is_floating(dtype):
        bare = _bare(dtype)
        return lambda value: bare(value) if math.isfinite(value) else f'"{bare(value)}"'
    if pa.types.is_decimal(dtype):
        return _decimal
    if pa.types.is_timestamp(dtype):
        return (lambda micros: f'"{time_text(micros, 3)}"') if dtype.tz is None else lambda m: f'"{time_text(m)}Z"'
    if pa.types.is_date32(dtype) or pa.types.is_binary(dtype):
        return _json_of_column(dtype)
    if pa.types.is_struct(dtype):
        return _of_struct({field.name: _json_of(field.type) for field in dtype})
    if pa.types.is_map(dtype) and pa.types.is_string(dtype.key_type):
        item = _json_of(dtype.item_type)
        return lambda pairs: f"{{{','.join(f'{json_text(k)}:{_or_null(v, item)}' for k, v in pairs)}}}"
    if pa.types.is_list(dtype):
        element = _json_of(dtype.value_type)
        return lambda values: f"[{','.join(_or_null(value, element) for value in values)}]"
    raise LeftToSpark(f"a value of type {dtype} is written by Spark only")


def _of_struct(fields: Mapping[str, Text]) -> Text:
    named = {name: (f"{json_text(name)}:", text) for name, text in fields.items()}
    return lambda row: f"{{{','.join(start + _or_null(row[name], text) for name, (start, text) in named.items())}}}"


def _or_null(value: Any, text: Text) -> str:
    return "null" if value is None else text(value)


def _decimal(value: Decimal) -> str:
    return str(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _hexadecimal(value: bytes) -> str:
    return f'"{value.hex().upper()}"'
