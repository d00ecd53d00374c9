"""Guesses the key columns of a sample if the source does not declare them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fk_pipeline.scaffold.names import singular

if TYPE_CHECKING:
    from fk_pipeline.scaffold.sampled import SampleColumn


def text_of(value: Any) -> str:
    """Returns a value as text, as its source writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


NOTHING_TELLS = "nothing in the sample tells; name the columns that are never equal"
"""The reason for a key of which nothing in the sample tells."""

WITHOUT_KEY = (
    "no column has the name of a key, and no values tell the rows apart; name the columns that are never equal"
)
"""The reason for a key of a table that seems to have none."""

_KEY_LIKE = ("id", "key", "uuid", "code", "number", "no")


def guessed_key(table: str, columns: Sequence[SampleColumn], new: Sequence[dict[str, Any]]) -> tuple[list[str], str]:
    """Returns the guessed key columns and the reason for them.

    The key is the first without nulls and repetitions of: a column with the name of a key, any column, a pair of
    columns. If there is none, it is the first column.
    """
    base = singular(table)
    like = [*_KEY_LIKE, *(f"{base}{joint}{one}" for one in _KEY_LIKE for joint in ("_", ""))]
    fit = [one for one in columns if "<" not in one.inferred.type]
    whole = [one.name for one in fit if new and all(row.get(one.name) is not None for row in new)]
    whole.sort(key=lambda name: like.index(name.lower()) if name.lower() in like else len(like))
    pairs = itertools.combinations(whole[:6], 2)
    for names in [*((one,) for one in whole), *pairs]:
        if len({tuple(text_of(row[name]) for name in names) for row in new}) == len(new):
            few = "the sample has one row" if len(new) == 1 else f"no value comes twice in {len(new):,} rows"
            return list(names), few
    named = any(one.name.strip("`").lower() in like for one in columns)
    return [fit[0].name if fit else columns[0].name], NOTHING_TELLS if named or not new else WITHOUT_KEY
