"""DataFrames without rows, SQL over DataFrames, joins and marks by keys that may be null."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.spec import quote


def empty(session: SparkSession, columns: Sequence[tuple[str, str]]) -> DataFrame:
    """Returns a frame with these columns (name, DDL type), at least one, and no rows.

    Unlike `createDataFrame` it starts no Python worker.
    """
    nulls = ", ".join(f"CAST(NULL AS {dtype}) AS {quote(name)}" for name, dtype in columns)
    return session.sql(f"SELECT {nulls} LIMIT 0")  # the planner of Spark removes joins with a LIMIT of 0


def sql_over(frames: Mapping[str, DataFrame], text: Callable[[Mapping[str, str]], str]) -> DataFrame:
    """Returns the rows of SQL over frames; `text` is a function from the names that they get to the SQL.

    The frames are handed over with the SQL. A temporary view would have to stay until the rows are read: a client of
    Spark Connect has its SQL analysed each time.
    """
    names = {name: f"fk_{uuid.uuid4().hex}" for name in frames}
    sql = text(names).replace("{", "{{").replace("}", "}}")
    for name in names.values():
        sql = re.sub(f"`?{name}`?", f"{{{name}}}", sql)
    given: dict[str, Any] = {names[name]: frame for name, frame in frames.items()}
    return next(iter(frames.values())).sparkSession.sql(sql, None, **given)


def join_by_key(left: DataFrame, right: DataFrame, keys: Sequence[str], how: str, *, nullable: bool) -> DataFrame:
    """Joins two frames on their key columns; the keys of the outcome are those of the side that has the row.

    Args:
        left: a frame.
        right: a frame.
        keys: the key columns; the frames have no other column in common.
        how: as `DataFrame.join` takes it.
        nullable: whether a key column may be null. Two keys are then equal if they are null in the same columns and
            equal in the others, as in a group.
    """
    if not nullable:
        return left.join(right, [*keys], how)
    # Spark compares structs field by field, and takes null fields as equal.
    packed = [frame.withColumn("_fk_key", F.struct(*map(quote, keys))).drop(*keys) for frame in (left, right)]
    joined = packed[0].join(packed[1], "_fk_key", how)
    return joined.select("_fk_key.*", *[quote(name) for name in joined.columns if name != "_fk_key"])


def marked(rows: DataFrame, mark: str, keys: Iterable[DataFrame], *, nullable: bool) -> DataFrame:
    """Returns rows with the column `mark` (BOOLEAN, never null): a row has a key of one of some frames.

    Args:
        rows: the rows.
        mark: the name of the column.
        keys: frames of distinct keys. A frame with a column that the rows lack marks no row, a frame
            without columns marks all.
        nullable: as of `join_by_key`.
    """
    rows = rows.withColumn(mark, F.lit(False))
    for some in keys:
        if {*some.columns} <= {*rows.columns}:
            if not some.columns:  # what is due may change every row
                return rows.withColumn(mark, F.lit(True))
            flagged = some.withColumn("_fk_marks", F.lit(True))
            rows = join_by_key(rows, flagged, some.columns, "left", nullable=nullable)
            rows = rows.withColumn(mark, F.expr(f"{mark} OR COALESCE(_fk_marks, FALSE)")).drop("_fk_marks")
    return rows
