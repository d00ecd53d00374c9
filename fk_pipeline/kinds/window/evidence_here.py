"""The evidence of the story of a row of a windowed join, read in this process: states have the values that match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fk_pipeline.arrow_text import as_numbers
from fk_pipeline.blocks.keyed_here import Tables, among, check_sides, in_source_order, json_of, typed_key, under
from fk_pipeline.blocks.times import FARTHEST
from fk_pipeline.conditions import AllTests, AnyTest, ConstantTest, NotTest, NullTest, RowTest, between
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.evidence import Near, OwnRow
from fk_pipeline.kinds.window.kind import TIME, WindowStage, on_columns
from fk_pipeline.kinds.window.spans import Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec.sql import INTEGERS
from fk_pipeline.store import schemas as s
from fk_pipeline.store.rows_here import Wanted

_LIVES = NotTest(NullTest(s.HASH))
_ORDERED = (*INTEGERS, "STRING")
"""Types whose values have the same order as JSON."""

_Key = tuple[Any, ...]


def spans_here(table: Tables, spec: WindowSpec) -> Spans:
    """Returns the window of a pipeline, whose state tells the type of its times.

    Raises:
        LeftToSpark: there is no state, or it has no such times.
    """
    kind = table(WindowStage.LEFT_TABLE).schema.field(TIME).type
    if kind == pa.int64():
        return Spans.of(spec, "BIGINT")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return Spans.of(spec, "TIMESTAMP")
    raise LeftToSpark("the type of the times is not known without Spark")


class RowHere:
    """The stored rows about a row of one side (`RowEvidence`).

    Raises:
        LeftToSpark: only Spark can read them.
        UsageError: a text is not a value of the type of its column.
    """

    def __init__(self, table: Tables, spec: WindowSpec, side: Side, key: Mapping[str, str], spans: Spans) -> None:
        check_sides(spec.left, spec.right)
        self._table, self._spec, self._side, self._spans = cache(table), spec, side, spans
        of_side, log = spec.side(side), self._table(k.LOG_OF[k.source(spec, side)])
        tests, self.key = typed_key(key, of_side, log.schema)
        columns = [
            s.BATCH,
            s.SEQUENCE,
            s.OP,
            s.DELETED,
            s.FILE,
            *of_side.stored_key,
            *(c.name for c in of_side.columns),
        ]
        rows = log.read(Wanted([*dict.fromkeys(columns)], tests))
        self.versions = json_of(in_source_order(rows, of_side))
        state = self._table(k.table_of(spec, side))
        row = state.read(Wanted([s.HASH, TIME, s.OWNER, *on_columns(spec)], tests)).slice(0, 1)
        self.own = _own(row)
        names, wanted = k.parts(spec, k.other(side)), [s.BATCH, k.parts(spec, side)[0]]
        in_result = under(tests, lambda name: k.part(side, name))
        there = self._table(WindowStage.RESOLVED_JOIN).read(Wanted([*wanted, *names], in_result))
        pairs = there.filter(pc.is_valid(there[names[0]]))
        alone = there.filter(pc.is_null(there[names[0]]))
        self.in_result, self.alone_in = len(there) > 0, max(alone[s.BATCH].to_pylist(), default=None)
        self.near = self._near(self._matching(row), pairs)

    def greatest(self) -> dict[int, int]:
        """Returns per batch the greatest time of the living rows that it owns."""
        found: dict[int, int] = {}
        for side in k.sources(self._spec):
            state = self._table(k.STATE_OF[side])
            rows = as_numbers(state.read(Wanted([s.OWNER, TIME], [_LIVES, NotTest(NullTest(TIME))])))
            greatest = rows.group_by(s.OWNER).aggregate([(TIME, "max")])
            for batch, at in zip(greatest[s.OWNER].to_pylist(), greatest[f"{TIME}_max"].to_pylist(), strict=True):
                found[batch] = max(_limited(at), found.get(batch, -FARTHEST))
        return found

    def _matching(self, own: pa.Table) -> RowTest | None:
        """Returns the condition that a living row of the other side matches the row; None: none does.

        Raises:
            LeftToSpark: only Spark compares the values of `on`; or the times are at the ends of their type.
        """
        if self.own is None or not self.own.lives or self.own.at is None:
            return None
        tests: list[RowTest] = [_LIVES]
        state = self._table(k.table_of(self._spec, k.other(self._side)))
        for name in on_columns(self._spec):
            kind = state.schema.field(name).type
            if pa.types.is_floating(kind) or pa.types.is_nested(kind) or own.schema.field(name).type != kind:
                raise LeftToSpark("values of 'on' are compared by Spark")
            value = own[name][0]
            if not value.is_valid:
                return None
            bound = value.as_py() if pa.types.is_string(kind) or pa.types.is_integer(kind) else None
            tests.append(ConstantTest(name, "equal", value, bound))
        earlier, later = self._spans.around(self._side)
        first, last = self.own.at - earlier, self.own.at + later
        if max(abs(first), abs(last)) >= FARTHEST:
            raise LeftToSpark("times at the ends of their type are compared by Spark")
        return AllTests((*tests, between(TIME, first, last, state.schema.field(TIME).type)))

    def _near(self, matching: RowTest | None, pairs: pa.Table) -> list[Near]:
        """Returns the rows of the other side that match the row, or are in a pair with it in the result."""
        side = k.other(self._side)
        of_side, state = self._spec.side(side), self._table(k.table_of(self._spec, side))
        keys = [c.name for c in of_side.key_columns]
        in_pairs = among({name: pairs[k.part(side, name)] for name in keys})
        tests = [one for one in (matching, in_pairs) if one is not None]
        if not tests:
            return []
        wanted = [*keys, s.HASH, TIME, s.OWNER, s.APPLIED_IN]
        found: dict[_Key, dict[str, Any]] = {}
        rows = state.read(Wanted(wanted, [AnyTest(tuple(tests))]))
        times = as_numbers(rows.select([TIME]))[TIME].to_pylist()
        for row, at in zip(json_of(rows), times, strict=True):
            found[tuple(row[name] for name in keys)] = row | {TIME: None if at is None else _limited(at)}
        written = [
            (tuple(row[k.part(side, name)] for name in keys), row[s.BATCH])
            for row in json_of(pairs.select([s.BATCH, *k.parts(self._spec, side)]))
        ]
        near = self._keys_of(state, matching, keys)
        both = [*written, *((key, None) for key in near - {key for key, _ in written})]
        listed = [self._one(dict(zip(keys, key, strict=True)), found.get(key), key in near, at) for key, at in both]
        return self._in_order(listed)

    def _keys_of(self, state: Any, matching: RowTest | None, keys: Sequence[str]) -> set[_Key]:
        """Returns the keys of the rows that match."""
        rows = [] if matching is None else json_of(state.read(Wanted(keys, [matching])))
        return {tuple(row[name] for name in keys) for row in rows}

    def _one(self, key: dict[str, Any], row: dict[str, Any] | None, is_near: bool, written_in: int | None) -> Near:
        if row is None:
            return Near(key, None, None, written_in, told=False)
        batch = None
        if is_near and self.own is not None:
            batch = max((one for one in (self.own.owner, row[s.OWNER]) if one is not None), default=None)
        at = None if row[s.HASH] is None else row[TIME]
        return Near(key, at, batch, written_in, told=row[s.APPLIED_IN] is not None)

    def _in_order(self, rows: list[Near]) -> list[Near]:
        """Returns rows by their time and key, those without a time first."""
        kinds = [c.type.upper() for c in self._spec.side(k.other(self._side)).key_columns]
        if len({one.at for one in rows}) < len(rows) and not {*kinds} <= {*_ORDERED}:
            raise LeftToSpark("partners of one time are ordered by Spark")
        return sorted(rows, key=lambda one: (one.at is not None, one.at or 0, [*one.key.values()]))


def _own(row: pa.Table) -> OwnRow | None:
    if not len(row):
        return None
    at = as_numbers(row.select([TIME]))[TIME][0].as_py()
    return OwnRow(row[s.HASH][0].is_valid, None if at is None else _limited(at), row[s.OWNER][0].as_py())


def _limited(at: int) -> int:
    """Returns a time, or the nearest one that rows may have, as `times.limited` does."""
    return max(-FARTHEST, min(FARTHEST, at))
