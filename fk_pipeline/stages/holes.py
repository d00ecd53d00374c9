"""Values that a source did not send (architecture, rule 9): taken from the latest older version of their key.

PostgreSQL leaves out large values that an update did not change. A version provides a value if its source sent it, or
if it was found within its own batch; other versions are passed over. A tombstone or a truncate ends the search. Where
the primary key changed, the search goes on among the versions of the old key.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fk_pipeline.cdc.records import EVENT, TRUNCATE
from fk_pipeline.spec import SideSpec, quote
from fk_pipeline.spec.sql import text
from fk_pipeline.stages.materialised import Materialised
from fk_pipeline.tables import schemas as s

AT = "_fk_at"
"""Column: the place of a version among all: its sequence, then its batch and its place in the landing files."""

_ID, _VERSION = "_fk_id", "_fk_version"


def _at(sequence: str, batch: str, file_number: str = "0", block: str = "0", position: str = "0") -> str:
    """SQL (STRUCT) of a place."""
    return (
        f"STRUCT({sequence} AS sequence, CAST({batch} AS INT) AS batch, CAST({file_number} AS BIGINT) AS file_number, "
        f"CAST({block} AS BIGINT) AS block, CAST({position} AS BIGINT) AS position)"
    )


PLACE = _at("sequence", "batch", "file_number", "block", "position")
"""SQL of `AT` for a record; a stored row has the first place of its batch."""

_STORED = _at(s.SEQUENCE, s.BATCH)


def placed(log: DataFrame) -> DataFrame:
    """Stored rows with `AT`."""
    return log.withColumn(AT, F.expr(_STORED))


def versions_of_records(records: DataFrame, side: SideSpec) -> DataFrame:
    """Every event and truncate of some records as a version of its key (`filled`); of a truncate the key is null."""
    keys = [f"IF(kind = '{TRUNCATE}', NULL, row.{c.quoted}) AS {c.quoted}" for c in side.key_columns]
    return records.where(f"kind IN ('{EVENT}', '{TRUNCATE}')").selectExpr(
        *keys,
        f"STRUCT({PLACE} AS at, deleted OR kind = '{TRUNCATE}' AS stop, "
        "COALESCE(holes, CAST(ARRAY() AS ARRAY<STRING>)) AS lacks, "
        f"IF(old_key IS NULL, NULL, STRUCT(sequence, old_key AS key)) AS link, {_values(side, 'row.')} AS row) "
        f"AS {_VERSION}",
    )


def versions_of_log(log: DataFrame, side: SideSpec) -> DataFrame:
    """Every stored row as a version of its key (`filled`); of a truncate the key is null."""
    elsewhere = f"FILTER({s.HOLES}, _hole -> NOT _hole.batch <=> {s.BATCH})"
    return log.selectExpr(
        *[c.quoted for c in side.key_columns],
        f"STRUCT({_STORED} AS at, {s.DELETED} AS stop, "
        f"COALESCE(TRANSFORM({elsewhere}, _hole -> _hole.column), CAST(ARRAY() AS ARRAY<STRING>)) AS lacks, "
        f"{s.OLD_KEY} AS link, {_values(side, '')} AS row) AS {_VERSION}",
    )


def filled(
    rows: DataFrame,
    side: SideSpec,
    versions_of: Callable[[DataFrame], DataFrame],
    truncates: DataFrame | None,
    compute: Callable[[DataFrame], Materialised],
) -> DataFrame:
    """Rows of a changelog with the values that their sources did not send, as far as they are known.

    A version is `_fk_version`: `at` (its place), `stop` (what was before is gone), `lacks` (the columns that it does
    not provide), `link` (the key that the row had before, and the sequence at which it got this one) and `row`.

    Args:
        rows: changelog rows with holes, and `AT`; at most one per key and batch.
        side: whose rows they are.
        versions_of: the versions of some keys.
        truncates: versions that are truncates; None: there are none.
        compute: computes a frame once.

    Returns:
        The rows. Each of their `HOLES` says from which version its value is; without one the value is null. `OLD_KEY`
        is the key that the row had before its primary key changed within the batch.
    """
    keys = [c.quoted for c in side.key_columns]
    row_id = f"STRUCT({s.BATCH} AS batch, {', '.join(keys)})"
    holes = rows.selectExpr("*", f"{row_id} AS {_ID}", f"EXPLODE({s.HOLES}) AS _fk_hole")
    known = _known_alone(holes, side)
    asked = holes.selectExpr(_ID, "_fk_hole.column AS column", *keys, AT, "FALSE AS _fk_before")
    found: list[DataFrame] = []
    while True:
        # An old key ended with the event that the new one began with: what counts is before both.
        older = F.expr(f"IF(_fk_before, {_VERSION}.at.sequence < {AT}.sequence, {_VERSION}.at < {AT})")
        candidates = asked.join(versions_of(asked), [c.name for c in side.key_columns]).drop(*_names(side))
        search = asked.drop(*_names(side))
        candidates = candidates.unionByName(search.join(known, [_ID, "column"]))
        if truncates is not None:
            candidates = candidates.unionByName(search.crossJoin(F.broadcast(truncates.select(_VERSION))))
        lacks = F.expr(f"ARRAY_CONTAINS({_VERSION}.lacks, column)")
        says = F.expr(f"{_VERSION}.stop OR {_VERSION}.link IS NOT NULL") | ~lacks
        newest = F.max_by(_VERSION, F.col(_VERSION)["at"]).alias(_VERSION)
        picked = candidates.where(older & says).groupBy(_ID, "column").agg(newest)
        kept = compute(picked.withColumn("_fk_goes_on", lacks & ~F.col(_VERSION)["stop"]))
        found.append(kept.frame)
        links = kept.frame.where("_fk_goes_on")
        if links.isEmpty():
            return _with_values(rows, found, side, row_id)
        asked = links.selectExpr(
            _ID,
            "column",
            *[f"{_VERSION}.link.key.{key} AS {key}" for key in keys],
            f"{_at(f'{_VERSION}.link.sequence', f'{_VERSION}.at.batch')} AS {AT}",
            "TRUE AS _fk_before",
        )


def _known_alone(holes: DataFrame, side: SideSpec) -> DataFrame:
    """Versions that only the rows themselves tell of: what was found within their batch, and that their key changed."""
    types = {name: holes.schema[name].dataType for name in (s.OLD_KEY, s.SEQUENCE)}
    row = F.expr(_values(side, ""))

    def version(at: str, lacks: Column, link: Column) -> Column:
        none = F.array().cast("array<string>")
        whole = [F.expr(at).alias("at"), F.lit(False).alias("stop"), F.coalesce(lacks, none).alias("lacks")]
        return F.struct(*whole, link.cast(types[s.OLD_KEY]).alias("link"), row.alias("row")).alias(_VERSION)

    column = F.expr("_fk_hole.column").alias("column")
    within = holes.where(f"_fk_hole.batch = {s.BATCH}").select(
        _ID, column, version(_at("_fk_hole.sequence", s.BATCH), F.lit(None), F.lit(None))
    )
    renamed = holes.where(f"{s.OLD_KEY} IS NOT NULL").select(
        _ID,
        column,
        version(_at(f"{s.OLD_KEY}.sequence", s.BATCH, "-1"), F.expr("ARRAY(_fk_hole.column)"), F.col(s.OLD_KEY)),
    )
    return within.unionByName(renamed)


def _with_values(rows: DataFrame, found: list[DataFrame], side: SideSpec, row_id: str) -> DataFrame:
    """The rows with what was found for their columns.

    Args:
        rows: the rows.
        found: per round of the search the version that it came to for a row and column; in the first round within the
            row's own key.
        side: whose rows they are.
        row_id: SQL of what identifies a row.
    """
    own = found[0].where(f"_fk_goes_on AND {_VERSION}.at.batch = {_ID}.batch")
    renamed = own.groupBy(_ID).agg(F.expr(f"MAX_BY({_VERSION}.link, {_VERSION}.at)").alias("_fk_renamed"))
    ends = reduce(DataFrame.unionByName, found).where(f"NOT _fk_goes_on AND NOT {_VERSION}.stop")
    collected = F.expr(f"MAP_FROM_ENTRIES(COLLECT_LIST(STRUCT(column, {_VERSION})))")
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
    told = f"TRANSFORM({s.HOLES}, _hole -> STRUCT(_hole.column, {at}.sequence AS sequence, {at}.batch AS batch))"
    out = out.withColumns(values).withColumns(
        {s.HOLES: F.expr(told), s.OLD_KEY: F.coalesce("_fk_renamed", F.col(s.OLD_KEY))}
    )
    return out.drop(_ID, "_fk_sources", "_fk_renamed")


def changed(before: DataFrame, after: DataFrame, side: SideSpec) -> DataFrame:
    """The batches (`_fk_batch`) of rows whose values are not those that `filled` gives them.

    Args:
        before: the rows as they are stored.
        after: what `filled` makes of them.
        side: whose rows they are.
    """
    keys = _names(side)
    new = after.select(s.BATCH, *map(quote, keys), F.expr(_values(side, "")).alias("_fk_new"))
    old = before.select(s.BATCH, *map(quote, keys), F.expr(_values(side, "")).alias("_fk_old"))
    differ = old.join(new, [s.BATCH, *keys]).where("NOT (_fk_new <=> _fk_old)")
    return differ.select(s.BATCH).distinct()


def _names(side: SideSpec) -> list[str]:
    return [c.name for c in side.key_columns]


def _values(side: SideSpec, prefix: str) -> str:
    """SQL (STRUCT): the value columns of a row."""
    values = ", ".join(f"{prefix}{c.quoted} AS {c.quoted}" for c in side.value_columns)
    return f"STRUCT({values})"
