"""How the expressions of the pipeline file are evaluated where they may fail on a row: `1/x` on 0, `CAST(t AS INT)`.

Spark stops the whole query on such a row. A stage that stopped is run again with an evaluator that isolates: the rows
that fail are told apart and quarantined, the others go on (`docs/reference/pipeline-file.md`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fk_pipeline.spec.sql import text


def fails(*expressions: str) -> str:
    """SQL (BOOLEAN, never null): one of the expressions (each with or without `AS name`) fails on the row.

    `TRY_TO_BINARY` gives null where its input cannot be computed, and the text of a struct is never null. It holds only
    under `store.settings.GUARDED`: Spark must not compute the expression once for this place and another.
    """
    return f"(TRY_TO_BINARY(CAST(STRUCT({', '.join(expressions)}) AS STRING), 'utf-8') IS NULL)"


@dataclass(frozen=True)
class Evaluator:
    """Writes expressions as SQL in one of two modes.

    Attributes:
        isolating: a row on which an expression fails is told apart, and gets null in its place; otherwise Spark stops
            there, and spends nothing on the question.
    """

    isolating: bool

    def fails(self, *expressions: str) -> str:
        """SQL (BOOLEAN, never null): one of the expressions fails on the row."""
        return fails(*expressions) if self.isolating else "FALSE"

    def value(self, sql: str, where: str) -> str:
        """SQL: the value of an expression on a row that meets a condition; null on others, and where it fails."""
        return f"IF({where} AND NOT {self.fails(sql)}, ({sql}), NULL)"

    def reason(self, cases: Iterable[tuple[str, str, str]]) -> str:
        """SQL (STRING): why a row fails, null where it does not.

        Args:
            cases: condition, expression, and what the expression is: the first that fails on a row is told.
        """
        found = " ".join(
            f"WHEN {where} AND {fails(sql)} THEN {text(f'{what} {sql} fails on this row')}"
            for where, sql, what in cases
        )
        return f"CASE {found} END" if found and self.isolating else "CAST(NULL AS STRING)"


STOPPING = Evaluator(isolating=False)
"""Spark stops at a row on which an expression fails."""

ISOLATING = Evaluator(isolating=True)
"""Rows on which an expression fails are told apart."""
