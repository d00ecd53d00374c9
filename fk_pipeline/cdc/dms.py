"""Files of the AWS Database Migration Service on S3, CSV or Parquet (`docs/reference/dms.md`).

A row of a CDC file says in `Op`, its first column, what it does: `I`, `U` or `D`. Files of a full load may lack the
column: their rows are inserts. Order: the time in the name of a CDC file, to which every full load is older; within a
file the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.cdc.columnar import Columnar
from fk_pipeline.cdc.csv import csv_rows
from fk_pipeline.cdc.parquet import parquet_rows
from fk_pipeline.spec import SideSpec

OP = "Op"
_STEM = "SPLIT_PART(SPLIT_PART(file, '/', -1), '.', 1)"


class Dms(Columnar):
    """Reads one change per row."""

    sequence_type = "STRUCT<written: BIGINT>"
    sequence = (
        f"STRUCT(IF(STARTSWITH(UPPER({_STEM}), 'LOAD'), 0L, "
        f"COALESCE(TRY_CAST(REGEXP_REPLACE({_STEM}, '[^0-9]', '') AS BIGINT), 0L)) AS written)"
    )
    """The digits of the time in the name, as a number; 0 for a full load."""

    def read(self, session: SparkSession, paths: Sequence[str], side: SideSpec) -> DataFrame:
        """The rows of the files.

        Raises:
            LandingError: a file has timestamps that Spark does not read.
            UnreadableFileError: a file is no Parquet, or ends in `.gz` and is none.
        """
        texts = [path for path in paths if path.endswith((".csv", ".csv.gz"))]
        columns = [path for path in paths if path not in texts]
        parts = []
        if texts:
            parts.append(csv_rows(session, texts, side, OP, header=side.csv.header is True, optional=True))
        if columns:
            parts.append(parquet_rows(session, columns, side, OP, optional=True))
        return reduce(DataFrame.unionByName, parts)
