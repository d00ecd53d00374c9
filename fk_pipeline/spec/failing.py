"""Evaluates the expressions of the pipeline file, which may fail on a row: `1/x` on 0, `CAST(t AS INT)`.

Spark stops the whole query on such a row. The stage is then run again with row-error isolation: the rows that fail are
found and quarantined, and the others are processed (`docs/reference/pipeline-file.md`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fk_pipeline.spec.sql import text

ONCE_FILLED = "once the values that were not sent are filled in"
"""The end of the reason of a line on which `where` fails only then: its row is in the changelog, too."""


def fails(*expressions: str) -> str:
    """SQL (BOOLEAN, never null): one of the expressions (each with or without `AS name`) fails on the row.

    `TRY_TO_BINARY` returns null if its input cannot be computed, and the text of a struct is never null. This is true
    only under `store.settings.GUARDED`: Spark must not compute the expression once for this use and another.
    """
    return f"(TRY_TO_BINARY(CAST(STRUCT({', '.join(expressions)}) AS STRING), 'utf-8') IS NULL)"


@dataclass(frozen=True)
class Evaluator:
    """Writes expressions as SQL in one of two modes.

    Attributes:
        isolating: whether rows on which an expression fails are found, and the expression is null there. If not, Spark
            stops at such a row, and the check costs nothing.
    """

    isolating: bool

    def fails(self, *expressions: str) -> str:
        """SQL (BOOLEAN, never null): one of the expressions fails on the row."""
        return fails(*expressions) if self.isolating else "FALSE"

    def value(self, sql: str, where: str) -> str:
        """SQL: the value of an expression on rows that meet a condition; null on other rows, and where it fails."""
        return f"IF({where} AND NOT {self.fails(sql)}, ({sql}), NULL)"

    def reason(self, cases: Iterable[tuple[str, str, str]]) -> str:
        """SQL (STRING): the reason why a row fails; null if it does not fail.

        Args:
            cases: condition, expression, and a name for the expression; the first that fails on a row is reported.
        """
        branches = " ".join(
            f"WHEN {where} AND {fails(sql)} THEN {text(f'{what} {sql} fails on this row')}"
            for where, sql, what in cases
        )
        return f"CASE {branches} END" if branches and self.isolating else "CAST(NULL AS STRING)"


STOPPING = Evaluator(isolating=False)
"""Spark stops at a row on which an expression fails."""

ISOLATING = Evaluator(isolating=True)
"""Rows on which an expression fails are found and isolated."""
