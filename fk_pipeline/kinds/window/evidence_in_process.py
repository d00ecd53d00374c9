"""The evidence of the story of a row of a windowed join, read in this process: states have the values that match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import pyarrow as pa

from fk_pipeline.arrow_text import as_numbers
from fk_pipeline.blocks.keyed_in_process import (
    Tables,
    among,
    check_sides,
    json_of,
    typed_key,
    under,
    versions_in_process,
)
from fk_pipeline.blocks.story import JsonRow
from fk_pipeline.blocks.times import FARTHEST
from fk_pipeline.conditions import AllTests, ConstantTest, NotTest, NullTest, RowTest, between
from fk_pipeline.errors import LeftToSpark
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.evidence import STATE_COLUMNS, RowEvidence, lives_at
from fk_pipeline.kinds.window.kind import TIME, WindowStage, on_columns
from fk_pipeline.kinds.window.spans import Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.store import schemas as s
from fk_pipeline.store.rows_in_process import Relation, RowRequest

_LIVES = NotTest(NullTest(s.HASH))


def evidence_in_process(table: Tables, spec: WindowSpec, side: Side, key: Mapping[str, str]) -> RowEvidence:
    """Returns the stored rows about a row, given its side and its key as text.

    Raises:
        LeftToSpark: only Spark can read them.
        UsageError: a text is not a value of the type of its column.
    """
    check_sides(spec.left, spec.right)
    table, other = cache(table), k.other(side)
    time = table(WindowStage.LEFT_TABLE).schema.field(TIME).type
    if pa.types.is_null(time):
        raise LeftToSpark("the type of the times is not known without Spark")
    spans = Spans.of(spec, "BIGINT" if pa.types.is_integer(time) else "TIMESTAMP")
    log, others = table(k.LOG_OF[k.source(spec, side)]), table(k.table_of(spec, other))
    tests, shown_key = typed_key(key, spec.side(side), log.schema)
    rows = table(k.table_of(spec, side)).read(RowRequest([*STATE_COLUMNS, *on_columns(spec)], tests)).slice(0, 1)
    own = next(iter(_state(rows.select([*STATE_COLUMNS]))), None)
    at = lives_at(own)
    matching = None if at is None else _matching(rows.select(on_columns(spec)), at, others, spans.around(side))
    names, parts = [c.name for c in spec.side(other).key_columns], k.parts(spec, other)
    of_row = under(tests, lambda name: k.part(side, name))
    result = table(WindowStage.RESOLVED_JOIN).read(RowRequest([s.BATCH, *parts], of_row))
    return RowEvidence(
        spec=spec,
        side=side,
        key=shown_key,
        spans=spans,
        versions=versions_in_process(log, spec.side(side), tests),
        own=own,
        matching=_rows_where(others, matching, names),
        paired=_rows_where(others, among({name: result[k.part(other, name)] for name in names}), names),
        written=json_of(result),
        greatest=_greatest(table, spec) if spec.waits else {},
    )


def _state(rows: pa.Table) -> list[JsonRow]:
    """Returns rows of a table, with their times in units."""
    times = as_numbers(rows.select([TIME]))[TIME].to_pylist()
    return [row | {TIME: None if at is None else _limited(at)} for row, at in zip(json_of(rows), times, strict=True)]


def _rows_where(state: Relation, test: RowTest | None, keys: Sequence[str]) -> list[JsonRow]:
    """Returns the rows of a table that meet a condition; None: none does."""
    return [] if test is None else _state(state.read(RowRequest([*keys, *STATE_COLUMNS], [test])))


def _matching(on: pa.Table, at: int, others: Relation, around: tuple[int, int]) -> RowTest | None:
    """Returns the condition that a living row of the other side matches a row; None: none does.

    The row has the values `on` and the time `at`; the other may have happened so much earlier, and later (`around`).

    Raises:
        LeftToSpark: only Spark compares the values of `on`; or the times are at the ends of their type.
    """
    tests: list[RowTest] = [_LIVES]
    for name in on.column_names:
        dtype, value = others.schema.field(name).type, on[name][0]
        if pa.types.is_floating(dtype) or pa.types.is_nested(dtype) or value.type != dtype:
            raise LeftToSpark("values of 'on' are compared by Spark")
        if not value.is_valid:
            return None
        bound = value.as_py() if pa.types.is_string(dtype) or pa.types.is_integer(dtype) else None
        tests.append(ConstantTest(name, "equal", value, bound))
    first, last = at - around[0], at + around[1]
    if max(abs(first), abs(last)) >= FARTHEST:
        raise LeftToSpark("times at the ends of their type are compared by Spark")
    return AllTests((*tests, between(TIME, first, last, others.schema.field(TIME).type)))


def _greatest(table: Tables, spec: WindowSpec) -> dict[int, int]:
    """Returns per batch the greatest time of the living rows that it owns."""
    living = RowRequest([s.OWNER, TIME], [_LIVES, NotTest(NullTest(TIME))])
    rows = pa.concat_tables(
        [as_numbers(table(k.STATE_OF[side]).read(living)) for side in k.sources(spec)], promote_options="default"
    )
    greatest = rows.group_by(s.OWNER).aggregate([(TIME, "max")])
    times = zip(greatest[s.OWNER].to_pylist(), greatest[f"{TIME}_max"].to_pylist(), strict=True)
    return {batch: _limited(at) for batch, at in times}


def _limited(at: int) -> int:
    """Returns a time, or the nearest one that rows may have, as `times.limited` does."""
    return max(-FARTHEST, min(FARTHEST, at))
