r"""The conversion of texts to values of the declared types, and its losses (`docs/reference/formats.md#values`).

A text that is not a value of the type, or that the scale of a DECIMAL would round, is not converted: its record goes
into the quarantine. If a type is approximate by nature, the nearest value is used and the record is counted.
"""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp

from fk_pipeline.cdc.json_lines import digest, exact, fits, parsed, value_of, wrapped
from fk_pipeline.spec import Column, SideSpec, quote
from fk_pipeline.spec.sql import DIALECT, text

COUNTING_DAYS = ("debezium",)
"""The formats in which a number is a DATE: the days since 1970."""


def base(dtype: str) -> str:
    """Returns the name of a type without its parameters, in upper case."""
    return dtype.upper().split("(")[0].split("<")[0].split(" ")[0]


def convert(value: str, column: Column, side: SideSpec) -> str:
    """SQL of the value of a text in a column; null if the text is not a value of the type.

    Args:
        value: SQL of the text.
        column: declares the type.
        side: the side of the column.
    """
    return _convert(value, column.type, side.logical_type(column), days=side.format in COUNTING_DAYS)


def why_not(value: str, column: Column, side: SideSpec) -> str:
    """SQL (STRING): the end of the reason, after the text, for a text that `convert` makes null.

    Args:
        value: SQL of the text.
        column: the column that it does not fit.
        side: the side of the column.
    """
    no, dtype = text(f" is not {column.type}"), base(column.type)
    counted = side.logical_type(column) is not None or (dtype == "DATE" and side.format in COUNTING_DAYS)
    if (dtype == "DATE" or dtype.startswith("TIMESTAMP")) and not counted:
        number = text(f" is not {column.type}: a number is one only if logical_types says what it counts")
        return f"IF({value} RLIKE '^-?[0-9]+$', {number}, {no})"
    if dtype != "DECIMAL":
        return no
    why = text(f" would be rounded as {column.type}; declare more digits after the point, or STRING")
    return f"IF({value} RLIKE {_PLAIN_OR_NOT} AND {_places(value)} > {_scale(column.type)}, {why}, {no})"


def is_rounded(value: str, made: str, column: Column, side: SideSpec) -> str | None:
    """SQL (BOOLEAN): the value is not exactly that of the text, but the nearest; None if the type never rounds.

    Args:
        value: SQL of the text.
        made: SQL of the value.
        column: declares the type.
        side: the side of the column.
    """
    dtype = base(column.type)
    if dtype in ("FLOAT", "DOUBLE"):
        # Numbers with at most `digits` digits are all different values of the type, except very near to zero.
        digits, least, most = (15, "1E-300D", "1E300D") if dtype == "DOUBLE" else (6, "1E-36D", "1E36D")
        short = rf"^[\s+-]*[0-9.]{{1,{digits + 1}}}\s*$"
        sure = f"LENGTH({_significant(value)}) <= {digits} AND ABS({made}) BETWEEN {least} AND {most}"
        differ = " AND ".join(_differ(value, back) for back in _written(made, dtype))
        return f"({value} RLIKE '[0-9]' AND NOT {value} RLIKE {text(short)} AND NOT ({sure}) AND {differ})"
    if dtype == "DATE":
        moment = f"TRY_CAST({value} AS TIMESTAMP_NTZ)"
        finer = f"{value} RLIKE {text(_FINER)}"
        return f"({value} RLIKE {text(_WITH_TIME)} AND ({finer} OR CAST({made} AS TIMESTAMP_NTZ) <> {moment}))"
    if dtype.startswith("TIMESTAMP"):
        finer = f"{value} RLIKE {text(_FINER)}"
        if dtype == "TIMESTAMP_NTZ":
            finer = f"({finer} OR {value} RLIKE {text(_OTHER_ZONE)})"
        if side.logical_type(column) == "epoch_nanos":
            finer = f"({finer} OR COALESCE(TRY_CAST({value} AS BIGINT) % 1000L <> 0, FALSE))"
        return finer
    return None


def _convert(value: str, dtype: str, how: str | None = None, *, days: bool = False) -> str:
    """SQL of the value of a text; null if the text is not a value of the type.

    Args:
        value: SQL of the text.
        dtype: the type.
        how: the logical type, if one is given.
        days: whether a number is a DATE, also within a nested value.
    """
    name = base(dtype)
    if name == "STRING":
        return value
    if name in ("ARRAY", "MAP", "STRUCT"):
        return _nested(value, dtype, days)
    if name == "BINARY":
        return f"TRY_TO_BINARY({value}, 'base64')"
    if name == "DATE" or name.startswith("TIMESTAMP"):
        # A bare number may be a year, days, milli- or microseconds: never guessed. Spark would complete a part of a
        # date, and read a time without a date as a time of today.
        return (
            f"CASE WHEN {value} RLIKE '^-?[0-9]+$' THEN {_counted(value, dtype, how, days)} {_dated(value, dtype)} END"
        )
    if name == "DECIMAL":
        scale = _scale(dtype)
        if how == "decimal_bytes":
            return f"TRY_CAST({_unscaled(value, str(scale))} AS {dtype})"
        return _decimal(value, dtype, scale)
    if name in ("FLOAT", "DOUBLE"):  # a number out of range would become infinite
        number = f"TRY_CAST({value} AS {dtype})"
        finite = f"IF(ABS({number}) = DOUBLE('Infinity'), NULL, {number})"
        word = f"IF({value} RLIKE '[0-9]', NULL, {number})"
        return f"IF({value} RLIKE {_PLAIN_OR_NOT}, {finite}, {word})"
    return f"TRY_CAST({value} AS {dtype})"


def _counted(value: str, dtype: str, how: str | None, days: bool) -> str:
    """SQL of the date or time of a number since 1970; null if nothing says what the number counts."""
    if base(dtype) == "DATE":
        return f"DATE_FROM_UNIX_DATE(TRY_CAST({value} AS INT))" if days or how == "epoch_days" else "NULL"
    if how is None:
        return "NULL"
    number = f"TRY_CAST({value} AS BIGINT)"
    return f"CAST(TIMESTAMP_MICROS({_MICROS[how].format(number)}) AS {dtype})"


def _dated(value: str, dtype: str) -> str:
    """SQL (cases of a CASE) of the date or time of a text that begins with a whole date."""
    dated = f"WHEN {value} RLIKE {text(_DATED)} THEN TRY_CAST({value} AS {dtype})"
    if base(dtype) != "DATE":
        return dated
    timed = f"{value} RLIKE {text(_WITH_TIME)} AND {value} RLIKE {text(_DATED)}"
    return f"WHEN {timed} THEN CAST(TRY_CAST({value} AS TIMESTAMP_NTZ) AS DATE) {dated}"


_MICROS = {
    "epoch_seconds": "TRY_MULTIPLY({}, 1000000L)",
    "epoch_millis": "TRY_MULTIPLY({}, 1000L)",
    "epoch_micros": "{}",
    "epoch_nanos": "CAST(FLOOR({} / 1000BD) AS BIGINT)",
}
"""Per logical type, SQL (BIGINT) of the microseconds since 1970 from a number of that type."""

_DATED = r"^\s*[+-]?[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}(?![0-9])"
"""Pattern of a text that begins with year, month and day."""
_WITH_TIME = r"[0-9][T ]\s*\S|T\s*$"
_FINER = r"\.[0-9]{6}[0-9]*[1-9]"
"""Pattern of a time with digits beyond microseconds."""
_OTHER_ZONE = r"[T ][0-9].*([+-](?!00?(:?00)?\s*$)[0-9:]+|/[A-Za-z_]+)\s*$"
"""Pattern of a time whose zone is not UTC: TIMESTAMP_NTZ keeps its time and drops its zone."""

_EXPONENT = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]{1,9}\s*$"
_PLAIN_OR_NOT = text(r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?\s*$")
"""SQL: the pattern of a number."""


def _scale(dtype: str) -> int:
    match = re.search(r",\s*(\d+)", dtype)
    return int(match[1]) if match else 0


def _decimal(value: str, dtype: str, scale: int) -> str:
    """SQL of the number of a text; null if the type cannot represent it exactly.

    The decimal places are counted before Spark casts the text: for 1e-999999999 Spark would write out all the zeros.
    """
    places = rf"\.[0-9]{{0,{scale}}}0*" if scale else r"\.0*"
    fixed = text(rf"^\s*[+-]?([0-9]+({places})?|{places})\s*$")
    parts = f"FROM_JSON({value}, 'STRUCT<scale: INT, value: STRING>')"  # of any scale, as Debezium writes it
    number = f"IF({value} LIKE '{{%', {_unscaled(f'{parts}.value', f'{parts}.scale')}, {value})"
    floating = f"_n RLIKE {text(_EXPONENT)} AND {_places('_n')} <= {scale}"
    zero = f"IF({_significant('_n')} = '', '0', _n)"
    rare = (
        f"CASE WHEN _n RLIKE {fixed} THEN TRY_CAST(_n AS {dtype}) WHEN {floating} THEN TRY_CAST({zero} AS {dtype}) END"
    )
    return f"IF({value} RLIKE {fixed}, TRY_CAST({value} AS {dtype}), {_let('_n', number, rare)})"


def _let(name: str, sql: str, body: str) -> str:
    """SQL of an expression in which a name stands for another expression, which is thereby computed only once."""
    return f"TRANSFORM(ARRAY({sql}), {name} -> {body})[0]"


def _digits(value: str) -> str:
    """SQL (STRING): the digits of a number, without its exponent."""
    return f"REGEXP_REPLACE(REGEXP_REPLACE({value}, '[eE].*', ''), '[^0-9]', '')"


def _significant(value: str) -> str:
    """SQL (STRING): the digits of a number, without zeros at its ends."""
    return f"TRIM(BOTH '0' FROM {_digits(value)})"


def _places(value: str) -> str:
    """SQL (INT): the number of places after the point that a number needs; negative for one that ends in zeros."""
    point = f"LENGTH(REGEXP_EXTRACT({value}, '[.]([0-9]*)', 1))"
    zeros = f"LENGTH({_digits(value)}) - LENGTH(TRIM(TRAILING '0' FROM {_digits(value)}))"
    exponent = f"COALESCE(TRY_CAST(REGEXP_EXTRACT({value}, '[eE]([+-]?[0-9]+)', 1) AS INT), 0)"
    return f"IF({_significant(value)} = '', 0, {point} - ({zeros}) - {exponent})"


def _written(made: str, dtype: str) -> list[str]:
    """SQL of the texts of a number; for a FLOAT also the text of the same number as a DOUBLE."""
    texts = [f"CAST({made} AS STRING)"]
    return texts if dtype == "DOUBLE" else [*texts, f"CAST(CAST({made} AS DOUBLE) AS STRING)"]


def _differ(left: str, right: str) -> str:
    """SQL (BOOLEAN): two texts are different numbers."""
    return f"({_significant(left)} <> {_significant(right)} OR {_places(left)} <> {_places(right)})"


def _nested(value: str, dtype: str, days: bool) -> str:
    """SQL of an array, a map or a struct from its JSON; every value in it is read as a text and then converted."""
    tree = sqlglot.parse_one(f"CAST(x AS {dtype})", dialect=DIALECT).args["to"]
    read = parsed(wrapped("""CONCAT('{"v":', _text, '}')""", "_mark"), f"v: {_shape(tree)}")
    made = f"IF({fits('_read', '_mark')} AND {_all_fit('_whole', tree, days)}, {_made('_whole', tree, days)}, NULL)"
    for name, sql in (
        ("_whole", f"{value_of('_read')}.v"),
        ("_read", read),
        ("_mark", digest("_text")),
        ("_text", value),
    ):
        made = _let(name, sql, made)
    return made


def _is(tree: exp.Expression, name: str) -> bool:
    return isinstance(tree, exp.DataType) and tree.this == exp.DataType.Type[name]


def _fields(tree: exp.Expression) -> list[tuple[str, exp.Expression]]:
    return [(field.this.name, field.args["kind"]) for field in tree.expressions]


def _shape(tree: exp.Expression) -> str:
    """DDL of a type with texts in place of its scalars."""
    if _is(tree, "ARRAY"):
        return f"ARRAY<{_shape(tree.expressions[0])}>"
    if _is(tree, "MAP"):
        return f"MAP<STRING, {_shape(tree.expressions[1])}>"
    if _is(tree, "STRUCT"):
        return "STRUCT<" + ", ".join(f"{quote(name)}: {_shape(of)}" for name, of in _fields(tree)) + ">"
    return "STRING"


def _made(value: str, tree: exp.Expression, days: bool, depth: int = 0) -> str:
    """SQL of a value of a type, from a value of its `_shape`."""
    element = f"_v{depth}"
    if _is(tree, "ARRAY"):
        return f"TRANSFORM({value}, {element} -> {_made(element, tree.expressions[0], days, depth + 1)})"
    if _is(tree, "MAP"):
        made = _made(element, tree.expressions[1], days, depth + 1)
        return f"TRANSFORM_VALUES({value}, (_k{depth}, {element}) -> {made})"
    if _is(tree, "STRUCT"):
        fields = {name: _made(f"{value}.{quote(name)}", of, days, depth + 1) for name, of in _fields(tree)}
        made = ", ".join(f"{sql} AS {quote(name)}" for name, sql in fields.items())
        return f"IF({value} IS NULL, NULL, STRUCT({made}))"
    return _let("_leaf", exact(value, "_mark"), _convert("_leaf", tree.sql(dialect=DIALECT), days=days))


def _all_fit(value: str, tree: exp.Expression, days: bool, depth: int = 0) -> str:
    """SQL (BOOLEAN): every text in a value of a `_shape` can be converted."""
    element = f"_f{depth}"
    if _is(tree, "ARRAY"):
        return (
            f"COALESCE(FORALL({value}, {element} -> {_all_fit(element, tree.expressions[0], days, depth + 1)}), TRUE)"
        )
    if _is(tree, "MAP"):
        inner = _all_fit(element, tree.expressions[1], days, depth + 1)
        return f"COALESCE(FORALL(MAP_VALUES({value}), {element} -> {inner}), TRUE)"
    if _is(tree, "STRUCT"):
        parts = [_all_fit(f"{value}.{quote(name)}", of, days, depth + 1) for name, of in _fields(tree)]
        return f"({' AND '.join(parts)})"
    if base(tree.sql(dialect=DIALECT)) == "STRING":
        return "TRUE"
    return f"({value} IS NULL OR {_made(value, tree, days, depth)} IS NOT NULL)"


def _unscaled(value: str, scale: str) -> str:
    """SQL (STRING): the number that two's complement bytes in Base64 (big-endian, at most 16) and a scale make."""
    negative = "SUBSTRING(_hex, 1, 1) IN ('8', '9', 'A', 'B', 'C', 'D', 'E', 'F')"
    # -x - 1 has the inverted bits of x; four words of 32 bits make the whole.
    size = f"LPAD(IF({negative}, TRANSLATE(_hex, '0123456789ABCDEF', 'FEDCBA9876543210'), _hex), 32, '0')"
    words = [f"CAST(CONV(SUBSTRING(_size, {1 + 8 * i}, 8), 16, 10) AS DECIMAL(38, 0))" for i in range(4)]
    whole = f"IF({negative}, 1BD, 0BD)"
    for i, word in enumerate(words):
        whole = f"TRY_ADD(TRY_MULTIPLY({word}, CAST({2 ** (32 * (3 - i))}BD AS DECIMAL(38, 0))), {whole})"
    whole_text = f"CONCAT(CAST(_whole AS STRING), REPEAT('0', GREATEST(-({scale}), 0)))"  # a scale may be negative
    places = f"GREATEST({scale}, 0)"
    digits = f"LPAD({whole_text}, GREATEST(LENGTH({whole_text}), {places} + 1), '0')"
    point = f"CONCAT(LEFT(_digits, LENGTH(_digits) - {places}), '.', RIGHT(_digits, {places}))"
    bound = [
        ("_hex", f"HEX(TRY_TO_BINARY({value}, 'base64'))"),
        ("_size", f"IF(LENGTH(_hex) BETWEEN 2 AND 32, {size}, NULL)"),
        ("_whole", whole),
        ("_digits", digits),
    ]
    made = f"CONCAT(IF({negative}, '-', ''), {point})"
    for name, sql in reversed(bound):
        made = _let(name, sql, made)
    return made
