"""The records that every format returns for a line: an event, an ignored line, or a record for the quarantine.

A format is one small class (`Format`). It reads files, gets its lines with their place and returns one row per line,
two if a line changes a key:

| column | |
|---|---|
| `kind` | `event`, `ignored`, `bad`, or `truncate` (an event about every key) |
| `reason` | why it is ignored or bad |
| `op` | c, u, r, d |
| `deleted` | the event is a tombstone |
| `sequence` | the source's own order, of the format's `sequence_type` |
| `row` | the declared columns, typed; for a tombstone the known values of the deleted row |
| `holes` | only with `has_holes`: the columns with an unavailable value, null in `row`; null if the source sent all |
| `old_key` | only with `has_holes`: the key that the row had before this event; null if it is the same |
| `rounded` | optional: the columns of `row` whose values are not exactly those that were sent, separated by commas |
| `committed_at` | only with `valid_from: committed_at`: when the source committed the change, TIMESTAMP |
| `blind` | optional: the event is an update that may have changed the key, and its old key was not sent |
| `fields` | optional: the names under which the source sent values of the row; null if they are not known |

and `value` (the line as text; for a columnar file the row as a struct or as JSON) and, unchanged, its place: `batch`,
`file`, `file_number` (position in the batch's list), `block` (offset of the split in the file) and `position` (order
within the split).

Formats are written as SQL text: each expression is one call, where a tree of Column objects needs thousands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.cdc.json_lines import half_pair
from fk_pipeline.cdc.values import base, convert, is_rounded, why_not
from fk_pipeline.environment.storage import PATHS_AS_THEY_ARE
from fk_pipeline.identity import OLD_IMAGE
from fk_pipeline.spec import Column, SideSpec, quote
from fk_pipeline.spec.sql import parse_expression, text

ARRIVAL, ARRIVAL_TYPE = "STRUCT(batch AS arrival)", "STRUCT<arrival: INT>"
"""The order of events of a source without an order of its own: SQL, and its type in DDL."""

EVENT, IGNORED, BAD, TRUNCATE = "event", "ignored", "bad", "truncate"
SNAPSHOT = "snapshot"
"""The reason of a truncate that precedes a snapshot."""

NOT_UTF8 = "bytes in Base64: "
"""The text before the bytes of a line that is not UTF-8."""

NO_OBJECT = (
    f"CASE WHEN STARTSWITH(value, '{NOT_UTF8}') THEN 'not UTF-8' "
    f"WHEN {half_pair('value')} THEN 'not UTF-8: half of a surrogate pair' "
    "WHEN JSON_OBJECT_KEYS(value) IS NULL THEN 'not a JSON object' "
    "ELSE 'not one JSON object: other text is on its line' END"
)
"""SQL (STRING): the reason why a line cannot be read as one JSON object."""

TRIMMED = "TRIM(BOTH ' \\t\\r' FROM value)"
"""SQL (STRING): a line without white space around it; some writers end lines with a carriage return."""


class Format(Protocol):
    """A format of changes; a user's own format is named as `module:Class` (`docs/reference/formats.md`)."""

    sequence_type: str
    """DDL of the source's order of events; a struct, compared field by field."""

    is_text: bool
    """Whether `value` is the line itself, which a correction may replace."""

    has_holes: bool
    """Whether the source may leave out unchanged values; then `parse` also returns `holes` and `old_key`."""

    sends_all: bool
    """Whether a row has all columns of the source, null or not, so that an absent column no longer exists there."""

    precedes: str | None
    """SQL (BOOLEAN) over a record: it is a row of a snapshot, which by a rule of the format is older than every change;
    null for a change that has no place in the source's order, so that the order of arrival decides between the two.
    None if there are no such rows of snapshots."""

    def read(self, session: SparkSession, paths: Sequence[str], side: SideSpec) -> DataFrame:
        """Returns the lines of the files: `value`, `path` (the URI of the file), `block` and `position`."""
        ...

    def parse(self, lines: DataFrame, side: SideSpec) -> DataFrame:
        """Returns the records of the lines as in the table above: one row per line, two if a line changes a key."""
        ...

    def has_keys_once(self, path: str, side: SideSpec) -> bool:
        """Returns whether a quick check shows that no key is in a file twice."""
        ...


class JsonLines:
    """Base class of formats with one text per line; lines end only at a line feed."""

    is_text = True
    has_holes = False
    sends_all = True
    precedes: str | None = None

    def has_keys_once(self, _path: str, _side: SideSpec) -> bool:
        """Returns False: the lines would have to be parsed."""
        return False

    def read(self, session: SparkSession, paths: Sequence[str], _side: SideSpec) -> DataFrame:
        """Returns the lines; `value` has no byte order mark, and a line that is not UTF-8 has its bytes in Base64."""
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
    """SQL of the columns that a format returns, over `op`, `deleted`, `row`, and the reasons `_ignored` and `_bad`.

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


def committed(side: SideSpec, at: str) -> list[str]:
    """SQL of the column `committed_at`, if the side needs it; `at` is SQL (TIMESTAMP) of the time."""
    return [f"{at} AS committed_at"] if side.holds_since_commit else []


def typed_row(side: SideSpec, texts: Mapping[str, str], typed: Mapping[str, str] | None = None) -> str:
    """SQL (STRUCT): the declared columns, converted from texts; null where a text does not fit.

    Args:
        side: declares the columns.
        texts: per column, SQL of its value as text (STRING).
        typed: per column that needs no conversion, SQL of its value, of the declared type.
    """
    values = {c.name: convert(texts[c.name], c, side) for c in side.columns if c.name in texts} | dict(typed or {})
    return "STRUCT(" + ", ".join(f"{values[c.name]} AS {c.quoted}" for c in side.columns) + ")"


def typed_key(side: SideSpec, texts: Mapping[str, str]) -> str:
    """SQL (STRUCT): the key columns, converted from texts; null where a text does not fit."""
    return "STRUCT(" + ", ".join(f"{convert(texts[c.name], c, side)} AS {c.quoted}" for c in side.key_columns) + ")"


def misfit(side: SideSpec, texts: Mapping[str, str], row: str) -> str:
    """SQL (STRING): the first column whose text does not fit its type, and the text unless the column is sensitive.

    Null when all fit.

    Args:
        side: declares the columns.
        texts: as in `typed_row`; columns that are left out fit.
        row: SQL of the struct that `typed_row` returned.
    """
    reasons = [
        f"IF({texts[c.name]} IS NOT NULL AND {row}.{c.quoted} IS NULL, "
        f"CONCAT({_shown(side, c, texts)}, {why_not(texts[c.name], c, side)}), NULL)"
        for c in side.columns
        if c.name in texts and base(c.type) != "STRING"
    ]
    return f"COALESCE({', '.join(['CAST(NULL AS STRING)', *reasons])})"


def _shown(side: SideSpec, column: Column, texts: Mapping[str, str]) -> str:
    """SQL (STRING): the beginning of a reason: the column and the text, unless the column is sensitive."""
    value = "'a sensitive value'" if column.name in side.sensitive else f"SUBSTRING({texts[column.name]}, 1, 80)"
    return f"CONCAT({text(f'column {column.name}: ')}, {value})"


def _rounded_order(side: SideSpec, texts: Mapping[str, str], row: str) -> str:
    """SQL (STRING): the first value that would be rounded though it decides which version of which key counts."""
    deciding = {column.name for column in side.key_columns}
    for sql in (side.sequence_by, None if side.holds_since_commit else side.valid_from):
        deciding |= {path[0].lower() for path in parse_expression(sql).reads} if sql is not None else set()
    why = " would be rounded as {}, and it decides which version counts"
    reasons = [
        f"IF({loss}, CONCAT({_shown(side, c, texts)}, {text(why.format(c.type))}), NULL)"
        for c in side.columns
        if c.name in texts
        and not deciding.isdisjoint((c.name, c.name.lower()))
        and (loss := is_rounded(texts[c.name], f"{row}.{c.quoted}", c, side)) is not None
    ]
    return f"COALESCE({', '.join(['CAST(NULL AS STRING)', *reasons])})"


def unusable(side: SideSpec, texts: Mapping[str, str], row: str, missing: str | None = None) -> str:
    """SQL (STRING): the first reason why a row cannot be applied; null if it can. Of a tombstone only the key counts.

    Args:
        side: declares the columns.
        texts: as in `typed_row`.
        row: SQL of the struct that `typed_row` returned.
        missing: SQL of the key column that is null, if it is known; default: that of the row.
    """
    reasons = [f"IF(deleted, NULL, {misfit(side, texts, row)})", missing or missing_key(side, row)]
    return f"COALESCE({', '.join([*reasons, _rounded_order(side, texts, row)])})"


def rounded(side: SideSpec, texts: Mapping[str, str], row: str) -> str:
    """SQL (STRING): the columns whose value is the nearest of their type, not exactly the sent one; null if none is.

    Args:
        side: declares the columns.
        texts: as in `typed_row`.
        row: SQL of the struct that `typed_row` returned.

    Returns:
        The names, separated by commas; no name has a comma.
    """
    names = [
        f"IF({loss}, {text(c.name)}, NULL)"
        for c in side.columns
        if c.name in texts and (loss := is_rounded(texts[c.name], f"{row}.{c.quoted}", c, side)) is not None
    ]
    return f"NULLIF(CONCAT_WS(',', {', '.join(names)}), '')" if names else "CAST(NULL AS STRING)"


def unknown(side: SideSpec, what: str, word: str) -> str:
    """SQL (STRING): the reason that a word of a line is unknown.

    It quotes the word unless the side has sensitive columns, because the word may be any text.

    Args:
        side: the side of the line.
        what: the expected meaning of the word.
        word: SQL of the word.
    """
    return f"'unknown {what}'" if side.sensitive else f"CONCAT('unknown {what} ', {word})"


def of_another_table(side: SideSpec, table: str, within: Sequence[str] = ()) -> str:
    """SQL (BOOLEAN): a record is about another table than the side's; false if the record names no table.

    Args:
        side: the side; its `table` may begin with the name of a schema or database and a point.
        table: SQL of the table's name in the record.
        within: SQL of names of a schema or database that may precede it.
    """
    if side.table is None:
        return "FALSE"
    names = [table, *(f"CONCAT({name}, '.', {table})" for name in within)]
    is_own = " OR ".join(f"COALESCE({name} = {text(side.table)}, FALSE)" for name in names)
    return f"({table} IS NOT NULL AND NOT ({is_own}))"


OTHER_TABLE = "another table"
"""The reason why a record about another table is ignored."""


WORDS: Mapping[str, str] = {
    **dict.fromkeys(("c", "create"), "c"),
    **dict.fromkeys(("i", "insert", "+i"), "i"),
    **dict.fromkeys(("r", "read"), "r"),
    **dict.fromkeys(("u", "update", "upsert", "+u", "update_postimage"), "u"),
    **dict.fromkeys(("d", "delete", "-d"), "d"),
    **dict.fromkeys(("t", "truncate"), "t"),
    "-u": "retract",
    "update_preimage": "before",
}
"""The operation of a plain row by the word that names it, in lower case: those of Debezium, of Flink and of Delta."""


def operation_of(word: str, side: SideSpec, words: Iterable[str] = WORDS) -> str:
    """SQL (STRING): the operation of a plain row.

    Flink sends a row that an update replaces (`-U`) right before the new one, so it is a tombstone: with the same key
    the new row follows, with another one the old row must go. Where rows are events or versions, each stays. Files of a
    feed of Delta may have the new row before `update_preimage`: that is a tombstone only where the order tells the two
    apart (`SideSpec.feed_of_delta`).

    Args:
        word: SQL (STRING) of the word that names it, in any case.
        side: the side of the row.
        words: the words of `WORDS` that the format has.

    Returns:
        SQL of c, i, r, u, d, t or `before`, which is an old image; `unknown` for another word; null without a word.
    """
    stays = side.keyed_by_place or side.valid_from is not None
    removes = {"retract": not stays, "before": side.feed_of_delta}
    by_operation: dict[str, list[str]] = {}
    for name in words:
        op = WORDS[name]
        if op in removes:
            op = "d" if removes[op] else "before"
        by_operation.setdefault(op, []).append(name)
    lowered = f"LOWER(CAST({word} AS STRING))"
    known = " ".join(f"WHEN {lowered} IN ({', '.join(map(text, ws))}) THEN '{op}'" for op, ws in by_operation.items())
    return f"CASE WHEN {lowered} IS NULL THEN NULL {known} ELSE 'unknown' END"


def old_image(op: str) -> str:
    """SQL (STRING): the reason why a plain row is ignored, given SQL of its operation; null if it is not."""
    return f"IF({op} = 'before', '{OLD_IMAGE}', NULL)"


def operation_problem(side: SideSpec, named: str | None, word: str, problem: str) -> str:
    """SQL (STRING): the problem of a plain row, whose operation is in `op`; null if there is none.

    Args:
        side: the side of the row.
        named: the column that names the operation; None if every row has one.
        word: SQL of the word in that column.
        problem: SQL of the reason why the row cannot be applied whatever its operation is; null if it can.
    """
    if named is None:
        return problem
    return (
        f"CASE WHEN op IS NULL THEN {text(f'no operation in {named}')} "
        f"WHEN op = 'unknown' THEN {unknown(side, 'operation', f'SUBSTRING({word}, 1, 80)')} "
        f"WHEN op = 't' THEN NULL ELSE {problem} END"
    )


def missing_key(side: SideSpec, row: str, values: Mapping[str, str] | None = None) -> str:
    """SQL (STRING): the first key column of a row that is null, as a reason; null if none is.

    Args:
        side: the side of the row.
        row: SQL of the row.
        values: per column whose value is known without the row, SQL of the value.
    """
    known = values or {}
    reasons = [
        f"IF({known.get(c.name, f'{row}.{c.quoted}')} IS NULL, {text(f'key column {c.name} is null')}, NULL)"
        for c in side.key_columns
    ]
    return f"COALESCE({', '.join(['CAST(NULL AS STRING)', *reasons])})"


def computed_once(fields: str) -> str:
    """SQL (STRUCT): fields that are computed once, before the expressions that read them.

    Spark copies the fields of a plain STRUCT into every expression that reads one (rule `CollapseProject`), and does so
    again at every step: the plan of a wide table would fill the heap.

    Args:
        fields: SQL of the fields, over lines that are never null.
    """
    return f"IF(value IS NULL, NULL, STRUCT({fields}))"


def struct_of_texts(columns: tuple[Column, ...]) -> str:
    """DDL of a struct with every column as text."""
    return "STRUCT<" + ", ".join(f"{c.quoted}: STRING" for c in columns) + ">"


def fields_of_texts(names: set[str]) -> str:
    """DDL of struct fields, all of them texts."""
    return ", ".join(f"{quote(name)}: STRING" for name in sorted(names))
