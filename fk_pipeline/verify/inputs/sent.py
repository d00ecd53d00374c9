"""The values of landing files as Python values, and the text of each, which is read where its type is another."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from typing import Any

from fk_pipeline.verify.inputs.moments import date_text, moment_text


class Written(str):
    """A number as it was written."""

    __slots__ = ()


class Constant(str):
    """NaN or Infinity without quotes."""

    __slots__ = ()


class Lines(str):
    """A text of a CSV file with a carriage return in it: the file decides whether that stays before a line feed."""

    __slots__ = ()


class Single(float):
    """A number of 32 bits."""

    __slots__ = ()


class Days(int):
    """A date of a columnar file."""

    __slots__ = ()


class Instant(int):
    """A time of a columnar file, in microseconds."""

    __slots__ = ()


TOO_DEEP = "too many values within one another"
"""In place of the text of such a value."""


def json_of(text: str) -> Any:
    """Returns the value of a JSON text, its numbers as they were written.

    Raises:
        ValueError: it is not one JSON value.
    """
    return json.loads(text, parse_float=Written, parse_int=Written, parse_constant=Constant)


def text_of(sent: Any) -> str:
    """Returns what landed as text: the form in which a value of another type is read."""
    if isinstance(sent, str):
        return sent
    if isinstance(sent, bool):
        return "true" if sent else "false"
    if isinstance(sent, Days):
        return date_text(sent)
    if isinstance(sent, Instant):
        return moment_text(sent, " ")
    if isinstance(sent, Single):
        return _shortest(sent)
    if isinstance(sent, float):
        return repr(float(sent)).replace("inf", "Infinity").replace("nan", "NaN")
    if isinstance(sent, Decimal):
        return format(sent, "f")
    if isinstance(sent, bytes):
        return sent.decode("utf-8", "surrogateescape")
    if not isinstance(sent, (dict, list)):
        return str(sent)
    try:
        return _json(sent)
    except RecursionError:
        return TOO_DEEP


def _json(sent: Any) -> str:
    if isinstance(sent, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(value)}" for name, value in sent.items()) + "}"
    if isinstance(sent, list):
        return "[" + ",".join(map(_json, sent)) + "]"
    if sent is None:
        return "null"
    bare = isinstance(sent, (Written, Constant, bool, int, float, Decimal)) and not isinstance(sent, (Days, Instant))
    return text_of(sent) if bare else json.dumps(text_of(sent))


def _shortest(number: float) -> str:
    """Returns the shortest text that is a number of 32 bits."""
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        if nearest_single(float(text)) == number or math.isinf(number) or math.isnan(number):
            return text.replace("inf", "Infinity").replace("nan", "NaN")
    return repr(float(number))


def nearest_single(number: float) -> float:
    """Returns the number of 32 bits that is nearest to a number."""
    nearest: float = struct.unpack("f", struct.pack("f", number))[0]
    return nearest
