"""Plain rows as CSV files (RFC 4180): each row replaces the one with its key (`docs/reference/rows.md`).

The first row names the columns unless `csv.header` is false: then they are those of the schema in its order, after the
`op_column` if the schema does not have it. Values are read from their text, as those of JSON lines are. An empty field
without quotes is null, and so is `csv.null_text`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import reduce
from zlib import error as ZlibError

import fsspec
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.cdc.columnar import Columnar, as_lines, operation
from fk_pipeline.cdc.records import NOT_UTF8
from fk_pipeline.errors import UnreadableFileError
from fk_pipeline.spec import SideSpec, quote

_BROKEN = "_fk_broken"
_HEADER_BYTES = 1 << 20
_EMPTY = "\u0001empty\u0001"
"""What Spark is told to put for an empty field in quotes: it takes an empty text for null."""
_BOM = "\u00ef\u00bb\u00bf"
"""A byte order mark, each byte as a character."""

_PLACE = (
    "_metadata.file_path AS path",
    "CAST(0 AS BIGINT) AS block",
    "MONOTONICALLY_INCREASING_ID() AS position",
)


class Csv(Columnar):
    """Reads one change per row."""

    def read(self, session: SparkSession, paths: Sequence[str], side: SideSpec) -> DataFrame:
        """The rows of the files, as `csv_rows` gives them.

        Raises:
            UnreadableFileError: a file that ends in `.gz` is none.
        """
        return csv_rows(session, paths, side, side.op_column, header=side.csv.header is not False)


def csv_rows(
    session: SparkSession,
    paths: Sequence[str],
    side: SideSpec,
    op_column: str | None,
    *,
    header: bool,
    optional: bool = False,
) -> DataFrame:
    """The rows of CSV files, as lines.

    Args:
        session: a Spark session.
        paths: the files.
        side: declares the columns.
        op_column: the column that says what a row does; None where each is written.
        header: the first row names the columns.
        optional: files without that column are rows to write.

    Returns:
        What `as_lines` returns, `value.value` the row as JSON, or as it is where it has too few fields or too many.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for path in paths:
        alike.setdefault(_columns(path, side, op_column, header, optional), []).append(path)
    parts = []
    for names, group in alike.items():
        op = operation(op_column, names)
        named = None if op == "NULL" and optional else op_column
        bad = (
            f"IF(_raw.{_BROKEN} IS NULL, NULL, IF(STARTSWITH(_raw.{_BROKEN}, '{NOT_UTF8}'), 'not UTF-8', "
            f"'not a row of {len(names)} fields'))"
        )
        fields = ", ".join(f"_raw.{quote(name)} AS {quote(name)}" for name in names)
        raw = f"COALESCE(_raw.{_BROKEN}, TO_JSON(STRUCT({fields})))"
        stored = _texts(session, group, names, side, header)
        parts.append(as_lines(stored, side, raw, _PLACE, op=op if named else None, named=named, bad=bad))
    return reduce(DataFrame.unionByName, parts)


def _texts(session: SparkSession, paths: list[str], names: tuple[str, ...], side: SideSpec, header: bool) -> DataFrame:
    """The fields as texts. Spark is told that a byte is a character: it would replace what is not UTF-8."""
    fields = [f"_{number}" for number in range(len(names))]
    stored = (
        session.read.schema(", ".join(f"{name} STRING" for name in [*fields, _BROKEN]))
        .options(
            header=header,
            sep=side.csv.delimiter,
            nullValue=side.csv.null_text,
            emptyValue=_EMPTY,
            quote='"',
            escape='"',
            encoding="ISO-8859-1",
            multiLine=True,
            columnPruning=False,
            columnNameOfCorruptRecord=_BROKEN,
        )
        .csv(paths)
    )
    read = {name: f"IF({name} = '{_EMPTY}', '', {name})" for name in fields}
    read["_0"] = f"IF(STARTSWITH(_0, '{_BOM}'), SUBSTRING(_0, 4), {read['_0']})"
    utf8 = {name: f"CAST(ENCODE({read.get(name, name)}, 'ISO-8859-1') AS STRING)" for name in [*fields, _BROKEN]}
    valid = " AND ".join(f"COALESCE(IS_VALID_UTF8({sql}), TRUE)" for sql in utf8.values())
    whole = f"COALESCE({_BROKEN}, CONCAT_WS('{side.csv.delimiter}', {', '.join(fields)}))"
    broken = f"IF({valid}, {utf8[_BROKEN]}, CONCAT('{NOT_UTF8}', BASE64(ENCODE({whole}, 'ISO-8859-1'))))"
    named = [f"IF({valid}, {utf8[field]}, NULL) AS {quote(name)}" for field, name in zip(fields, names, strict=True)]
    return stored.selectExpr(*named, f"{broken} AS {_BROKEN}")


def _columns(path: str, side: SideSpec, op_column: str | None, header: bool, optional: bool) -> tuple[str, ...]:
    """The names of a file's columns, from its first row; those that stand there twice are told apart."""
    try:
        with fsspec.open(path, "rb", compression="gzip" if path.endswith(".gz") else None) as stream:
            start = stream.read(_HEADER_BYTES)
    except (OSError, EOFError, ZlibError) as error:
        raise UnreadableFileError("the file cannot be read", where=path, why=str(error)) from None
    rows = csv.reader(io.StringIO(start.decode("utf-8-sig", "replace"), newline=""), delimiter=side.csv.delimiter)
    first = next(rows, [])
    names = [c.name for c in side.columns]
    if not header:
        has_op = op_column is not None and op_column.lower() not in {name.lower() for name in names}
        return (str(op_column), *names) if has_op and not (optional and len(first) == len(names)) else tuple(names)
    lower = [name.lower() for name in first]
    return tuple(name if lower.index(name.lower()) == i else f"{name}_{i}" for i, name in enumerate(first)) or ("_",)
