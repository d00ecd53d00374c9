"""The row hash of `blocks.hashing`, computed in this process for few rows."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from fk_pipeline.arrow_text import as_numbers
from fk_pipeline.blocks.hashing import DIGITS_IN_A_LONG, NULL_MARKER
from fk_pipeline.errors import LeftToSpark

_Text = Callable[[Any], str]
"""A function from a value, which is not null, to its text in the encoding."""

_ALL = (1 << 64) - 1
_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_SEED = 42


def row_digests(rows: pa.Table, names: Sequence[str]) -> list[bytes]:
    """Returns per row the hash of some of its columns.

    Raises:
        LeftToSpark: a column has a type that is not known here, or a text that is not UTF-8.
    """
    columns = []
    for name in sorted(names):
        text = _text_of(rows.schema.field(name).type)
        try:
            values = as_numbers(rows.select([name]))[name].to_pylist()
        except UnicodeDecodeError:
            raise LeftToSpark("a text is not UTF-8") from None
        columns.append((f"{len(name.encode())}:{name}", [None if v is None else text(v).encode() for v in values]))
    digests = []
    for i in range(len(rows)):
        parts = [
            f"{name}{len(encoded)}:".encode() + encoded
            for name, values in columns
            if (encoded := values[i]) is not None
        ]
        digests.append(hashlib.md5(b"".join(parts), usedforsecurity=False).digest())
    return digests


def _text_of(dtype: pa.DataType) -> _Text:
    if pa.types.is_string(dtype):
        return str
    if pa.types.is_boolean(dtype):
        return lambda value: "true" if value else "false"
    if pa.types.is_integer(dtype) or pa.types.is_timestamp(dtype) or pa.types.is_date32(dtype):
        return str
    if pa.types.is_floating(dtype):
        return lambda value: _bijection(_bits(value))
    if pa.types.is_decimal(dtype):
        return _text_of_decimal(dtype)
    if pa.types.is_binary(dtype):
        return lambda value: str(value.hex().upper())
    return _text_of_nested(dtype)


def _text_of_decimal(dtype: pa.DataType) -> _Text:
    if dtype.precision <= DIGITS_IN_A_LONG:
        return lambda value: _bijection(int(value.scaleb(dtype.scale)))
    if dtype.scale > 0:
        return lambda value: f"{value:f}".rstrip("0").rstrip(".")
    return lambda value: f"{value:f}"


def _text_of_nested(dtype: pa.DataType) -> _Text:
    if pa.types.is_struct(dtype):
        fields = {field.name: _encoded(_text_of(field.type)) for field in dtype}
        return lambda row: "".join(encode(row[name]) for name, encode in fields.items())
    if pa.types.is_map(dtype):
        key, item = _encoded(_text_of(dtype.key_type)), _encoded(_text_of(dtype.item_type))
        return lambda pairs: "".join(sorted(key(k) + item(v) for k, v in pairs))
    if pa.types.is_list(dtype):
        element = _encoded(_text_of(dtype.value_type))
        return lambda values: "".join(map(element, values))
    raise LeftToSpark(f"a value of type {dtype} is hashed by Spark only")


def _encoded(text: _Text) -> _Text:
    """Returns the text of a value inside another, which may be null."""

    def encode(value: Any) -> str:
        if value is None:
            return NULL_MARKER
        content = text(value)
        return f"{len(content.encode())}:{content}"

    return encode


def _bits(value: float) -> int:
    """Returns the bits of a DOUBLE as a signed number; every NaN and both zeros have the same."""
    bits: int = struct.unpack("<q", struct.pack("<d", math.nan if math.isnan(value) else value + 0.0))[0]
    return bits


def _bijection(number: int) -> str:
    """Returns Spark's `XXHASH64` of a 64-bit number, as text.

    >>> _bijection(0)
    '-5252525462095825812'
    """
    p1, p2, p3, p4, p5 = _PRIMES
    mixed = _SEED + p5 + 8
    mixed ^= _turned(number * p2 & _ALL, 31) * p1 & _ALL
    mixed = _turned(mixed & _ALL, 27) * p1 + p4 & _ALL
    mixed = (mixed ^ mixed >> 33) * p2 & _ALL
    mixed = (mixed ^ mixed >> 29) * p3 & _ALL
    mixed ^= mixed >> 32
    return str(mixed - (1 << 64) if mixed >> 63 else mixed)


def _turned(bits: int, by: int) -> int:
    return (bits << by | bits >> (64 - by)) & _ALL
