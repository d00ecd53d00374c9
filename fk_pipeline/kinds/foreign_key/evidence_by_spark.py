"""The evidence of a story, read by Spark: expressions of the pipeline file are evaluated, and the join is computed."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import for_story, in_source_order, with_content
from fk_pipeline.blocks.story import JsonRow
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.identity import OF_PAIRS, Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.evidence import MOST_QUARANTINED, RECORD, naming_patterns
from fk_pipeline.kinds.foreign_key.proof import expected as expected_join
from fk_pipeline.kinds.foreign_key.resolved_join import pair_keys
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import ISOLATING
from fk_pipeline.spec.keys import is_key
from fk_pipeline.spec.sql import text
from fk_pipeline.store import schemas as s
from fk_pipeline.store.reader import TableReader


class LeftBySpark:
    """The stored rows about a left key (`LeftEvidence`). Its rows in the changelogs are read once and cached."""

    def __init__(self, read: TableReader, spec: ForeignKeySpec, key: Mapping[str, str]) -> None:
        self._read, self._spec = read, spec
        self.key = key_row(read.warehouse.session, key, spec.left)
        self._own, self._in_state = is_key(key, spec.left), is_key(key, spec.left, k.pk)
        left = read.frames.cached(self._left_log(), None).frame
        right = read.frames.cached(self._right_log(left), None).frame
        self._frames = {Side.LEFT: left, Side.RIGHT: right}
        self.logs = {side: json_rows(in_source_order(rows, spec.side(side))) for side, rows in self._frames.items()}

    def _left_log(self) -> DataFrame:
        first = self._spec.left.key_columns[0].quoted
        of_key = F.expr(self._own) | F.col(first).isNull()
        rows = self._read.read(k.LEFT_CHANGELOG).where(of_key)
        return with_content(for_story(rows, self._spec.left), self._spec, Side.LEFT, ISOLATING)

    def _right_log(self, left: DataFrame) -> DataFrame:
        log, keys = self._read.read(k.RIGHT_CHANGELOG), [c.name for c in self._spec.right.key_columns]
        fks = [*map(quote, k.fk_names(self._spec))]
        right_keys = left.where(self._own).select(*fks).distinct().toDF(*keys)
        rows = log.join(F.broadcast(right_keys), keys, "left_semi").unionByName(
            log.where(F.col(quote(keys[0])).isNull())
        )
        return with_content(for_story(rows, self._spec.right), self._spec, Side.RIGHT)

    def of_key(self, table: str) -> list[JsonRow]:
        """Returns the rows of a table that have the key in its `_fk_pk_*` columns."""
        return json_rows(self._read.read(table).where(self._in_state))

    def quarantined(self, refers_to: JsonRow | None) -> list[JsonRow]:
        """Returns the records of the quarantine that may concern the key."""
        lines: dict[str, str] = {Side.LEFT: names_key(self.key), Side.RIGHT: names_key(refers_to)}
        return _quarantined(self._read, self._spec, {**lines, OF_PAIRS: self._in_state})

    def expected(self) -> JsonRow | None:
        """Returns the row of the join; an outer join has right rows alone as well."""
        spec = self._spec
        logs = {spec.definition.input(side).log: rows for side, rows in self._frames.items()}
        return _first_output(expected_join(logs, spec, isolating=True).where(k.has_left(spec)), spec)


class RightBySpark:
    """The stored rows about a right key of an outer join (`RightEvidence`)."""

    def __init__(self, read: TableReader, spec: ForeignKeySpec, key: Mapping[str, str]) -> None:
        self._read, self._spec = read, spec
        self.key = key_row(read.warehouse.session, key, spec.right)
        own, self._in_state = is_key(key, spec.right), is_key(key, spec.right, k.fk)
        pks = [*map(quote, k.pk_names(spec))]
        truncates = F.col(spec.right.key_columns[0].quoted).isNull()
        log = read.read(k.RIGHT_CHANGELOG).where(F.expr(own) | truncates)
        self._log = read.frames.cached(with_content(for_story(log, spec.right), spec, Side.RIGHT), None).frame
        self.log = json_rows(in_source_order(self._log, spec.right))
        referring = read.read(k.SUBSCRIPTION_STORE).where(self._in_state).where(f"{s.HASH} IS NOT NULL")
        rows = read.frames.cached(read.read(k.RESOLVED_JOIN).where(self._in_state), None).frame
        joined = rows.where(f"{k.has_left(spec)} AND {s.RIGHT_HASH} IS NOT NULL")
        self._lefts = referring.select(*pks).unionByName(joined.select(*pks)).distinct()
        self.referring, self.joined = referring.count(), joined.count()
        self.example = next(iter(json_rows(joined.select(*pks).orderBy(*pks).limit(1))), None)
        self.unmatched = next(iter(json_rows(rows.where(f"NOT {k.has_left(spec)}"))), None)

    def quarantined(self) -> list[JsonRow]:
        """Returns the records of the quarantine that may concern the key."""
        return _quarantined(self._read, self._spec, {Side.RIGHT: names_key(self.key), OF_PAIRS: self._in_state})

    def expected(self) -> JsonRow | None:
        """Returns the row of the join without a left row."""
        spec, keys = self._spec, [c.name for c in self._spec.left.key_columns]
        log = self._read.read(k.LEFT_CHANGELOG)
        of_keys = log.join(self._lefts.toDF(*keys), keys, "left_semi")
        left_log = of_keys.unionByName(log.where(F.col(quote(keys[0])).isNull()))
        logs = {spec.definition.input(Side.LEFT).log: left_log, spec.definition.input(Side.RIGHT).log: self._log}
        return _first_output(expected_join(logs, spec, isolating=True).where(f"NOT {k.has_left(spec)}"), spec)


def _first_output(joined: DataFrame, spec: ForeignKeySpec) -> JsonRow | None:
    return next(iter(json_rows(joined.select(*[quote(output.name) for output in spec.outputs]))), None)


def _quarantined(read: TableReader, spec: ForeignKeySpec, conditions: Mapping[str, str]) -> list[JsonRow]:
    """Returns the newest records of the quarantine that meet a condition, oldest first.

    Args:
        read: reads the quarantine.
        spec: the pipeline.
        conditions: per origin, SQL (BOOLEAN) over a record. For a pair of rows it has the columns of the left key as
            `_fk_pk_*` and of the right key as `_fk_fk_*`, null without the row.
    """
    records = (
        read.read(s.QUARANTINE)
        .select("*", *pair_keys(spec))
        .where(" OR ".join(f"({s.SIDE} = '{origin}' AND {met})" for origin, met in conditions.items()))
        .orderBy(F.col(s.BATCH).desc(), F.col(s.FILE).desc(), F.col(s.LINE).desc())
        .limit(MOST_QUARANTINED)
        .select(*RECORD)
    )
    return json_rows(records)[::-1]


def names_key(key: JsonRow | None) -> str:
    """SQL (BOOLEAN): the raw text of a record has all values of a key; if it names a column, right after its name."""
    if key is None:
        return "FALSE"
    patterns = naming_patterns(key, r"[\p{L}\p{N}_]", r"[^\p{L}\p{N}_]", _literally, "(?i:")
    return " AND ".join(
        f"IF({s.RAW} RLIKE {text(column)}, {s.RAW} RLIKE {text(behind)}, {s.RAW} RLIKE {text(anywhere)})"
        for column, behind, anywhere in patterns
    )


def _literally(literal: str) -> str:
    """Returns a pattern that matches only this text."""
    return r"\Q" + literal.replace(r"\E", r"\E\\E\Q") + r"\E"
