"""Names of landing files with a date (`docs/reference/landing.md`, Names with a date).

The last number of `orders_2026-12-31.jsonl` is 31, that of `orders_2027-01-01.jsonl` is 1: as batches the older file
would win. So such a name is refused; the error proposes a `batch_by` that selects the right number.
"""

from __future__ import annotations

import re
from datetime import date

from fk_pipeline.errors import LandingError

_YEAR = r"(?<!\d)(?:19|20|21)\d\d"
_DAY = re.compile(rf"({_YEAR})([-_. ]?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])(?!\d)")
_MONTH = re.compile(rf"({_YEAR})(?:([-_. ])(0[1-9]|1[0-2])|([-_. ]?[WwQq])(\d\d?))\D*")
_YEAR_LAST = re.compile(r"(?<!\d)\d\d?([-_. ])\d\d?\1(?:19|20|21)\d\d\D*")
_COUNTER_DIGITS = 7
"""A number after a date with at least this many digits counts on across days; a shorter one may be a time or a restart.
"""


def refuse_part_of_date(stem: str, path: str, *, is_snapshot: bool) -> None:
    """Refuses a name whose last number is part of a date, or counts within a day.

    The last number may be the date itself if that is written as 8 digits, or a number of at least 7 digits after it.

    Args:
        stem: the name without its ending.
        path: the file.
        is_snapshot: whether a batch is a whole table, so that files of one day must not become one batch.

    Raises:
        LandingError: the name is refused; the fix is a `batch_by` that is right for it.
    """
    numbers = list(re.finditer(r"\d+", stem))
    if not numbers:
        return
    name, last = path.rsplit("/", 1)[-1], numbers[-1]
    days = [day for day in _DAY.finditer(stem) if _is_day(day)]
    if days:
        if days[-1].span() == last.span():
            return
        counts = last.start() >= days[-1].end()
        if counts and len(last[0]) >= _COUNTER_DIGITS:
            return
        what = "a number after a date" if counts else "part of a date"
        way = "" if counts and is_snapshot else _joined(_of_day(days[-1]), "".join(days[-1].group(1, 3, 4)), name)
    elif month := _fits_to_end(_MONTH, stem):
        what, year = "part of a date", month[1]
        mark, number = (month[2], month[3]) if month[2] else (month[4], month[5])
        way = _joined(rf"(\d{{4}}){_literally(mark)}(\d{{{len(number)}}})", year + number, name)
    elif _fits_to_end(_YEAR_LAST, stem):
        what, way = "the year of a date", ""
    else:
        return
    ways = [way] if way else [] if is_snapshot else ["batch_by: arrival takes files as they come"]
    raise LandingError(
        f"the last number in the name is {what}: {last[0]}",
        where=path,
        why="as a batch it would put files of another day, month or year in a wrong order; nothing was recorded",
        fix="; ".join([*ways, r"if that number is the batch, say batch_by: '(\d+)\D*$'", "or number the files"]),
    )


def whole_date(number: str, name: str) -> str:
    """Returns advice with a `batch_by` for a number that begins with a date, such as 20261231101530; else empty."""
    match = re.match(rf"({_YEAR})()(\d\d)(\d\d)", number)
    return _joined(r"(?<!\d)(\d{8})", "".join(match.group(1, 3, 4)), name) if match and _is_day(match) else ""


def _is_day(match: re.Match[str]) -> bool:
    try:
        date(*map(int, match.group(1, 3, 4)))
    except ValueError:
        return False
    return True


def _fits_to_end(pattern: re.Pattern[str], stem: str) -> re.Match[str] | None:
    return re.search(f"(?:{pattern.pattern})$", stem)


def _of_day(match: re.Match[str]) -> str:
    mark = _literally(match[2])
    return rf"(\d{{4}}){mark}(\d\d){mark}(\d\d)" if mark else r"(?<!\d)(\d{8})(?!\d)"


def _literally(mark: str) -> str:
    return re.escape(mark).replace(r"\ ", " ").replace(r"\-", "-")


def _joined(pattern: str, number: str, name: str) -> str:
    """Returns advice with the pattern as `batch_by`, if it finds the number in the name; else an empty text."""
    for tried in (pattern, f".*{pattern}"):
        match = re.search(tried, name)
        if match is not None and "".join(match.groups()) == number:
            return (
                f"batch_by: '{tried}' in the pipeline file makes the whole date the batch ({number}); "
                "files of one batch are read in the order of their names"
            )
    return ""
