"""Names of columns that come close to another name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

CLOSE = 0.6
"""The least likeness of two names, as difflib measures it, with which one may be the new name of the other."""

PROPOSED = 3
"""The largest number of names that a warning proposes."""


def close_names(name: str, others: Iterable[str]) -> list[str]:
    """Returns the names that may be the new name of a column, the most alike first.

    >>> close_names("customer_id", ["amount", "customerId", "customer", "id_of_order"])
    ['customerId', 'customer']
    """
    words, plain = _words(name), "".join(_words(name))

    def likeness(other: str) -> float:
        other_words = _words(other)
        within = {*words} <= {*other_words} or {*other_words} <= {*words}
        return max(difflib.SequenceMatcher(None, plain, "".join(other_words)).ratio(), CLOSE if within else 0)

    ranked = sorted((-likeness(other), other) for other in others if _words(other))
    return [other for unlike, other in ranked if -unlike >= CLOSE][:PROPOSED]


def _words(name: str) -> list[str]:
    """Returns the words of a name in lower case: `customerId` and `customer_id` have the same."""
    return [word.lower() for word in re.findall(r"[A-Z]?[^\W_A-Z]+|[A-Z]+(?![a-z])", name)]
