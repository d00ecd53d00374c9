"""Reads a sample of one side: its format, its columns, its key, and the names of its files. Starts no Spark.

At most `MOST_RECORDS` records are read. Facts that the data declare (a schema, the key of a record) are used as they
are; everything else is a guess, with its evidence.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from fk_pipeline.cdc.dates import refuse_part_of_date
from fk_pipeline.cdc.endings import ENDINGS, JSON_LINES
from fk_pipeline.cdc.ids import refuse_copy
from fk_pipeline.errors import LandingError, UsageError
from fk_pipeline.identity import MAX_BATCH
from fk_pipeline.scaffold.columnar import of_delta, of_parquet
from fk_pipeline.scaffold.deletes import inserted, operation_field
from fk_pipeline.scaffold.names import ENDINGS_READ, table_of
from fk_pipeline.scaffold.sampled import MOST_RECORDS, Sample, present_in, sample_of
from fk_pipeline.scaffold.shapes import DEBEZIUM, ROWS, Line, line_of
from fk_pipeline.scaffold.types import of_connect, of_values
from fk_pipeline.spec.formats import CsvSpec
from fk_pipeline.spec.paths import path_meant

UNAVAILABLE = "__debezium_unavailable_value"

_NOT_UTF8 = re.compile("[\udc80-\udcff]")
"""The characters that `surrogateescape` substitutes for bytes that are not UTF-8."""


def read_sample(path: Path, table: str = "") -> list[Sample]:
    """Returns the samples of a file or folder: one per table that its records name.

    Args:
        path: the file or folder, or a Delta table.
        table: the name of the table where no record has one; default: from the name of the file, or of its folder.

    Raises:
        UsageError: there is nothing to read, or no format can read it.
    """
    if (path / "_delta_log").is_dir():
        return [of_delta(path, table or path.name)]
    files = _files(path)
    ending = next(
        e for e in (*JSON_LINES, *ENDINGS["csv"], *ENDINGS["parquet"]) if files[0].name.removesuffix(".gz").endswith(e)
    )
    alike = [file for file in files if file.name.removesuffix(".gz").endswith(ending)]
    if ending in ENDINGS["parquet"]:
        samples = [of_parquet(path, alike, table or table_of(alike[0]))]
    elif ending in ENDINGS["csv"]:
        samples = [_of_csv(path, alike, table or table_of(alike[0]))]
    else:
        samples = _of_lines(path, alike, table)
    options = _batches(alike) if samples[0].format != "dms" else {}
    others = len(files) - len(alike)
    notes = (f"{others} file(s) in {path} that do not end in {ending} were not looked at",) if others else ()
    return [replace(sample, options=sample.options | options, notes=sample.notes + notes) for sample in samples]


def _files(path: Path) -> list[Path]:
    fix = f"a sample ends in one of {', '.join(ENDINGS_READ)}"
    if path.is_file():
        if not path.name.endswith(ENDINGS_READ):
            raise UsageError(f"{path} ends in nothing that is read", fix=fix)
        return [path]
    if not path.is_dir():
        raise UsageError(
            f"there is no sample {path}{path_meant(path)}",
            fix="name a file as it lands, a folder of them, or a Delta table",
        )
    files = sorted(file for file in path.iterdir() if file.name.endswith(ENDINGS_READ) and file.name[0] not in "._")
    if not files:
        raise UsageError(f"{path} has no file to read", fix=f"{fix}; a Delta table is a folder with _delta_log in it")
    return files


def _batches(files: Sequence[Path]) -> dict[str, str]:
    """Returns the option `batch_by` if the last number in the file names cannot be the number of a batch; else none."""
    names = [file.name for file in files]
    stems = [name.removesuffix(".gz").rsplit(".", 1)[0] for name in names]
    last = [int(numbers[-1]) for numbers in (re.findall(r"\d+", stem) for stem in stems) if numbers]
    repeated = len(names) > 1 and len(set(last)) == 1
    if last and (max(last) > MAX_BATCH or repeated or any(map(_is_refused, stems))):
        return {"batch_by": "arrival"}
    return {}


def _is_refused(stem: str) -> bool:
    """Returns whether the last number in a name is part of a date, or that of a copy."""
    try:
        refuse_part_of_date(stem, stem, is_snapshot=False)
        refuse_copy(stem, stem)
    except LandingError:
        return True
    return False


def _open(file: Path) -> IO[bytes]:
    return gzip.open(file, "rb") if file.name.endswith(".gz") else file.open("rb")  # type: ignore[return-value]


def _of_lines(path: Path, files: Sequence[Path], table: str) -> list[Sample]:
    """Returns one sample per table from files of JSON lines; `table` is the name for lines that have none."""
    tables: dict[tuple[str | None, str], list[Line]] = {}
    formats: set[str] = set()
    broken: list[UsageError] = []
    read = 0
    for file in files:
        for where, value in _values(file):
            if read == MOST_RECORDS:
                break
            read += 1
            if isinstance(value, UsageError):
                broken.append(value)
                continue
            line = line_of(value, where)
            if line is not None:
                formats.add(line.format)
                tables.setdefault((line.within, line.table or table or table_of(file)), []).append(line)
    if not tables and broken:
        raise broken[0]
    if not tables:
        raise UsageError(f"no row in the first {read:,} lines of {path}", fix="take a sample with inserts or updates")
    if len(formats) > 1:
        raise UsageError(f"{path} has lines of several formats: {', '.join(sorted(formats))}", fix="sample one of them")
    names = [name for _, name in tables]
    notes = _of_broken([f"{error.where}: {error.what}" for error in broken], read, "lines")
    return [
        _of_table(
            path,
            files[0].parent,
            f"{within}.{name}" if within and names.count(name) > 1 else name,
            lines,
            several=len(tables) > 1,
            notes=notes,
        )
        for (within, name), lines in tables.items()
    ]


def _of_broken(problems: Sequence[str], read: int, what: str) -> tuple[str, ...]:
    """Returns a note with the number of records that a run would put into the quarantine; nothing if there are none."""
    if not problems:
        return ()
    skipped = f"{len(problems):,} of {read:,} {what} cannot be read and were skipped"
    return (f"{skipped}; a run puts them into the quarantine. The first: {problems[0]}",)


def _values(file: Path) -> Iterator[tuple[str, Any]]:
    """Yields per line of a file its place, and a JSON object or null, or the error if it is neither."""
    with _open(file) as stream:
        for number, raw in enumerate(stream, 1):
            text = raw.strip(b" \t\r\n\xef\xbb\xbf")
            if not text:
                continue
            where = f"{file}:{number}"
            try:
                value = json.loads(text, parse_float=Decimal)
            except (ValueError, RecursionError) as error:
                fix = "one JSON value per line: jq -c . writes them so" if text[:1] in (b"{", b"[") else ""
                yield where, UsageError(f"a line is no JSON: {error}", where=where, fix=fix)
                continue
            if value is None or isinstance(value, dict):
                yield where, value
            else:
                fix = "one JSON object per line: jq -c '.[]' takes a list apart"
                yield where, UsageError("a line is not a JSON object", where=where, fix=fix)


def _of_table(
    path: Path, folder: Path, table: str, lines: Sequence[Line], *, several: bool, notes: Sequence[str]
) -> Sample:
    first = lines[0]
    names = list(dict.fromkeys(itertools.chain.from_iterable(line.row for line in lines)))
    newest = next((line.fields for line in reversed(lines) if line.fields), ())
    described = {field["field"]: field for field in newest}
    rows = [_without_holes(line.row) for line in lines] if first.format == DEBEZIUM else [line.row for line in lines]
    new = [row for line, row in zip(lines, rows, strict=True) if line.is_new]
    options: dict[str, Any] = {}
    if first.format == ROWS and (op := operation_field(names, rows)):
        new = inserted(rows, op)
        options["op_column"] = op
        names.remove(op)
        rows = [row for row in rows if str(row.get(op))[:1].lower() not in ("d", "t")]
    if several:
        options["table"] = table
    types = {
        name: of_connect(described[name])
        if name in described
        else of_values(name, present_in(rows, name), is_text=False, is_debezium=first.format == DEBEZIUM)
        for name in names
    }
    key = next((line.key for line in lines if line.key), None)
    return sample_of(
        path,
        folder,
        first.format,
        first.shape,
        table,
        types,
        rows,
        key,
        new or rows,
        records=len(lines),
        types_from="the schema that the records carry" if described else f"{len(lines):,} records",
        options=options,
        notes=notes,
    )


def _without_holes(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == UNAVAILABLE else value for name, value in row.items()}


def _of_csv(path: Path, files: Sequence[Path], table: str) -> Sample:
    """Returns the sample of CSV files, with or without a first row of column names; also of those that DMS writes."""
    first = files[0]
    with _open(first) as stream:
        start = stream.read(1 << 16).decode("utf-8-sig", errors="replace")
    delimiter = max(",;\t|", key=start.split("\n", 1)[0].count)
    options: dict[str, Any] = {} if delimiter == "," else {"delimiter": delimiter}
    records = list(itertools.islice(_csv_records(files, delimiter), MOST_RECORDS))
    if not records:
        raise UsageError(f"{path} has no row", fix="take a sample with rows")
    head, dms = records[0], {record[0] for record in records if record} <= {"I", "U", "D"} and len(records[0]) > 1
    if dms:
        names, rest = ["Op", *(f"column_{i}" for i in range(1, len(head)))], records
    elif _names_columns(head):
        names, rest = list(head), [record for record in records[1:] if record != head]
    else:
        names, rest = [f"column_{i}" for i in range(1, len(head) + 1)], records
        options["header"] = False
    width = len(head)
    good = [record for record in rest if len(record) == width and not any(map(_NOT_UTF8.search, record))]
    rows: list[dict[str, Any]] = [dict(zip(names, [cell or None for cell in record], strict=True)) for record in good]
    unnamed = "the first row of the file names no columns: give them their names in `schema`"
    named = "the first row of the file was taken for the names of the columns; if it is a row: csv: {header: false}"
    notes = [unnamed if "column_1" in names else named]
    bad = next((record for record in rest if record not in good), None) if len(good) < len(rest) else None
    if bad is not None:
        why = "not UTF-8" if any(map(_NOT_UTF8.search, bad)) else f"not a row of {width} fields"
        notes += _of_broken([why] * (len(rest) - len(good)), len(rest), "rows")
    side: dict[str, Any] = {"csv": CsvSpec(**options).model_dump(exclude_defaults=True)} if options else {}
    op = "Op" if dms else operation_field(names, rows)
    if op is not None:
        names.remove(op)
        side |= {} if dms else {"op_column": op}
    types = {name: of_values(name, present_in(rows, name), is_text=True, is_debezium=False) for name in names}
    return sample_of(
        path,
        first.parent,
        "dms" if dms else "csv",
        "CSV of AWS DMS" if dms else "CSV",
        table,
        types,
        rows,
        None,
        inserted(rows, op),
        records=len(rows),
        types_from=f"{len(rows):,} rows",
        options=side,
        notes=notes,
    )


def _names_columns(row: Sequence[str]) -> bool:
    """Returns whether the first row of a CSV file looks like names: none empty, all different, no numbers or dates."""
    cells = [cell.strip().lower() for cell in row]
    words = all(re.match(r"[^\W\d]", cell) for cell in cells)
    return words and len(set(cells)) == len(cells) and not {"true", "false", "null"} & set(cells)


def _csv_records(files: Iterable[Path], delimiter: str) -> Iterator[list[str]]:
    for file in files:
        with _open(file) as stream, io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="") as text:
            yield from (record for record in csv.reader(text, delimiter=delimiter) if record)
