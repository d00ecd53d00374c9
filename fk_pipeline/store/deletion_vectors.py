"""The rows of Parquet files that deletion vectors mark, left out by a condition: a join would take a job of its own."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from fk_pipeline.spec.sql import text
from fk_pipeline.store.sizes import Sizes

BITS = 63
"""Rows per word of marks: no word is negative."""

IN, AT = "_fk_in", "_fk_at"
"""Columns of `places`: the file, and the row in it."""


def places(deleted: Mapping[str, pa.Array]) -> pa.Table:
    """File and index of every marked row."""
    files = [pa.repeat(file, len(rows)) for file, rows in deleted.items()]
    return pa.table({IN: pa.chunked_array(files, pa.string()), AT: pa.chunked_array([*deleted.values()], pa.int64())})


def unmarked(deleted: Mapping[str, pa.Array], sizes: Sizes) -> str | None:
    """SQL (BOOLEAN) over a row of Parquet files: no deletion vector marks it.

    Args:
        deleted: by file the indices of its marked rows, ascending; of files that have some.
        sizes: how long the literal may be.

    Returns:
        A condition in which a literal has one bit per row up to the last marked one of its file; None where there is no
        marked row, or where it would be long.
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
