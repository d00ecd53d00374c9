"""How texts for people count things, and which name they propose for one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping

_OF_ONE = {
    "rows": "row",
    "events": "event",
    "tombstones": "tombstone",
    "truncates": "truncate",
    "snapshots": "snapshot",
    "holes": "hole",
    "updates without the old key": "update without the old key",
}
"""Per name of a count of the ledger that is a plural, the singular; the others are said of one thing as of several."""

_SHOWN = {"left alone": "without a match"}
"""Per name of a count of the ledger that reads as something else, the words for people."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun.

    Args:
        number: the number.
        noun: the noun for one thing.
        plural: the noun for several things; default: `noun` with an `s`.

    >>> counted(1, "row"), counted(2_000, "row"), counted(0, "batch", "batches")
    ('1 row', '2,000 rows', '0 batches')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def counts_of(counts: Mapping[str, int]) -> list[str]:
    """Returns the counts of the ledger that are not 0 for people, each as number and words.

    >>> counts_of({"read": 1, "rows": 1, "events": 2, "holes": 0, "left alone": 1})
    ['1 read', '1 row', '2 events', '1 without a match']
    """
    shown = {name: _SHOWN.get(name, name) for name in counts}
    return [counted(number, _OF_ONE.get(name, shown[name]), shown[name]) for name, number in counts.items() if number]


def did_you_mean(name: object, names: Iterable[str], shown: Callable[[str], str] = str) -> str:
    """Returns the name that is spelled most like an unknown one, as the end of a sentence; empty if none is alike.

    Args:
        name: the unknown name.
        names: the known ones.
        shown: function from a known name to what the text has for it.

    >>> did_you_mean("Cutsomer", ["customer", "city"]), did_you_mean("zip", ["customer", "city"])
    ("; did you mean 'customer'?", '')
    """
    known = {str(other).lower(): str(other) for other in names}
    close = difflib.get_close_matches(str(name).lower(), known, n=1)
    return f"; did you mean {shown(known[close[0]])!r}?" if close else ""


def meant_or_all(name: object, names: Iterable[str]) -> str:
    """Returns what to write in place of an unknown name, as the end of a sentence: the one that is meant, or all.

    >>> meant_or_all("jion", ["join", "left"]), meant_or_all("x", ["join", "left"])
    ("; did you mean 'join'?", '; there are join, left')
    """
    listed = [*names]
    return did_you_mean(name, listed) or f"; there are {', '.join(listed)}"


def listed_for(name: object, names: Iterable[str]) -> str:
    """Returns all names, and which of them an unknown name may mean, as the end of a sentence.

    >>> listed_for("zips", ["id", "zip"])
    "id, zip; did you mean 'zip'?"
    """
    listed = [*names]
    return f"{', '.join(listed)}{did_you_mean(name, listed)}"
