"""Names of landing files with an identifier or a copy's number (`docs/reference/landing.md`, Names with a date).

The last number of `orders-9a1c2f7e-1d5b-4a5e-9d0a-0c6b3f2e7a41.jsonl` is 41, which says nothing: as a batch it would
put the file before or after others by chance. That of `orders_00017_v2.csv` is 2, and its rows would lose against those
of batch 17. So such names are refused.
"""

from __future__ import annotations

import re

from fk_pipeline.errors import LandingError

_UUID = re.compile(r"(?<![0-9a-z])[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}(?![0-9a-z])", re.IGNORECASE)
_HASH = re.compile(r"(?<![0-9a-z])(?=[0-9]*[a-f])[0-9a-f]{16,}(?![0-9a-z])", re.IGNORECASE)
"""Sixteen hexadecimal digits or more, with a letter: a digest, or a part of one."""

_COPY = re.compile(
    r"(?<![0-9a-z])\d+(?![0-9a-z]).*?(?P<mark>\s*\(\d+\)|[\s_.-]+(?:v|ver|version|rev|copy|retry|try|attempt|fix|part)[\s_.-]*\d+)$",
    re.IGNORECASE,
)
"""A number that stands alone, and at the end the number of a copy, of a version or of a part."""


def refuse_copy(stem: str, path: str) -> None:
    """Refuses a name whose last number is that of a copy, of a version or of a part, and which has another number.

    Args:
        stem: the name without its ending.
        path: the file.

    Raises:
        LandingError: the name is refused.
    """
    if match := _COPY.search(stem):
        raise LandingError(
            f"the last number in the name is that of a copy, a version or a part: {match['mark'].strip()!r}",
            where=path,
            why="as a batch it would put the file before others; nothing was recorded",
            fix="to correct a batch, replace its file; or write the batch as the last number of the name; or, if this "
            r"is the batch, say batch_by: '(\d+)\D*$'",
        )


def refuse_part_of_id(stem: str, path: str, *, is_snapshot: bool) -> None:
    """Refuses a name whose last number is part of a UUID or of a hash.

    Args:
        stem: the name without its ending.
        path: the file.
        is_snapshot: whether a batch is a whole table, so that each file needs a number.

    Raises:
        LandingError: the name is refused.
    """
    *_, last = re.finditer(r"\d+", stem)
    for what, pattern in (("a UUID", _UUID), ("a hash", _HASH)):
        if any(match.start() <= last.start() < match.end() for match in pattern.finditer(stem)):
            ways = ["say with batch_by which number in the name is the batch", "or number the files"]
            raise LandingError(
                f"the last number in the name is part of {what}: {last[0]}",
                where=path,
                why="as a batch it would put the file before or after others by chance; nothing was recorded",
                fix="; ".join(ways if is_snapshot else ["batch_by: arrival takes files as they come", *ways]),
            )
