"""What the columns mean that the engine adds to tables, in a few words for people. No Spark."""

from __future__ import annotations

from collections.abc import Mapping

from fk_pipeline.contract import Kind, Role
from fk_pipeline.store import schemas as s

_IN: dict[tuple[Role | None, str], str] = {
    (Role.LOG, s.HASH): "of the whole row; null for a tombstone",
    (Role.RESULT, s.HASH): "of the values of the row",
    (Role.RESULT, s.BATCH): "the batch of the last change; after a range run, one of its batches",
}
"""By the role of the table and the column."""

_OF_ONE_INPUT = {
    s.SIDE: "`input`: the line came in there",
    s.LINE: "the line, from 1",
    s.RAW: "the line as it is, or as it was corrected",
}
"""Of a kind that has one input, and so no pairs."""


def meaning_in(kind: Kind, own: Mapping[str, str], column: str, table: str) -> str | None:
    """Returns the meaning of a column that the engine adds to a table of a kind; None for any other column.

    Args:
        kind: the kind.
        own: the meaning of the columns that only this kind has, by name, or by a beginning that ends with `_`.
        column: the column.
        table: the table.
    """
    role = next((declared.role for declared in kind.tables if declared.name == table), None)
    begins = next((meaning for name, meaning in own.items() if name.endswith("_") and column.startswith(name)), None)
    of_input = _OF_ONE_INPUT if len(kind.inputs) == 1 else {}
    places = (_IN.get((role, column)), own.get(column), begins, of_input.get(column))
    return next((meaning for meaning in places if meaning), s.MEANING.get(column))
