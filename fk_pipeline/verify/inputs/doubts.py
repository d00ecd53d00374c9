"""What this reader does not claim to know.

The documentation says what most texts mean. Where it does not (a time without seconds, an unpadded Base64), a value is
`Doubtful`: the product may read it so, or send the record to the quarantine. `ANY` equals every value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


class MisfitError(Exception):
    """A value does not fit its type: its record belongs into the quarantine."""


class NotReadError(Exception):
    """This reader cannot read a file of a batch, which is then not compared."""


class _Any:
    """The class of `ANY`."""

    def __repr__(self) -> str:
        return "any value"

    def __reduce__(self) -> str:
        return "ANY"


ANY: Final[Any] = _Any()
"""A value that may be any."""


@dataclass(frozen=True)
class Doubtful:
    """A value that the product may also refuse."""

    value: Any
