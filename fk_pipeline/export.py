"""Writes the result, or other rows, as a file or a Delta table, as `docs/reference/command.md`, export, states."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.contract import loaded
from fk_pipeline.errors import UsageError
from fk_pipeline.export_delta import DELTA_ENDING, write_table
from fk_pipeline.export_files import (
    FILE_ENDINGS,
    csv_line,
    refuse_unknown_types,
    whole_file,
    write_in_process,
    write_lines,
)
from fk_pipeline.spec import PipelineSpec, SideSpec, quote
from fk_pipeline.spec.described import comments_of_result
from fk_pipeline.spec.keys import value_from_text

EXPORT_ENDINGS = (*FILE_ENDINGS, DELTA_ENDING)

TIMESTAMP_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
JSON_OPTIONS = {"ignoreNullFields": "false", "timestampFormat": TIMESTAMP_FORMAT + "'Z'"}


def export(result: DataFrame, spec: PipelineSpec, file: Path) -> int:
    """Writes the selected columns of the result, in the order of `select`, sorted by key; see `write`.

    A name that ends in `.delta` is that of the folder of a table; see `export_delta.write_table`.
    """
    keys = loaded(spec.definition.keys)(spec, spec.definition.result.name).keys
    rows = result.orderBy(*map(quote, keys)).select(*[quote(o.name) for o in spec.outputs])
    if file.suffix == DELTA_ENDING:
        return write_table(_described(rows.toArrow(), spec), file, spec.description, private=spec.has_sensitive)
    return write(rows, file, private=spec.has_sensitive)


def export_in_process(rows: pa.Table, spec: PipelineSpec, file: Path) -> int:
    """Writes the selected columns of the result, which are in order, as `export` does; returns their number.

    Raises:
        LeftToSpark: a value is certainly written by Spark only.
        UsageError: the file has another ending, or something else is in its place.
    """
    if file.suffix != DELTA_ENDING:
        return write_in_process(rows, file, private=spec.has_sensitive)
    refuse_unknown_types(rows)
    return write_table(_described(rows, spec), file, spec.description, private=spec.has_sensitive)


def _described(rows: pa.Table, spec: PipelineSpec) -> pa.Table:
    """Returns rows whose columns have what the pipeline file says of them, as `comment`."""
    comments = {name: {"comment": text} for name, text in comments_of_result(spec).items()}
    return rows.cast(pa.schema([field.with_metadata(comments.get(field.name)) for field in rows.schema]))


def write(rows: DataFrame, file: Path, endings: Sequence[str] = FILE_ENDINGS, *, private: bool = False) -> int:
    """Writes rows to a file, whose ending determines the format; see `whole_file`. Returns their number."""
    writers = {".jsonl": _write_jsonl, ".csv": _write_csv, ".parquet": _write_parquet}
    with whole_file(file, endings, private=private) as part:
        return writers[file.suffix](rows, part)


def _text(column: Column, dtype: T.DataType) -> Column:
    """Returns a column in the form in which it is written: some types as text, all others unchanged."""
    if isinstance(dtype, T.DecimalType):
        return column.cast("string")
    if isinstance(dtype, T.TimestampType):
        return F.date_format(column, TIMESTAMP_FORMAT + "'Z'")
    if isinstance(dtype, T.TimestampNTZType):
        return F.date_format(column, TIMESTAMP_FORMAT)
    if isinstance(dtype, T.BinaryType):
        return F.base64(column)
    return column


def texts(rows: DataFrame) -> list[Column]:
    """Returns the columns of a frame in the form in which they are written to files."""
    return [_text(F.col(quote(f.name)), f.dataType).alias(f.name) for f in rows.schema.fields]


def json_texts(rows: DataFrame) -> list[str]:
    """Returns rows as JSON objects: binary values, such as hashes, in hexadecimal, all others as in a .jsonl file."""
    columns = [
        F.hex(quote(f.name)).alias(f.name) if isinstance(f.dataType, T.BinaryType) else column
        for f, column in zip(rows.schema.fields, texts(rows), strict=True)
    ]
    lines = rows.select(F.to_json(F.struct(*columns), JSON_OPTIONS).alias("row"))
    return [row["row"] for row in lines.collect()]


def json_rows(rows: DataFrame) -> list[dict[str, Any]]:
    """Returns rows as the JSON values of `json_texts`."""
    return list(map(json.loads, json_texts(rows)))


def key_row(session: SparkSession, key: Mapping[str, str], side: SideSpec) -> dict[str, Any]:
    """Returns a key in the form of `json_rows`, made from its columns as text.

    Raises:
        UsageError: a text is not a value of the type of its column.
    """
    rows = json_rows(
        session.range(1).selectExpr(*[f"{value_from_text(key[c.name], c)} AS {c.quoted}" for c in side.key_columns])
    )
    for column in side.key_columns:
        if rows[0][column.name] is None:
            raise UsageError(f"{key[column.name]!r} is no {column.type}", where=f"key column {column.name}")
    return rows[0]


def _write_jsonl(rows: DataFrame, file: Path) -> int:
    as_json = rows.select(F.to_json(F.struct(*texts(rows)), JSON_OPTIONS).alias("line"))
    lines = (row["line"] for row in as_json.toLocalIterator())
    with file.open("w", encoding="utf-8", newline="") as out:
        return write_lines(lines, out)


def _write_csv(rows: DataFrame, file: Path) -> int:
    nested = (T.ArrayType, T.MapType, T.StructType)
    fields = [
        (F.to_json(value, JSON_OPTIONS) if isinstance(f.dataType, nested) else value).cast("string").alias(f.name)
        for value, f in zip(texts(rows), rows.schema.fields, strict=True)
    ]
    with file.open("w", encoding="utf-8", newline="") as out:
        write_lines([csv_line(rows.columns)], out)
        return write_lines((csv_line(row) for row in rows.select(*fields).toLocalIterator()), out)


def _write_parquet(rows: DataFrame, file: Path) -> int:
    import pyarrow.parquet as pq

    table = rows.toArrow()
    pq.write_table(table, file)
    return int(table.num_rows)
