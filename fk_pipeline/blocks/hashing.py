"""The engine's row hash: 128 bits (MD5) over a canonical encoding, the same on every engine, JDK and time zone.

A message is about a version of a row, and carries its hash (KIP-213); it is applied only if the hash is still that of
the current version (`docs/architecture.md`, rules 3 and 7). The encoding guarantees:

* a row is encoded as its columns in the order of their names, each as
  `<length of the name>:<name><length in bytes>:<text>`; a null column is left out. So `('a', null)` and `(null, 'a')`
  differ, a row keeps its hash when a column is added in which it has no value (`docs/reference/schema-changes.md`), and
  the order of a `select` does not matter;
* within arrays, structs and maps a null value is encoded as `n`, any other as `<length in bytes>:<text>`, so
  `('ab', '')` and `('a', 'b')` differ;
* text is stored as it is: no trimming, no case folding, no Unicode normalisation;
* integers of every width share one text form; dates count days and timestamps microseconds, both since 1970 in UTC;
* floating-point numbers are encoded by their bits (`xxhash64`, a bijection on 64 bits), never by a printed form that
  changes with the Java version; -0.0 equals 0.0 and every NaN equals every NaN;
* decimals of up to 18 digits are encoded by their digits (also `xxhash64`), which is much quicker than printing them;
  longer ones are printed without trailing zeros;
* arrays, structs and maps are encoded element by element, maps by their sorted entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fk_pipeline.spec.sql import quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T

HASH_VERSION = 3
"""Version of the encoding, stored with the state. Another version is refused: its hashes are not comparable."""

DIGITS_IN_A_LONG = 18
"""The largest number of digits of a decimal that Spark keeps, without its point, as a 64-bit number."""

NULL_MARKER = "n"


def row_hash(fields: Iterable[tuple[str, T.DataType]]) -> str:
    """SQL (BINARY(16)): the hash of a row given as column names with their types, in any order."""
    return _digest({name: (quote(name), _text(quote(name), dtype, 0)) for name, dtype in fields})


def _digest(fields: Mapping[str, tuple[str, str]]) -> str:
    """SQL (BINARY(16)): the hash of columns, given per name as SQL of the value and SQL of its text when not null."""
    parts = ["''"]
    for name, (value, content) in sorted(fields.items()):
        texts = [text(f"{len(name.encode())}:{name}"), f"CAST(OCTET_LENGTH({content}) AS STRING)", "':'", content]
        parts += [f"IF({value} IS NULL, '', {sql})" for sql in texts]  # joined once: each text is copied once
    return f"UNHEX(MD5(CONCAT({', '.join(parts)})))"


def with_row_hash(rows: DataFrame, name: str, names: Iterable[str], unless: str) -> DataFrame:
    """Returns the rows with one more column, the `row_hash` of some of their columns.

    The text of every field is computed only once.

    Args:
        rows: the rows.
        name: of the new column.
        names: the columns to hash.
        unless: SQL condition; the hash is null where it holds.
    """
    dtypes = {f.name: f.dataType for f in rows.schema.fields}
    printed = {
        field: (f"_fk_text_{i}", f"IF({quote(field)} IS NULL, NULL, {_text(quote(field), dtypes[field], 0)})")
        for i, field in enumerate(names)
    }
    content = _digest({field: (column, column) for field, (column, _) in printed.items()})
    frame = rows.selectExpr("*", *[f"{sql} AS {column}" for column, sql in printed.values()])
    hashed = frame.selectExpr("*", f"IF({unless}, NULL, {content}) AS {name}")
    return hashed.drop(*[column for column, _ in printed.values()])


def encode(value: str, dtype: T.DataType, depth: int = 0) -> str:
    """SQL (STRING, never null): the canonical encoding of a value inside an array, a struct or a map.

    Args:
        value: SQL of the value.
        dtype: its type.
        depth: how many lambdas surround it; it keeps their variables apart.
    """
    content = _text(value, dtype, depth)
    return f"IF({value} IS NULL, '{NULL_MARKER}', CONCAT(OCTET_LENGTH({content}), ':', {content}))"


def _text(value: str, dtype: T.DataType, depth: int) -> str:
    """SQL (STRING): the text of a value that is not null."""
    from pyspark.sql import types as T

    if isinstance(dtype, T.StringType | T.CharType | T.VarcharType):
        return value
    if isinstance(dtype, T.ByteType | T.ShortType | T.IntegerType | T.LongType | T.BooleanType):
        return f"CAST({value} AS STRING)"
    if isinstance(dtype, T.DecimalType):
        if dtype.precision <= DIGITS_IN_A_LONG:
            return f"CAST(XXHASH64({value}) AS STRING)"
        digits = f"CAST({value} AS STRING)"
        return f"RTRIM('.', RTRIM('0', {digits}))" if dtype.scale > 0 else digits
    if isinstance(dtype, T.FloatType | T.DoubleType):
        return f"CAST(XXHASH64(CAST({value} AS DOUBLE)) AS STRING)"
    if isinstance(dtype, T.DateType):
        return f"CAST(UNIX_DATE({value}) AS STRING)"
    if isinstance(dtype, T.TimestampType | T.TimestampNTZType):
        return f"CAST(UNIX_MICROS(CAST({value} AS TIMESTAMP)) AS STRING)"
    if isinstance(dtype, T.BinaryType):
        return f"HEX({value})"
    variable = f"x{depth}"
    if isinstance(dtype, T.ArrayType):
        return f"ARRAY_JOIN(TRANSFORM({value}, {variable} -> {encode(variable, dtype.elementType, depth + 1)}), '')"
    if isinstance(dtype, T.MapType):
        key, content = (
            encode(f"{variable}.key", dtype.keyType, depth + 1),
            encode(f"{variable}.value", dtype.valueType, depth + 1),
        )
        return f"ARRAY_JOIN(ARRAY_SORT(TRANSFORM(MAP_ENTRIES({value}), {variable} -> CONCAT({key}, {content}))), '')"
    if isinstance(dtype, T.StructType):
        parts = ", ".join(encode(f"{value}.{quote(f.name)}", f.dataType, depth) for f in dtype.fields)
        return f"CONCAT('', {parts})"
    raise TypeError(f"a column of type {dtype.simpleString()} has no canonical encoding")
