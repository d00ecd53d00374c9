"""Stage `aggregated`: the rows of touched groups, computed anew, beside those that the result has."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.frames import join_by_key
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.aggregate import tables as k
from fk_pipeline.kinds.aggregate.kind import AT, GROUP, MEMBERS, REMOVED, START, WINDOW_END, WINDOW_START, WRITTEN, by
from fk_pipeline.kinds.aggregate.spec import AggregateSpec
from fk_pipeline.kinds.aggregate.windows import Windows
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

DECISION = "_fk_decision"
"""Column: what becomes of a row of the result, `written` or `removed`."""

_NUMBER = "_fk_window"
_THERE, _NOW = "_fk_there", "_fk_now"


def placed(rows: DataFrame, windows: Windows | None) -> DataFrame:
    """Returns the living rows of the store, once per window in which each counts, with `_fk_window_start`."""
    return spread(rows.where(f"{s.HASH} IS NOT NULL"), windows)


def spread(rows: DataFrame, windows: Windows | None) -> DataFrame:
    """Returns rows once per window in which each counts, with `_fk_window_start`; one without a time counts in none."""
    if windows is None:
        return rows
    numbered = rows.where(f"{AT} IS NOT NULL").withColumn(_NUMBER, F.explode(F.expr(windows.numbers(AT))))
    return numbered.withColumn(START, F.expr(windows.key(_NUMBER)))


def outputs_of(
    rows: DataFrame,
    spec: AggregateSpec,
    windows: Windows | None,
    wanted: DataFrame | None = None,
    batches: BatchRange | None = None,
) -> DataFrame:
    """Returns the rows of the result that groups of the store make: all, or those with some keys.

    Args:
        rows: all rows of the store, or at least those of the groups.
        spec: the pipeline.
        windows: its windows.
        wanted: the keys of the groups; None: all.
        batches: as `groups_of` takes it.

    Returns:
        One row per group that has rows and that `having` lets through: its key, `_fk_group`, `_fk_rows`, `_fk_hash`
        (of its members, in any order) and the columns of the result.
    """
    named = groups_of(rows, spec, windows, wanted, batches)
    if spec.having is not None:
        named = named.where(spec.having)
    kept = [*k.group_key(spec), GROUP, MEMBERS, s.HASH, *([] if batches is None else [s.BATCH])]
    return named.select(*map(quote, kept), *[F.expr(o.sql).alias(o.name) for o in spec.outputs])


def groups_of(
    rows: DataFrame,
    spec: AggregateSpec,
    windows: Windows | None,
    wanted: DataFrame | None = None,
    batches: BatchRange | None = None,
) -> DataFrame:
    """Returns groups of rows of the store, with the columns that `having` and `select` name.

    Args:
        rows: all rows of the store, or at least those of the groups.
        spec: the pipeline.
        windows: its windows.
        wanted: the keys of the groups; None: all.
        batches: if given, `_fk_batch` is added: the last of these batches that changed a row of the group, else the
            last of them.

    Returns:
        One row per group that has rows: its key, `_fk_group`, `_fk_rows`, `_fk_hash` and these columns.
    """
    members = placed(rows, windows)
    if wanted is not None:
        members = join_by_key(members, F.broadcast(wanted), k.group_key(spec), "left_semi", nullable=True)
    grouped_by = [GROUP, *([] if windows is None else [_NUMBER]), *k.by_columns(spec)]
    row = ", ".join([*map(quote, k.input_key(spec)), s.HASH])
    hashes = [F.expr(f"BIT_XOR(XXHASH64({seed}, {row}))").alias(f"_fk_hash_{seed}") for seed in (0, 1)]
    measures = [F.expr(one.text).alias(str(one.name)) for one in spec.measures]
    changed = [] if batches is None else [F.expr(_last_of(batches)).alias(s.BATCH)]
    groups = members.groupBy(*map(quote, grouped_by)).agg(
        F.count(F.lit(1)).alias(MEMBERS), *hashes, *measures, *changed
    )
    if windows is not None:
        of_window = {START: windows.key, WINDOW_START: windows.start, WINDOW_END: windows.end}
        groups = groups.withColumns({name: F.expr(sql(_NUMBER)) for name, sql in of_window.items()})
    named = groups.withColumns({name: F.col(quote(by(name))) for name in spec.group_names})
    return named.withColumn(s.HASH, F.expr(f"UNHEX(CONCAT({_hex('_fk_hash_0')}, {_hex('_fk_hash_1')}))"))


def _last_of(batches: BatchRange) -> str:
    """SQL aggregate: the last batch of a range that changed a row of a group, else the last of the range."""
    return f"COALESCE(MAX(IF({batches.predicate(s.APPLIED_IN)}, {s.APPLIED_IN}, NULL)), {int(batches.last)})"


def _hex(column: str) -> str:
    return f"LPAD(HEX({column}), 16, '0')"


def changes(groups: DataFrame, there: DataFrame | None, spec: AggregateSpec, last: int) -> DataFrame:
    """Returns the rows by which the result must change.

    Args:
        groups: groups as they are now, with `_fk_batch`; a group without `_fk_rows` has none.
        there: the rows of the result with their keys, or all; None if it has none.
        spec: the pipeline.
        last: the batch of a row that is removed because no group has its key.

    Returns:
        The columns of the result, `_fk_decision` (written, removed) and `_fk_deleted`.
    """
    keys = k.group_key(spec)
    now = groups.withColumn(_NOW, F.col(MEMBERS).isNotNull())
    if there is None:
        both = now.withColumn(_THERE, F.lit(False))
        differs = F.lit(True)
    else:
        kept = there.selectExpr(
            *map(quote, keys), f"{MEMBERS} AS _fk_had", f"{s.HASH} AS _fk_had_hash", f"TRUE AS {_THERE}"
        )
        both = join_by_key(now, kept, keys, "full", nullable=True)
        both = both.withColumns({_THERE: F.coalesce(_THERE, F.lit(False)), _NOW: F.coalesce(_NOW, F.lit(False))})
        differs = F.expr(f"NOT ({MEMBERS} <=> _fk_had AND {s.HASH} <=> _fk_had_hash)")
    action = F.when(F.col(_NOW) & (~F.col(_THERE) | differs), WRITTEN).when(~F.col(_NOW) & F.col(_THERE), REMOVED)
    changed = both.withColumn(DECISION, action).where(f"{DECISION} IS NOT NULL")
    return changed.select(
        *map(quote, keys),
        GROUP,
        MEMBERS,
        s.HASH,
        F.coalesce(s.BATCH, F.lit(last)).cast("int").alias(s.BATCH),
        F.current_timestamp().alias(s.CHANGED_AT),
        *[F.col(quote(o.name)) for o in spec.outputs],
        DECISION,
        (F.col(DECISION) == REMOVED).alias(s.DELETED),
    )
