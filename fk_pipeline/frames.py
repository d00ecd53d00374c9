"""DataFrames that are made of nothing but names and types."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.spec import quote


def empty(session: SparkSession, columns: Sequence[tuple[str, str]]) -> DataFrame:
    """No rows, with these columns (name, DDL type). Unlike `createDataFrame` it starts no Python worker."""
    nulls = [f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in columns]
    return session.range(1).selectExpr(*nulls).limit(0)  # Spark drops joins with a limit of 0 when it plans
