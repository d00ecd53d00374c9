r"""JSON texts parsed by Spark SQL without the silent changes and losses of `FROM_JSON`.

A text is changed in three ways before it is parsed:

* *Numbers are exact.* `FROM_JSON` converts a number with a fraction or an exponent to a double before it converts it to
  a text (Spark 4.2: `JacksonParser` copies the token, and Jackson copies it as a double): 1.10 becomes 1.1, and
  1234567890123456.7891 loses its last digits. So such numbers become strings between marks, and `exact` removes the
  marks from the texts that are read. The mark is the digest of the line, which no line can contain.
* *One value per text.* `FROM_JSON` reads the first value and ignores the rest. So the text is put between two objects
  with the digest: it is one value if three values are found and the outer ones are these objects.
* *NaN and Infinity without quotes*, which many writers use, are marked as numbers are, and so are read like the texts.
"""

from __future__ import annotations

from collections.abc import Sequence

from fk_pipeline.spec.sql import text

DIGEST = "_digest"
"""The column with the digest of a line, which is the mark in its texts."""

WRAPPED = "_wrapped"
"""The column with the text of a line as it is parsed."""

OPTIONS = "MAP('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"

_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_STRING = r""""(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'"""
_END = r"(?=[ \t\r\n]*+(?:[,\]}]|\z))"
_WORD = r"(?:NaN|[+-]?(?:Infinity|INF))"
_OTHER = rf"""[^"'0-9NI+-]++|(?!{_WORD}{_END})(?:[NI+]|-(?![0-9]))|(?!-0)-?[0-9]++{_END}"""
_WALK = rf"""(?s)\G((?:{_OTHER}|{_STRING})*+)({_NUMBER}|{_WORD}){_END}"""
"""Pattern of the next number to mark, with the text before it. It skips no text by backtracking, so time and stack are
those of one pass. The walk ends at the first token that is not JSON, which the parser then refuses. Strings may be in
apostrophes, because Spark's parser accepts them."""

_MARKED = rf"[:,\[][ \t\r]*+(?:-?(?:[0-9]++[.eE]|0)|{_WORD})"
"""Pattern of lines with numbers that may need a mark; most lines have none and skip the walk. (Jackson reads -0 as 0.)
"""


_ESCAPED = r"\\"
_PAIR = r"(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}"
_HALF = r"(?i)\\ud[89a-f][0-9a-f]{2}"
"""A backslash that is a character, and the patterns of the two escapes of a character beyond U+FFFF and of one."""


def digest(value: str) -> str:
    """SQL (STRING): the mark in the texts of a line."""
    return f"MD5({value})"


def wrapped(value: str, mark: str = DIGEST) -> str:
    """SQL (STRING): a text with one JSON value, in the form that `parsed` takes.

    Args:
        value: SQL of the text; null stays null.
        mark: SQL of its digest, or of the digest of a text of which it is a part.
    """
    marked = f"""REGEXP_REPLACE({value}, {text(_WALK)}, CONCAT('$1"', {mark}, '$2', {mark}, '"'))"""
    exact = f"IF({value} RLIKE {text(_MARKED)}, {marked}, {value})"
    end = f"""'{{"_fk_end":"', {mark}, '"}}'"""
    return f"""CONCAT('{{"_fk_line":[', {end}, ',', {exact}, ',', {end}, ']}}')"""


def parsed(wrapped: str, fields: str) -> str:
    """SQL (STRUCT of `_fk_line` and `_corrupt`): a wrapped text, parsed.

    Args:
        wrapped: SQL of a text that `wrapped` returned.
        fields: DDL of the fields of the object; every value is a text, or a structure of texts.
    """
    schema = f"STRUCT<_fk_line: ARRAY<STRUCT<{fields}, _fk_end: STRING>>, _corrupt: STRING>"
    return f"FROM_JSON({wrapped}, {text(schema)}, {OPTIONS})"


def value_of(parsed: str) -> str:
    """SQL (STRUCT): the object; null if the text is not an object."""
    return f"GET({parsed}._fk_line, 1)"


def is_one(parsed: str, mark: str = DIGEST) -> str:
    """SQL (BOOLEAN): the text is one JSON value, an object or null; values in it may have another shape than given."""
    ends = " AND ".join(f"GET({parsed}._fk_line, {i})._fk_end <=> {mark}" for i in (0, 2))
    return f"(SIZE({parsed}._fk_line) <=> 3 AND {ends})"


def fits(parsed: str, mark: str = DIGEST) -> str:
    """SQL (BOOLEAN): the text is one JSON object or null, and its values have the shapes given to `parsed`."""
    return f"({parsed}._corrupt IS NULL AND {is_one(parsed, mark)})"


def half_pair(value: str) -> str:
    """SQL (BOOLEAN): a JSON text escapes half of a surrogate pair, which is no character: Spark would read `?`."""
    rest = f"REGEXP_REPLACE(REPLACE({value}, {text(_ESCAPED)}, ' '), {text(_PAIR)}, '')"
    some = " OR ".join(f"CONTAINS({value}, {text(begin)})" for begin in (r"\ud", r"\uD"))
    return f"(({some}) AND {rest} RLIKE {text(_HALF)})"


def not_object(names: Sequence[str]) -> str:
    """SQL (STRING): the reason that a field of a line is no object, though it should be; null if each is one or null.

    Args:
        names: the names on the way to each field, separated by points.
    """
    json_type = "REGEXP_EXTRACT(SCHEMA_OF_VARIANT(TRY_VARIANT_GET(TRY_PARSE_JSON(value), {}, 'variant')), '^[A-Z]+', 0)"
    json_types = ", ".join(f"CONCAT({text(f'{name}=')}, {json_type.format(text(f'$.{name}'))})" for name in names)
    reason = f"REGEXP_EXTRACT(CONCAT_WS(';', {json_types}), '[^;]+=(?!OBJECT|VOID)[A-Z]+', 0)"
    for of, what in {"STRING": "a text", "BOOLEAN": "a boolean", "ARRAY": "a list", "[A-Z]+": "a number"}.items():
        reason = f"REGEXP_REPLACE({reason}, '={of}$', ' is {what}, not an object')"
    return f"NULLIF({reason}, '')"


def exact(value: str, mark: str = DIGEST) -> str:
    """SQL (STRING): a parsed text without the marks, so that a number has its digits as they were written.

    Args:
        value: SQL of the text of a scalar, an object or an array.
        mark: SQL of the digest.
    """
    nested = f"""REPLACE(REPLACE({value}, CONCAT('"', {mark}), ''), CONCAT({mark}, '"'), '')"""
    return f"IF(CONTAINS({value}, {mark}), REPLACE({nested}, {mark}, ''), {value})"
