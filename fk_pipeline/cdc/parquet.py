"""Plain rows as Parquet files: each row replaces the one with its key (`docs/reference/rows.md`).

With `op_column`, that column says what a row does, as in `fk_pipeline.cdc.rows`. Values are taken as they are where
the file has the declared type, and cast where not. Files of other columns or types may be read together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from fk_pipeline.cdc.records import BAD, EVENT, TRUNCATE, misfit, missing_key, operation_problem
from fk_pipeline.errors import LandingError
from fk_pipeline.spec import SideSpec, quote


class Parquet:
    """Reads one change per row."""

    name = "parquet"
    sequence_type = "STRUCT<arrival: INT>"

    def read(self, session: SparkSession, paths: Sequence[str], side: SideSpec) -> DataFrame:
        """The rows of the files.

        Returns:
            `value` (STRUCT: `op`, `row`, `problem` and, where there is one, `raw`, the row as JSON), `position` (its
            number in the file, from 0) and where its file lies.

        Raises:
            LandingError: a file is no Parquet.
        """
        alike: dict[str, list[str]] = {}
        for path in paths:
            alike.setdefault(_columns(path), []).append(path)
        return reduce(DataFrame.unionByName, [_rows(session.read.parquet(*group), side) for group in alike.values()])

    def parse(self, lines: DataFrame, _side: SideSpec) -> DataFrame:
        """One row per row; see `fk_pipeline.cdc.records`."""
        place = [quote(name) for name in lines.columns if name != "value"]
        return lines.selectExpr(
            "value.raw AS value",
            *place,
            f"CASE WHEN value.problem IS NOT NULL THEN '{BAD}' WHEN value.op = 't' THEN '{TRUNCATE}' "
            f"ELSE '{EVENT}' END AS kind",
            "value.problem AS reason",
            "value.op AS op",
            "value.op IN ('d', 't') AS deleted",
            "STRUCT(batch AS arrival) AS sequence",
            "value.row AS row",
        )


def _columns(path: str) -> str:
    """Names and types of the columns of a file, from its footer."""
    try:
        with fsspec.open(path, "rb") as file:
            schema: pa.Schema = pq.read_schema(file)
    except (OSError, pa.ArrowException) as error:
        raise LandingError(
            "the file cannot be read as Parquet",
            where=path,
            why=str(error).strip().splitlines()[0],
            fix="replace it by a whole one, or take it out of the landing folder; nothing of its batch was applied",
        ) from None
    return str(schema.remove_metadata())


def _rows(stored: DataFrame, side: SideSpec) -> DataFrame:
    """Rows of files with the same columns, as `Parquet.read` returns them."""
    found = {field.name.lower(): field for field in stored.schema.fields}
    values = {c.name: quote(found[c.name.lower()].name) for c in side.columns if c.name.lower() in found}
    declared = [f"CAST(NULL AS {c.type}) AS {c.quoted}" for c in side.columns]
    wanted: dict[str, T.DataType] = {
        f.name: f.dataType for f in stored.sparkSession.range(0).selectExpr(*declared).schema
    }
    doubtful = {name: value for name, value in values.items() if found[name.lower()].dataType != wanted[name]}
    row = ", ".join(
        f"{'TRY_CAST' if c.name in doubtful else 'CAST'}({values.get(c.name, 'NULL')} AS {c.type}) AS {c.quoted}"
        for c in side.columns
    )
    op = "'u'"
    if side.op_column:
        has = side.op_column.lower() in found
        op = f"LOWER(SUBSTRING(CAST({quote(side.op_column)} AS STRING), 1, 1))" if has else "CAST(NULL AS STRING)"
    texts = {name: f"CAST(_raw.{value} AS STRING)" for name, value in doubtful.items()}
    problem = operation_problem(side, misfit(side, texts, "row"), missing_key(side, "row"))
    return (
        stored.selectExpr(
            f"STRUCT({', '.join(map(quote, stored.columns))}) AS _raw",
            f"{op} AS op",
            f"STRUCT({row}) AS row",
            "_metadata.file_path AS path",
            "_metadata.row_index AS position",
        )
        .selectExpr("*", "op IN ('d', 't') AS deleted")
        .selectExpr("*", f"{problem} AS problem")
        .selectExpr(
            "STRUCT(op, row, problem, IF(problem IS NOT NULL, TO_JSON(_raw), NULL) AS raw) AS value",
            "path",
            "CAST(0 AS BIGINT) AS block",
            "position",
        )
    )
