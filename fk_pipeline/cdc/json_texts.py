"""JSON as Spark's `from_json` reads it, in Python: every value that is wanted as text keeps the text it was written in.

For engines whose own function does not (Sail turns 12.50 into 12.5). Stricter than Spark where it is lenient: what is
no JSON by RFC 8259 is corrupt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation
from json import decoder
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

CORRUPT = "_corrupt"
"""The field that gets a text which is no such value."""

_WHITE = re.compile(r"[ \t\n\r]*")
_scanstring: Callable[[str, int], tuple[str, int]] = decoder.scanstring  # type: ignore[attr-defined]


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


_decoder = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_refuse)


def reader_of(kind: T.DataType, *, corrupt: bool) -> Callable[[pa.Array], pa.Array]:
    """A function that reads an array of texts.

    Args:
        kind: what each is.
        corrupt: `kind` has the field `CORRUPT`; other texts that cannot be read are null.
    """
    wanted = to_arrow_type(kind)

    def read(texts: pa.Array) -> pa.Array:
        return _array([read_one(text, kind, corrupt=corrupt) for text in texts.to_pylist()], wanted)

    return read


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values of a type. Where a struct is null its fields are, too: Arrow's own builder makes empty texts of them."""
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    fields = [_array([None if v is None else v.get(field.name) for v in values], field.type) for field in kind]
    gone = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=gone)


def read_one(text: str | None, kind: T.DataType, *, corrupt: bool) -> Any:
    """One text; null is null."""
    if text is None:
        return None
    try:
        start = _skip(text, 0)
        value, end = _decoder.raw_decode(text, start)
        if _skip(text, end) != len(text):
            _refuse("text after the value")
        if isinstance(kind, T.StructType) and not isinstance(value, dict):
            _refuse("no object")
        return _as(value, kind, text, start)
    except (ValueError, RecursionError):
        return {CORRUPT: text} if corrupt else None


def _skip(text: str, at: int) -> int:
    found = _WHITE.match(text, at)
    return found.end() if found else at


def _as(value: Any, kind: T.DataType, text: str, at: int) -> Any:
    """A value that begins somewhere in a text, as Python has the type."""
    if value is None:
        return None
    if isinstance(kind, T.StructType):
        return _struct(value, kind, text, at) if isinstance(value, dict) else None
    if isinstance(kind, T.StringType):
        if isinstance(value, (dict, list)):
            return text[at : _decoder.raw_decode(text, at)[1]]
        return value if isinstance(value, str) else ("true" if value else "false")
    return _typed(value, kind, text, at)


def _struct(value: dict[str, Any], kind: T.StructType, text: str, at: int) -> dict[str, Any]:
    nested = any(isinstance(value.get(f.name), (dict, list)) for f in kind.fields)
    places = _members(text, at) if nested else {}
    return {f.name: _as(value[f.name], f.dataType, text, places.get(f.name, 0)) for f in kind.fields if f.name in value}


def _members(text: str, at: int) -> dict[str, int]:
    """Where the values of the object begin that begins somewhere."""
    found = {}
    at = _skip(text, at + 1)
    while text[at] == '"':
        name, at = _scanstring(text, at + 1)
        at = _skip(text, _skip(text, at) + 1)
        found[name] = at
        at = _skip(text, _decoder.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _elements(text: str, at: int) -> list[int]:
    """Where the elements of the array begin that begins somewhere."""
    found = []
    at = _skip(text, at + 1)
    while text[at] != "]":
        found.append(at)
        at = _skip(text, _decoder.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}


def _typed(value: Any, kind: T.DataType, text: str, at: int) -> Any:
    """A value that is not wanted as text.

    Raises:
        ValueError: it is not of the type.
    """
    if isinstance(kind, T.ArrayType) and isinstance(value, list):
        return [_as(one, kind.elementType, text, place) for one, place in zip(value, _elements(text, at), strict=True)]
    if isinstance(kind, T.MapType) and isinstance(value, dict) and isinstance(kind.keyType, T.StringType):
        places = _members(text, at)
        return [(name, _as(one, kind.valueType, text, places[name])) for name, one in value.items()]
    if isinstance(kind, T.BooleanType) and isinstance(value, bool):
        return value
    if isinstance(kind, T.DateType) and isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return date.fromisoformat(value)
    if not isinstance(value, _Number):
        _refuse(f"not a {kind.simpleString()}")
    return _number(value, kind)


def _number(value: _Number, kind: T.DataType) -> Any:
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return float(value)
    bits = _BITS.get(type(kind))
    if bits is not None:
        number = int(value)  # a point or an exponent is a ValueError
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            _refuse("out of range")
        return number
    if isinstance(kind, T.DecimalType):
        try:
            exact = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
        except InvalidOperation:
            _refuse("too many digits")
        if len(exact.as_tuple().digits) > kind.precision or exact != Decimal(value):
            _refuse("too many digits")
        return exact
    _refuse(f"not a {kind.simpleString()}")
