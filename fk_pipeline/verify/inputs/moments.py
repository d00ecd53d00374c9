"""Dates and times of texts, as days and microseconds since 1970: Python's own end in the year 9999."""

from __future__ import annotations

import re

from fk_pipeline.verify.inputs.doubts import ANY, Doubtful, MisfitError

_DAY = 86_400_000_000
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1

_DATE = re.compile(r"([+-]?)([0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})(?:([T ])(.*))?", re.DOTALL)
_TIME = re.compile(r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?\s*(\S.*)?", re.DOTALL)
_PLAIN = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
"""Pattern of the texts whose meaning is beyond doubt."""
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-9]{2})")

_Number = int | Doubtful


def days_of(year: int, month: int, day: int) -> int:
    """Returns the days since 1970 of a day of the Gregorian calendar, which has no beginning here.

    Raises:
        MisfitError: there is no such day.
    """
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
        raise MisfitError
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_of(text: str) -> _Number:
    """Returns the days since 1970 of a text with a date; the time in it, which may have a zone, is left out.

    Raises:
        MisfitError: it is no date; a part of a date is none.
    """
    local, _, sure = _read(text)
    if local is ANY:
        return Doubtful(ANY)
    return local // _DAY if sure else Doubtful(local // _DAY)


def moment_of(text: str, *, zoned: bool) -> _Number:
    """Returns the microseconds since 1970 of a text with a date and, mostly, a time.

    Args:
        text: the text.
        zoned: whether its zone counts, by default UTC; if not, it is left out.

    Raises:
        MisfitError: it is no such time.
    """
    local, offset, sure = _read(text)
    if local is ANY or (zoned and offset is None):
        return Doubtful(ANY)
    micros = local - (offset or 0) * 60_000_000 if zoned else local
    if not _LOWEST <= micros <= _HIGHEST:
        raise MisfitError
    return micros if sure else Doubtful(micros)


def epoch_of(number: int, how: str) -> int:
    """Returns the microseconds since 1970 of a number that a logical type describes.

    Raises:
        MisfitError: it is out of range.
    """
    micros = (
        number // 1000 if how == "epoch_nanos" else number * {"epoch_seconds": 10**6, "epoch_millis": 1000}.get(how, 1)
    )
    if not (_LOWEST <= number <= _HIGHEST and _LOWEST <= micros <= _HIGHEST):
        raise MisfitError
    return micros


def _read(text: str) -> tuple[int, int | None, bool]:
    """Returns a local time in microseconds, the minutes that its zone is ahead, and whether both are sure.

    The minutes are None for a zone that is not read here.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise MisfitError
    sign, year, month, day, mark, rest = match.groups()
    start = days_of(-int(year) if sign == "-" else int(year), int(month), int(day)) * _DAY
    if not (rest or "").strip():
        return start, 0, mark is None and _PLAIN.fullmatch(text) is not None
    time = _TIME.fullmatch(rest)
    if time is None:
        raise MisfitError
    hour, minute, second = (int(part or 0) for part in time.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise MisfitError
    micros = int(((time[4] or "") + "000000")[:6])
    local = start + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros
    return local, _offset(time[5]), _PLAIN.fullmatch(text) is not None


def _offset(zone: str | None) -> int | None:
    """Returns the minutes that a zone is ahead of UTC; None if this reader does not know it."""
    if zone is None or zone in ("Z", "UTC"):
        return 0
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3])
    if int(match[3]) > 59 or minutes > 18 * 60:
        raise MisfitError
    return -minutes if match[1] == "-" else minutes


def date_text(days: int) -> str:
    """Returns a date as text, from the days since 1970.

    >>> date_text(19844), date_text(20240501 - 0)
    ('2024-05-01', '57386-08-11')
    """
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_of = (5 * of_year + 2) // 153
    month = month_of + (3 if month_of < 10 else -9)
    year = year_of_era + era * 400 + (month <= 2)
    return f"{year:04d}-{month:02d}-{of_year - (153 * month_of + 2) // 5 + 1:02d}"


def moment_text(micros: int, mark: str = "T") -> str:
    """Returns a time as text, from the microseconds since 1970; without zeros at the end of its fraction.

    >>> moment_text(1714557600123000)
    '2024-05-01T10:00:00.123'
    """
    days, rest = divmod(micros, _DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    part = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{date_text(days)}{mark}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{part}"
