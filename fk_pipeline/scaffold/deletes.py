"""How a sample of plain rows marks deleted rows: with a field for the operation, or with a field for the deletion."""

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
_INSERTS = frozenset({"c", "i", "r", "insert", "inserted", "create", "read"})
_YES = {"false": "true", "f": "t", "n": "y", "no": "yes", "0": "1"}
"""Per word for no, the word for yes that goes with it."""
_SAYS_YES = frozenset({*_YES.values(), "d", "x", "deleted"})


def operation_field(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> str | None:
    """Returns the field with the operation of a row: its name means that, and all its values do; None without one."""
    for name in filter(names_operation, names):
        words = {str(row[name]).lower() for row in rows if row.get(name) is not None}
        if words and words <= _WORDS:
            return name
    return None


def inserted(rows: Sequence[dict[str, Any]], operation: str | None) -> list[dict[str, Any]]:
    """Returns the rows that the field with the operation marks as inserted; all rows if there are none, or no field."""
    inserts = [row for row in rows if operation is not None and str(row.get(operation)).lower() in _INSERTS]
    return inserts or list(rows)


def marked_deleted(name: str, written: str, inferred: Inferred, values: Sequence[Any]) -> str | None:
    """Returns the SQL condition under which a field marks its row as deleted; None if it seems to mark nothing.

    Args:
        name: the name of the field.
        written: the same name, as SQL writes it.
        inferred: its type.
        values: its values that are not null.
    """
    if not names_delete(name):
        return None
    if inferred.type == "BOOLEAN":
        return written
    if inferred.type.startswith(("DATE", "TIMESTAMP")) or not values or names_moment(name):
        return f"{written} IS NOT NULL" if inferred.type != "BIGINT" else f"{written} > 0"
    texts = {str(value) for value in values}
    if inferred.type in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
        return f"{written} = 1" if texts <= {"0", "1"} else None
    if inferred.type != "STRING" or any(word.lower() not in {*_YES, *_SAYS_YES, ""} for word in texts):
        return None
    yes = sorted(word for word in texts if word.lower() in _SAYS_YES)
    if not yes:
        no = min(word for word in texts if word)
        yes = [_YES[no.lower()].upper() if no.isupper() else _YES[no.lower()]]
    return f"{written} = {text(yes[0])}" if len(yes) == 1 else f"{written} IN ({', '.join(map(text, yes))})"
