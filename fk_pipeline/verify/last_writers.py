"""The table that a changelog describes, in SQL of its own: shares no code with the stages."""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame

from fk_pipeline.spec import SideSpec
from fk_pipeline.store import schemas as s


def current_rows(changelog: DataFrame, side: SideSpec) -> DataFrame:
    """Returns the table that a changelog describes: per key the row of the last writer, unless that is a deletion.

    A row without a key is a truncate: the last writer of every key without a newer row. A row with the batch and
    sequence of a truncate came after it, because the changelog keeps no other.
    """
    view = f"fk_verify_{uuid.uuid4().hex}"
    changelog.createOrReplaceTempView(view)
    keys = ", ".join(c.quoted for c in side.key_columns)
    columns = ", ".join(c.quoted for c in side.columns)
    order, key = f"STRUCT({s.SEQUENCE}, {s.BATCH})", side.key_columns[0].quoted
    rows: DataFrame = changelog.sparkSession.sql(
        f"SELECT {columns} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} "
        f"ORDER BY {order} DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS _fk_rank "
        f"FROM {view} WHERE {key} IS NOT NULL) "
        f"CROSS JOIN (SELECT MAX({order}) AS _fk_truncated FROM {view} WHERE {key} IS NULL) "
        f"WHERE _fk_rank = 1 AND NOT {s.DELETED} AND ({order} >= _fk_truncated OR _fk_truncated IS NULL)"
    )
    return rows
