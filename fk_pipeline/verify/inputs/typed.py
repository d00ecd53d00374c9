"""Values of declared types from what lands: the rules of `docs/reference/formats.md`, without Spark.

A value is a Python value that can be compared: a number, a text, bytes; a DATE as days and a TIMESTAMP as microseconds
since 1970; an ARRAY as a list, a MAP and a STRUCT as a dict.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import sqlglot
from sqlglot import exp

from fk_pipeline.spec.sql import DIALECT
from fk_pipeline.verify.inputs.doubts import ANY, Doubtful, MisfitError
from fk_pipeline.verify.inputs.moments import date_of, epoch_of, moment_of
from fk_pipeline.verify.inputs.sent import (
    TOO_DEEP,
    Constant,
    Days,
    Instant,
    Lines,
    Single,
    Written,
    json_of,
    nearest_single,
    text_of,
)


class JsonText(str):
    """The JSON text of an object or an array: white space and escapes in it are the writer's."""

    __slots__ = ()


class NumberText(str):
    """The text of a floating-point number: how it is written is the writer's."""

    __slots__ = ()


Convert = Callable[[Any], Any]
"""A function from what landed (never None) to the value. It raises `MisfitError`, and may return `Doubtful`."""

_BITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
"""Per type of integers, its bits without the sign."""
_BLANKS = "".join(map(chr, range(33)))
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_BARE = re.compile(r"-?[0-9]+")
_HALF = re.compile("[\ud800-\udfff]")
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_WORDS = {
    "nan": math.nan,
    **{f"{sign}{w}": float(f"{sign}inf") for sign in ("", "+", "-") for w in ("inf", "infinity")},
}
_LARGEST_SINGLE = 3.4028235677973366e38
"""The smallest number that no longer rounds to one of 32 bits."""


def base_of(dtype: str) -> str:
    """Returns the name of a type without its parameters."""
    return re.split("[(< ]", dtype.upper(), maxsplit=1)[0]


def converter(dtype: str, how: str | None = None, *, day_numbers: bool = False) -> Convert:
    """Returns the function that reads the values of a type.

    Args:
        dtype: the type, as the pipeline file declares it.
        how: its logical type, if it has one.
        day_numbers: whether the source counts the days of a DATE.
    """
    return _converter(sqlglot.parse_one(f"CAST(x AS {dtype})", dialect=DIALECT).args["to"], how, day_numbers)


def _converter(tree: exp.Expression, how: str | None, day_numbers: bool) -> Convert:
    dtype = tree.sql(dialect=DIALECT)
    base = base_of(dtype)
    inner = [_converter(part, None, day_numbers) for part in tree.expressions] if base in ("ARRAY", "MAP") else []
    if base == "ARRAY":
        return lambda sent: _array(sent, inner[0])
    if base == "MAP":
        return lambda sent: _map(sent, inner[1])
    if base == "STRUCT":
        fields = {field.this.name: _converter(field.args["kind"], None, day_numbers) for field in tree.expressions}
        return lambda sent: _struct(sent, fields)
    if base in _BITS:
        return lambda sent: _integer(sent, _BITS[base])
    if base == "DECIMAL":
        match = re.search(r"\(\s*(\d+)\s*(?:,\s*(\d+))?", dtype)
        precision, scale = (int(match[1]), int(match[2] or 0)) if match else (10, 0)
        return lambda sent: _decimal(sent, precision, scale, how)
    if base == "DATE":
        return lambda sent: _date(sent, day_numbers or how == "epoch_days")
    if base in ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"):
        return lambda sent: _moment(sent, how, zoned=base != "TIMESTAMP_NTZ")
    plain: Mapping[str, Convert] = {
        "STRING": _string,
        "BOOLEAN": _boolean,
        "FLOAT": lambda sent: _floating(sent, single=True),
        "DOUBLE": lambda sent: _floating(sent, single=False),
        "BINARY": _binary,
    }
    return plain.get(base, lambda _: Doubtful(ANY))


def _text(sent: Any) -> str:
    return text_of(sent).strip(_BLANKS)


def _string(sent: Any) -> Any:
    if isinstance(sent, (dict, list)):
        text = text_of(sent)
        return Doubtful(ANY) if text is TOO_DEEP else JsonText(text)
    if isinstance(sent, float):
        return NumberText(text_of(sent))
    text = sent if isinstance(sent, Lines) else str(text_of(sent))
    return text if text.isascii() or not _HALF.search(text) else Doubtful(ANY)


def _boolean(sent: Any) -> bool:
    text = _text(sent).lower()
    if text not in _TRUE and text not in _FALSE:
        raise MisfitError
    return text in _TRUE


def _integer(sent: Any, bits: int) -> int:
    text = _text(sent)
    if not _INTEGER.fullmatch(text) or len(text) > 400 or not -(1 << bits) <= int(text) < 1 << bits:
        raise MisfitError
    return int(text)


def _floating(sent: Any, *, single: bool) -> Any:
    if isinstance(sent, Single if single else float) and isinstance(sent, Single) == single:
        return float(sent)
    text = _text(sent)
    word = _WORDS.get(text.lower())
    if word is not None:
        return word
    if not _NUMBER.fullmatch(text):
        raise MisfitError
    number = float(text)
    if math.isinf(number) or (single and abs(number) >= _LARGEST_SINGLE):
        raise MisfitError
    return nearest_single(number) if single else number


def _decimal(sent: Any, precision: int, scale: int, how: str | None) -> Any:
    if how == "decimal_bytes":
        raw = _bytes(text_of(sent))
        number = raw.value if isinstance(raw, Doubtful) else raw
        value = _fitting(_unscaled(number, scale), precision, scale)
        return Doubtful(value) if isinstance(raw, Doubtful) else value
    text = _text(sent)
    if text.startswith("{"):
        parts = sent if isinstance(sent, dict) else _object(text)
        try:
            own = int(str(parts["scale"]))
            unscaled = _bytes(str(parts["value"]))
        except (KeyError, ValueError, TypeError):
            raise MisfitError from None
        if isinstance(unscaled, Doubtful):
            return Doubtful(ANY)
        return _fitting(_unscaled(unscaled, own), precision, scale)
    if not _NUMBER.fullmatch(text):
        raise MisfitError
    return _fitting(Decimal(text), precision, scale)


def _object(text: str) -> Any:
    try:
        return json_of(text)
    except (ValueError, RecursionError):
        raise MisfitError from None


def _unscaled(number: bytes, scale: int) -> Decimal:
    if not 1 <= len(number) <= 16:
        raise MisfitError
    whole = int.from_bytes(number, "big", signed=True)
    return Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -scale))


def _fitting(number: Decimal, precision: int, scale: int) -> Decimal:
    """Returns a number without zeros at its end; refuses one that the type does not have exactly."""
    sign, digits, exponent = number.as_tuple()
    end, places = len(digits), int(exponent)
    while end and digits[end - 1] == 0:
        end, places = end - 1, places + 1
    start = next((i for i, digit in enumerate(digits[:end]) if digit), end)
    if start == end:
        return Decimal(0)
    if -places > scale or end - start + places > precision - scale:
        raise MisfitError
    return Decimal((sign, digits[start:end], places))


def _date(sent: Any, day_numbers: bool) -> Any:
    if isinstance(sent, Days):
        return int(sent)
    text = _text(sent)
    if day_numbers and _INTEGER.fullmatch(text):
        return _integer(text, _BITS["INT"])
    return date_of(text)


def _moment(sent: Any, how: str | None, *, zoned: bool) -> Any:
    if isinstance(sent, Instant):
        return int(sent)
    text = _text(sent)
    if _BARE.fullmatch(text):
        if how is None:
            raise MisfitError
        return epoch_of(_integer(text, _BITS["BIGINT"]), how)
    return moment_of(text, zoned=zoned)


def _binary(sent: Any) -> Any:
    return sent if isinstance(sent, bytes) else _bytes(text_of(sent))


def _bytes(text: str) -> Any:
    """Returns bytes from Base64; doubtful if it has blanks or lacks its padding."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    bare = "".join(text.split()).rstrip("=")
    try:
        return Doubtful(base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True))
    except (binascii.Error, ValueError):
        raise MisfitError from None


def _nested(sent: Any, container: type) -> Any:
    value = _object(sent) if isinstance(sent, str) and not isinstance(sent, (Written, Constant)) else sent
    if not isinstance(value, container):
        raise MisfitError
    return value


def _each(values: Mapping[Any, Any], convert: Callable[[Any], Convert]) -> Any:
    """Returns a dict with converted values; doubtful if one of them is."""
    made, doubt = {}, False
    for name, sent in values.items():
        value = None if sent is None else convert(name)(sent)
        if isinstance(value, Doubtful):
            value, doubt = value.value, True
        made[name] = value
    return Doubtful(made) if doubt else made


def _array(sent: Any, of: Convert) -> Any:
    made = _each(dict(enumerate(_nested(sent, list))), lambda _: of)
    return Doubtful([*made.value.values()]) if isinstance(made, Doubtful) else [*made.values()]


def _map(sent: Any, of: Convert) -> Any:
    return _each(_nested(sent, dict), lambda _: of)


def _struct(sent: Any, fields: Mapping[str, Convert]) -> Any:
    given = _nested(sent, dict)
    made = _each({name: given.get(name) for name in fields}, lambda name: fields[name])
    others = {name.lower() for name in given if name not in fields}
    unsure = [name for name in fields if name not in given and name.lower() in others]
    if not unsure:
        return made
    value = made.value if isinstance(made, Doubtful) else made
    return Doubtful({**value, **dict.fromkeys(unsure, ANY)})


def same(expected: Any, stored: Any) -> bool:
    """Returns whether a stored value is the one that landed."""
    if expected is ANY or expected is stored:
        return True
    if isinstance(expected, Lines):
        return isinstance(stored, str) and _unix(expected) == _unix(stored)
    if isinstance(expected, JsonText):
        return isinstance(stored, str) and _same_json(expected, stored)
    if isinstance(expected, NumberText):
        return isinstance(stored, str) and _same_number(expected, stored)
    if isinstance(expected, float) and isinstance(stored, float):
        return expected == stored or (math.isnan(expected) and math.isnan(stored))
    if isinstance(expected, dict) and isinstance(stored, dict):
        return expected.keys() == stored.keys() and all(same(value, stored[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(stored, list):
        return len(expected) == len(stored) and all(map(same, expected, stored))
    return bool(expected == stored)


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _same_json(expected: str, stored: str) -> bool:
    try:
        return bool(json_of(expected) == json_of(stored))
    except (ValueError, RecursionError):
        return False


def _same_number(expected: str, stored: str) -> bool:
    try:
        return same(float(expected), float(stored))
    except ValueError:
        return False
