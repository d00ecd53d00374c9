"""What every format makes of a line: an event, something to ignore, or a record for the quarantine.

A format is one small class (`Format`). It reads files, gets its lines with their place and returns one row per line,
two where a line changes a key:

| column | |
|---|---|
| `kind` | `event`, `ignored`, `bad`, or `truncate` (an event about every key) |
| `reason` | why it is ignored or bad |
| `op` | c, u, r, d |
| `deleted` | the event is a tombstone |
| `sequence` | the source's own order, of the format's `sequence_type` |
| `row` | the declared columns, typed; for a tombstone what is known of the row that was there |
| `holes` | only with `has_holes`: the columns that the source did not send, null in `row`; null if it sent all |
| `old_key` | only with `has_holes`: the key that the row had until this event; null if it is the same |
| `rounded` | may be left out: the columns of `row` whose values are not exactly those that were sent, with commas |
| `fields` | may be left out: the names under which the source sent values of the row; null where that is not known |

and `value` (the line as text; of a columnar file the row as a struct or as JSON) and, unchanged, its place: `batch`,
`file`, `file_number` (position in the batch's list), `block` (offset of the split in the file) and `position` (order
within the split).

Formats are written in SQL text: one call each, where a tree of Column objects costs thousands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.cdc.values import base, convert, is_rounded, why_not
from fk_pipeline.environment.storage import PATHS_AS_THEY_ARE
from fk_pipeline.spec import Column, SideSpec, quote
from fk_pipeline.spec.sql import text

ARRIVAL, ARRIVAL_TYPE = "STRUCT(batch AS arrival)", "STRUCT<arrival: INT>"
"""The order of a source that has none: SQL, and its type in DDL."""

EVENT, IGNORED, BAD, TRUNCATE = "event", "ignored", "bad", "truncate"
SNAPSHOT = "snapshot"
"""The reason of a truncate that stands before a snapshot."""

NOT_UTF8 = "bytes in Base64: "
"""What stands before the bytes of a line that is not UTF-8."""

NO_OBJECT = (
    f"CASE WHEN STARTSWITH(value, '{NOT_UTF8}') THEN 'not UTF-8' WHEN JSON_OBJECT_KEYS(value) IS NULL "
    "THEN 'not a JSON object' ELSE 'not one JSON object: other text is on its line' END"
)
"""SQL: why a line is not read."""

TRIMMED = "TRIM(BOTH ' \\t\\r' FROM value)"
"""SQL: a line without white space around it; the lines of some writers end in a carriage return."""


class Format(Protocol):
    """One way to write changes; one of the user's own is named as `module:Class` (`docs/reference/formats.md`)."""

    sequence_type: str
    """DDL of the order that the source gives its events; a struct, compared field by field."""

    is_text: bool
    """`value` is the line itself, which a correction may replace."""

    has_holes: bool
    """The source may leave out values that a change did not touch: `parse` returns `holes` and `old_key` too."""

    sends_all: bool
    """A row of the source has all its columns, those that are null too: one that is not there is not there any more."""

    def read(self, session: SparkSession, paths: Sequence[str], side: SideSpec) -> DataFrame:
        """The files as lines: `value`, `path` (the URI of the file), `block` and `position`."""
        ...

    def parse(self, lines: DataFrame, side: SideSpec) -> DataFrame:
        """What is in the lines, as the table above says: one row per line, two where one changes a key."""
        ...

    def has_keys_once(self, path: str, side: SideSpec) -> bool:
        """Whether it is quickly seen that no key is in a file twice."""
        ...


class JsonLines:
    """Reads one text per line, split on the line feed only."""

    is_text = True
    has_holes = False
    sends_all = True

    def has_keys_once(self, _path: str, _side: SideSpec) -> bool:
        """That takes parsing them."""
        return False

    def read(self, session: SparkSession, paths: Sequence[str], _side: SideSpec) -> DataFrame:
        """`value` is the line without a byte order mark; of one that is not UTF-8 its bytes in Base64."""
        line = f"IF(IS_VALID_UTF8(value), LTRIM('\ufeff', value), CONCAT('{NOT_UTF8}', BASE64(value)))"
        return (
            session.read.options(**PATHS_AS_THEY_ARE)
            .text(list(paths), lineSep="\n")
            .select(
                F.expr(line).alias("value"),
                F.col("_metadata.file_path").alias("path"),
                F.col("_metadata.file_block_start").alias("block"),
                F.monotonically_increasing_id().alias("position"),
            )
        )


def records(place: Sequence[str], sequence: str) -> list[str]:
    """SQL of the columns that a format returns, from `op`, `deleted`, `row`, `_ignored` and `_bad` (why; else null).

    Args:
        place: the columns that stay as they are.
        sequence: SQL of the source's own order.
    """
    return [
        *place,
        (
            f"CASE WHEN _ignored IS NOT NULL THEN '{IGNORED}' WHEN _bad IS NOT NULL THEN '{BAD}' "
            f"WHEN op = 't' THEN '{TRUNCATE}' ELSE '{EVENT}' END AS kind"
        ),
        "COALESCE(_ignored, _bad) AS reason",
        "op",
        "deleted",
        f"{sequence} AS sequence",
        "row",
    ]


def typed_row(side: SideSpec, texts: Mapping[str, str], typed: Mapping[str, str] | None = None) -> str:
    """SQL (STRUCT): the declared columns made from texts; null where a text does not fit.

    Args:
        side: declares the columns.
        texts: per column SQL of its value as text (STRING).
        typed: per column that needs no text SQL of its value, of the declared type.
    """
    values = {c.name: convert(texts[c.name], c, side) for c in side.columns if c.name in texts} | dict(typed or {})
    return "STRUCT(" + ", ".join(f"{values[c.name]} AS {c.quoted}" for c in side.columns) + ")"


def typed_key(side: SideSpec, texts: Mapping[str, str]) -> str:
    """SQL (STRUCT): the key columns made from texts; null where a text does not fit."""
    return "STRUCT(" + ", ".join(f"{convert(texts[c.name], c, side)} AS {c.quoted}" for c in side.key_columns) + ")"


def misfit(side: SideSpec, texts: Mapping[str, str], row: str) -> str:
    """SQL (STRING): the first column whose text does not fit its type, and the text unless the column is sensitive.

    Null when all fit.

    Args:
        side: declares the columns.
        texts: as in `typed_row`; columns that are left out fit.
        row: SQL of the struct that `typed_row` made.
    """

    def shown(column: Column) -> str:
        return "'a sensitive value'" if column.name in side.sensitive else f"SUBSTRING({texts[column.name]}, 1, 80)"

    found = [
        f"IF({texts[c.name]} IS NOT NULL AND {row}.{c.quoted} IS NULL, "
        f"CONCAT({text(f'column {c.name}: ')}, {shown(c)}, {why_not(texts[c.name], c)}), NULL)"
        for c in side.columns
        if c.name in texts and base(c.type) != "STRING"
    ]
    return f"COALESCE({', '.join(['CAST(NULL AS STRING)', *found])})"


def rounded(side: SideSpec, texts: Mapping[str, str], row: str) -> str:
    """SQL (STRING): the columns whose value is the nearest that their type has, not the one that was sent; else null.

    Args:
        side: declares the columns.
        texts: as in `typed_row`.
        row: SQL of the struct that `typed_row` made.

    Returns:
        The names, with commas between them: no name has one.
    """
    found = [
        f"IF({loss}, {text(c.name)}, NULL)"
        for c in side.columns
        if c.name in texts and (loss := is_rounded(texts[c.name], f"{row}.{c.quoted}", c, side)) is not None
    ]
    return f"NULLIF(CONCAT_WS(',', {', '.join(found)}), '')" if found else "CAST(NULL AS STRING)"


def unknown(side: SideSpec, what: str, word: str) -> str:
    """SQL (STRING): that a word of a line is not known, quoted unless columns are sensitive: it may be any text.

    Args:
        side: whose line it is.
        what: what the word ought to be.
        word: SQL of the word.
    """
    return f"'unknown {what}'" if side.sensitive else f"CONCAT('unknown {what} ', {word})"


def of_another_table(side: SideSpec, table: str, within: Sequence[str] = ()) -> str:
    """SQL (BOOLEAN): a record is about another table than the side's; false where it does not say which.

    Args:
        side: its `table` may have the name of a schema or database before it, with a point.
        table: SQL of the table's name.
        within: SQL of names that may stand before it.
    """
    if side.table is None:
        return "FALSE"
    names = [table, *(f"CONCAT({name}, '.', {table})" for name in within)]
    is_ours = " OR ".join(f"COALESCE({name} = {text(side.table)}, FALSE)" for name in names)
    return f"({table} IS NOT NULL AND NOT ({is_ours}))"


OTHER_TABLE = "another table"
"""Why such a record is ignored."""


def first_letter(operation: str) -> str:
    """SQL (STRING): what a plain row does, from SQL of the word that says so."""
    return f"LOWER(SUBSTRING(CAST({operation} AS STRING), 1, 1))"


def operation_problem(side: SideSpec, named: str | None, misfit: str, missing_key: str) -> str:
    """SQL (STRING): what is wrong with a plain row, whose first letter of the operation is `op`; null when nothing is.

    Args:
        side: whose row it is.
        named: the column that names the operation; None where every row is one to write.
        misfit: SQL of the first value that does not fit.
        missing_key: SQL of the key column that is null.
    """
    problem = f"COALESCE(IF(deleted, NULL, {misfit}), {missing_key})"
    if named is None:
        return problem
    return (
        f"CASE WHEN op IS NULL THEN {text(f'no operation in {named}')} "
        f"WHEN op NOT IN ('c', 'i', 'r', 'u', 'd', 't') THEN {unknown(side, 'operation', 'op')} "
        f"WHEN op = 't' THEN NULL ELSE {problem} END"
    )


def missing_key(side: SideSpec, row: str, values: Mapping[str, str] | None = None) -> str:
    """SQL (STRING): which key column of a row is null; null when none is.

    Args:
        side: whose row it is.
        row: SQL of the row.
        values: per column SQL of its value, where that is known without the row.
    """
    known = values or {}
    found = [
        f"IF({known.get(c.name, f'{row}.{c.quoted}')} IS NULL, {text(f'key column {c.name} is null')}, NULL)"
        for c in side.key_columns
    ]
    return f"COALESCE({', '.join(['CAST(NULL AS STRING)', *found])})"


def computed_once(fields: str) -> str:
    """SQL (STRUCT): fields that are computed before whatever reads them.

    Spark writes the fields of a bare STRUCT into every expression that reads one (rule `CollapseProject`), again and
    again from step to step: the plan of a wide table would fill the heap.

    Args:
        fields: SQL of the fields, of lines that are never null.
    """
    return f"IF(value IS NULL, NULL, STRUCT({fields}))"


def struct_of_texts(columns: tuple[Column, ...]) -> str:
    """DDL of a struct with every column as text."""
    return "STRUCT<" + ", ".join(f"{c.quoted}: STRING" for c in columns) + ">"


def fields_of_texts(names: set[str]) -> str:
    """DDL of struct fields, every one a text."""
    return ", ".join(f"{quote(name)}: STRING" for name in sorted(names))
