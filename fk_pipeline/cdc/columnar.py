"""The common parts of the formats with columns: Parquet, CSV, Delta and DMS."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from fk_pipeline.cdc.records import (
    ARRIVAL,
    ARRIVAL_TYPE,
    WORDS,
    committed,
    missing_key,
    old_image,
    operation_of,
    operation_problem,
    records,
    rounded,
    typed_row,
    unusable,
)
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.sql import WHOLE_TIMES, text

UPSERT = "'u'"
"""SQL: the default operation of a row."""

_WHOLE = f"MAP({WHOLE_TIMES})"


class Columnar:
    """Base class of formats with one change per row; their `read` returns lines as `as_lines` builds them."""

    sequence_type = ARRIVAL_TYPE
    sequence = ARRIVAL
    """SQL of a row's order."""
    committed_at = "CAST(NULL AS TIMESTAMP)"
    """SQL over a record's place of the time of the commit."""
    is_text = False
    has_holes = False
    sends_all = True
    precedes: str | None = None

    def parse(self, lines: DataFrame, side: SideSpec) -> DataFrame:
        """Returns one record per row; see `fk_pipeline.cdc.records`."""
        place = [quote(name) for name in lines.columns]
        return lines.selectExpr(
            *[name for name in place if name != quote("value")], f"{old_image('value.op')} AS _ignored", "value.*"
        ).selectExpr(*records(place, self.sequence), *committed(side, self.committed_at), "rounded", "fields")

    def has_keys_once(self, _path: str, _side: SideSpec) -> bool:
        """Returns False: the rows would have to be read."""
        return False


def as_lines(
    stored: DataFrame,
    side: SideSpec,
    raw: str,
    place: Sequence[str],
    *,
    op: str | None = None,
    named: str | None = None,
    words: Iterable[str] = WORDS,
    bad: str = "NULL",
    sent: Sequence[str],
) -> DataFrame:
    """Returns rows of files with the same columns in the form that a format's `read` returns.

    A column whose type is not the declared one is converted from its text, like a value of a JSON line.

    Args:
        stored: the rows as they are, of the columns that are read.
        side: declares the columns.
        raw: SQL over `_raw`, the row, of the value that the quarantine keeps of it.
        place: SQL of `path`, `block` and `position`.
        op: SQL over `_raw` of the word that names the operation of a row; default: each row is written.
        named: the column that has the word; None if every row has an operation.
        words: the words that the format has.
        bad: SQL over `_raw` of the reason why a row cannot be read at all; null if it can.
        sent: the names of the source's columns.

    Returns:
        `value` (STRUCT: `op`, `deleted`, `row`, `_bad`, `rounded`, `fields`, and the result of `raw` as `value`) and
        the place.
    """
    converted, values = _stored_values(stored, side)
    as_texts = ", ".join(f"{sql} AS {quote(name)}" for name, sql in converted.items()) or "NULL"
    texts = {name: f"_texts.{quote(name)}" for name in converted}
    read = {*converted, *values}
    typed = values | {c.name: f"CAST(NULL AS {c.type})" for c in side.columns if c.name not in read}
    fields = _sent_fields(sent, named, read)
    # Keys of the declared type are read without building the row, so Spark reads no other columns to count changes.
    of_the_row = any(c.name in texts for c in side.key_columns)
    missing = "NULL" if of_the_row else missing_key(side, "row", typed)
    known = missing_key(side, "row") if of_the_row else "_missing"
    problem = operation_problem(side, named, op or UPSERT, unusable(side, texts, "row", known))
    return (
        stored.selectExpr(f"STRUCT({', '.join(map(quote, stored.columns))}) AS _raw", *place)
        .selectExpr("*", f"STRUCT({as_texts}) AS _texts")
        .selectExpr(
            "*",
            f"{operation_of(op or UPSERT, side, words)} AS op",
            f"{typed_row(side, texts, typed)} AS row",
            f"CAST({missing} AS STRING) AS _missing",
        )
        .selectExpr("*", "op IN ('d', 't') AS deleted")
        .selectExpr(
            f"STRUCT(op, deleted, row, COALESCE({bad}, {problem}) AS _bad, "
            f"{rounded(side, texts, 'row')} AS rounded, {fields} AS fields, {raw} AS value) AS value",
            "path",
            "block",
            "position",
        )
    )


def _stored_values(stored: DataFrame, side: SideSpec) -> tuple[dict[str, str], dict[str, str]]:
    """Returns SQL over `_raw` for the declared columns that rows have.

    Returns:
        Per column of another type than the declared one, SQL of its text; per other column, SQL of its value.
    """
    fields = {field.name.lower(): field for field in stored.schema.fields}
    nulls = [f"CAST(NULL AS {c.type}) AS {c.quoted}" for c in side.columns]
    declared = stored.sparkSession.range(0).selectExpr(*nulls).schema
    texts, values = {}, {}
    for column in side.columns:
        field = fields.get(column.name.lower())
        if field is None:
            continue
        value = f"_raw.{quote(field.name)}"
        if field.dataType == declared[column.name].dataType:
            values[column.name] = value
        elif isinstance(field.dataType, (T.StructType, T.ArrayType, T.MapType)):
            texts[column.name] = f"TO_JSON({value}, {_WHOLE})"
        else:
            texts[column.name] = f"CAST({value} AS STRING)"
    return texts, values


def _sent_fields(sent: Sequence[str], named: str | None, read: Iterable[str]) -> str:
    """SQL (ARRAY<STRING>): the names of the source's columns, those that are read as they are declared.

    The column `named`, with the operation, is not among them unless it is read as a value.
    """
    declared = {name.lower(): name for name in read}
    names = [declared.get(name.lower(), name) for name in sent]
    fields = ", ".join(text(name) for name in names if name != named or name.lower() in declared)
    return f"CAST(ARRAY({fields}) AS ARRAY<STRING>)"


def operation(column: str | None, columns: Sequence[str], *, may_lack: bool) -> tuple[str | None, str | None]:
    """Returns SQL over `_raw` of the word that names a row's operation, and its column; None, None if all are written.

    Args:
        column: the column with the operation; None if there is none.
        columns: the columns of a file.
        may_lack: whether a file may lack the column: its rows are written.
    """
    stored = next((name for name in columns if column is not None and name.lower() == column.lower()), None)
    if column is None or (stored is None and may_lack):
        return None, None
    return "NULL" if stored is None else f"_raw.{quote(stored)}", column
