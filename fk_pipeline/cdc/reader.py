"""The reader of landing files: their lines (or the rows of columnar files) with their place, and formats by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from fk_pipeline.cdc.csv import Csv
from fk_pipeline.cdc.debezium import Debezium
from fk_pipeline.cdc.delta import Delta
from fk_pipeline.cdc.dms import Dms
from fk_pipeline.cdc.maxwell import Maxwell
from fk_pipeline.cdc.names import real
from fk_pipeline.cdc.own import own_format
from fk_pipeline.cdc.parquet import Parquet
from fk_pipeline.cdc.records import ARRIVAL, ARRIVAL_TYPE, BAD, EVENT, SNAPSHOT, TRUNCATE, Format
from fk_pipeline.cdc.rows import Rows
from fk_pipeline.cdc.table_versions import is_whole, version_range
from fk_pipeline.cdc.unreadable import LINES, MARK, Shape, Unreadable, too_long
from fk_pipeline.frames import empty
from fk_pipeline.identity import LandedFile, Side
from fk_pipeline.spec import PipelineSpec, SideSpec
from fk_pipeline.spec.inputs import EVENT_COLUMN
from fk_pipeline.spec.sql import text

_FORMATS: dict[str, Format] = {
    "csv": Csv(),
    "debezium": Debezium(),
    "delta": Delta(),
    "dms": Dms(),
    "maxwell": Maxwell(),
    "parquet": Parquet(),
    "rows": Rows(),
}


def follows_batches(side: SideSpec) -> bool:
    """Returns whether every event of a batch comes after all events of the batches before it, in the source's order."""
    reads = format_of(side)
    return side.sequence_by is None and getattr(reads, "follows_batches", reads.sequence_type == ARRIVAL_TYPE)


def format_of(side: SideSpec) -> Format:
    """Returns the format of a side.

    Raises:
        PipelineFileError: it is a user's own format and cannot be imported.
    """
    reads: Format = _FORMATS.get(side.format) or own_format(side.format)
    return reads


def shape_of(path: str, side: SideSpec) -> Shape | None:
    """Returns how the lines of a file end; None if its format has no lines."""
    if format_of(side).is_text:
        return LINES
    if side.format not in ("csv", "dms") or path.endswith((".parquet", ".parq")):
        return None
    has_names = side.csv.header is not False if side.format == "csv" else side.csv.header is True
    return Shape(side.csv.delimiter, len(side.columns) + 1, has_names)


@dataclass(frozen=True)
class Records:
    """The content of the files of some batches.

    Attributes:
        lines: one row per line and unreadable tail: `file`, `block`, `position`.
        parsed: the records, as `fk_pipeline.cdc.records` describes them.
        corrected: one row per line that is read as another text: `batch`; None if no file has corrections.
    """

    lines: DataFrame
    parsed: DataFrame
    corrected: DataFrame | None


def read_records(
    session: SparkSession,
    files: Mapping[int, Sequence[LandedFile]],
    spec: PipelineSpec,
    side: Side,
    unreadable: Mapping[str, Unreadable],
    texts: Mapping[str, Mapping[str, str]],
    links: Mapping[str, str],
) -> Records:
    """Reads the records of the files; a snapshot begins with the truncate that makes it the whole table.

    Args:
        session: a Spark session.
        files: per batch its files, in their order.
        spec: the pipeline; the paths are relative to its file.
        side: the side whose files they are.
        unreadable: per path of a file that cannot be read as it is, what can be read of it.
        texts: per path and digest of a line, the text as which the line is read.
        links: per path, the link through which the file is read (`fk_pipeline.cdc.names`).
    """
    side_spec = spec.side(side)
    reads = format_of(side_spec)
    places = [
        _Place(real(spec.location(f.path)), _without_scheme(spec.location(f.path)), int(batch), number)
        for batch, group in files.items()
        for number, f in enumerate(group)
    ]
    whole = [p for p in places if p.path not in unreadable or unreadable[p.path].readable is not None]
    cut = [p for p in places if p.path in unreadable and unreadable[p.path].problem is not None]
    limit = max((file.limit for file in unreadable.values()), default=0)
    marked = None
    if whole:
        read_from = {**links, **{path: tail.readable for path, tail in unreadable.items() if tail.readable}}
        lines = _lines(session, whole, read_from, side_spec.as_sent)
        if texts:
            marked = _corrected(lines, texts, spec)
            lines = marked.drop(_CORRECTED)
        parsed = _apart(reads.parse(lines, side_spec.as_sent))
        if limit:
            parsed = _without_marks(parsed, limit)
        if side_spec.keyed_by_place:
            names = {
                _without_scheme(spec.location(f.path)): f.known_as or f.path for group in files.values() for f in group
            }
            parsed = _with_places(lines, parsed, side_spec, names)
    else:
        lines = parsed = _nothing(session, side_spec)
    lines = lines.select("file", "block", "position")
    if cut:
        tails = _tails(session, [(p, unreadable[p.path]) for p in cut])
        lines = lines.unionByName(tails.select("file", "block", "position"))
        tails = tails if dict(parsed.dtypes)["value"] == "string" else tails.drop("value")
        parsed = parsed.unionByName(tails, allowMissingColumns=True)
    first = {p.batch: p for p in reversed(places)}.values()
    snapshots = list(first) if side_spec.is_snapshot else [p for p in places if is_whole(p.path)]
    if snapshots:
        parsed = parsed.unionByName(_truncates(session, snapshots, side_spec), allowMissingColumns=True)
    return Records(lines, parsed, None if marked is None else marked.where(_CORRECTED).select("batch"))


def _apart(parsed: DataFrame) -> DataFrame:
    """Returns the records in a plan below which Spark does not push filters on `kind`.

    Spark would push such a filter below every step of `parse` (rule `PushPredicateThroughNonJoin`), with the SQL of
    each step in place of its name: for a wide Debezium side that fills a heap of 1 GB. It does not push a filter below
    a column whose expression is not deterministic.
    """
    numbered = parsed.withColumn("_number", F.monotonically_increasing_id())
    return numbered.withColumn("kind", F.expr("IF(_number < 0, NULL, kind)")).drop("_number")


def _without_marks(parsed: DataFrame, limit: int) -> DataFrame:
    """Turns each record that replaces a line that is too long into a bad record with the beginning of that line."""
    is_mark = f"COALESCE(STARTSWITH(value, '{MARK}'), FALSE)"
    shown = f"CAST(UNHEX(REGEXP_EXTRACT(value, '^{MARK}([0-9A-F]*)', 1)) AS STRING)"
    read = {"kind": f"'{BAD}'", "reason": text(too_long(limit)), "value": shown}
    return parsed.withColumns({name: F.expr(f"IF({is_mark}, {sql}, {name})") for name, sql in read.items()})


def _with_places(lines: DataFrame, parsed: DataFrame, side: SideSpec, names: Mapping[str, str]) -> DataFrame:
    """Adds the column `event` to the rows of events without a key: batch, file and line, as `7/landing/7.jsonl/12`.

    The delete of such an event cannot be applied: it does not name the event.

    Args:
        lines: the lines with their place.
        parsed: their records.
        side: the side of the events.
        names: per file of the records, its path in the ledger, which is the same after the file was moved.
    """
    files = ", ".join(f"{text(file)}, {text(name)}" for file, name in names.items())
    place = f"CONCAT_WS('/', batch, MAP({files})[file], line)"
    values = [f"row.{c.quoted} AS {c.quoted}" for c in side.as_sent.columns]
    row = ", ".join([*values, f"{place} AS {EVENT_COLUMN.quoted}"])
    gone = f"kind = '{EVENT}' AND deleted"
    changed = {
        "kind": f"IF({gone}, '{BAD}', kind)",
        "reason": f"IF({gone}, 'a delete of an event without a key', reason)",
        "row": f"STRUCT({row})",
    }
    columns = [f"{changed[name]} AS {name}" if name in changed else name for name in parsed.columns]
    return line_numbers(lines, parsed).selectExpr(*columns)


_PLACE = "file STRING, batch INT, file_number INT, block BIGINT, position BIGINT"
_LAST_BLOCK = 1 << 62
"""The block of an unreadable tail: it comes after all others of its file."""


@dataclass(frozen=True)
class _Place:
    """A file and its position among the files of its batch."""

    path: str
    file: str
    """The path as records have it."""
    batch: int
    number: int


def _lines(session: SparkSession, places: list[_Place], read_from: Mapping[str, str], side: SideSpec) -> DataFrame:
    """Returns the lines of the files: `value`, and its place: `batch`, `file`, `file_number`, `block`, `position`."""
    paths = [read_from.get(p.path, p.path) for p in places]
    lines = format_of(side).read(session, paths, side)
    if len(places) == 1:
        only = places[0]
        placed = {"file": F.lit(only.file), "batch": F.lit(only.batch), "file_number": F.lit(only.number)}
        return lines.drop("path").withColumns(placed)
    values = ", ".join(
        f"({text(_without_scheme(path))}, {text(p.file)}, {p.batch}, {p.number})"
        for path, p in zip(paths, places, strict=True)
    )
    index = session.sql(f"SELECT * FROM VALUES {values} AS files(_read, file, batch, file_number)")
    lines = lines.withColumn("_read", _plain_path(F.col("path"))).drop("path")
    return lines.join(F.broadcast(index), "_read", "left").drop("_read")


def _nothing(session: SparkSession, side: SideSpec) -> DataFrame:
    """Returns a frame without records that has the columns of records."""
    reads = format_of(side)
    row = ", ".join(f"{c.quoted}: {c.type}" for c in side.columns)
    keys = ", ".join(f"{c.quoted}: {c.type}" for c in side.key_columns)
    columns = [
        ("value", "STRING"), *_columns(_PLACE), ("kind", "STRING"), ("reason", "STRING"), ("op", "STRING"),
        ("deleted", "BOOLEAN"), ("sequence", reads.sequence_type), ("row", f"STRUCT<{row}>"),
    ]  # fmt: skip
    columns += [("committed_at", "TIMESTAMP")] if side.holds_since_commit else []
    if reads.has_holes:
        columns += [("holes", "ARRAY<STRING>"), ("old_key", f"STRUCT<{keys}>")]
    return empty(session, columns)


def _tails(session: SparkSession, cut: Sequence[tuple[_Place, Unreadable]]) -> DataFrame:
    """Returns a bad record for the unreadable tail of each of these files: its place, `reason`, `value` and `kind`."""
    rows = [(p.file, p.batch, p.number, _LAST_BLOCK, 0, file.reason, file.tail) for p, file in cut]
    return _frame(session, rows, f"{_PLACE}, reason STRING, value STRING").withColumn("kind", F.lit(BAD))


def _truncates(session: SparkSession, snapshots: Sequence[_Place], side: SideSpec) -> DataFrame:
    """Returns the truncates with which snapshots begin, given their first files: each comes before its file."""
    rows = [(p.file, p.batch, -1, version_range(p.path)[2] if is_whole(p.path) else 0, 0) for p in snapshots]
    truncates = _frame(session, rows, _PLACE).selectExpr(
        "*", f"'{TRUNCATE}' AS kind", f"'{SNAPSHOT}' AS reason", "'t' AS op", "TRUE AS deleted"
    )
    return truncates.withColumn("sequence", F.expr(Delta.sequence if side.format == "delta" else ARRIVAL))


def _frame(session: SparkSession, rows: Sequence[tuple[Any, ...]], columns: str) -> DataFrame:
    """Returns a frame of rows of the driver, at least one, with columns given as DDL.

    It is created through Arrow: from Python rows a classic session creates a frame that needs Python workers on its
    executors.
    """
    values = zip(*rows, strict=True)
    names = [name for name, _ in _columns(columns)]
    return session.createDataFrame(pa.table(dict(zip(names, map(list, values), strict=True))), columns)


def _columns(ddl: str) -> list[tuple[str, str]]:
    """Returns name and type of the columns of a DDL text without nested types."""
    return [(name, dtype) for name, dtype in map(str.split, ddl.split(", "))]


def line_digest(text: Column) -> Column:
    """Returns the digest that identifies a line in corrections: `digest_of` of the line as it is shown.

    See `fk_pipeline.store.ledger.corrections.digest_of`.
    """
    return F.sha2(F.make_valid_utf8(text).cast("binary"), 256)


_CORRECTED = "_corrected"


def _corrected(lines: DataFrame, texts: Mapping[str, Mapping[str, str]], spec: PipelineSpec) -> DataFrame:
    """Replaces the texts of corrected lines.

    Args:
        lines: the lines as `_lines` returns them, of a format whose lines are texts.
        texts: per file and digest of a line, its corrected text.
        spec: the pipeline; the paths are relative to its file.

    Returns:
        `lines` with unchanged places, and `_corrected`: whether the text of the line was replaced.
    """
    rows = [
        {"file": _without_scheme(spec.location(path)), "_digest": digest, "_text": text}
        for path, per_digest in texts.items()
        for digest, text in per_digest.items()
    ]
    known = F.broadcast(lines.sparkSession.createDataFrame(pa.Table.from_pylist(rows)))
    joined = lines.withColumn("_digest", line_digest(F.col("value"))).join(known, ["file", "_digest"], "left")
    read_as = {"value": F.coalesce("_text", "value"), _CORRECTED: F.col("_text").isNotNull()}
    return joined.withColumns(read_as).select(*lines.columns, _CORRECTED)


def _without_scheme(path: str) -> str:
    return path.removeprefix("file://") if path.startswith("file:") else path


def _plain_path(uri: Column) -> Column:
    """Returns a path as it was listed: Spark reports an encoded URI, with `file:` before a local path."""
    decoded = F.when(F.contains(uri, F.lit("%")), F.url_decode(F.replace(uri, F.lit("+"), F.lit("%2B")))).otherwise(uri)
    return F.when(F.startswith(decoded, F.lit("file:")), F.regexp_replace(decoded, "^file:/+", "/")).otherwise(decoded)


def line_numbers(lines: DataFrame, records: DataFrame) -> DataFrame:
    """Adds to `records` the column `line`: the number of the line in its file, from 1.

    Positions are consecutive within a split of a file, so it is enough to count the lines of the splits before it.
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
