"""A condition that leaves out the rows of Parquet files in deletion vectors: a join would take a job of its own."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from fk_pipeline.spec.sql import text
from fk_pipeline.store.sizes import Sizes

BITS = 63
"""Rows per word of the literal: with 63 bits no word is negative."""

IN, AT = "_fk_marked_in", "_fk_marked_at"
"""Columns of `places`: the name of the file, and the index of the row in it. No table may have columns of these names:
a join adds them to its rows, and takes them away."""


def places(deleted: Mapping[str, pa.Array]) -> pa.Table:
    """Returns one row per row in a deletion vector: its file (`IN`) and its index in the file (`AT`)."""
    files = [pa.repeat(file, len(rows)) for file, rows in deleted.items()]
    return pa.table({IN: pa.chunked_array(files, pa.string()), AT: pa.chunked_array([*deleted.values()], pa.int64())})


def unmarked(deleted: Mapping[str, pa.Array], sizes: Sizes) -> str | None:
    """SQL (BOOLEAN) over a row of Parquet files: true if no deletion vector has it.

    Args:
        deleted: per file that has some, the ascending indices of its rows in the deletion vector.
        sizes: the limit for the length of the literal.

    Returns:
        A condition with a literal of one bit per row, up to the last row of each file in its deletion vector; None if
        no row is in one, or if the literal would be too long.
    """
    last = [rows[-1].as_py() for rows in deleted.values()]
    if not last or sum(row // BITS + 1 for row in last) > sizes.mark_words:
        return None
    cases = []
    for file, rows in deleted.items():
        bits: dict[int, int] = {}
        for row in rows.to_pylist():
            bits[row // BITS] = bits.get(row // BITS, 0) | 1 << row % BITS
        array = ", ".join(f"{bits.get(i, 0)}L" for i in range(max(bits) + 1))
        word = f"GET(ARRAY({array}), CAST(_metadata.row_index DIV {BITS} AS INT))"
        marked = f"COALESCE(GETBIT({word}, CAST(_metadata.row_index % {BITS} AS INT)), 0)"
        cases.append(f"WHEN {text(file)} THEN {marked} = 0")
    return f"CASE _metadata.file_name {' '.join(cases)} ELSE TRUE END"
