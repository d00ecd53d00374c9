"""The files that `export` writes: whole or not at all; and the rows of this process in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa

from fk_pipeline.arrow_text import csv_rows, json_lines
from fk_pipeline.environment.storage import refuse_remote
from fk_pipeline.errors import LeftToSpark, UsageError

FILE_ENDINGS = (".csv", ".jsonl", ".parquet")


def check_ending(file: Path, endings: Sequence[str]) -> None:
    """Refuses a file that is not on this machine, or whose ending is none of those that are allowed.

    Raises:
        UsageError: it is a URI, or has another ending.
    """
    refuse_remote(file)
    if file.suffix not in endings:
        raise UsageError(
            f"{file.name}: cannot write {file.suffix or 'a file without ending'}",
            fix=f"use a file that ends in {', '.join(endings[:-1])} or {endings[-1]}",
        )


@contextmanager
def whole_file(file: Path, endings: Sequence[str], *, private: bool) -> Iterator[Path]:
    """Yields the file to write to, which becomes another one only when it is complete.

    Args:
        file: the file that it becomes.
        endings: the endings that are allowed.
        private: whether only the owner of the file may read it.

    Raises:
        UsageError: the file has another ending.
    """
    check_ending(file, endings)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600 if private else 0o666)
    try:
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def write_in_process(
    rows: pa.Table, file: Path, endings: Sequence[str] = FILE_ENDINGS, *, private: bool = False
) -> int:
    """Writes rows in Arrow as `export.write` does; returns their number.

    Raises:
        LeftToSpark: a value is certainly written by Spark only.
        UsageError: the file has another ending.
    """
    refuse_unknown_types(rows)
    with whole_file(file, endings, private=private) as part:
        if file.suffix == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(rows, part)
            return len(rows)
        with part.open("w", encoding="utf-8", newline="") as out:
            if file.suffix == ".jsonl":
                return write_lines(json_lines(rows), out)
            write_lines([csv_line(rows.column_names)], out)
            return write_lines(map(csv_line, csv_rows(rows)), out)


def refuse_unknown_types(rows: pa.Table) -> None:
    """Leaves rows to Spark that are none, of a table that does not exist.

    Raises:
        LeftToSpark: the type of a column is not known.
    """
    if any(pa.types.is_null(dtype) for dtype in rows.schema.types):
        raise LeftToSpark("the types of the columns are not known")


def csv_line(values: Iterable[str | None]) -> str:
    """Returns a CSV record: NULL is an empty field, the empty string is `""`."""
    return ",".join("" if v is None else _csv_field(v) for v in values)


def _csv_field(text: str) -> str:
    if text == "" or any(c in text for c in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def write_lines(lines: Iterable[str], out: IO[str]) -> int:
    """Writes lines to a stream; returns their number."""
    number = 0
    for line in lines:
        out.write(line + "\n")
        number += 1
    return number
