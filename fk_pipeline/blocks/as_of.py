"""Versions in time: how long each version of a key holds, and the version that held at a time (the as-of join).

A version is a row (key, `_fk_valid_from`). It holds until the next version of its key begins; the deletion of a key is
a version too, with `_fk_deleted`. A row without a hash is a version that was withdrawn: it does not exist any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fk_pipeline.spec import quote
from fk_pipeline.store import schemas as s

VALID_TO = "_fk_valid_to"
"""Column: the time from which a version does not hold any more; null while it holds."""


def held(versions: DataFrame, keys: Sequence[str], truncates: Sequence[int] = ()) -> DataFrame:
    """Returns the versions that exist, with `_fk_valid_to`: at each time at most one version of a key holds.

    Args:
        versions: all versions of some keys.
        keys: the key columns, without the time.
        truncates: the times from which no earlier version of any key holds; ascending.
    """
    following = f"LEAD({s.VALID_FROM}) OVER (PARTITION BY {', '.join(map(quote, keys))} ORDER BY {s.VALID_FROM})"
    return versions.where(f"{s.HASH} IS NOT NULL").withColumn(VALID_TO, F.expr(_until(following, truncates)))


def reach(
    versions: DataFrame, keys: Sequence[str], changed: str, truncates: Sequence[int] = (), *, before: bool
) -> DataFrame:
    """Returns the times that a changed version reaches beyond those at which it holds now.

    A version that was withdrawn does not hold any more, but did until the next version begins. A version also ends the
    validity of the one before it.

    Args:
        versions: all versions of some keys.
        keys: the key columns, without the time.
        changed: SQL (BOOLEAN) over a version: it changed.
        truncates: as of `held`.
        before: whether the end of the version before counts: then the times of that version are reached too.

    Returns:
        Changed versions, with other times in `_fk_valid_from` and `_fk_valid_to`.
    """
    there, by = f"IF({s.HASH} IS NULL, NULL, {s.VALID_FROM})", f"PARTITION BY {', '.join(map(quote, keys))}"
    others = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    following = f"MIN({there}) OVER ({by} ORDER BY {s.VALID_FROM} DESC {others})"
    rows = versions.withColumn(VALID_TO, F.expr(_until(following, truncates)))
    if not before:
        return rows.where(f"{s.HASH} IS NULL AND {changed}")
    previous = f"COALESCE(MAX({there}) OVER ({by} ORDER BY {s.VALID_FROM} {others}), {s.VALID_FROM})"
    return (
        rows.withColumn("_fk_since", F.expr(previous))
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
        versions: versions with `_fk_valid_from` and `_fk_valid_to`; they have no other column in common with the rows.
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
    on += [f"{s.VALID_FROM} <= {quote(time)}", f"({VALID_TO} IS NULL OR {quote(time)} < {VALID_TO})"]
    return rows.join(versions, F.expr(" AND ".join(on)), how).drop(*named.values(), s.VALID_FROM, VALID_TO)
