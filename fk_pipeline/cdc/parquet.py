"""Plain rows as Parquet files: each row replaces the one with its key (`docs/reference/rows.md`).

With `op_column`, that column says what a row does, as in `fk_pipeline.cdc.rows`. Values are taken as they are where
the file has the declared type, and converted from their text where not. Files of other columns or types may be read
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from fk_pipeline.cdc.records import (
    ARRIVAL,
    ARRIVAL_TYPE,
    first_letter,
    misfit,
    missing_key,
    operation_problem,
    records,
    typed_row,
)
from fk_pipeline.errors import LandingError
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.sql import INTEGERS

KEYS_AT_ONCE = 1 << 20
"""Keys that are held in memory to see whether they ascend."""


class Parquet:
    """Reads one change per row."""

    name = "parquet"
    sequence_type = ARRIVAL_TYPE
    is_text = False
    has_holes = False

    def read(self, session: SparkSession, paths: Sequence[str], side: SideSpec) -> DataFrame:
        """The rows of the files.

        Returns:
            `value` (STRUCT: `op`, `deleted`, `row`, `_bad`, and `value`, the row as it is or, when not all files have
            the same columns, as JSON), `position` (its number in the file, from 0) and where its file lies.

        Raises:
            LandingError: a file is no Parquet, or has timestamps that Spark does not read.
        """
        alike: dict[str, list[str]] = {}
        for path in paths:
            alike.setdefault(_columns(path), []).append(path)
        raw = "_raw" if len(alike) == 1 else "TO_JSON(_raw)"
        parts = [_rows(session.read.parquet(*group), side, raw) for group in alike.values()]
        return reduce(DataFrame.unionByName, parts)

    def parse(self, lines: DataFrame, _side: SideSpec) -> DataFrame:
        """One row per row; see `fk_pipeline.cdc.records`."""
        place = [quote(name) for name in lines.columns]
        return lines.selectExpr(
            *[name for name in place if name != quote("value")], "CAST(NULL AS STRING) AS _ignored", "value.*"
        ).selectExpr(*records(place, ARRIVAL))

    def has_keys_once(self, path: str, side: SideSpec) -> bool:
        """Whether the keys of a file, taken as they are, are one number or text each that is greater than the last."""
        with fsspec.open(path, "rb") as stream:
            file = pq.ParquetFile(stream)
            stored = [field for field in file.schema_arrow if field.name.lower() == side.key_columns[0].name.lower()]
            if len(side.key_columns) > 1 or len(stored) != 1 or not _is_kept(stored[0].type, side.key_columns[0].type):
                return False
            before: list[pa.Scalar] = []
            for batch in file.iter_batches(KEYS_AT_ONCE, columns=[stored[0].name]):
                keys = pa.chunked_array([pa.array(before, stored[0].type), batch.column(0)])
                if keys.null_count or pc.any(pc.greater_equal(keys[:-1], keys[1:])).as_py():
                    return False
                before = [keys[-1]]
        return True


def _is_kept(stored: pa.DataType, declared: str) -> bool:
    """A number or text that is not converted."""
    texts = pt.is_string(stored) or pt.is_large_string(stored)
    return bool(pt.is_integer(stored)) if declared.upper() in INTEGERS else texts and declared.upper() == "STRING"


def _columns(path: str) -> str:
    """Names and types of the columns of a file, from its footer."""
    try:
        with fsspec.open(path, "rb") as stream:
            file = pq.ParquetFile(stream)
            names, columns = str(file.schema_arrow.remove_metadata()), list(file.schema)
    except (OSError, pa.ArrowException) as error:
        raise LandingError(
            "the file cannot be read as Parquet",
            where=path,
            why=str(error).strip().splitlines()[0],
            fix="replace it by a whole one, or take it out of the landing folder; nothing of its batch was applied",
        ) from None
    for column in columns:
        if column.physical_type == "INT64" and "timeUnit=nanoseconds" in str(column.logical_type):
            raise LandingError(
                f"column {column.name} has timestamps in nanoseconds",
                where=path,
                why="Spark does not read them; nothing of the batch was applied",
                fix="write microseconds (pandas: to_parquet(..., coerce_timestamps='us'))",
            )
    return names


def _rows(stored: DataFrame, side: SideSpec, raw: str) -> DataFrame:
    """Rows of files with the same columns, as `Parquet.read` returns them.

    A column of another type than declared is converted from its text, as a value of a JSON line is.
    """
    found = {field.name.lower(): field for field in stored.schema.fields}
    values = {c.name: quote(found[c.name.lower()].name) for c in side.columns if c.name.lower() in found}
    declared = [f"CAST(NULL AS {c.type}) AS {c.quoted}" for c in side.columns]
    wanted = stored.sparkSession.range(0).selectExpr(*declared).schema
    texts, typed = {}, {c.name: f"CAST(NULL AS {c.type})" for c in side.columns if c.name not in values}
    for name, value in values.items():
        kind = found[name.lower()].dataType
        if kind == wanted[name].dataType:
            typed[name] = f"_raw.{value}"
        elif isinstance(kind, (T.StructType, T.ArrayType, T.MapType)):
            texts[name] = f"TO_JSON(_raw.{value})"
        else:
            texts[name] = f"CAST(_raw.{value} AS STRING)"
    op = "'u'"
    if side.op_column:
        op = f"_raw.{quote(side.op_column)}" if side.op_column.lower() in found else "NULL"
    problem = operation_problem(side, misfit(side, texts, "row"), missing_key(side, "row"))
    return (
        stored.selectExpr(
            f"STRUCT({', '.join(map(quote, stored.columns))}) AS _raw",
            "_metadata.file_path AS path",
            "CAST(0 AS BIGINT) AS block",
            "_metadata.row_index AS position",
        )
        .selectExpr("*", f"{first_letter(op)} AS op", f"{typed_row(side, texts, typed)} AS row")
        .selectExpr("*", "op IN ('d', 't') AS deleted")
        .selectExpr(
            f"STRUCT(op, deleted, row, {problem} AS _bad, {raw} AS value) AS value", "path", "block", "position"
        )
    )
