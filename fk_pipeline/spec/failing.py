"""Which rows an expression fails on, as SQL: `1/x` on 0, `CAST(text AS INT)` on 'none'.

Spark stops the whole query on such a row. A stage that stopped is run again with its expressions guarded: the rows that
fail are told apart and quarantined, the others go on (`docs/reference/pipeline-file.md`).
"""

from __future__ import annotations


def fails(*expressions: str) -> str:
    """SQL (BOOLEAN, never null): one of the expressions (each with or without `AS name`) fails on the row.

    `TRY_TO_BINARY` gives null where its input cannot be computed, and the text of a struct is never null. It holds only
    under `store.settings.GUARDED`: Spark must not compute the expression once for this place and another.
    """
    return f"(TRY_TO_BINARY(CAST(STRUCT({', '.join(expressions)}) AS STRING), 'utf-8') IS NULL)"
