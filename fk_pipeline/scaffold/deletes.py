"""How a sample of plain rows says that a row is deleted: by a field with a word, or by one that marks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fk_pipeline.scaffold.types import Inferred
from fk_pipeline.spec.deletes import names_delete, names_moment, names_operation
from fk_pipeline.spec.sql import text

_WORDS = frozenset(
    {"c", "i", "r", "u", "d", "t", "insert", "inserted", "update", "updated", "delete", "deleted", "upsert", "create"}
    | {"read", "truncate"}
)
_YES = {"false": "true", "f": "t", "n": "y", "no": "yes", "0": "1"}
"""Words that say no, and what the other word is then."""
_SAYS_YES = frozenset({*_YES.values(), "d", "x", "deleted"})


def operation_field(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> str | None:
    """The field that says what a row does: called so, with nothing but words for it."""
    for name in filter(names_operation, names):
        words = {str(row[name]).lower() for row in rows if row.get(name) is not None}
        if words and words <= _WORDS:
            return name
    return None


def marked_deleted(name: str, written: str, inferred: Inferred, values: Sequence[Any]) -> str | None:
    """The condition under which a field marks its row as deleted; None where it seems to mark nothing.

    Args:
        name: of the field.
        written: the same, as SQL writes it.
        inferred: its type.
        values: those that are not null.
    """
    if not names_delete(name):
        return None
    if inferred.type == "BOOLEAN":
        return written
    if inferred.type.startswith(("DATE", "TIMESTAMP")) or not values or names_moment(name):
        return f"{written} IS NOT NULL" if inferred.type != "BIGINT" else f"{written} > 0"
    found = {str(value) for value in values}
    if inferred.type in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
        return f"{written} = 1" if found <= {"0", "1"} else None
    if inferred.type != "STRING" or any(one.lower() not in {*_YES, *_SAYS_YES, ""} for one in found):
        return None
    yes = sorted(one for one in found if one.lower() in _SAYS_YES)
    if not yes:
        no = min(one for one in found if one)
        yes = [_YES[no.lower()].upper() if no.isupper() else _YES[no.lower()]]
    return f"{written} = {text(yes[0])}" if len(yes) == 1 else f"{written} IN ({', '.join(map(text, yes))})"
