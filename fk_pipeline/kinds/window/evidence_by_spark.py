"""The evidence of the story of a row of a windowed join, read by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import for_story
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.evidence import Near, OwnRow
from fk_pipeline.kinds.window.kind import TIME, WindowStage, on_columns
from fk_pipeline.kinds.window.spans import Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.keys import is_key
from fk_pipeline.store import schemas as s
from fk_pipeline.store.reader import TableReader


class RowBySpark:
    """The stored rows about a row of one side (`RowEvidence`)."""

    def __init__(self, read: TableReader, spec: WindowSpec, side: Side, key: Mapping[str, str], spans: Spans) -> None:
        self._read, self._spec, self._side, self._spans = read, spec, side, spans
        of_side = spec.side(side)
        self.key = key_row(read.warehouse.session, key, of_side)
        state = self._state(side).where(is_key(key, of_side))
        ticks = F.expr(spans.ticks(TIME)).alias("at")
        row = state.select(F.col(s.HASH).isNotNull().alias("lives"), ticks, F.col(s.OWNER).alias("owner")).first()
        self.own = None if row is None else OwnRow(row["lives"], row["at"], row["owner"])
        log = for_story(read.read(k.LOG_OF[k.source(spec, side)]).where(is_key(key, of_side)), of_side)
        self.versions = json_rows(log.orderBy(s.SEQUENCE, s.BATCH))
        result = read.read(WindowStage.RESOLVED_JOIN).where(is_key(key, of_side, lambda name: k.part(side, name)))
        alone = result.where(f"NOT ({k.is_pair(spec)})").agg(F.max(s.BATCH)).first()
        self.alone_in = None if alone is None else alone[0]
        self.in_result = not result.isEmpty()
        self.near = self._near(state, result)

    def _state(self, side: Side) -> DataFrame:
        return self._read.read(k.table_of(self._spec, side))

    def greatest(self) -> dict[int, int]:
        """Returns per batch the greatest time of the living rows that it owns."""
        states = [self._state(side) for side in k.sources(self._spec)]
        living_rows = [state.where(f"{s.HASH} IS NOT NULL") for state in states]
        times = [state.select(s.OWNER, F.expr(self._spans.ticks(TIME)).alias("at")) for state in living_rows]
        found = reduce(DataFrame.unionByName, times).where("at IS NOT NULL").groupBy(s.OWNER).agg(F.max("at")).collect()
        return {row[0]: row[1] for row in found}

    def _near(self, own: DataFrame, result: DataFrame) -> list[Near]:
        """Returns the rows of the other side that match the row, or are in a pair with it in the result."""
        spec, other = self._spec, k.other(self._side)
        names = k.parts(spec, other)
        ours, theirs = (f"{TIME}_{one}" for one in (self._side, other))
        mine = own.where(f"{s.HASH} IS NOT NULL").select(
            *[F.col(quote(name)).alias(f"{name}_mine") for name in on_columns(spec)],
            F.expr(self._spans.ticks(TIME)).alias(ours),
            F.col(s.OWNER).alias("_fk_mine_of"),
        )
        others = (
            self._state(other)
            .where(f"{s.HASH} IS NOT NULL")
            .selectExpr(
                *k.own_key(spec, other),
                *map(quote, on_columns(spec)),
                f"{self._spans.ticks(TIME)} AS {theirs}",
                f"{s.OWNER} AS _fk_theirs_of",
            )
        )
        near = self._spans.matches(f"{TIME}_left", f"{TIME}_right")
        condition = " AND ".join([*[f"{name} = {name}_mine" for name in on_columns(spec)], near])
        of = F.expr("GREATEST(_fk_mine_of, _fk_theirs_of)").alias("of")
        matching = others.join(F.broadcast(mine), F.expr(condition)).select(*map(quote, names), of)
        there = result.where(k.is_pair(spec)).select(*map(quote, names), F.col(s.BATCH).alias("written_in"))
        both = matching.join(there, names, "full")
        both = both.join(others.select(*map(quote, names), theirs), names, "left")
        told = self._state(other).where(f"{s.APPLIED_IN} IS NOT NULL")
        told = told.selectExpr(*k.own_key(spec, other), "TRUE AS told")
        both = both.join(told, names, "left").orderBy(theirs, *map(quote, names))
        keys = json_rows(
            both.select(
                *[F.col(quote(n)).alias(c.name) for n, c in zip(names, spec.side(other).key_columns, strict=True)]
            )
        )
        rows = both.select(F.col(theirs).alias("at"), "of", "written_in", "told").collect()
        return [
            Near(key, row["at"], row["of"], row["written_in"], bool(row["told"]))
            for key, row in zip(keys, rows, strict=True)
        ]
