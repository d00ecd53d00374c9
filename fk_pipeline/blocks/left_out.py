"""Rows of a changelog that do not pass `where`, as the stories of every kind tell them. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fk_pipeline.spec import SideSpec
from fk_pipeline.store import schemas as s

NOT_PASSING = "_fk_left_out"
"""Column of the rows of a changelog for a story (`changelog.for_story`): it has a row, which does not pass `where`."""

DOES_NOT_PASS, DO_NOT_PASS = "does not pass `where`", "do not pass `where`"
"""What a story says of such a row, or of several, in place of that it is deleted."""


def as_read(name: str) -> str:
    """Returns the name that the value of a column has beside `NOT_PASSING`, where the column itself may be null."""
    return f"_fk_read_{name}"


def is_left_out(row: Mapping[str, Any]) -> bool:
    """Returns whether a row of a changelog, as JSON, has a row, which does not pass `where`."""
    return bool(row.get(NOT_PASSING))


def values_read(row: Mapping[str, Any], side: SideSpec) -> dict[str, Any] | None:
    """Returns the columns of a row of a changelog, as JSON, as its batch read them; None for a tombstone."""
    if is_left_out(row):
        return {column.name: row.get(as_read(column.name), row[column.name]) for column in side.columns}
    return None if row[s.DELETED] else {column.name: row[column.name] for column in side.columns}
