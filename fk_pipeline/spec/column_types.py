"""The types of Spark's DDL, and what to declare in place of a type that other systems have and Spark has not."""

from __future__ import annotations

import re

from sqlglot import exp

from fk_pipeline.words import meant_or_all

TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "CHAR", "VARCHAR"),
    *("BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY", "MAP", "STRUCT"),
)
"""The names of types that a column may have."""

_OTHER_NAMES = frozenset(
    {"BYTE", "SHORT", "INTEGER", "LONG", "REAL", "DEC", "NUMERIC", "TIMESTAMP_LTZ", "INTERVAL", "VARIANT", "VOID"}
    | {"NULL", "OBJECT", "USERDEFINED", "UNKNOWN", "TIME"}
)
"""Further names: synonyms, and those of types that are refused with a message of their own."""

_MOST_DIGITS = 38

_INSTEAD = {
    "MONEY": "DECIMAL(19,4)",
    "SMALLMONEY": "DECIMAL(10,4)",
    "UBIGINT": "DECIMAL(20,0)",
    "INT128": "DECIMAL(38,0)",
    "HUGEINT": "DECIMAL(38,0)",
    "INT256": "DECIMAL(38,0)",
    **dict.fromkeys(("BIGDECIMAL", "DECFLOAT"), "DECIMAL(38,9)"),
    **dict.fromkeys(("SERIAL", "MEDIUMINT", "YEAR", "USMALLINT", "UINT16"), "INT"),
    **dict.fromkeys(("BIGSERIAL", "UINT", "UINT32", "UMEDIUMINT", "UNSIGNED", "ROWID"), "BIGINT"),
    **dict.fromkeys(("SMALLSERIAL", "UTINYINT", "UINT8"), "SMALLINT"),
    **dict.fromkeys(("FLOAT64", "BINARY_DOUBLE"), "DOUBLE"),
    **dict.fromkeys(("FLOAT32", "BINARY_FLOAT"), "FLOAT"),
    **dict.fromkeys(("DATETIME2", "DATETIMEOFFSET", "DATETIME64", "SMALLDATETIME", "TIMESTAMP_S"), "TIMESTAMP"),
    **dict.fromkeys(("TIMESTAMP_MS", "TIMESTAMP_NS"), "TIMESTAMP"),
    **dict.fromkeys(("JSON", "JSONB", "XML", "TEXT", "CITEXT", "ENUM", "ENUM8", "ENUM16", "SET", "HSTORE"), "STRING"),
    **dict.fromkeys(("UNIQUEIDENTIFIER", "UUID", "GUID", "INET", "CIDR", "IPADDRESS", "IPV4", "IPV6"), "STRING"),
    **dict.fromkeys(("TIMETZ", "TIMESPAN", "NTEXT", "MEDIUMTEXT", "LONGTEXT", "TINYTEXT", "STR"), "STRING"),
    **dict.fromkeys(("GEOMETRY", "GEOGRAPHY", "SUPER"), "STRING"),
    **dict.fromkeys(("IMAGE", "ROWVERSION", "RAW", "BYTES", "LONGBLOB", "MEDIUMBLOB", "TINYBLOB"), "BINARY"),
}  # fmt: skip
"""Per type of other systems, the type of Spark that takes its values."""


def wrong_type(dtype: exp.DataType) -> str:
    """Returns what is wrong with a type that was parsed, beginning with its name; empty if Spark has it."""
    for part in dtype.find_all(exp.DataType):
        name = part.this.value if isinstance(part.this, exp.DType) else str(part.this)
        text: str = part.sql(dialect="spark")
        base = re.split(r"[<( ]", text.upper(), maxsplit=1)[0]
        sizes = [size.name for size in part.expressions if isinstance(size, exp.DataTypeParam)]
        if base not in TYPES and base not in _OTHER_NAMES:
            return f"{name}, {_unknown(name)}"
        if base in ("ARRAY", "MAP", "STRUCT") and not part.expressions:
            whole = {"ARRAY": "ARRAY<STRING>", "MAP": "MAP<STRING, STRING>", "STRUCT": "STRUCT<city: STRING>"}[base]
            return f"{base} and does not tell of what; write {whole} for example"
        if base == "DECIMAL" and sizes and not _fits(sizes):
            return f"{text}; Spark has DECIMAL(p,s) with 0 <= s <= p <= {_MOST_DIGITS} digits"
        if sizes and "(" in text and base not in ("DECIMAL", "CHAR", "VARCHAR"):
            return f"{text}, and Spark's {base} has no length; write {base}"
    return ""


def _fits(sizes: list[str]) -> bool:
    if not all(size.isdigit() for size in sizes):
        return False
    digits, scale = int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0
    return 0 <= scale <= digits <= _MOST_DIGITS and digits > 0


def wrong_column(ddl: str) -> str:
    """Returns which column of a text that is no column list is wrong, and what would be right; empty: unknown."""
    for text in _parts(ddl):
        match = re.match(r"\s*(`[^`]+`|[^\s,:]+)\s*:?\s*(.*)", text, re.DOTALL)
        if match is None:
            return "a column is missing beside a comma"
        name, dtype = match[1].strip("`"), match[2].strip()
        if not dtype:
            return f"column {name!r} has no type; write '{match[1]} STRING' for example"
        bare = re.sub(r"\([^)]*\)", "", dtype)
        words = [*re.findall(r"^\w+", bare), *re.findall(r"[<:,]\s*([A-Za-z_]\w*)(?!\w|\s*:|\s+\w)", bare)]
        unknown = next((word for word in words if not _known(word)), None)
        if unknown is not None:
            return f"column {name!r} has type {unknown}, {_unknown(unknown)}"
        first = re.match(
            r"[A-Za-z_]+(\([^)]*\))?\s+(?!NOT\b|NULL\b|COMMENT\b|DEFAULT\b)(`?\w+`?)\s+\w", dtype, re.IGNORECASE
        )
        if first is not None and "<" not in dtype:
            return f"column {name!r}: a comma is missing before {first[2]!r}"
    return ""


def _known(word: str) -> bool:
    return word.upper() in TYPES or word.upper() in _OTHER_NAMES


def _unknown(name: str) -> str:
    instead = _INSTEAD.get(name.upper())
    proposal = f"; {instead} takes its values" if instead else meant_or_all(name.upper(), TYPES)
    return f"which Spark does not know{proposal}"


def _parts(ddl: str) -> list[str]:
    """Returns the columns of a text, parted at the commas outside of brackets and quotes."""
    parts, depth, quoted = [""], 0, ""
    for character in ddl:
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "`'\"":
            quoted = character
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == "," and not depth:
            parts.append("")
            continue
        parts[-1] += character
    return parts
