"""Whether rows of a sample with equal values in some columns look like one row that was updated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fk_pipeline.scaffold.column import Meaning, SampleColumn

_Row = dict[str, Any]
_REFERS = frozenset({"id", "key", "uuid", "guid"})
"""Last words of references: one that changes weighs twice, as it may tell another thing, such as a line's product."""


def look_like_updates(names: Sequence[str], columns: Sequence[SampleColumn], rows: Sequence[_Row]) -> bool:
    """Returns whether every row that has the same values in `names` as an earlier row looks like an update of it.

    The other reading is that of several things with one value: lines of an order, readings of a sensor. Only the
    later of two such rows would stay, so each row must have evidence that it is an update:

    * no column that tells the parts of a thing apart (a line, a product) has changed; and
    * a time of the latest change has changed; or such rows are the exception, and most of the row is as it was, or
      only amounts, flags and states have changed.

    Args:
        names: the columns that may be the key.
        columns: all columns of the table.
        rows: rows in the order of the source.
    """
    latest: dict[tuple[Any, ...], _Row] = {}
    pairs: list[tuple[_Row, _Row]] = []
    for row in rows:
        key = tuple(row[name] for name in names)
        if key in latest:
            pairs.append((latest[key], row))
        latest[key] = row
    exceptional = 2 * len(pairs) <= len(latest)
    others = [column for column in columns if column.name not in names]
    return all(_is_update(before, after, others, exceptional=exceptional) for before, after in pairs)


def _is_update(before: _Row, after: _Row, others: Sequence[SampleColumn], *, exceptional: bool) -> bool:
    both = [column for column in others if before.get(column.name) is not None and after.get(column.name) is not None]
    changed = [column for column in both if before[column.name] != after[column.name]]
    if not changed:
        return True
    if any(column.names_part for column in changed):
        return False
    if any(column.names_change for column in changed):
        return True
    moved = [column for column in changed if column.meaning is Meaning.TIME]
    weight = sum(
        2 if column.subject and column.words[-1] in _REFERS else 1 for column in changed if column not in moved
    )
    unchanged = sum(column not in changed and len(column.values) > 1 for column in both)
    slight = all(column.names_state or column.meaning in (Meaning.MEASURE, Meaning.FLAG) for column in changed)
    return exceptional and (slight or unchanged >= max(1, weight))
