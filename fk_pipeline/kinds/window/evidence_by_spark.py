"""The evidence of the story of a row of a windowed join, read by Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import for_story, in_source_order
from fk_pipeline.blocks.story import JsonRow
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.evidence import STATE_COLUMNS, RowEvidence
from fk_pipeline.kinds.window.kind import TIME, WindowStage, on_columns
from fk_pipeline.kinds.window.spans import Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.keys import is_key
from fk_pipeline.store import schemas as s
from fk_pipeline.store.reader import TableReader


def evidence_by_spark(read: TableReader, spec: WindowSpec, side: Side, key: Mapping[str, str]) -> RowEvidence:
    """Returns the stored rows about a row, given its side and its key as text.

    Raises:
        UsageError: a text is not a value of the type of its column.
    """
    of_side, other = spec.side(side), k.other(side)
    shown_key = key_row(read.warehouse.session, key, of_side)
    spans = Spans.of_state(spec, read.about(WindowStage.LEFT_TABLE).declared)
    log = read.read(k.LOG_OF[k.source(spec, side)]).where(is_key(key, of_side))
    own = read.read(k.table_of(spec, side)).where(is_key(key, of_side))
    others = read.read(k.table_of(spec, other))
    result = read.read(WindowStage.RESOLVED_JOIN).where(is_key(key, of_side, partial(k.part, side)))
    names, parts = [c.name for c in spec.side(other).key_columns], [*map(quote, k.parts(spec, other))]
    paired = others.join(F.broadcast(result.select(*parts).toDF(*names)), names, "left_semi")
    return RowEvidence(
        spec=spec,
        side=side,
        key=shown_key,
        spans=spans,
        versions=json_rows(in_source_order(for_story(log, of_side), of_side)),
        own=next(iter(_state(own, spans)), None),
        matching=_state(_matching(own, others, side, spec, spans), spans, names),
        paired=_state(paired, spans, names),
        written=json_rows(result.select(s.BATCH, *parts)),
        greatest=_greatest(read, spec, spans) if spec.waits else {},
    )


def _state(rows: DataFrame, spans: Spans, keys: Iterable[str] = ()) -> list[JsonRow]:
    """Returns rows of a table, with their times in units."""
    return json_rows(rows.withColumn(TIME, F.expr(spans.ticks(TIME))).select(*map(quote, keys), *STATE_COLUMNS))


def _matching(own: DataFrame, others: DataFrame, side: Side, spec: WindowSpec, spans: Spans) -> DataFrame:
    """Returns the living rows of the other side that match the row of a side."""
    times = {side: spans.ticks(f"own.{TIME}"), k.other(side): spans.ticks(f"other.{TIME}")}
    conditions = [spans.matches(times[Side.LEFT], times[Side.RIGHT])]
    conditions += [f"own.{name} = other.{name}" for name in on_columns(spec)]
    conditions += [f"{alias}.{s.HASH} IS NOT NULL" for alias in ("own", "other")]
    row = F.broadcast(own.alias("own"))
    return others.alias("other").join(row, F.expr(" AND ".join(conditions)), "left_semi")


def _greatest(read: TableReader, spec: WindowSpec, spans: Spans) -> dict[int, int]:
    """Returns per batch the greatest time of the living rows that it owns."""
    states = [read.read(k.STATE_OF[side]).where(f"{s.HASH} IS NOT NULL") for side in k.sources(spec)]
    times = [state.select(s.OWNER, F.expr(spans.ticks(TIME)).alias("at")) for state in states]
    rows = reduce(DataFrame.unionByName, times).where("at IS NOT NULL").groupBy(s.OWNER).agg(F.max("at")).collect()
    return {row[0]: row[1] for row in rows}
