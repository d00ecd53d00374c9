"""What an input must not say: keys, options and expressions that do not fit its columns, its format or each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fk_pipeline.spec.base import problem
from fk_pipeline.spec.formats import NAMING_TABLES, PLAIN, READ_INTO, TELLING_TIMES, CsvSpec
from fk_pipeline.spec.sql import KEY_TYPES_REFUSED, Expression, SqlTextError, parse_expression, refuse_moments
from fk_pipeline.words import listed_for

if TYPE_CHECKING:
    from fk_pipeline.spec.inputs import SideSpec

_AS_CONDITION = {"STRING": "{} = 'true'", "DATE": "{} IS NOT NULL", "TIMESTAMP": "{} IS NOT NULL"}
"""Per first word of a type, the condition that the error suggests for a column of that type."""

_WITHOUT_COLUMN = {
    "delete_when": "it would delete every row, or none; for none: FALSE",
    "where": "it would keep every row, or none; for every row leave it out",
}
"""Per condition on rows, what is wrong with one that reads no column."""


def check_key(side: SideSpec, names: Sequence[str]) -> None:
    """Refuses key columns that are not in the schema, or whose type cannot be that of a key."""
    if side.keyed_by_place and side.format == "delta":
        raise problem("the rows of a Delta table have no place that stays: give a key", "key")
    for i, name in enumerate(side.key):
        column = side.column(name)
        if column is None:
            raise problem(f"key column {name!r} is not in the schema; it has {listed_for(name, names)}", "key", i)
        if column.type.upper().split("<")[0].split("(")[0].split(" ")[0] in KEY_TYPES_REFUSED:
            raise problem(f"key column {name!r} has type {column.type}, which cannot be a key", "key", i)
    if len({n.lower() for n in side.key}) < len(side.key):
        raise problem(f"a column stands twice in the key {list(side.key)}", "key")


def columns_like(name: str, side: SideSpec) -> str:
    """Returns the columns of a side, and which of them an unknown name may mean, as the end of a sentence."""
    names = [column.name for column in side.columns]
    return f"; it has {listed_for(name, names)}"


def check_options(side: SideSpec) -> None:
    """Refuses keys of an input that do not go with its format, or with each other."""
    plain = side.format in PLAIN or ":" in side.format
    if side.op_column is not None and not plain:
        raise problem(
            f"op_column goes with plain rows ({', '.join(PLAIN)}); other formats name the operation", "op_column"
        )
    if side.delete_when is not None and not (plain or side.format == "dms"):
        raise problem(
            f"delete_when goes with plain rows ({', '.join(PLAIN)}) and dms; "
            f"{side.format} says itself what is deleted, and may leave out the values of columns",
            "delete_when",
        )
    if side.is_snapshot and side.batch_by == "arrival":
        raise problem("dumps that arrive together would count as one table: number snapshots", "batch_by")
    if side.csv != CsvSpec() and side.format not in ("csv", "dms"):
        raise problem("csv goes with formats csv and dms", "csv")
    if side.is_snapshot and (not plain or side.op_column is not None or side.sequence_by is not None):
        raise problem(
            f"a snapshot is plain rows ({', '.join(PLAIN)}) without op_column and sequence_by: "
            "it replaces the table, and counts from its batch on",
            "contents",
        )
    if side.table is not None and side.format not in NAMING_TABLES:
        raise problem(f"table goes with formats whose lines name one ({', '.join(NAMING_TABLES)})", "table")
    for name in ("batch_by", "sequence_by"):
        if side.format == "delta" and getattr(side, name) is not None:
            raise problem(f"{name} goes with files: a Delta table has an order, and a look at it is a batch", name)
    for name, how in side.logical_types.items():
        column, dtype = side.column(name), READ_INTO.get(how, "TIMESTAMP")
        if column is None:
            raise problem(f"column {name!r} is not in the schema{columns_like(name, side)}", "logical_types", name)
        if not column.type.upper().startswith(dtype):
            raise problem(f"{how} is read into {dtype}; {name!r} is {column.type}", "logical_types", name)


def check_row_expression(side: SideSpec, text: str, *path: str | int) -> Expression:
    """Returns an expression over the columns of a side; refuses another text, naming its place in the file."""
    try:
        expression = parse_expression(text)
    except SqlTextError as error:
        raise problem(f"{text!r}: {error}", *path) from None
    for read in expression.reads:
        if side.column(read[0]) is None:
            what = f"{text!r} reads column {read[0]!r}, which is not in the schema{columns_like(read[0], side)}"
            raise problem(what, *path)
    try:
        refuse_moments(text, side.type_of)
    except SqlTextError as error:
        raise problem(f"{text!r}: {error}", *path) from None
    return expression


def check_valid_from(side: SideSpec, text: str) -> None:
    """Refuses a time since which versions hold that the rows of the side do not have."""
    if side.is_snapshot:
        raise problem("valid_from goes with changes: a snapshot does not tell since when its rows hold", "valid_from")
    if not side.holds_since_commit:
        check_row_expression(side, text, "valid_from")
    elif side.format not in TELLING_TIMES:
        raise problem(
            f"{side.format} does not tell when a change was committed ({', '.join(TELLING_TIMES)} do); name a column",
            "valid_from",
        )


def check_condition(side: SideSpec, sql: str, name: str) -> None:
    """Refuses a condition on the rows of a side, under the key `name`, that is none."""
    expression = check_row_expression(side, sql, name)
    if not expression.reads and (name, sql.strip().upper()) != ("delete_when", "FALSE"):
        raise problem(f"{sql!r} reads no column: {_WITHOUT_COLUMN[name]}", name)
    column = side.column(expression.reads[0][0]) if expression.plain and len(expression.reads[0]) == 1 else None
    if column is not None and column.type.upper() != "BOOLEAN":
        condition = _AS_CONDITION.get(column.type.upper().split("(")[0].split("_")[0], "{} = 1").format(sql.strip())
        raise problem(f"{sql!r} is {column.type}, not BOOLEAN; write {condition!r} for example", name)
