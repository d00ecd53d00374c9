"""Rows of some keys, read in this process as JSON: the rows of stories without Spark.

What is not certainly what Spark reads, is left to Spark (`LeftToSpark`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fk_pipeline.arrow_text import json_lines
from fk_pipeline.conditions import AllTests, ConstantTest, ListTest, RowTest
from fk_pipeline.conditions_of_sql import is_value
from fk_pipeline.errors import LeftToSpark, UsageError
from fk_pipeline.spec import SideSpec
from fk_pipeline.spec.sql import INTEGERS
from fk_pipeline.store import schemas as s
from fk_pipeline.store.row_order import places_in_order
from fk_pipeline.store.rows_in_process import Relation, RowRequest

Tables = Callable[[str], Relation]
"""A function that opens a stored table."""

_JsonRow = dict[str, Any]

VERSION_COLUMNS = (s.BATCH, s.SEQUENCE, s.OP, s.DELETED, s.FILE)
"""The columns of a changelog that a version in a story has (`story.RowVersion`), besides those of the source."""

_NOT_KEYS = ("FLOAT", "DOUBLE", "CHAR", "VARCHAR")
"""The beginnings of types whose values are compared by Spark: NaN and zeros, or spaces at the end, count otherwise."""


def check_sides(*sides: SideSpec) -> None:
    """Refuses inputs of whose rows some are left out, and those with keys whose values are not compared here.

    Raises:
        LeftToSpark: there is one.
    """
    for side in sides:
        if side.where is not None:
            raise LeftToSpark(f"'{side.where}' is evaluated by Spark only")
        for column in side.key_columns:
            if column.type.upper().startswith(_NOT_KEYS):
                raise LeftToSpark(f"key column {column.name} is {column.type}, which Spark compares")


def typed_key(key: Mapping[str, str], side: SideSpec, schema: pa.Schema) -> tuple[Sequence[ConstantTest], _JsonRow]:
    """Returns a key, given as text, as conditions on the key columns of a table with such types, and as JSON.

    Raises:
        LeftToSpark: it is not certain which value Spark makes of a text.
        UsageError: a text is not a value of the type of its column.
    """
    check_sides(side)
    tests, values = [], {}
    for column in side.key_columns:
        text, dtype = key[column.name], schema.field(column.name).type
        if column.type.upper() in INTEGERS and re.search(r"[A-Za-z]", text):
            raise UsageError(f"{text!r} is no {column.type}", where=f"key column {column.name}")
        try:
            tests.append(is_value(column.name, text, dtype))
        except LeftToSpark:
            raise LeftToSpark(f"which {column.type} the text of key column {column.name} is, Spark knows") from None
        values[column.name] = pa.repeat(tests[-1].value, 1)
    (row,) = json_of(pa.Table.from_arrays([*values.values()], [*values]))
    return tests, row


def under(tests: Iterable[ConstantTest], column: Callable[[str], str]) -> list[RowTest]:
    """Returns conditions on columns as conditions on those of other names."""
    return [ConstantTest(column(test.column), test.name, test.value, test.bound) for test in tests]


def json_of(rows: pa.Table) -> list[_JsonRow]:
    """Returns rows as `export.json_rows` does.

    Raises:
        LeftToSpark: a value is certainly written by Spark only.
    """
    return [json.loads(line) for line in json_lines(rows, hexadecimal=True)]


def whole_rows(table: Relation, where: Sequence[RowTest]) -> list[_JsonRow]:
    """Returns rows with all columns, as JSON."""
    return json_of(table.read(RowRequest(table.schema.names, where)))


def among(columns: Mapping[str, pa.ChunkedArray]) -> RowTest | None:
    """Returns the condition that each of some columns has one of some values; None if there are no values."""
    values = {name: pc.drop_null(pc.unique(column)) for name, column in columns.items()}
    if not all(map(len, values.values())):
        return None
    return AllTests(tuple(ListTest(name, distinct) for name, distinct in values.items()))


def of_keys(rows: Iterable[_JsonRow], keys: Collection[tuple[Any, ...]], side: SideSpec) -> list[_JsonRow]:
    """Returns the rows of a changelog that have one of some keys, and the truncates."""
    names = [c.name for c in side.key_columns]
    return [row for row in rows if row[names[0]] is None or tuple(row[name] for name in names) in keys]


def tuples(rows: Iterable[_JsonRow], names: Sequence[str]) -> set[tuple[Any, ...]]:
    """Returns the values of some columns of rows, each once."""
    return {tuple(row[name] for name in names) for row in rows}


def in_source_order(rows: pa.Table, side: SideSpec) -> pa.Table:
    """Returns rows of a changelog in the source's order; a truncate comes before the rows of its batch and sequence."""
    if not len(rows):
        return rows
    keys = [rows[name] for name in side.stored_key]
    sequence = rows[s.SEQUENCE]
    fields = [pc.struct_field(sequence, [i]) for i in range(sequence.type.num_fields)]
    by = [pc.is_valid(sequence), *fields, rows[s.BATCH], pc.is_valid(keys[0]), *keys]
    names = [f"{i}" for i in range(len(by))]
    return rows.take(places_in_order(pa.Table.from_arrays(by, names), [(name, False) for name in names]))


def versions_in_process(log: Relation, side: SideSpec, where: Sequence[RowTest]) -> list[_JsonRow]:
    """Returns rows of a changelog in the source's order, as JSON with what a version in a story has."""
    columns = [*VERSION_COLUMNS, *(column.name for column in side.columns)]
    return json_of(in_source_order(log.read(RowRequest(columns, where)), side))
