"""Names of JSON objects, compared without regard to case, as the names of columns in files are.

`FROM_JSON` finds no field whose name differs in case from that of the schema. An object with such names is parsed once
more, as a map, and its values are found by their names in lower case. No expression that every line computes has a
lambda: with one, Spark would not compile the whole projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fk_pipeline.cdc.json_lines import OPTIONS, WRAPPED, value_of
from fk_pipeline.spec.sql import text

NAMES, ALIKE = "_names", "_alike"
"""Columns: the names of an object as they were sent; its fields, only if some of these names differ in case."""


def names_at(path: Sequence[str]) -> str:
    """SQL (ARRAY<STRING>): the names of the object at a path of a line; null if there is none."""
    at = text(".".join(["$", *path]))
    within = text(".".join(["$._fk_line[1]", *path]))
    # The text itself is strict JSON only without NaN and Infinity.
    return (
        f"COALESCE(JSON_OBJECT_KEYS({f'GET_JSON_OBJECT(value, {at})' if path else 'value'}), "
        f"JSON_OBJECT_KEYS(GET_JSON_OBJECT({WRAPPED}, {within})))"
    )


def differ(names: str, declared: Sequence[str]) -> str:
    """SQL (BOOLEAN): a declared name is among some names, but only in another case."""
    exact, lower = _array(declared), _array(name.lower() for name in declared)
    more = f"SIZE(ARRAY_INTERSECT({_lower(names)}, {lower})) > SIZE(ARRAY_INTERSECT({names}, {exact}))"
    return f"(SIZE(ARRAY_EXCEPT({exact}, {names})) > 0 AND {more})"


def as_declared(names: str, declared: Sequence[str]) -> str:
    """SQL (ARRAY<STRING>): some names, each declared one as it is declared."""
    known = ", ".join(f"{text(name.lower())}, {text(name)}" for name in declared)
    return f"IF({differ(names, declared)}, TRANSFORM({names}, _n -> COALESCE(MAP({known})[LOWER(_n)], _n)), {names})"


def fields_at(path: Sequence[str]) -> str:
    """SQL (STRUCT of `names` and `values`): the fields of the object at a path of a line, names in lower case."""
    kind = "MAP<STRING, STRING>"
    for name in reversed(path):
        kind = f"STRUCT<{name}: {kind}>"
    read = f"FROM_JSON({WRAPPED}, {text(f'STRUCT<_fk_line: ARRAY<{kind}>>')}, {OPTIONS})"
    return named_values(".".join([value_of(read), *path]))


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


def _lower(names: str) -> str:
    return f"SPLIT(LOWER(CONCAT_WS('\\u0001', {names})), '\\u0001')"


def _array(names: Iterable[str]) -> str:
    return f"CAST(ARRAY({', '.join(map(text, names))}) AS ARRAY<STRING>)"
