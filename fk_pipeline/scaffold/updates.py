"""Whether rows of a sample with equal values in some columns look like one row that was updated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fk_pipeline.scaffold.column import Meaning, SampleColumn

_Row = dict[str, Any]
_REFERS = frozenset({"id", "key", "uuid", "guid"})
"""Last words of references: one that changes weighs twice, as it may tell another thing, such as a line's product."""


def look_like_updates(names: Sequence[str], columns: Sequence[SampleColumn], rows: Sequence[_Row]) -> bool:
    """Returns whether every row that has the same values in `names` as an earlier one looks like an update of it.

    The other reading is that of several things with one value: lines of an order, readings of a sensor. Only the
    later one of two such rows would be kept, so each row must have evidence that it is an update:

    * nothing that tells parts of one thing apart (a line, a product) is another one; and
    * a time of the latest change is another one; or such rows are the exception, and most of the row is as it was, or
      only amounts, flags and states are not.

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
    others = [one for one in columns if one.name not in names]
    return all(_is_update(before, after, others, exceptional=exceptional) for before, after in pairs)


def _is_update(before: _Row, after: _Row, others: Sequence[SampleColumn], *, exceptional: bool) -> bool:
    both = [one for one in others if before.get(one.name) is not None and after.get(one.name) is not None]
    changed = [one for one in both if before[one.name] != after[one.name]]
    if not changed:
        return True
    if any(one.names_part for one in changed):
        return False
    if any(one.names_change for one in changed):
        return True
    moved = [one for one in changed if one.meaning is Meaning.TIME]
    weight = sum(2 if one.subject and one.words[-1] in _REFERS else 1 for one in changed if one not in moved)
    kept = sum(one not in changed and len(one.values) > 1 for one in both)
    slight = all(one.names_state or one.meaning in (Meaning.MEASURE, Meaning.FLAG) for one in changed)
    return exceptional and (slight or kept >= max(1, weight))
