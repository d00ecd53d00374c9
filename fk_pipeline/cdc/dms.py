"""Files of the AWS Database Migration Service on S3, CSV or Parquet (`docs/reference/dms.md`).

A row of a CDC file has its operation in `Op`, its first column: `I`, `U` or `D`. Files of a full load, and of a task
that writes inserts only, may lack the column: their rows are inserts. Order: the time in the name of a CDC file, and
every full load is older than that; within a file the position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.cdc.columnar import Columnar
from fk_pipeline.cdc.csv import csv_rows
from fk_pipeline.cdc.parquet import parquet_rows
from fk_pipeline.errors import LandingError
from fk_pipeline.spec import SideSpec

OP, OPERATIONS = "Op", ("i", "u", "d")
_FULL_LOAD = re.compile(r"LOAD[0-9A-F]+\.", re.IGNORECASE)
_NAME = re.compile(r"LOAD[0-9A-F]+\.|.*?[0-9]{8}-[0-9]{9,10}(?![0-9])", re.IGNORECASE)
_PARTS = [f"REGEXP_EXTRACT(SPLIT_PART(file, '/', -1), '([0-9]{{8}})-([0-9]{{9}})', {i})" for i in (1, 2)]


class Dms(Columnar):
    """The format `dms`: one change per row."""

    sequence_type = "STRUCT<written: BIGINT>"
    sequence = f"STRUCT(COALESCE(TRY_CAST(CONCAT({', '.join(_PARTS)}) AS BIGINT), 0L) AS written)"
    """SQL of the order: the time in the file name to milliseconds, as a number; 0 for a full load."""
    precedes: str | None = "sequence.written = 0"
    committed_at = f"COALESCE(TRY_TO_TIMESTAMP(CONCAT({', '.join(_PARTS)}), 'yyyyMMddHHmmssSSS'), TIMESTAMP_SECONDS(0))"
    """SQL of the time in the file name; the rows of a full load hold since 1970."""

    def read(self, session: SparkSession, paths: Sequence[str], side: SideSpec) -> DataFrame:
        """Returns the rows of the files as lines.

        Raises:
            LandingError: a name has no time and is not that of a full load; or a file has timestamps that Spark does
                not read.
            UnreadableFileError: a file is not Parquet, or its name ends in `.gz` and it is not a gzip file.
        """
        for path in paths:
            if not _NAME.match(path.rsplit("/", 1)[-1]):
                raise LandingError(
                    "the name tells neither a full load nor a time",
                    where=path,
                    why="the order of the changes in it is not known; nothing of the batch was applied",
                    fix="name files as DMS does: LOAD00000001.csv, 20141029-113401000.csv",
                )
        texts = [path for path in paths if path.endswith((".csv", ".csv.gz"))]
        columns = [path for path in paths if path not in texts]
        parts = []
        if texts:
            header = side.csv.header is True
            parts.append(csv_rows(session, texts, side, OP, header=header, words=OPERATIONS, lacks=_lacks(side)))
        if columns:
            parts.append(parquet_rows(session, columns, side, OP, OPERATIONS, may_lack=True))
        return reduce(DataFrame.unionByName, parts)


def _lacks(side: SideSpec) -> Callable[[str, Sequence[str]], bool]:
    """Returns a function that tells whether a CSV file without a header lacks `Op`, given its path and first row.

    A row that begins with an operation and has as many fields as the schema has such a value in its first column, if it
    is one of a full load. In a CDC file it lacks another column: say, one was dropped at the source.
    """

    def lacks(path: str, first: Sequence[str]) -> bool:
        if not first or first[0].lower() not in OPERATIONS:
            return True
        return len(first) == len(side.columns) and _FULL_LOAD.match(path.rsplit("/", 1)[-1]) is not None

    return lacks
