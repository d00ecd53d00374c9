"""Spark settings for the length of one piece of work. They change how Spark computes, never what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fk_pipeline.store.sizes import MEASURED, Sizes

FEW = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""For few changes of large tables: their plans are clear from the start."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For few rows: compiling a plan takes longer than interpreting it."""

SMALL = {
    **FEW,
    **INTERPRETED,
    "spark.databricks.delta.merge.deletionVectors.persistent": "false",
    "spark.databricks.delta.delete.deletionVectors.persistent": "false",
}
"""Interpret the plan as it is, and write files anew: marking rows takes longer than that."""

ONE_PARTITION = {"spark.sql.shuffle.partitions": "1"}
"""For so few rows that one task shuffles them as fast as two."""

ONE_TASK = {
    **ONE_PARTITION,
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.openCostInBytes": "1",
}
"""For many small frames in one job: starting a task takes longer than what it does."""

SPLIT = {"spark.sql.files.maxPartitionBytes": "32m"}
"""For many rows: tasks small enough for all cores to be busy until the end. Spark's own are of 128 megabytes."""

WHOLE = {"spark.sql.files.maxPartitionBytes": "1g"}
"""For a scan whose condition names many keys: few tasks for every core, as each unpacks all of them (ADR 0020)."""

GUARDED = {"spark.sql.subexpressionElimination.enabled": "false"}
"""Evaluate an expression where it stands and nowhere else, as `spec.failing.fails` needs it."""


def always(sizes: Sizes) -> dict[str, str]:
    """Let Parquet skip the pages that have none of the listed keys: Spark's own limit is ten.

    And take `${...}` in the name of a column as it is written: Spark would put a variable there, of the environment for
    example.
    """
    return {
        "spark.sql.parquet.pushdown.inFilterThreshold": str(sizes.listed_keys),
        "spark.sql.variable.substitute": "false",
    }


def page_settings(sizes: Sizes) -> dict[str, str]:
    """Write small pages."""
    return {"parquet.page.row.count.limit": str(sizes.rows_per_page)}


def holding(sizes: Sizes) -> dict[str, str]:
    """For many rows of the result: hold the right table in memory, and let Spark choose the rest."""
    return {"spark.sql.autoBroadcastJoinThreshold": str(sizes.broadcast_bytes)}


def suiting(rows: int, sizes: Sizes = MEASURED, few_of_them: bool = False) -> dict[str, str]:
    """What suits a look at tables of so many rows, or at few of their rows."""
    return always(sizes) | (SMALL if rows <= sizes.small_rows else FEW if few_of_them else {})


_lock = Lock()
_held: dict[tuple[int, str], tuple[str | None, dict[object, str]]] = {}
"""Per session and setting: what it was before the first piece of work that holds it, and the values of all that do,
in their order."""


@contextmanager
def settings(session: SparkSession, wanted: Mapping[str, str], *, optional: bool = False) -> Iterator[None]:
    """Sets them, and puts them back when the last piece of work of this session that holds them is done.

    Of several values of one setting the one that was set last holds.

    One that the session refuses is an error, or left out if they are optional.
    """
    with ExitStack() as stack:
        for name, value in wanted.items():
            try:
                stack.enter_context(_setting(session, name, value))
            except PySparkException:
                if not optional:
                    raise
        yield


@contextmanager
def _setting(session: SparkSession, name: str, value: str) -> Iterator[None]:
    place, me = (id(session), name), object()
    with _lock:
        before, values = _held.get(place) or (session.conf.get(name, None), {})
        if value != _last(values):
            session.conf.set(name, value)
        values[me] = value
        _held[place] = before, values
    try:
        yield
    finally:
        with _lock:
            was = _last(values)
            del values[me]
            now = _last(values)
            if not values:
                del _held[place]
                if before is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, before)
            elif now is not None and now != was:
                session.conf.set(name, now)


def _last(values: dict[object, str]) -> str | None:
    return next(reversed(values.values()), None)
