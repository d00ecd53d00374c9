"""A Delta table as the source; each discovery finds a range of its versions (`docs/reference/delta.md`).

The first discovery, and every discovery of a table without a change feed, reads the whole table as it is: a truncate
and inserts at one version. Later discoveries read the changes since then. Order: the version of the commit; within a
version written rows come after removed rows, so an update that changes the key removes the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from fk_pipeline.cdc.columnar import Columnar, as_lines
from fk_pipeline.cdc.table_versions import FeedPart, plain_feed, version_range
from fk_pipeline.environment.storage import PATHS_AS_THEY_ARE
from fk_pipeline.parquet_files import rows_at, rows_in
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.inputs import RESULT_KEY
from fk_pipeline.spec.sql import key_as_json, text

_OF_THE_FEED = ("_change_type", "_commit_version")
_PART = "_fk_part"
_OP = "CASE _raw._change_type WHEN 'insert' THEN 'c' WHEN 'update_postimage' THEN 'u' ELSE 'd' END"


def of_result(stored: DataFrame, side: SideSpec) -> DataFrame:
    """Returns the rows of the result of another pipeline that its key tells apart, without columns of the engine.

    With a key that may be null, `result_key` has it as JSON. Otherwise a row with a null in its key is left out: no row
    can refer to it.
    """
    stored = stored.where(side.told_apart) if side.told_apart else stored
    names = [column.name for column in side.columns if column.name != RESULT_KEY or not side.key_of_result]
    present = {*stored.columns}  # an old version lacks the columns that `select` has got since
    columns = [quote(name) for name in (*names, *_OF_THE_FEED) if name in present]
    if side.key_of_result:
        key = key_as_json((quote(name), name) for name in side.key_of_result)
        return stored.selectExpr(*columns, f"{key} AS {RESULT_KEY}")
    whole = " AND ".join(f"{column.quoted} IS NOT NULL" for column in side.key_columns)
    return stored.where(whole).selectExpr(*columns)


def changes_between(session: SparkSession, path: str) -> DataFrame:
    """Returns the changes of a version range, with the kind and the version of each, as in Delta's change feed.

    Where the log names files for all of them, they are read as Parquet: Delta takes several jobs to list them. Few rows
    of a file are read in the driver: Spark would read the whole file (ADR 0043).
    """
    feed = plain_feed(path)
    if feed is None:
        table, first, last = version_range(path)
        options = {"readChangeFeed": True, "startingVersion": first, "endingVersion": last}
        return session.read.format("delta").options(**options).load(table).drop("_commit_timestamp")
    schema = T.StructType.fromJson(dict(feed.schema))
    read = [(part, _in_driver(part, schema)) for part in feed.parts]
    in_driver = [rows for _, rows in read if rows is not None]
    rest = [part for part, rows in read if rows is None]
    frames = [session.createDataFrame(pa.concat_tables(in_driver))] if in_driver else []
    return reduce(DataFrame.unionByName, frames + ([_by_spark(session, rest, schema)] if rest else []))


def changes_in_process(path: str, columns: Sequence[str], most: int) -> pa.Table | None:
    """Returns the changes of a version range as `changes_between`, read in the driver; None if Spark must read them.

    Args:
        path: the range.
        columns: the columns to read, beside kind and version.
        most: the most rows that the driver reads of a file of changes, and of all files.
    """
    feed = plain_feed(path)
    if feed is None:
        return None
    stored = {field.name: field for field in T.StructType.fromJson(dict(feed.schema))}
    if not {*columns} <= {*stored}:
        return None
    schema = T.StructType([stored[name] for name in columns])
    tables: list[pa.Table] = []
    for part in feed.parts:
        rows = _in_driver(part, schema, most)
        if rows is None or len(rows) > most - sum(map(len, tables)):
            return None
        tables.append(rows)
    return pa.concat_tables(tables).combine_chunks()


def _in_driver(part: FeedPart, schema: T.StructType, most: int = 0) -> pa.Table | None:
    """Returns changes of one file, read in the driver, with the columns of the feed; None if Spark must read them.

    A file is read as a whole if it has at most so many rows.
    """
    has_types = part.kind == ""
    read = T.StructType([*schema, T.StructField("_change_type", T.StringType())]) if has_types else schema
    indices = part.only
    if indices is None:
        number = rows_in(part.file)
        if number is None or number > most:
            return None
        indices = BitMap64(range(number)) - part.but
    rows = rows_at(part.file, indices, read)
    if rows is None:
        return None
    rows = rows if has_types else rows.append_column("_change_type", pa.repeat(part.kind, len(rows)))
    return rows.append_column("_commit_version", pa.repeat(part.version, len(rows)))


def _by_spark(session: SparkSession, parts: Sequence[FeedPart], schema: T.StructType) -> DataFrame:
    """Returns changes that Spark reads, with the columns of `changes_between`."""
    cases = " ".join(f"WHEN {_is_of(part)} THEN {place}" for place, part in enumerate(parts))
    versions = ", ".join(f"{part.version}L" for part in parts)
    kinds = ", ".join(text(part.kind) for part in parts)
    return (
        session.read.schema(T.StructType([*schema, T.StructField("_change_type", T.StringType())]))
        .options(**PATHS_AS_THEY_ARE)
        .parquet(*dict.fromkeys(part.file for part in parts))
        .withColumn(_PART, F.expr(f"CASE {cases} END"))
        .where(F.col(_PART).isNotNull())
        .withColumn("_commit_version", F.expr(f"GET(ARRAY({versions}), {_PART})"))
        .withColumn("_change_type", F.expr(f"COALESCE(_change_type, GET(ARRAY({kinds}), {_PART}))"))
        .drop(_PART)
    )


def _is_of(part: FeedPart) -> str:
    """SQL (BOOLEAN) over a row of a Parquet file: whether it is one of the changes."""
    row = "_metadata.row_index"
    conditions = [f"_metadata.file_name = {text(part.file.rsplit('/', 1)[1])}"]
    if part.only is not None:
        conditions.append(f"{row} IN ({', '.join(map(str, part.only))})")
    if part.but:
        conditions.append(f"{row} NOT IN ({', '.join(map(str, part.but))})")
    return " AND ".join(conditions)


class Delta(Columnar):
    """The format `delta`: one change per row."""

    follows_batches = True
    """A later batch has later versions (`reader.follows_batches`)."""
    sequence_type = "STRUCT<version: BIGINT, written: INT>"
    sequence = "STRUCT(block AS version, IF(deleted, 0, 1) AS written)"

    def read(self, session: SparkSession, paths: Sequence[str], side: SideSpec) -> DataFrame:
        """Returns the rows of the version ranges as lines; `block` is the version in which a row was committed."""
        parts = []
        for path in paths:
            table, first, last = version_range(path)
            reader = session.read.format("delta")
            if first is None:
                stored, op, version = reader.option("versionAsOf", last).load(table), "'r'", f"{last}L"
            else:
                stored, op, version = changes_between(session, path), _OP, "_commit_version"
            if side.pipeline is not None:
                stored = of_result(stored, side)
            names = [name for name in stored.columns if name not in _OF_THE_FEED]
            declared = {column.name.lower() for column in side.columns}
            columns = [name for name in stored.columns if name in _OF_THE_FEED or name.lower() in declared]
            stored = stored.select(*map(quote, columns))  # `TO_JSON` does not take every type of Delta
            place = (f"{text(path)} AS path", f"{version} AS block", "MONOTONICALLY_INCREASING_ID() AS position")
            parts.append(as_lines(stored, side, "TO_JSON(_raw)", place, op=op, sent=names))
        return reduce(DataFrame.unionByName, parts)
