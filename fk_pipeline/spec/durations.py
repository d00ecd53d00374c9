"""Spans of time in the pipeline file: `90 days`, `30 minutes`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator

from fk_pipeline.spec.base import problem
from fk_pipeline.words import did_you_mean

UNITS = ("milliseconds", "seconds", "minutes", "hours", "days", "weeks")
"""The units of a span; each also without its s."""

LONGEST = timedelta(days=2_500_000)
"""The longest span: `blocks.times` leaves room for a time plus or minus it."""

_SPAN = re.compile(rf"\s*(\d+)\s*({'|'.join(unit[:-1] for unit in UNITS)})s?\s*", re.IGNORECASE)


def span(text: str) -> timedelta:
    """Returns a span of time from its text: a whole number and a unit.

    Raises:
        ValueError: the text is no span, or one that is longer than `LONGEST`.
    """
    match = _SPAN.fullmatch(text)
    if match is None:
        meant = did_you_mean("".join(re.findall("[A-Za-z]", text)), [*UNITS, *(unit[:-1] for unit in UNITS)])
        raise ValueError(
            f"{text!r} is no span of time; write a whole number and a unit: 90 days ({', '.join(UNITS)}){meant}"
        )
    try:
        length = timedelta(**{f"{match[2].lower()}s": int(match[1])})
    except OverflowError:
        length = timedelta.max
    if length > LONGEST:
        raise ValueError(f"{text!r} is longer than there is time; at most {LONGEST.days} days are possible")
    return length


def micros(length: timedelta) -> int:
    """Returns a span of time in microseconds."""
    return length // timedelta(microseconds=1)


def length_of(length: int | str) -> int | timedelta:
    """Returns a `Length` as a value: a span of time, or the number."""
    return span(length) if isinstance(length, str) else length


def _checked(length: int | str) -> int | str:
    if isinstance(length, str):
        try:
            span(length)
        except ValueError as error:
            raise problem(str(error)) from None
    elif length < 0:
        raise problem(f"{length} is less than nothing")
    return length


Length = Annotated[int | str, AfterValidator(_checked)]
"""A span of time as text, `90 days`, or a whole number in the unit of a BIGINT column."""

Span = Annotated[str, AfterValidator(_checked)]
"""A span of time as text, `30 minutes`."""


def signed(text: str) -> timedelta:
    """Returns a span of time from its text, which may begin with a minus sign.

    Raises:
        ValueError: as `span`.
    """
    return -span(text[1:]) if text.startswith("-") else span(text)


def _checked_sign(text: str) -> str:
    _checked(text.removeprefix("-"))
    return text


SignedSpan = Annotated[str, AfterValidator(_checked_sign)]
"""A span of time as text, which may be negative: `-5 minutes`."""
