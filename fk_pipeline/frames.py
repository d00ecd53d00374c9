"""DataFrames without rows, made from names and types of columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.spec import quote


def empty(session: SparkSession, columns: Sequence[tuple[str, str]]) -> DataFrame:
    """Returns a frame with these columns (name, DDL type) and no rows.

    Unlike `createDataFrame` it starts no Python worker.
    """
    nulls = [f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in columns]
    return session.range(1).selectExpr(*nulls).limit(0)  # the planner of Spark removes joins with a LIMIT of 0
