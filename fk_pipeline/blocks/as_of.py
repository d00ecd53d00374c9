"""Versions in time: how long each version of a key holds, and the version that held at a time (the as-of join).

A version is a row (key, `_fk_valid_from`). It holds until the next version of its key begins; the deletion of a key is
a version too, with `_fk_deleted`. A row without a hash is a version that was withdrawn: it does not exist any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.blocks.versions import order_of
from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

VALID_TO = "_fk_valid_to"
"""Column: the time from which a version does not hold any more; null while it holds."""

CLOSED = "X''"
"""SQL (BINARY): the value in place of a hash for the closed times of a key, whose versions are left out (`history`).
Such a row has no `_fk_valid_from`: it holds from the beginning."""


def is_closed(hash_column: str) -> str:
    """SQL (BOOLEAN): the hash is that of closed times."""
    return f"COALESCE({hash_column} = {CLOSED}, FALSE)"


def held(
    versions: DataFrame, keys: Sequence[str], truncates: Sequence[int] = (), horizon: str | None = None
) -> DataFrame:
    """Returns the versions that exist, with `_fk_valid_to`: at each time at most one version of a key holds.

    Args:
        versions: all versions of some keys.
        keys: the key columns, without the time.
        truncates: the times from which no earlier version of any key holds; ascending.
        horizon: SQL, a time: versions that ended by then do not answer; per key, one row with the hash `CLOSED` holds
            instead, from the beginning, until the first version that does. None: all versions answer.
    """
    following = f"LEAD({s.VALID_FROM}) OVER (PARTITION BY {', '.join(map(quote, keys))} ORDER BY {s.VALID_FROM})"
    rows = versions.where(f"{s.HASH} IS NOT NULL").withColumn(VALID_TO, F.expr(_until(following, truncates)))
    if horizon is None:
        return rows
    twice = f"EXPLODE(IF({s.VALID_FROM} <= {horizon}, ARRAY(FALSE, TRUE), ARRAY(FALSE)))"
    rows = rows.where(f"{VALID_TO} IS NULL OR {VALID_TO} > {horizon}").selectExpr("*", f"{twice} AS _fk_before")
    instead = {s.HASH: CLOSED, VALID_TO: s.VALID_FROM}
    others = [name for name in rows.columns if name not in ("_fk_before", *keys)]
    both = [f"IF(_fk_before, {instead.get(name, 'NULL')}, {quote(name)}) AS {quote(name)}" for name in others]
    return rows.selectExpr(*map(quote, keys), *both)


def reach(
    versions: DataFrame,
    keys: Sequence[str],
    changed: str,
    truncates: Sequence[int] = (),
    horizon: str | None = None,
    *,
    before: bool,
) -> DataFrame:
    """Returns the times that a changed version reaches beyond those at which it holds now.

    A version that was withdrawn does not hold any more, but did until the next version begins. A version also ends the
    validity of the one before it. No change reaches closed times; the withdrawal of the version that had closed those
    before it opens them.

    Args:
        versions: all versions of some keys.
        keys: the key columns, without the time.
        changed: SQL (BOOLEAN) over a version: it changed.
        truncates: as of `held`.
        horizon: as of `held`.
        before: whether the end of the version before counts: then the times of that version are reached too.

    Returns:
        Changed versions, with other times in `_fk_valid_from` (null: from the beginning) and `_fk_valid_to`.
    """
    existing, by = f"IF({s.HASH} IS NULL, NULL, {s.VALID_FROM})", f"PARTITION BY {', '.join(map(quote, keys))}"
    others = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    following = f"MIN({existing}) OVER ({by} ORDER BY {s.VALID_FROM} DESC {others})"
    rows = versions.withColumn(VALID_TO, F.expr(_until(following, truncates)))
    if not before:
        changed = f"{s.HASH} IS NULL AND {changed}"
        if horizon is None:
            return rows.where(changed)
    previous = f"MAX({existing}) OVER ({by} ORDER BY {s.VALID_FROM} {others})"
    since = f"COALESCE({previous}, {s.VALID_FROM})" if before else s.VALID_FROM
    if horizon is not None:
        opened = f"IF({s.HASH} IS NULL, {previous}, {s.VALID_FROM})"
        since = f"IF({s.VALID_FROM} <= {horizon}, {opened}, {since})"
        changed = f"({VALID_TO} IS NULL OR {VALID_TO} > {horizon}) AND {changed}"
    return (
        rows.withColumn("_fk_since", F.expr(since))
        .where(changed)
        .drop(s.VALID_FROM)
        .withColumnRenamed("_fk_since", s.VALID_FROM)
    )


def _until(following: str, truncates: Sequence[int]) -> str:
    """SQL: the end of validity, from SQL of the beginning of the next version of the key."""
    if not truncates:
        return following
    later = f"FILTER(ARRAY({', '.join(map(str, truncates))}), _at -> _at > {s.VALID_FROM})"
    return f"LEAST({following}, GET({later}, 0))"


def during(rows: DataFrame, versions: DataFrame, keys: Mapping[str, str], time: str, how: str) -> DataFrame:
    """Returns rows joined to the version of their key that held at their time.

    Args:
        rows: the rows.
        versions: versions with `_fk_valid_from` (null: from the beginning) and `_fk_valid_to`; no other column is one
            of the rows.
        keys: per key column of the versions, the column of the rows.
        time: the column of the rows with the time; a row without a time has no version.
        how: as `DataFrame.join` takes it.

    Returns:
        The columns of the rows, and those of the versions except key and times.
    """
    named = {key: f"_fk_of_{i}" for i, key in enumerate(keys)}
    others = [name for name in versions.columns if name not in keys]
    versions = versions.select(*[F.col(quote(key)).alias(name) for key, name in named.items()], *map(quote, others))
    on = [f"{quote(keys[key])} = {name}" for key, name in named.items()]
    on.append(f"{quote(time)} IS NOT NULL AND ({s.VALID_FROM} IS NULL OR {s.VALID_FROM} <= {quote(time)})")
    on.append(f"({VALID_TO} IS NULL OR {quote(time)} < {VALID_TO})")
    return rows.join(versions, F.expr(" AND ".join(on)), how).drop(*named.values(), s.VALID_FROM, VALID_TO)


def removable(state: DataFrame, keys: Sequence[str], horizon: str, settled: str) -> DataFrame:
    """Returns the versions that ended by a horizon and cannot hold again: `keys` and `_fk_valid_from`.

    Neither they nor the versions that ended them can be withdrawn any more, except by a truncate. It would take both:
    what ended a version is the later writer.

    Args:
        state: all versions.
        keys: the key columns, without the time.
        horizon: SQL, a time.
        settled: SQL (BOOLEAN) over a version: its batches are folded.
    """
    rows = state.where(f"{s.HASH} IS NOT NULL AND {s.VALID_FROM} <= {horizon} AND {settled}")
    later = f"PARTITION BY {', '.join(map(quote, keys))} ORDER BY {s.VALID_FROM}"
    order = order_of(s.SEQUENCE, s.OWNER)
    ended = f"MAX({order}) OVER ({later} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) > {order}"
    return rows.withColumn("_fk_ended", F.expr(ended)).where("_fk_ended").select(*map(quote, keys), s.VALID_FROM)


def newest_version(state: DataFrame, timestamps: bool) -> int | None:
    """Returns when the newest version begins, timestamps in microseconds since 1970; None if there is none.

    Args:
        state: all versions.
        timestamps: whether their times are timestamps.
    """
    newest = f"UNIX_MICROS(MAX({s.VALID_FROM}))" if timestamps else f"MAX({s.VALID_FROM})"
    [[at]] = state.where(f"{s.HASH} IS NOT NULL").selectExpr(newest).collect()
    return None if at is None else int(at)
