"""The rules of a windowed join: views of tables and result that find broken rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.hashing import row_hash
from fk_pipeline.blocks.horizon import ticks_of
from fk_pipeline.frames import marked
from fk_pipeline.identity import SIDES, Side, ranges_sql
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.kind import EXPIRED_ROW, TIME, WindowStage, on_columns
from fk_pipeline.kinds.window.proof import pending
from fk_pipeline.kinds.window.spans import Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.kinds.window.suites import AT_ITS_TIME
from fk_pipeline.rules.check_reader import CheckReader
from fk_pipeline.rules.current import current_view
from fk_pipeline.rules.scan import (
    COPIES,
    PENDING,
    ROW,
    Rule,
    View,
    hex_of,
    json_of,
    only_one,
    with_copies,
)
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import Evaluator
from fk_pipeline.store import schemas as s

_NOW, _PAIRED, _UNMATCHED, _CONTENT, _KNOWN = "_fk_clock", "_fk_paired", "_fk_alone", "_fk_content", "_fk_known"


def left_views(reader: CheckReader, evaluator: Evaluator) -> list[View]:
    """Returns the view of the left table."""
    return _state(reader, evaluator, Side.LEFT)


def right_views(reader: CheckReader, evaluator: Evaluator) -> list[View]:
    """Returns the view of the right table."""
    return _state(reader, evaluator, Side.RIGHT)


def _state(reader: CheckReader, evaluator: Evaluator, side: Side) -> list[View]:
    spans, horizon = _spans_of(reader), _horizon(reader, side)
    return [
        current_view(
            reader,
            evaluator,
            side,
            f"one_row_per_{side}_key",
            AT_ITS_TIME,
            number=spans.bucket(spans.ticks(TIME)),
            logged=partial(_but_removed, reader, side),
            expired="FALSE" if horizon is None else f"{EXPIRED_ROW} AND {spans.ticks(TIME)} < {horizon}",
        )
    ]


def _horizon(reader: CheckReader, side: Side) -> int | None:
    """Returns the horizon of a side, in units of its times; None if there is none."""
    horizon = reader.ledger.folds.horizon(k.log_stage(reader.spec, side))
    return None if horizon is None else ticks_of(horizon)


def _but_removed(reader: CheckReader, side: Side, log: DataFrame) -> DataFrame:
    """Returns the rows of a changelog without those of old events that the state has lost already (`retention`)."""
    horizon, folded = _horizon(reader, side), reader.ledger.folds.of(reader.spec.definition.input(side).stage)
    if horizon is None or (reader.batches is not None and not any(batch in reader.batches for batch in folded)):
        return log
    spans, keys = _spans_of(reader), [c.name for c in reader.spec.side(side).key_columns]
    last = horizon - spans.older(reader.spec, side)
    is_old = f"COALESCE({spans.ticks(TIME)} < {last} AND {ranges_sql(s.BATCH, folded)}, FALSE)"
    stored = reader.whole(k.STATE_OF[side]).select(*map(quote, keys))
    return log.where(f"NOT {is_old}").unionByName(log.where(is_old).join(stored, keys, "left_semi"))


def result_views(reader: CheckReader, _: Evaluator) -> list[View]:
    """Returns the views: the rows of the result with the current rows of both sides, and rows that may be alone."""
    result, states = _touched(reader)
    rows = {side: _living(states[side], side, reader.spec) for side in SIDES}
    views = [_pairs(reader, result, states, rows)]
    return [*views, *(_unmatched(reader, side, result, rows[side]) for side in k.unmatched_on(reader.spec))]


def _touched(reader: CheckReader) -> tuple[DataFrame, dict[Side, DataFrame]]:
    """Returns the result and the states of both sides.

    In a check of some batches of large tables these are the rows that the batches changed or wrote. Whether a row is
    right that a refresh did not look at, a check of the whole tells.
    """
    spec = reader.spec
    if reader.batches is None or reader.small:
        states = {side: reader.whole(k.table_of(spec, side)) for side in SIDES}
        return _with_content(reader, reader.whole(WindowStage.RESOLVED_JOIN)), states
    keys = {}
    for side in SIDES:
        columns = [*map(quote, k.parts(spec, side))]
        written = reader.of_batches(WindowStage.RESOLVED_JOIN, s.BATCH).select(*columns)
        changed = reader.of_batches(k.table_of(spec, side), s.APPLIED_IN).selectExpr(*k.own_key(spec, side))
        both = written.where(f"{columns[0]} IS NOT NULL").unionByName(changed).distinct()
        keys[side] = reader.at_hand(both, None)
    parts = []
    for side in SIDES:
        own = {name: name for name in k.parts(spec, side)}
        of_side = _with_content(reader, reader.with_keys(WindowStage.RESOLVED_JOIN, keys[side], own))
        of_side = of_side.join(keys[side].frame, list(own), "left_semi")
        if side == Side.RIGHT:
            left = keys[Side.LEFT].frame
            of_side = of_side.join(left, list(left.columns), "left_anti")
        parts.append(of_side)
    result = reader.at_hand(parts[0].unionByName(parts[1]), None).frame
    states = {}
    for side in SIDES:
        columns = k.parts(spec, side)
        result_keys = result.select(*map(quote, columns)).where(f"{quote(columns[0])} IS NOT NULL")
        every = reader.at_hand(result_keys.unionByName(keys[side].frame).distinct(), None)
        names = [c.name for c in spec.side(side).key_columns]
        own = dict(zip(names, columns, strict=True))
        state = reader.with_keys(k.table_of(spec, side), every, own)
        state_keys = every.frame.select(*[F.col(quote(column)).alias(name) for name, column in own.items()])
        states[side] = state.join(state_keys, names, "left_semi")
    return result, states


def _with_content(reader: CheckReader, rows: DataFrame) -> DataFrame:
    """Returns rows of the result: keys, hashes, batch, and the hash of their values computed again."""
    columns = reader.spec.block_of(WindowStage.RESOLVED_JOIN, reader.table_of).columns
    content = row_hash((field.name, field.dataType) for field in rows.select(*map(quote, columns)).schema.fields)
    names = [*k.parts(reader.spec, *SIDES), s.LEFT_HASH, s.RIGHT_HASH, s.BATCH, s.HASH]
    return rows.selectExpr(*map(quote, names), f"{content} AS {_CONTENT}")


def _living(rows: DataFrame, side: Side, spec: WindowSpec) -> DataFrame:
    """Returns the living rows of a table: key as in the result, values of `on`, time and hash."""
    columns = (*k.own_key(spec, side), *map(quote, on_columns(spec)), TIME, f"{s.HASH} AS {k.HASH_OF[side]}")
    return rows.where(f"{s.HASH} IS NOT NULL").selectExpr(*columns)


def _clock(reader: CheckReader, spans: Spans) -> DataFrame:
    """Returns one row with the clock: the greatest time of all living rows of both sides, in units of the times."""
    states = [reader.whole(k.STATE_OF[side]) for side in k.sources(reader.spec)]
    times = [state.where(f"{s.HASH} IS NOT NULL").select(F.expr(spans.ticks(TIME)).alias("at")) for state in states]
    return reduce(DataFrame.unionByName, times).agg(F.max("at").alias(_NOW))


def _spans_of(reader: CheckReader) -> Spans:
    return Spans.of_state(reader.spec, reader.about(WindowStage.LEFT_TABLE).declared)


def _pairs(
    reader: CheckReader, result: DataFrame, states: Mapping[Side, DataFrame], rows: Mapping[Side, DataFrame]
) -> View:
    """View of the rows of the result, each with the current rows of both sides.

    What the result has of a row that its table does not know any more (`retention`) stays, whatever the other is.
    """
    spec, spans = reader.spec, _spans_of(reader)
    joined = with_copies(result, [quote(name) for name in k.parts(spec, *SIDES)])
    for side in SIDES:
        own = {name: f"{name}_{side}" for name in (*on_columns(spec), TIME)}
        now = rows[side].select(
            *map(quote, k.parts(spec, side)),
            *[F.col(quote(name)).alias(new) for name, new in own.items()],
            F.struct(TIME).alias(f"_fk_at_{side}"),
            F.col(k.HASH_OF[side]).alias(f"_fk_now_{side}"),
        )
        joined = joined.join(now, k.parts(spec, side), "left")
        joined = joined.withColumn(f"_fk_known_{side}", F.lit(True))
        if _horizon(reader, side) is not None:
            known = (
                states[side]
                .where(f"{s.APPLIED_IN} IS NOT NULL")
                .selectExpr(*k.own_key(spec, side), f"TRUE AS {_KNOWN}")
            )
            is_known = f"{quote(k.parts(spec, side)[0])} IS NULL OR COALESCE({_KNOWN}, FALSE)"
            joined = joined.join(known, k.parts(spec, side), "left")
            joined = joined.withColumn(f"_fk_known_{side}", F.expr(is_known)).drop(_KNOWN)
    ticks = {side: spans.ticks(f"{TIME}_{side}") for side in SIDES}
    near = " AND ".join([*[f"{name}_left = {name}_right" for name in on_columns(spec)], spans.matches(*ticks.values())])
    stored = f"CONCAT({hex_of(s.LEFT_HASH)}, ' and ', {hex_of(s.RIGHT_HASH)})"
    current = f"CONCAT({hex_of('_fk_now_left')}, ' and ', {hex_of('_fk_now_right')})"
    hashes = f"{s.LEFT_HASH} <=> _fk_now_left AND {s.RIGHT_HASH} <=> _fk_now_right"
    both = f"{k.is_pair(spec)} AND _fk_at_left IS NOT NULL AND _fk_at_right IS NOT NULL"
    times = json_of("_fk_at_left AS left", "_fk_at_right AS right")
    rules = [
        only_one("one_row_per_pair"),
        Rule("hash_is_that_of_the_row", f"NOT ({s.HASH} <=> {_CONTENT})", hex_of(s.HASH), hex_of(_CONTENT)),
        Rule("pairs_are_within_the_window", f"{both} AND NOT COALESCE({near}, FALSE)", times, "'times of a pair'"),
        Rule("hashes_are_current", f"_fk_known_left AND _fk_known_right AND NOT ({hashes})", stored, current),
    ]
    return View(joined, _shown(spec), s.BATCH, tuple(rules), _excused(reader))


def _unmatched(reader: CheckReader, side: Side, result: DataFrame, rows: DataFrame) -> View:
    """View of the living rows of a side: whether the result has a pair of each, and whether it has it alone."""
    spec, spans, names = reader.spec, _spans_of(reader), k.parts(reader.spec, side)
    pairs = result.where(k.is_pair(spec)).select(*map(quote, names)).distinct().withColumn(_PAIRED, F.lit(True))
    unmatched = result.where(f"NOT ({k.is_pair(spec)}) AND {quote(names[0])} IS NOT NULL")
    unmatched = (
        unmatched.groupBy(*map(quote, names)).agg(F.max(s.BATCH).alias(s.BATCH)).withColumn(_UNMATCHED, F.lit(True))
    )
    living = (
        rows.selectExpr(*map(quote, names), *k.no_row(spec, k.other(side)), TIME)
        .join(pairs, names, "left")
        .join(unmatched, names, "left")
    )
    closed = "TRUE"
    if spec.waits:
        living = living.crossJoin(F.broadcast(_clock(reader, spans)))
        closed = f"{spans.ticks(TIME)} < {_NOW} - {spans.wait(side)}"
    refused = "TRUE" if spec.computes else "FALSE"
    living = living.withColumns({ROW: F.expr(f"IF({_UNMATCHED}, TRUE, NULL)"), COPIES: F.lit(1)})
    state = f"CONCAT(IF({_UNMATCHED} IS NULL, 'not ', ''), 'alone')"
    rules = [
        Rule("no_row_is_paired_and_alone", f"{_UNMATCHED} AND {_PAIRED}", "'alone and in a pair'", "'in a pair'"),
        Rule(
            "no_missing_row_alone",
            f"{closed} AND {_UNMATCHED} IS NULL AND {_PAIRED} IS NULL AND NOT {refused}",
            state,
            "'alone'",
        ),
    ]
    if spec.waits:
        early = f"{_UNMATCHED} AND NOT ({closed})"
        rules.append(Rule("nothing_is_alone_before_its_close", early, json_of(TIME), "'not closed yet'"))
    return View(living, _shown(spec), s.BATCH, tuple(rules), _excused(reader))


def _excused(reader: CheckReader) -> Callable[[DataFrame], DataFrame] | None:
    """Returns a function that marks rows of the result which due work may still change; None if nothing is due."""
    if not any(reader.due.values()):
        return None

    def mark(rows: DataFrame) -> DataFrame:
        tables = {name: reader.whole(name) for name in reader.spec.definition.proved}
        return marked(rows, PENDING, pending(tables, reader.due, reader.spec), nullable=not reader.spec.inner)

    return mark


def _shown(spec: WindowSpec) -> str:
    """SQL (STRUCT): the key of a row of the result, for people."""
    shown = []
    for side in SIDES:
        shown += [f"{quote(k.part(side, c.name))} AS {quote(f'{side}_{c.name}')}" for c in spec.side(side).key_columns]
    return f"STRUCT({', '.join(shown)})"
