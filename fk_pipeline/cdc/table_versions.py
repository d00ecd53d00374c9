"""Versions of a Delta table as if they were landing files. Needs no Spark.

`<table>@3..7` are the changes of versions 3 to 7, and `<table>@..7` is the whole table at version 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from fk_pipeline.errors import LandingError

_RANGE = re.compile(r"(.+)@(\d*)\.\.(\d+)")


def versions_of(path: str) -> tuple[str, int | None, int]:
    """A table's location, and the first and last version of a range; the first is None for the whole table.

    Raises:
        ValueError: the path names no versions.
    """
    found = _RANGE.fullmatch(path)
    if found is None:
        raise ValueError(f"{path!r} names no versions of a table")
    return found[1], int(found[2]) if found[2] else None, int(found[3])


def names_versions(path: str) -> bool:
    """Whether a path is a range of versions."""
    return _RANGE.fullmatch(path) is not None


def is_whole(path: str) -> bool:
    """Whether a path stands for a whole table at one version."""
    found = _RANGE.fullmatch(path)
    return found is not None and not found[2]


def new_versions(location: str, known: Iterable[str]) -> tuple[str, int, str] | None:
    """What came to a table since it was last looked at.

    Args:
        location: of the table.
        known: the ranges that were found before.

    Returns:
        A range, the bytes of the table where it is taken whole (else 0), and the table's id; None when there is no
        table or nothing new.

    Raises:
        LandingError: the table is at an older version than the last one found.
    """
    if not DeltaTable.is_deltatable(location):
        return None
    table = DeltaTable(location)
    ranges = [versions_of(path) for path in known if names_versions(path)]
    now, last = table.version(), max((end for _, _, end in ranges), default=None)
    if last == now:
        return None
    if last is not None and last > now:
        raise LandingError(
            f"the table is at version {now}, and was at version {last} before",
            where=location,
            why="it was made anew, or restored from a copy: which changes it has had is not known",
            fix="name another warehouse in the pipeline file, and load the table there",
        )
    name = str(table.metadata().id)
    if last is not None and _feeds(table) and _feeds_at(location, last + 1):
        return f"{location}@{last + 1}..{now}", 0, name
    size = sum(table.get_add_actions(flatten=True)["size_bytes"].to_pylist())
    return f"{location}@..{now}", size, name


def _feeds(table: DeltaTable) -> bool:
    return table.metadata().configuration.get("delta.enableChangeDataFeed") == "true"


def _feeds_at(location: str, version: int) -> bool:
    """A version that is not in the log any more has no change feed either."""
    try:
        return _feeds(DeltaTable(location, version=version))
    except DeltaError:
        return False
