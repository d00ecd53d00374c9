"""Stage `resolved_join`: which pairs and which rows alone the result gains and loses. DataFrames in, DataFrames out.

A pair that a message is about, and a pair of the result with a row that changed, is looked up again in both states.
Whether a row is alone the result itself tells, after the same commit (architecture, rule 12).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.outputs import FAILED, PAIR_AS_JSON, keys_of_pairs, with_names
from fk_pipeline.frames import join_by_key
from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.window import tables as k
from fk_pipeline.kinds.window.kind import LEFT_ALONE, MATCHED, PAIRED, PARTED, TIME, on_columns
from fk_pipeline.kinds.window.responses import PAIR
from fk_pipeline.kinds.window.spans import Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import quote
from fk_pipeline.spec.failing import ISOLATING
from fk_pipeline.store import schemas as s

ACTION = "_fk_action"
"""Column: what becomes of a row of the result: one of the counts of the stage, or `unchanged`."""

_SAME = "unchanged"
_THERE, _LIVES, _CHANGED, _HEARD = "_fk_there", "_fk_lives", "_fk_now", "_fk_heard"


def keys_in(rows: DataFrame, side: Side, spec: WindowSpec) -> DataFrame:
    """Returns the keys of a side in rows of messages or of the result, with `_fk_batch`: a batch that asks."""
    names = k.parts(spec, side)
    present = rows.where(f"{quote(names[0])} IS NOT NULL")
    return present.groupBy(*map(quote, names)).agg(F.max(s.BATCH).alias(s.BATCH))


def living(rows: DataFrame, side: Side, spec: WindowSpec) -> DataFrame:
    """Returns the living rows of a state: key as in the result, values of `on`, time, hash, and the row as a struct."""
    own, keys = spec.side(side), {c.name for c in spec.side(side).key_columns}
    kept = keys | {c.name for c in k.payload_columns(spec, side)}
    fields = [c.quoted if c.name in kept else f"CAST(NULL AS {c.type}) AS {c.quoted}" for c in own.columns]
    return rows.where(f"{s.HASH} IS NOT NULL").selectExpr(
        *k.own_key(spec, side),
        *map(quote, on_columns(spec)),
        TIME,
        f"{s.HASH} AS {k.HASH_OF[side]}",
        f"STRUCT({', '.join(fields)}) AS `{side}`",
    )


def heard(rows: DataFrame, side: Side, spec: WindowSpec) -> DataFrame:
    """Returns the keys of the rows of a state that live, or are gone and were told to be, with `_fk_heard`: true.

    Behind a horizon other rows were removed, or had expired when they landed: what the result has of them stays.
    """
    return rows.where(f"{s.APPLIED_IN} IS NOT NULL").selectExpr(*k.own_key(spec, side), f"TRUE AS {_HEARD}")


def told(rows: DataFrame, side: Side, spec: WindowSpec) -> DataFrame:
    """Returns the keys of living rows in the form of `heard`."""
    return rows.select(*map(quote, k.parts(spec, side)), F.lit(True).alias(_HEARD))


def told_before(keys: DataFrame, state: DataFrame, side: Side, spec: WindowSpec) -> DataFrame:
    """Returns those of some keys, as `keys_in` returns them, of whose rows an older version was told before this one.

    The result has no pair of any other row but those of its present version.
    """
    first = state.where(f"{s.SEEN_BEFORE} = FALSE").selectExpr(*k.own_key(spec, side))
    return keys.join(first, k.parts(spec, side), "left_anti")


def stood(result: DataFrame, asked: Mapping[Side, DataFrame], spec: WindowSpec) -> DataFrame:
    """Returns the pairs of the result with a row that changed: both keys and the batch that asks."""
    pairs = result.where(is_pair(spec)).select(*map(quote, k.parts(spec, *SIDES)))
    return union(pairs.join(keys, k.parts(spec, side)) for side, keys in asked.items())


def is_pair(spec: WindowSpec) -> str:
    """SQL (BOOLEAN): a row of messages or of the result is about two rows."""
    return " AND ".join(f"{quote(k.parts(spec, side)[0])} IS NOT NULL" for side in SIDES)


def candidates(messages: DataFrame, standing: DataFrame | None, spec: WindowSpec) -> DataFrame:
    """Returns the pairs to look up again, each once: those that messages are about, and those that stood."""
    keys = [*k.parts(spec, *SIDES), s.BATCH]
    told = messages.where(F.col(s.CAUSE) == PAIR).select(*map(quote, keys))
    both = told if standing is None else told.unionByName(standing.select(*map(quote, keys)))
    return both.groupBy(*map(quote, k.parts(spec, *SIDES))).agg(F.max(s.BATCH).alias(s.BATCH))


def decide_pairs(
    asked: DataFrame,
    rows: Mapping[Side, DataFrame],
    heard: Mapping[Side, DataFrame],
    result: DataFrame | None,
    spec: WindowSpec,
    spans: Spans,
) -> DataFrame:
    """Decides what becomes of pairs.

    Args:
        asked: the pairs, as `candidates` returns them.
        rows: per side, the living rows (`living`), or at least those of the pairs.
        heard: once there is a horizon, per side the keys of which the state tells, or at least those of the pairs.
        result: the result, or at least its rows of these pairs; None if it has none.
        spec: the pipeline.
        spans: the window.

    Returns:
        One row per pair: both keys and hashes (those of the rows as they are now), `_fk_batch` and `_fk_action`.
    """
    both = asked
    for side in SIDES:
        matched_by = {name: f"{name}_{side}" for name in (*on_columns(spec), TIME)}
        narrow = rows[side].select(
            *map(quote, k.parts(spec, side)),
            *[F.col(quote(name)).alias(own) for name, own in matched_by.items()],
            k.HASH_OF[side],
        )
        both = both.join(narrow, k.parts(spec, side), "left")
    ticks = {side: spans.ticks(f"{TIME}_{side}") for side in SIDES}
    same = [f"{name}_left = {name}_right" for name in on_columns(spec)]
    stands = " AND ".join([*same, spans.matches(ticks[Side.LEFT], ticks[Side.RIGHT])])
    both = both.withColumn(_LIVES, F.expr(f"COALESCE({stands}, FALSE)"))
    for side, known in heard.items():
        both = both.join(known.withColumnRenamed(_HEARD, f"{_HEARD}_{side}"), k.parts(spec, side), "left")
    told = " AND ".join(f"{_HEARD}_{side}" for side in heard)
    return _acted(both, result, spec, is_pair(spec), PAIRED, PARTED, told=told)


def decide_alone(
    side: Side,
    asked: DataFrame,
    rows: DataFrame,
    heard: DataFrame | None,
    paired: DataFrame,
    result: DataFrame | None,
    spec: WindowSpec,
    closed: str,
) -> DataFrame:
    """Decides what becomes of the row of the result in which a row stands alone.

    Args:
        side: the side of the rows.
        asked: the keys in question, as `keys_in` returns them.
        rows: the living rows of the side, or at least those with these keys.
        heard: once there is a horizon, the keys of which the state tells (`heard`), or at least these keys.
        paired: the keys of rows with a pair in the result as it will be, distinct.
        result: the result, or at least its rows alone with these keys; None if it has none.
        spec: the pipeline.
        closed: SQL (BOOLEAN) over a living row: it does not wait for a match any more.

    Returns:
        The columns of `decide_pairs`: key and hash of the other side are null.
    """
    names = k.parts(spec, side)
    living_rows = rows.select(*map(quote, names), k.HASH_OF[side], F.expr(closed).alias("_fk_closed"))
    found = asked.join(living_rows, names, "left").join(paired.withColumn("_fk_paired", F.lit(True)), names, "left")
    stands = f"{k.HASH_OF[side]} IS NOT NULL AND _fk_closed AND _fk_paired IS NULL"
    found = found.withColumn(_LIVES, F.expr(f"COALESCE({stands}, FALSE)"))
    found = found.selectExpr("*", *k.no_row(spec, k.other(side)))
    if heard is not None:
        found = found.join(heard, names, "left")
    told = "" if heard is None else _HEARD
    return _acted(found, result, spec, f"NOT ({is_pair(spec)})", LEFT_ALONE, MATCHED, by=side, told=told)


def _acted(
    found: DataFrame,
    result: DataFrame | None,
    spec: WindowSpec,
    among: str,
    written: str,
    removed: str,
    by: Side | None = None,
    told: str = "",
) -> DataFrame:
    """Adds `_fk_action` to rows with `_fk_lives`: the difference to the row that the result has.

    Where `told`, SQL (BOOLEAN), is not true, the result stays as it is.
    """
    keys = k.parts(spec, *SIDES) if by is None else k.parts(spec, by)
    hashes = [s.LEFT_HASH, s.RIGHT_HASH]
    if result is None:
        found = found.withColumns({_THERE: F.lit(False), _CHANGED: F.lit(True)})
    else:
        kept = [F.col(name).alias(f"{name}_there") for name in hashes]
        there = result.where(among).select(*map(quote, keys), *kept, F.lit(True).alias(_THERE))
        there = there.where(f"{quote(keys[0])} IS NOT NULL")
        found = found.join(there, keys, "left").withColumn(_THERE, F.coalesce(_THERE, F.lit(False)))
        differ = " OR ".join(f"NOT ({name} <=> {name}_there)" for name in hashes)
        found = found.withColumn(_CHANGED, F.expr(f"NOT {_THERE} OR {differ}"))
    if told:
        found = found.withColumn("_fk_told", F.expr(f"COALESCE({told}, FALSE)"))
        lives = F.when(F.col("_fk_told"), F.col(_LIVES)).otherwise(F.col(_THERE))
        found = found.withColumns({_LIVES: lives, _CHANGED: F.col(_CHANGED) & F.col("_fk_told")})
    action = (
        F.when(F.col(_LIVES) & F.col(_CHANGED), written).when(~F.col(_LIVES) & F.col(_THERE), removed).otherwise(_SAME)
    )
    return found.select(*map(quote, k.parts(spec, *SIDES)), *hashes, s.BATCH, _LIVES, _THERE, action.alias(ACTION))


def paired_keys(side: Side, decided: DataFrame, result: DataFrame | None, spec: WindowSpec) -> DataFrame:
    """Returns the keys of a side that have a pair in the result as it will be, distinct.

    Args:
        side: the side.
        decided: what `decide_pairs` returns.
        result: the result, or at least its rows with keys in question; None if it has none.
        spec: the pipeline.
    """
    names = [*map(quote, k.parts(spec, side))]
    found = decided.where(_LIVES).select(*names)
    if result is not None:
        both = k.parts(spec, *SIDES)
        others = (
            result.where(is_pair(spec))
            .select(*map(quote, both))
            .join(decided.select(*map(quote, both)), both, "left_anti")
        )
        found = found.unionByName(others.select(*names))
    return found.distinct()


def rows_changed(decided: DataFrame, rows: Mapping[Side, DataFrame], spec: WindowSpec) -> DataFrame:
    """Returns the rows to write: those whose `_fk_action` changes the result, with `_fk_deleted` and selected columns.

    Args:
        decided: what `decide_pairs` and `decide_alone` return.
        rows: per side the living rows, or at least those of the decisions.
        spec: the pipeline.
    """
    joined, keep = _with_rows(decided, rows, spec)
    gone = F.col(s.DELETED)
    outputs = with_names(joined, spec, keep)
    return outputs.select(*map(quote, keep), *[F.when(~gone, F.expr(o.sql)).alias(o.name) for o in spec.outputs])


def _with_rows(decided: DataFrame, rows: Mapping[Side, DataFrame], spec: WindowSpec) -> tuple[DataFrame, list[str]]:
    """Returns the decisions that change the result with both rows, and the names of the columns besides these."""
    changing = decided.where(F.col(ACTION) != _SAME).withColumns(
        {s.DELETED: F.col(ACTION).isin(PARTED, MATCHED), s.CHANGED_AT: F.current_timestamp()}
    )
    for side in SIDES:
        row = rows[side].select(*map(quote, k.parts(spec, side)), side)
        changing = changing.join(row, k.parts(spec, side), "left")
    keep = [*k.parts(spec, *SIDES), s.LEFT_HASH, s.RIGHT_HASH, s.BATCH, s.CHANGED_AT, s.DELETED, ACTION]
    return changing, keep


def failing(decided: DataFrame, rows: Mapping[Side, DataFrame], spec: WindowSpec) -> DataFrame:
    """Returns the living rows of decisions on which a selected expression fails: both keys, reason and rows as JSON."""
    for side in SIDES:  # what stays is not computed
        decided = decided.where(f"{quote(k.parts(spec, side)[0])} IS NULL OR {k.HASH_OF[side]} IS NOT NULL")
    joined, _ = _with_rows(decided.where(_LIVES).withColumn(ACTION, F.lit(PAIRED)), rows, spec)
    keys = [*k.parts(spec, *SIDES), s.BATCH]
    named = with_names(
        joined.withColumn(PAIR_AS_JSON, F.to_json(F.struct("left", "right"))), spec, [*keys, PAIR_AS_JSON]
    )
    reason = ISOLATING.reason(("TRUE", o.sql, "select") for o in spec.outputs if not o.plain)
    return named.select(*map(quote, keys), PAIR_AS_JSON, F.expr(reason).alias(FAILED)).where(f"{FAILED} IS NOT NULL")


def refused(decided: DataFrame, failed: DataFrame, removed: str, spec: WindowSpec) -> DataFrame:
    """Changes the decisions about rows on which an expression fails: such a row is not in the result.

    Args:
        decided: what `decide_pairs` or `decide_alone` returns.
        failed: the rows of it that fail, as `failing` returns them.
        removed: the action by which the result loses a row of these decisions.
        spec: the pipeline.
    """
    both = k.parts(spec, *SIDES)
    marks = failed.select(*map(quote, both), F.lit(True).alias("_fk_fails"))
    found = join_by_key(decided, marks, both, "left", nullable=True)
    fails = F.coalesce("_fk_fails", F.lit(False))
    action = F.when(fails, F.when(F.col(_THERE), removed).otherwise(_SAME)).otherwise(F.col(ACTION))
    return found.withColumns({_LIVES: F.col(_LIVES) & ~fails, ACTION: action}).drop("_fk_fails")


def quarantined_keys(records: DataFrame, spec: WindowSpec) -> DataFrame:
    """Returns the keys of the pairs of rows that records of the quarantine are about, with `_fk_batch`."""
    names = {side: partial(k.part, side) for side in SIDES}
    return records.select(*keys_of_pairs(spec, names), s.BATCH)


def union(parts: Iterable[DataFrame]) -> DataFrame:
    """Returns the rows of some frames with the same columns."""
    return reduce(DataFrame.unionByName, parts)


def result_columns(spec: WindowSpec) -> list[str]:
    """Returns the columns of the result that decisions need."""
    return [*k.parts(spec, *SIDES), s.LEFT_HASH, s.RIGHT_HASH]
