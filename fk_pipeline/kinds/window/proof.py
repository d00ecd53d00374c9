"""The proof of a windowed join: both tables of last writers joined in SQL, without the code of the stages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.horizon import ticks_of
from fk_pipeline.blocks.times import limited
from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.kind import WindowStage
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.durations import micros, signed
from fk_pipeline.spec.failing import fails
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.verify.last_writers import concerned, current_rows

_JOINS = {"inner": "INNER", "left": "LEFT", "outer": "FULL"}
"""Per `join` of the pipeline file, the join of SQL."""


def expected(tables: Mapping[str, DataFrame], spec: WindowSpec, isolating: bool = False) -> DataFrame:
    """Returns the pairs of the last writers and the closed rows without a match: keys and selected columns.

    With `isolating`, two rows on which a selected expression fails are no pair, and a row alone on which one fails is
    left out.

    Args:
        tables: both changelogs; a stream that is joined to itself has its rows in the left one.
        spec: the pipeline.
        isolating: whether an expression fails on a row.
    """
    keys = [f"`{side}`.{c.quoted}" for side in SIDES for c in spec.side(side).key_columns]
    joined = f"FROM {_joined(tables, spec, isolating)}"
    where = [_shown(tables, spec)]
    if isolating:
        where.append(f"NOT {fails(*[o.sql for o in spec.outputs])}")
    session = tables[k.LOG_OF[Side.LEFT]].sparkSession
    rows: DataFrame = session.sql(
        f"SELECT {', '.join([*keys, *[o.sql for o in spec.outputs]])} {joined} WHERE {' AND '.join(where)}"
    )
    return rows.toDF(*k.keys_of(spec, WindowStage.RESOLVED_JOIN).keys, *[o.name for o in spec.outputs])


def _current(tables: Mapping[str, DataFrame], spec: WindowSpec, side: Side) -> DataFrame:
    """Returns the current rows of a side with the values of `on` and the time as a DECIMAL in microseconds."""
    log = tables[k.LOG_OF[k.source(spec, side)]]
    own = spec.side(side)
    values = [f"({text}) AS _fk_same_{i}" for i, text in enumerate(own.on)]
    rows = current_rows(log, own).selectExpr("*", *values, f"({own.time}) AS _fk_at")
    dtype = rows.schema["_fk_at"].dataType.simpleString()
    at = limited("_fk_at", dtype)
    micros = f"UNIX_MICROS({at})" if dtype == "timestamp" else f"CAST({at} AS DECIMAL(24, 0)) * 1000"
    return rows.withColumn("_fk_at", F.expr(f"CAST({micros} AS DECIMAL(28, 0))"))


def _joined(tables: Mapping[str, DataFrame], spec: WindowSpec, isolating: bool) -> str:
    """SQL (FROM clause): the current rows of both sides, joined with the rows that match."""
    names = {}
    for side in SIDES:
        names[side] = f"fk_{side}_{uuid.uuid4().hex}"
        _current(tables, spec, side).createOrReplaceTempView(names[side])
    on = [f"`left`._fk_same_{i} = `right`._fk_same_{i}" for i in range(len(spec.left.on))]
    apart = "`right`._fk_at - `left`._fk_at"
    on += [f"{apart} >= -({_micros(spec.within.before)})", f"{apart} <= {_micros(spec.within.after)}"]
    if isolating:
        on.append(f"NOT {fails(*[o.sql for o in spec.outputs])}")
    both = (names[Side.LEFT], "`left`", names[Side.RIGHT], "`right`")
    return f"{both[0]} AS {both[1]} {_JOINS[spec.join]} JOIN {both[2]} AS {both[3]} ON {' AND '.join(on)}"


def _micros(length: str) -> int:
    return micros(signed(length))


def _shown(tables: Mapping[str, DataFrame], spec: WindowSpec) -> str:
    """SQL (BOOLEAN) over a joined row: it is a pair, or a row without a match that is closed."""
    if not spec.waits:
        return "TRUE"
    views = []
    for side in SIDES:
        views.append(f"fk_times_{uuid.uuid4().hex}")
        _current(tables, spec, side).select("_fk_at").createOrReplaceTempView(views[-1])
    clock = f"(SELECT MAX(_fk_at) FROM (SELECT _fk_at FROM {views[0]} UNION ALL SELECT _fk_at FROM {views[1]}))"
    grace = _micros(spec.grace)
    closed = {
        "left": f"`left`._fk_at + {_micros(spec.within.after) + grace} < {clock}",
        "right": f"`right`._fk_at + {_micros(spec.within.before) + grace} < {clock}",
    }
    keys = {str(side): f"`{side}`.{spec.side(side).key_columns[0].quoted}" for side in SIDES}
    return (
        f"CASE WHEN {keys['right']} IS NULL THEN {closed['left']} "
        f"WHEN {keys['left']} IS NULL THEN {closed['right']} ELSE TRUE END"
    )


def pending(tables: Mapping[str, DataFrame], due: Mapping[str, Iterable[int]], spec: WindowSpec) -> list[DataFrame]:
    """Returns keys of rows of the result that due work may still change, each once in its frame.

    These are the keys of both sides that due batches concern, and in a join with rows alone all of these rows: due work
    may move the clock, and bring or take a match.

    Args:
        tables: the tables.
        due: the due batches per stage.
        spec: the pipeline.
    """
    frames = []
    for side in SIDES:
        source, keys, names = k.source(spec, side), k.own_key(spec, side), [c.name for c in spec.side(side).key_columns]
        log, state = tables[k.LOG_OF[source]], tables[k.STATE_OF[source]]
        first = quote(names[0])
        touched, truncated = concerned(log, state, names, due)
        frames.append(touched.selectExpr(*keys).unionByName(state.selectExpr(*keys).crossJoin(truncated)).distinct())
        if side in k.unmatched_on(spec):
            every = log.where(f"{first} IS NOT NULL").selectExpr(*keys).unionByName(state.selectExpr(*keys)).distinct()
            none = [F.lit(None).cast(dtype).alias(name) for name, dtype in k.part_columns(spec, k.other(side))]
            frames.append(every.select("*", *none))
    return frames


def unproved(tables: Mapping[str, DataFrame], spec: WindowSpec, ledger: Ledger) -> tuple[list[DataFrame], str]:
    """Returns the keys of rows, of either side, of which the changelogs do not tell what is right (`retention`).

    They were removed or are older than the horizon; or they stand alone and may have had a match that is.

    Returns:
        The keys, and SQL (BOOLEAN) over a difference: it may be that.
    """
    frames = []
    for side in SIDES:
        source, keys = k.source(spec, side), k.own_key(spec, side)
        horizon = ledger.folds.horizon(k.log_stage(spec, side))
        if horizon is None:
            continue
        older = _micros(spec.within.before if side == Side.LEFT else spec.within.after)
        at = ticks_of(horizon) * (1 if "T" in horizon else 1000)
        rows = _current(tables, spec, side)
        names = [*map(quote, k.parts(spec, side))]
        known = tables[k.STATE_OF[source]].where(f"{s.APPLIED_IN} IS NOT NULL").selectExpr(*keys)
        in_result = tables[WindowStage.RESOLVED_JOIN].select(*names).where(f"{names[0]} IS NOT NULL").distinct()
        frames += [
            rows.where(f"_fk_at < {at}").selectExpr(*keys),
            in_result.join(known, k.parts(spec, side), "left_anti"),
        ]
        if side in k.unmatched_on(spec):  # the match of a row that is a little younger may have expired
            none = [F.lit(None).cast(dtype).alias(name) for name, dtype in k.part_columns(spec, k.other(side))]
            frames.append(rows.where(f"_fk_at < {at + max(0, older)}").selectExpr(*keys).select("*", *none))
    return frames, "TRUE"


def counted(
    tables: Mapping[str, DataFrame], spec: WindowSpec, isolating: bool, chosen: Callable[[Iterable[str]], str]
) -> dict[str, DataFrame]:
    """Returns, per number of a `VerifyReport` that is about the inputs, a frame with as many rows.

    These are `left_rows` and `right_rows`; with `isolating` also `left_out`: the pairs and rows alone on which a
    selected expression fails.

    Args:
        tables: both changelogs.
        spec: the pipeline.
        isolating: whether an expression fails on a row.
        chosen: function from columns of the left key to SQL (BOOLEAN): the key belongs to the verified share.
    """
    keys = [c.quoted for c in spec.left.key_columns]
    left = _current(tables, spec, Side.LEFT).where(chosen(keys))
    frames = {"left_rows": left, "right_rows": _current(tables, spec, Side.RIGHT)}
    if isolating:
        lost, session = fails(*[o.sql for o in spec.outputs]), left.sparkSession
        failing = f"FROM {_joined(tables, spec, False)} WHERE {_shown(tables, spec)} AND {lost}"
        frames["left_out"] = session.sql(f"SELECT 1 AS one {failing}")
    return frames
