"""Values that a source did not send (architecture, rule 9): taken from the latest older version of their key.

PostgreSQL leaves out large values that an update did not change. The search begins among the events of their own batch
(`filled_within`); its result, and the key that the row had before the batch, are stored with the row. The
search goes on among the stored rows of all batches (`filled`), so that a run and a later check of the stored rows have
the same result. A version provides a value if its source sent it, or if the value was found within its own batch; other
versions are skipped. A tombstone or a truncate ends the search. Where the primary key changed, the search goes on among
the versions of the old key.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fk_pipeline.cdc.records import EVENT, TRUNCATE
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.sql import text
from fk_pipeline.stage_input import RowSet
from fk_pipeline.store import schemas as s

AT = "_fk_at"
"""Column: the place of a version among all: its sequence, then its batch and its place in the landing files."""

_ID, _COLUMN, _VERSION = "_fk_id", "_fk_column", "_fk_version"
_LAST = "9223372036854775807"
_JSON = "MAP('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")"


def _at(sequence: str, batch: str, file_number: str = "0", block: str = "0", position: str = "0") -> str:
    """Returns the SQL (STRUCT) of a place."""
    return (
        f"STRUCT({sequence} AS sequence, CAST({batch} AS INT) AS batch, CAST({file_number} AS BIGINT) AS file_number, "
        f"CAST({block} AS BIGINT) AS block, CAST({position} AS BIGINT) AS position)"
    )


PLACE = _at("sequence", "batch", "file_number", "block", "position")
"""The SQL of `AT` for a record."""


def stored_at(side: SideSpec) -> str:
    """Returns the SQL of `AT` for a stored row: the last of its key and batch; a truncate is the first of its batch."""
    return _at(s.SEQUENCE, s.BATCH, f"IF({side.key_columns[0].quoted} IS NULL, 0, {_LAST})")


def unpacked(log: DataFrame, side: SideSpec) -> DataFrame:
    """Returns stored rows with `HOLES` (ARRAY) and `OLD_KEY` (STRUCT) in place of their texts, and with `AT`."""
    order = log.schema[s.SEQUENCE].dataType.simpleString()
    key = ", ".join(f"{c.quoted}: {c.type}" for c in side.key_columns)
    types = {
        s.HOLES: f"ARRAY<STRUCT<column: STRING, sequence: {order}, batch: INT, where_fails: BOOLEAN>>",
        s.OLD_KEY: f"STRUCT<sequence: {order}, key: STRUCT<{key}>>",
    }
    read = {name: F.expr(f"FROM_JSON({name}, {text(dtype)}, {_JSON})") for name, dtype in types.items()}
    return log.withColumns(read).withColumn(AT, F.expr(stored_at(side)))


def packed(rows: DataFrame) -> DataFrame:
    """Returns the rows as they are stored: a text can be appended without Spark, an array cannot."""
    texts = {name: F.expr(f"TO_JSON({name}, {_JSON})") for name in (s.HOLES, s.OLD_KEY)}
    return rows.withColumns(texts).drop(AT)


def filled_within(
    rows: DataFrame, records: DataFrame, side: SideSpec, compute: Callable[[DataFrame], RowSet]
) -> DataFrame:
    """Fills changelog rows with the values that other events of their own batch sent.

    Args:
        rows: unpacked changelog rows with unavailable values; `AT` is the place of their event; one per key and batch.
        records: all records of their batches.
        side: the side of the rows.
        compute: computes a frame once.

    Returns:
        The rows. Each of their `HOLES` names the version that its value is from; without one the value is null.
        `OLD_KEY` is the key that the row had at first in the batch, if it is another one, and the sequence at which it
        ended.
    """
    keys = [f"IF(kind = '{TRUNCATE}', NULL, row.{c.quoted}) AS {c.quoted}" for c in side.key_columns]
    versions = records.where(f"kind IN ('{EVENT}', '{TRUNCATE}')").selectExpr(
        *keys,
        f"STRUCT({PLACE} AS at, deleted OR kind = '{TRUNCATE}' AS stop, "
        "COALESCE(holes, CAST(ARRAY() AS ARRAY<STRING>)) AS lacks, "
        f"IF(old_key IS NULL, NULL, STRUCT(sequence, old_key AS key)) AS link, {_values(side, 'row.')} AS row) "
        f"AS {_VERSION}",
    )
    own_batch = F.col(_VERSION)["at"]["batch"] == F.col(_ID)["batch"]
    return _searched(rows, side, lambda _: versions, own_batch, compute)


def filled(
    rows: DataFrame,
    log: Callable[[DataFrame], DataFrame],
    side: SideSpec,
    compute: Callable[[DataFrame], RowSet],
) -> DataFrame:
    """Fills changelog rows with the values that the rows of all batches have.

    Args:
        rows: as `filled_within` returns them, or as they are stored; unpacked.
        log: returns the unpacked rows of all batches with some keys, and the truncates.
        side: the side of the rows.
        compute: computes a frame once.

    Returns:
        The rows, with `HOLES` as in `filled_within`.
    """
    elsewhere = f"FILTER({s.HOLES}, _hole -> NOT _hole.batch <=> {s.BATCH})"
    lacks = f"COALESCE(TRANSFORM({elsewhere}, _hole -> _hole.column), CAST(ARRAY() AS ARRAY<STRING>))"
    every = f"ARRAY({', '.join(text(c.name) for c in side.value_columns)})"
    since = _at(f"{s.OLD_KEY}.sequence", s.BATCH, "-1")
    row = _values(side, "")

    def versions_of(requested: DataFrame) -> DataFrame:
        log_rows = log(requested)
        dtype = log_rows.schema[s.OLD_KEY].dataType
        stored = f"STRUCT({AT} AS at, {s.DELETED} AS stop, {lacks} AS lacks, _fk_no_link AS link, {row} AS row)"
        renamed = f"STRUCT({since} AS at, FALSE AS stop, {every} AS lacks, {s.OLD_KEY} AS link, {row} AS row)"
        both = f"EXPLODE(IF({s.OLD_KEY} IS NULL, ARRAY({stored}), ARRAY({stored}, {renamed}))) AS {_VERSION}"
        keys = [c.quoted for c in side.key_columns]
        return log_rows.withColumn("_fk_no_link", F.lit(None).cast(dtype)).selectExpr(*keys, both)

    return _searched(rows.withColumn(AT, F.expr(stored_at(side))), side, versions_of, F.lit(True), compute)


def _searched(
    rows: DataFrame,
    side: SideSpec,
    versions_of: Callable[[DataFrame], DataFrame],
    counts: Column,
    compute: Callable[[DataFrame], RowSet],
) -> DataFrame:
    """Fills the unavailable values of rows from versions of their keys.

    A version is `_fk_version`: `at` (its place), `stop` (older versions do not count), `lacks` (the columns that it
    does not provide), `link` (the key that the row had before, and the sequence at which it got this one) and `row`.

    Args:
        rows: the rows.
        side: the side of the rows.
        versions_of: returns the versions of some keys, and the truncates, whose key is null.
        counts: the condition that a version must meet.
        compute: computes a frame once.
    """
    names, keys = [c.name for c in side.key_columns], [c.quoted for c in side.key_columns]
    row_id = f"STRUCT({s.BATCH} AS batch, {', '.join(map(quote, side.stored_key))})"
    holes = rows.selectExpr("*", f"{row_id} AS {_ID}", f"EXPLODE({s.HOLES}) AS _fk_hole")
    known = _versions_in_rows(holes, side)
    requested = holes.selectExpr(_ID, f"_fk_hole.column AS {_COLUMN}", *keys, AT, "FALSE AS _fk_before")
    # The event that began the new key ended the old one: only versions before both count.
    older = F.expr(f"IF(_fk_before, {_VERSION}.at.sequence < {AT}.sequence, {_VERSION}.at < {AT})")
    lacks = F.expr(f"ARRAY_CONTAINS({_VERSION}.lacks, {_COLUMN})")
    says = F.expr(f"{_VERSION}.stop OR {_VERSION}.link IS NOT NULL") | ~lacks
    rounds: list[DataFrame] = []
    while True:
        versions, search = versions_of(requested), requested.drop(*names)
        truncates = versions.where(f"{keys[0]} IS NULL").select(_VERSION)
        candidates = requested.join(versions, names).drop(*names).where(counts)
        candidates = candidates.unionByName(search.join(known, [_ID, _COLUMN]))
        candidates = candidates.unionByName(search.crossJoin(F.broadcast(truncates)).where(counts))
        newest = F.max_by(_VERSION, F.col(_VERSION)["at"]).alias(_VERSION)
        picked = candidates.where(older & says).groupBy(_ID, _COLUMN).agg(newest)
        reached = compute(picked.withColumn("_fk_goes_on", lacks & ~F.col(_VERSION)["stop"]))
        rounds.append(reached.frame)
        links = reached.frame.where("_fk_goes_on")
        if links.isEmpty():
            return _with_values(rows, rounds, side, row_id)
        requested = links.selectExpr(
            _ID,
            _COLUMN,
            *[f"{_VERSION}.link.key.{key} AS {key}" for key in keys],
            f"{_at(f'{_VERSION}.link.sequence', f'{_VERSION}.at.batch')} AS {AT}",
            "TRUE AS _fk_before",
        )


def _versions_in_rows(holes: DataFrame, side: SideSpec) -> DataFrame:
    """Returns versions that the rows have themselves: a value from within their batch, or a change of their key."""
    dtype = holes.schema[s.OLD_KEY].dataType
    row = F.expr(_values(side, ""))

    def version(at: str, lacks: Column, link: Column) -> Column:
        parts = {"at": F.expr(at), "stop": F.lit(False), "lacks": lacks, "link": link.cast(dtype), "row": row}
        return F.struct(*[part.alias(name) for name, part in parts.items()]).alias(_VERSION)

    column = F.expr("_fk_hole.column").alias(_COLUMN)
    within = holes.where(f"_fk_hole.batch = {s.BATCH}").select(
        _ID, column, version(_at("_fk_hole.sequence", s.BATCH), F.array().cast("array<string>"), F.lit(None))
    )
    renamed = holes.where(f"{s.OLD_KEY} IS NOT NULL").select(
        _ID,
        column,
        version(_at(f"{s.OLD_KEY}.sequence", s.BATCH, "-1"), F.expr("ARRAY(_fk_hole.column)"), F.col(s.OLD_KEY)),
    )
    return within.unionByName(renamed)


def _with_values(rows: DataFrame, rounds: list[DataFrame], side: SideSpec, row_id: str) -> DataFrame:
    """Writes into the rows the values that the search reached.

    Args:
        rows: the rows.
        rounds: per round of the search, the version that it reached for a row and column.
        side: the side of the rows.
        row_id: SQL that identifies a row.
    """
    every = reduce(DataFrame.unionByName, rounds)
    own = every.where(f"_fk_goes_on AND {_VERSION}.at.batch = {_ID}.batch")
    renamed = own.groupBy(_ID).agg(F.expr(f"MIN_BY({_VERSION}.link, {_VERSION}.at)").alias("_fk_renamed"))
    ends = every.where(f"NOT _fk_goes_on AND NOT {_VERSION}.stop")
    collected = F.expr(f"MAP_FROM_ENTRIES(COLLECT_LIST(STRUCT({_COLUMN}, {_VERSION})))")
    sources = ends.groupBy(_ID).agg(collected.alias("_fk_sources"))
    out = rows.withColumn(_ID, F.expr(row_id)).join(sources, _ID, "left").join(renamed, _ID, "left")

    def source(column: str) -> str:
        return f"TRY_ELEMENT_AT(_fk_sources, {column})"

    values = {
        c.name: F.expr(
            f"IF(EXISTS({s.HOLES}, _hole -> _hole.column = {text(c.name)}), "
            f"{source(text(c.name))}.row.{c.quoted}, {c.quoted})"
        )
        for c in side.value_columns
    }
    at = f"{source('_hole.column')}.at"
    origin = f"{at}.sequence AS sequence, {at}.batch AS batch"
    holes = f"TRANSFORM({s.HOLES}, _hole -> STRUCT(_hole.column, {origin}, CAST(NULL AS BOOLEAN) AS where_fails))"
    updated = {s.HOLES: F.expr(holes), s.OLD_KEY: F.coalesce("_fk_renamed", F.col(s.OLD_KEY))}
    out = out.withColumns(values | updated)
    return out.drop(_ID, "_fk_sources", "_fk_renamed")


def marked(rows: DataFrame, fails: str) -> DataFrame:
    """Returns filled rows on which `where` fails, by a condition, with that mark in their `HOLES` (`s.WHERE_FAILS`)."""
    mark = f"IF({fails}, TRUE, CAST(NULL AS BOOLEAN)) AS where_fails"
    holes = f"TRANSFORM({s.HOLES}, _hole -> STRUCT(_hole.column, _hole.sequence, _hole.batch, {mark}))"
    return rows.withColumn(s.HOLES, F.expr(holes))


def changed(before: DataFrame, after: DataFrame, side: SideSpec) -> DataFrame:
    """Returns the batches (`_fk_batch`) of rows whose values differ from those that `filled` gives them.

    Args:
        before: the rows as they are stored.
        after: the rows as `filled` returns them.
        side: the side of the rows.
    """
    keys = side.stored_key
    values = f"TO_JSON({_values(side, '')})"  # a map cannot be compared
    new = after.select(s.BATCH, *map(quote, keys), F.expr(values).alias("_fk_new"))
    old = before.select(s.BATCH, *map(quote, keys), F.expr(values).alias("_fk_old"))
    return old.join(new, [s.BATCH, *keys]).where("NOT _fk_new <=> _fk_old").select(s.BATCH).distinct()


def _values(side: SideSpec, prefix: str) -> str:
    """Returns the SQL (STRUCT) of the value columns of a row."""
    values = ", ".join(f"{prefix}{c.quoted} AS {c.quoted}" for c in side.value_columns)
    return f"STRUCT({values})"
