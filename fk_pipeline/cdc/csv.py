"""Plain rows as CSV files (RFC 4180): each row replaces the one with its key (`docs/reference/rows.md`).

The first row names the columns unless `csv.header` is false. Then the columns are those of the schema in its order,
after the `op_column` if the schema does not have it. Values are read from their text, like those of JSON lines. An
empty field without quotes is null, and so is `csv.null_text`.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from zlib import error as ZlibError

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from fk_pipeline.cdc.columnar import Columnar, as_lines, operation
from fk_pipeline.cdc.records import NOT_UTF8, WORDS
from fk_pipeline.environment import storage
from fk_pipeline.errors import UnreadableFileError
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.sql import text

_BROKEN = "_fk_broken"
_NO_HEADER = ("_",)
"""The columns of a file that should have a first row with names and has none: no row of it can be used."""
_BLOCK = 1 << 20
_MOST_FIELDS = 1 << 20
"""The largest number of fields of a row; a row with more stops Spark's parser."""
_EMPTY = "\u0001empty\u0001"
"""The text that Spark returns for an empty field in quotes; otherwise it would read an empty text as null."""
_BOM = "\u00ef\u00bb\u00bf"
"""A byte order mark, each byte as a character."""

_PLACE = (
    "_metadata.file_path AS path",
    "CAST(0 AS BIGINT) AS block",
    "MONOTONICALLY_INCREASING_ID() AS position",
)


class Csv(Columnar):
    """The format `csv`: one change per row."""

    def read(self, session: SparkSession, paths: Sequence[str], side: SideSpec) -> DataFrame:
        """Returns the rows of the files as lines; see `csv_rows`.

        Raises:
            UnreadableFileError: a file whose name ends in `.gz` is not a gzip file.
        """
        return csv_rows(session, paths, side, side.op_column, header=side.csv.header is not False)


def csv_rows(
    session: SparkSession,
    paths: Sequence[str],
    side: SideSpec,
    op_column: str | None,
    *,
    header: bool,
    words: Iterable[str] = WORDS,
    lacks: Callable[[str, Sequence[str]], bool] | None = None,
) -> DataFrame:
    """Returns the rows of CSV files as lines.

    Args:
        session: a Spark session.
        paths: the files.
        side: declares the columns.
        op_column: the column that names the operation of a row; None if each row is written.
        header: whether the first row names the columns.
        words: the words that the column may have.
        lacks: returns whether a file without a header lacks the column, given its path and first row: its rows are
            written. None: every file has it.

    Returns:
        Lines as from `as_lines`; `value.value` is the row as JSON, or as it is if it has too few or too many fields.
    """
    alike: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for path in paths:
        start, is_open = _look(path)
        first = _first_row(start, side, is_open, header=header)
        has_op = op_column if lacks is None or not lacks(path, first) else None
        names = _columns(first, side, has_op, header)
        alike.setdefault((names, is_open), []).append(path)
    parts = []
    for (names, is_open), group in alike.items():
        op, named = operation(op_column, names, may_lack=lacks is not None)
        bad = (
            f"IF(_raw.{_BROKEN} IS NULL, NULL, IF(STARTSWITH(_raw.{_BROKEN}, '{NOT_UTF8}'), 'not UTF-8', "
            f"'not a row of {len(names)} fields'))"
        )
        fields = ", ".join(f"_raw.{quote(name)} AS {quote(name)}" for name in names)
        raw = f"COALESCE(_raw.{_BROKEN}, TO_JSON(STRUCT({fields})))"
        stored = _texts(session, group, names, side, header and names != _NO_HEADER)
        sent = () if names == _NO_HEADER else names
        lines = as_lines(stored, side, raw, _PLACE, op=op, named=named, words=words, bad=bad, sent=sent)
        parts.append(_without_last(lines) if is_open else lines)
    return reduce(DataFrame.unionByName, parts)


def _texts(session: SparkSession, paths: list[str], names: tuple[str, ...], side: SideSpec, header: bool) -> DataFrame:
    """Returns the fields as texts.

    Spark reads every byte as a character; reading UTF-8, it would replace bytes that are not.
    """
    fields = [f"_{number}" for number in range(len(names))]
    stored = (
        session.read.schema(", ".join(f"{name} STRING" for name in [*fields, _BROKEN]))
        .options(
            **storage.PATHS_AS_THEY_ARE,
            header=header,
            sep=side.csv.delimiter,
            nullValue=side.csv.null_text,
            emptyValue=_EMPTY,
            quote='"',
            escape='"',
            encoding="ISO-8859-1",
            multiLine=True,
            columnPruning=False,
            maxColumns=_MOST_FIELDS,
            columnNameOfCorruptRecord=_BROKEN,
        )
        .csv(paths)
    )
    read = {name: f"IF({name} = '{_EMPTY}', '', {name})" for name in fields}
    read["_0"] = f"IF(STARTSWITH(_0, '{_BOM}'), SUBSTRING(_0, 4), {read['_0']})"
    utf8 = {name: f"CAST(ENCODE({read.get(name, name)}, 'ISO-8859-1') AS STRING)" for name in [*fields, _BROKEN]}
    valid = " AND ".join(f"COALESCE(IS_VALID_UTF8({sql}), TRUE)" for sql in utf8.values())
    whole = f"COALESCE({_BROKEN}, CONCAT_WS({text(side.csv.delimiter)}, {', '.join(fields)}))"
    broken = f"IF({valid}, {utf8[_BROKEN]}, CONCAT('{NOT_UTF8}', BASE64(ENCODE({whole}, 'ISO-8859-1'))))"
    named = [f"IF({valid}, {utf8[field]}, NULL) AS {quote(name)}" for field, name in zip(fields, names, strict=True)]
    return stored.selectExpr(*named, f"{broken} AS {_BROKEN}")


def _without_last(lines: DataFrame) -> DataFrame:
    """Marks the last record of files with an odd number of quotes as bad: it may include the records after it."""
    last = F.col("position") == F.max("position").over(Window.partitionBy("path"))
    bad = F.when(last, F.coalesce("value._bad", F.lit("a quote is not closed"))).otherwise(F.col("value._bad"))
    return lines.withColumn("value", F.col("value").withField("_bad", bad))


def _look(path: str) -> tuple[bytes, bool]:
    """Returns the start of a file, and whether the file has an odd number of quotes."""
    try:
        with storage.opened(path, compression="gzip" if path.endswith(".gz") else None) as stream:
            start = block = stream.read(_BLOCK)
            quotes = 0
            while block:
                quotes += block.count(b'"')
                block = stream.read(_BLOCK)
    except (OSError, EOFError, ZlibError) as error:
        raise UnreadableFileError(
            "the file cannot be read", where=path, why=str(error), fix="replace it by a whole one, or let it be read"
        ) from None
    return start, quotes % 2 == 1


def _first_row(start: bytes, side: SideSpec, is_open: bool, *, header: bool) -> list[str]:
    """Returns the fields of a file's first row; none if an unclosed quote makes it span several lines.

    Blanks around the names of a header do not count, and empty lines before it are no rows.
    """
    begin = io.StringIO(start.decode("utf-8-sig", "replace"), newline="")
    rows = csv.reader(begin, delimiter=side.csv.delimiter, skipinitialspace=header and side.csv.delimiter != " ")
    csv.field_size_limit(sys.maxsize)
    try:
        first = next(filter(None, rows), [])
    except csv.Error:
        return []
    if is_open and any("\n" in field or "\r" in field for field in first):
        return []
    return [name.strip() for name in first] if header else first


def _columns(first: list[str], side: SideSpec, op_column: str | None, header: bool) -> tuple[str, ...]:
    """Returns the names of a file's columns, from its first row; a repeated name gets its position as suffix.

    Args:
        first: the first row.
        side: declares the columns.
        op_column: the first column of a file without a header, unless it is declared; None if there is none.
        header: whether the first row names the columns.
    """
    names = [c.name for c in side.columns]
    if not header:
        has_op = op_column is not None and op_column.lower() not in {name.lower() for name in names}
        return (str(op_column), *names) if has_op else tuple(names)
    taken: dict[str, str] = {}
    for number, name in enumerate(first):
        unique = name
        while unique.lower() in taken:
            unique = f"{unique}_{number}"
        taken[unique.lower()] = unique
    return tuple(taken.values()) or _NO_HEADER
