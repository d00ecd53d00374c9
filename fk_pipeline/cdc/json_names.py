"""Names of JSON objects, compared without regard to case, as the names of columns in files are.

`FROM_JSON` finds no field whose name differs in case from that of the schema. An object with such names is parsed once
more, as a map, and its values are found by their names in lower case. No expression that every line computes has a
lambda: with one, Spark would not compile the whole projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame

from fk_pipeline.cdc.json_lines import (
    DIGEST,
    OPTIONS,
    WRAPPED,
    digest,
    fits,
    half_pair,
    is_one,
    parsed,
    value_of,
    wrapped,
)
from fk_pipeline.spec.sql import text

NAMES, ALIKE = "_names", "_alike"
"""Columns: the names of an object as they were sent; its fields, only if some of these names differ in case."""


def named_objects(lines: DataFrame, schema: str, declared: Sequence[str], path: str | None = None) -> DataFrame:
    """Returns lines with the JSON objects that they have.

    Args:
        lines: the lines, with `value`.
        schema: DDL of the fields that are read; every value is a text, or a structure of texts.
        declared: the names of the columns.
        path: SQL (STRING) of the path to the object that has the columns; None: the line itself.

    Returns:
        The columns of `lines`, `DIGEST`, `WRAPPED`, `NAMES`, `ALIKE`, `_record` (the object), `_is_one` (the line is
        one object, and a text) and `_fits` (it is one, and its fields have the shapes of the schema).
    """
    is_text = f"NOT {half_pair('value')}"
    return (
        lines.selectExpr("*", f"{digest('value')} AS {DIGEST}")
        .selectExpr("*", f"{wrapped('value')} AS {WRAPPED}")
        .selectExpr("*", f"{parsed(WRAPPED, schema)} AS _parsed", f"{names_at(path)} AS {NAMES}")
        .selectExpr(
            "*",
            f"{value_of('_parsed')} AS _record",
            f"{is_one('_parsed')} AND {is_text} AS _is_one",
            f"{fits('_parsed')} AND {is_text} AS _fits",
            f"IF({differ(NAMES, declared)}, {fields_at(path)}, NULL) AS {ALIKE}",
        )
    )


def names_at(path: str | None = None) -> str:
    """SQL (ARRAY<STRING>): the names of the object at a path of a line; null if there is none.

    Args:
        path: SQL (STRING) of the path, such as `'$.data'`; None: the line itself.
    """
    text_at = "value" if path is None else f"GET_JSON_OBJECT(value, {path})"
    # The text itself is strict JSON only without NaN and Infinity.
    return f"COALESCE(JSON_OBJECT_KEYS({text_at}), JSON_OBJECT_KEYS({_marked_at(path)}))"


def differ(names: str, declared: Sequence[str]) -> str:
    """SQL (BOOLEAN): a declared name is among some names, but only in another case."""
    exact, lower = _array(declared), _array(name.lower() for name in declared)
    more = f"SIZE(ARRAY_INTERSECT({_lower(names)}, {lower})) > SIZE(ARRAY_INTERSECT({names}, {exact}))"
    return f"(SIZE(ARRAY_EXCEPT({exact}, {names})) > 0 AND {more})"


def as_declared(declared: Sequence[str]) -> str:
    """SQL (ARRAY<STRING>) over `NAMES` and `ALIKE`: the sent names, each declared name as it is declared."""
    known = ", ".join(f"{text(name.lower())}, {text(name)}" for name in declared)
    return f"IF({ALIKE} IS NULL, {NAMES}, TRANSFORM({NAMES}, _n -> COALESCE(MAP({known})[LOWER(_n)], _n)))"


def fields_at(path: str | None = None) -> str:
    """SQL (STRUCT of `names` and `values`): the fields of the object at a path of a line, names in lower case."""
    return named_values(f"FROM_JSON({_marked_at(path)}, 'MAP<STRING, STRING>')")


def fields_of(wrapped: str) -> str:
    """SQL: a wrapped text, parsed as `json_lines.parsed` does, with a MAP<STRING, STRING> in place of the object."""
    return f"FROM_JSON({wrapped}, 'STRUCT<_fk_line: ARRAY<MAP<STRING, STRING>>, _corrupt: STRING>', {OPTIONS})"


def named_values(fields: str) -> str:
    """SQL (STRUCT of `names` and `values`): the fields of a MAP, names in lower case."""
    return f"STRUCT({_lower(f'MAP_KEYS({fields})')} AS names, MAP_VALUES({fields}) AS values)"


def value_alike(name: str, fields: str = ALIKE) -> str:
    """SQL (STRING): the value of the first field whose name is a name in another case; null if `fields` is null."""
    value = f"GET({fields}.values, CAST(ARRAY_POSITION({fields}.names, {text(name.lower())}) AS INT) - 1)"
    return value if fields != ALIKE else f"IF(ARRAY_CONTAINS({NAMES}, {text(name)}), NULL, {value})"


def _marked_at(path: str | None) -> str:
    """SQL (STRING): the text at a path of a line, with the marks that `json_lines.wrapped` sets."""
    within = "'$._fk_line[1]'"
    return f"GET_JSON_OBJECT({WRAPPED}, {within if path is None else f'CONCAT({within}, SUBSTRING({path}, 2))'})"


def _lower(names: str) -> str:
    return f"SPLIT(LOWER(CONCAT_WS('\\u0001', {names})), '\\u0001')"


def _array(names: Iterable[str]) -> str:
    return f"CAST(ARRAY({', '.join(map(text, names))}) AS ARRAY<STRING>)"
