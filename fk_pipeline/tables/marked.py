"""The rows of Parquet files that deletion vectors mark, left out by a condition: a join would take a job of its own."""

from __future__ import annotations

import pyarrow as pa

from fk_pipeline.spec.sql import text

BITS = 63
"""Rows per word of marks: no word is negative."""

MARK_WORDS = 1_000
"""Marks that are a literal of a query, in words: those of the rows up to the last marked one of every file."""


def unmarked(deleted: pa.Table) -> str | None:
    """SQL (BOOLEAN) over a row of Parquet files: no deletion vector marks it.

    Args:
        deleted: `file` and `row` of every marked row.

    Returns:
        A condition in which a literal has one bit per row up to the last marked one of its file; None where there is no
        marked row, or where it would be long.
    """
    last = deleted.group_by("file").aggregate([("row", "max")])["row_max"].to_pylist()
    if not last or sum(row // BITS + 1 for row in last) > MARK_WORDS:
        return None
    words: dict[str, dict[int, int]] = {}
    for file, row in zip(deleted["file"].to_pylist(), deleted["row"].to_pylist(), strict=True):
        bits = words.setdefault(file, {})
        bits[row // BITS] = bits.get(row // BITS, 0) | 1 << row % BITS
    cases = []
    for file, bits in words.items():
        array = ", ".join(f"{bits.get(i, 0)}L" for i in range(max(bits) + 1))
        word = f"GET(ARRAY({array}), CAST(_metadata.row_index DIV {BITS} AS INT))"
        marked = f"COALESCE(GETBIT({word}, CAST(_metadata.row_index % {BITS} AS INT)), 0)"
        cases.append(f"WHEN {text(file)} THEN {marked} = 0")
    return f"CASE _metadata.file_name {' '.join(cases)} ELSE TRUE END"
