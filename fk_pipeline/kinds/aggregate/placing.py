"""Rows of an aggregate in the windows in which they count."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.kinds.aggregate.kind import AT, NUMBER, START
from fk_pipeline.kinds.aggregate.windows import Windows


def spread(rows: DataFrame, windows: Windows | None) -> DataFrame:
    """Returns rows once per window in which each counts, with its key and number; one without a time counts in none."""
    if windows is None:
        return rows
    numbered = rows.where(f"{AT} IS NOT NULL").withColumn(NUMBER, F.explode(F.expr(windows.numbers(AT))))
    return numbered.withColumn(START, F.expr(windows.key(NUMBER)))
