r"""JSON texts as Spark SQL reads them, without what `FROM_JSON` alters or drops in silence.

Two things are done to a text before it is parsed:

* *Numbers are exact.* Of a number with a fraction or an exponent `FROM_JSON` makes a double before it makes a text
  (Spark 4.2: `JacksonParser` copies the token, and Jackson copies it as a double): 1.10 becomes 1.1, and of
  1234567890123456.7891 the last digits are gone. So such numbers become strings, between marks, and `exact` takes the
  marks out of the texts that are read. The mark is the digest of the line, which no line can contain.
* *One value per text.* `FROM_JSON` reads the first value and ignores the rest. So the text is put between two objects
  that hold the digest: it is one value if three are found, and the outer ones are these.
"""

from __future__ import annotations

from fk_pipeline.spec.sql import text

DIGEST = "_digest"
"""The column with the digest of a line: what its texts are marked with."""

WRAPPED = "_wrapped"
"""The column with the text of a line that is parsed."""

OPTIONS = "MAP('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"

_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_STRING = r""""(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'"""
_END = r"(?=[ \t\r\n]*+(?:[,\]}]|\z))"
_WALK = rf"""(?s)\G((?:[^"'0-9-]++|-(?![0-9])|(?!-0)-?[0-9]++{_END}|{_STRING})*+)({_NUMBER}){_END}"""
"""The next number that is marked, and what is before it. No text is skipped by backtracking, so time and stack are
those of one pass; the walk ends at the first token that is no JSON, which the parser then refuses. Spark's parser takes
strings in apostrophes too."""

_MARKED = r"[:,\[][ \t\r]*+-?(?:[0-9]++[.eE]|0)"
"""Lines with numbers that may be marked: the others, most of all, are spared the walk. (-0 is 0 to Jackson.)"""


def digest(value: str) -> str:
    """SQL (STRING): what the texts of a line are marked with."""
    return f"MD5({value})"


def wrapped(value: str, mark: str = DIGEST) -> str:
    """SQL (STRING): a text that holds one JSON value, as `parsed` takes it.

    Args:
        value: SQL of the text; null stays null.
        mark: SQL of its digest, or of that of a text which it is a part of.
    """
    marked = f"""REGEXP_REPLACE({value}, {text(_WALK)}, CONCAT('$1"', {mark}, '$2', {mark}, '"'))"""
    exact = f"IF({value} RLIKE {text(_MARKED)}, {marked}, {value})"
    end = f"""'{{"_fk_end":"', {mark}, '"}}'"""
    return f"""CONCAT('{{"_fk_line":[', {end}, ',', {exact}, ',', {end}, ']}}')"""


def parsed(wrapped: str, fields: str) -> str:
    """SQL (STRUCT of `_fk_line` and `_corrupt`): a wrapped text, parsed.

    Args:
        wrapped: SQL of what `wrapped` makes.
        fields: DDL of the fields of the object, every value a text, or a structure of texts.
    """
    schema = f"STRUCT<_fk_line: ARRAY<STRUCT<{fields}, _fk_end: STRING>>, _corrupt: STRING>"
    return f"FROM_JSON({wrapped}, {text(schema)}, {OPTIONS})"


def value_of(parsed: str) -> str:
    """SQL (STRUCT): the object; null if the text is none."""
    return f"GET({parsed}._fk_line, 1)"


def is_one(parsed: str, mark: str = DIGEST) -> str:
    """SQL (BOOLEAN): the text is one JSON value, and an object or null; values in it may be of another shape."""
    ends = " AND ".join(f"GET({parsed}._fk_line, {i})._fk_end <=> {mark}" for i in (0, 2))
    return f"(SIZE({parsed}._fk_line) <=> 3 AND {ends})"


def fits(parsed: str, mark: str = DIGEST) -> str:
    """SQL (BOOLEAN): the text is one JSON object or null, and its values are of the shapes that were asked for."""
    return f"({parsed}._corrupt IS NULL AND {is_one(parsed, mark)})"


def exact(value: str, mark: str = DIGEST) -> str:
    """SQL (STRING): a text that was read, without the marks: the digits of a number as they were written.

    Args:
        value: SQL of the text, of a scalar or of an object or array.
        mark: SQL of the digest.
    """
    nested = f"""REPLACE(REPLACE({value}, CONCAT('"', {mark}), ''), CONCAT({mark}, '"'), '')"""
    return f"IF(CONTAINS({value}, {mark}), REPLACE({nested}, {mark}, ''), {value})"
