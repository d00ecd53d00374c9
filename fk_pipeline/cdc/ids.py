"""Names of landing files with an identifier (`docs/reference/landing.md`, Names with a date).

The last number of `orders-9a1c2f7e-1d5b-4a5e-9d0a-0c6b3f2e7a41.jsonl` is 41, which says nothing: as a batch it would
put the file before or after others by chance. So such a name is refused.
"""

from __future__ import annotations

import re

from fk_pipeline.errors import LandingError

_UUID = re.compile(r"(?<![0-9a-z])[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}(?![0-9a-z])", re.IGNORECASE)
_HASH = re.compile(r"(?<![0-9a-z])(?=[0-9]*[a-f])[0-9a-f]{16,}(?![0-9a-z])", re.IGNORECASE)
"""Sixteen hexadecimal digits or more, with a letter: a digest, or a part of one."""


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
