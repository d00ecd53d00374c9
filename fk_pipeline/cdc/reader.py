"""Landing files as lines (of a columnar file: rows) with their place, and the formats by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.cdc.debezium import Debezium
from fk_pipeline.cdc.parquet import Parquet
from fk_pipeline.cdc.records import Format
from fk_pipeline.cdc.rows import Rows
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.spec.sql import text
from fk_pipeline.tables.ledger import LandedFile

_FORMATS: dict[str, Format] = {f.name: f for f in (Debezium(), Parquet(), Rows())}

CORRECTED = "corrected"


def format_of(side: SideSpec) -> Format:
    """The format that a side is written in."""
    return _FORMATS[side.format]


def read_lines(
    session: SparkSession, files: Mapping[int, Sequence[LandedFile]], spec: PipelineSpec, side: Side
) -> DataFrame:
    """One row per line of the files.

    Args:
        session: a Spark session.
        files: per batch its files, in the order in which they count.
        spec: the pipeline; the paths are relative to its file.
        side: whose files they are.

    Returns:
        `value` (what the format of the side reads of a line) and its place: `batch`, `file`, `file_number`, `block`,
        `position`.
    """
    places = [
        (spec.location(f.path), int(batch), number) for batch, group in files.items() for number, f in enumerate(group)
    ]
    lines = format_of(spec.side(side)).read(session, [path for path, _, _ in places], spec.side(side))
    if len(places) == 1:
        path, batch, number = places[0]
        placed = {"file": F.lit(_without_scheme(path)), "batch": F.lit(batch), "file_number": F.lit(number)}
        return lines.drop("path").withColumns(placed)
    lines = lines.withColumn("file", _plain_path(F.col("path"))).drop("path")
    values = ", ".join(f"({text(_without_scheme(path))}, {batch}, {number})" for path, batch, number in places)
    index = session.sql(f"SELECT * FROM VALUES {values} AS files(file, batch, file_number)")
    return lines.join(F.broadcast(index), "file")


def line_digest(text: Column) -> Column:
    """What corrections know a line by: `fk_pipeline.tables.corrections.digest`, of the line as it is shown."""
    return F.sha2(F.make_valid_utf8(text).cast("binary"), 256)


def corrected(lines: DataFrame, texts: Mapping[str, Mapping[str, str]], spec: PipelineSpec) -> DataFrame:
    """Lines with corrected texts in place of their own.

    Args:
        lines: what `read_lines` returns, of a format whose lines are texts.
        texts: per file, by digest of a line, its text.
        spec: the pipeline; the paths are relative to its file.

    Returns:
        `lines`, each in its place, and `corrected`: whether its text is another.
    """
    rows = [
        {"file": _without_scheme(spec.location(path)), "_digest": digest, "_text": text}
        for path, found in texts.items()
        for digest, text in found.items()
    ]
    known = F.broadcast(lines.sparkSession.createDataFrame(pa.Table.from_pylist(rows)))
    found = lines.withColumn("_digest", line_digest(F.col("value"))).join(known, ["file", "_digest"], "left")
    read_as = {"value": F.coalesce("_text", "value"), CORRECTED: F.col("_text").isNotNull()}
    return found.withColumns(read_as).select(*lines.columns, CORRECTED)


def _without_scheme(path: str) -> str:
    return path.removeprefix("file://") if path.startswith("file:") else path


def _plain_path(uri: Column) -> Column:
    """The path as listed: Spark reports an encoded URI, with `file:` before a local path."""
    decoded = F.when(F.contains(uri, F.lit("%")), F.url_decode(F.replace(uri, F.lit("+"), F.lit("%2B")))).otherwise(uri)
    return F.when(F.startswith(decoded, F.lit("file:")), F.regexp_replace(decoded, "^file:/+", "/")).otherwise(decoded)


def line_numbers(lines: DataFrame, records: DataFrame) -> DataFrame:
    """`records` with `line`: the number of the line in its file, from 1.

    Positions are consecutive within a split of a file, so counting the lines of the splits before is enough.
    """
    splits = lines.groupBy("file", "block").agg(F.min("position").alias("_first"), F.count("*").alias("_lines"))
    earlier = splits.alias("a").join(
        splits.alias("b"), (F.col("a.file") == F.col("b.file")) & (F.col("b.block") < F.col("a.block")), "left"
    )
    starts = earlier.groupBy(F.col("a.file").alias("file"), F.col("a.block").alias("block")).agg(
        F.first("a._first").alias("_first"), F.coalesce(F.sum("b._lines"), F.lit(0)).alias("_before")
    )
    return (
        records.join(F.broadcast(starts), ["file", "block"])
        .withColumn("line", F.col("position") - F.col("_first") + F.col("_before") + 1)
        .drop("_first", "_before")
    )
