"""Spark settings for the duration of one piece of work. They change how Spark computes, never what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fk_pipeline.store.sizes import MEASURED, Sizes

FEW_PARTITIONS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""For few changes of large tables: their plans need no adaptation at run time."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For few rows: compiling a plan takes longer than interpreting it."""

SMALL = {
    **FEW_PARTITIONS,
    **INTERPRETED,
    "spark.databricks.delta.merge.deletionVectors.persistent": "false",
    "spark.databricks.delta.delete.deletionVectors.persistent": "false",
}
"""Interprets the plan without adapting it, and rewrites files: deletion vectors would take longer."""

MANY = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""Spark's own settings, which compile a plan and adapt it."""

ONE_PARTITION = {"spark.sql.shuffle.partitions": "1"}
"""For so few rows that one task shuffles them as quickly as two."""

ONE_TASK = {
    **ONE_PARTITION,
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.openCostInBytes": "1",
}
"""For many small frames in one job: starting a task takes longer than its work."""

SPLIT = {"spark.sql.files.maxPartitionBytes": "32m"}
"""For many rows: tasks small enough to keep all cores busy until the end. Spark's own tasks read 128 megabytes."""

WHOLE = {"spark.sql.files.maxPartitionBytes": "1g"}
"""For a scan whose condition names many keys: few tasks per core, because each task unpacks all keys (ADR 0020)."""

RECORDED = {"spark.databricks.delta.skipRecordingEmptyCommits": "false"}
"""Makes Delta commit an append without rows, for the facts that the commit carries."""

GUARDED = {"spark.sql.subexpressionElimination.enabled": "false"}
"""Makes Spark evaluate an expression only where it is written, as `spec.failing.fails` requires."""


def always(sizes: Sizes) -> dict[str, str]:
    """Returns the settings that all work needs.

    Parquet skips the pages that have none of up to `listed_keys` keys: Spark's own limit is ten. And `${...}` in the
    name of a column is read as it is written: Spark would replace it by a variable, for example of the environment.
    """
    return {
        "spark.sql.parquet.pushdown.inFilterThreshold": str(sizes.listed_keys),
        "spark.sql.variable.substitute": "false",
    }


def file_settings(sizes: Sizes) -> dict[str, str]:
    """Returns the settings for the files that Spark writes.

    Small pages and row groups, which readers leave out, and timestamps that delta-rs reads exactly.
    """
    return {
        "parquet.block.row.count.limit": str(sizes.rows_per_group),
        "parquet.page.row.count.limit": str(sizes.rows_per_page),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }


def holding(sizes: Sizes) -> dict[str, str]:
    """Returns the setting for many rows of the result: Spark keeps the right table in memory, and chooses the rest."""
    return {"spark.sql.autoBroadcastJoinThreshold": str(sizes.broadcast_bytes)}


def suiting(rows: int, sizes: Sizes = MEASURED, few_of_them: bool = False) -> dict[str, str]:
    """Returns the settings for a query of tables with so many rows, or of few of their rows."""
    return always(sizes) | (SMALL if rows <= sizes.small_rows else FEW_PARTITIONS if few_of_them else {})


_lock = Lock()
_held: dict[tuple[int, str], tuple[str | None, dict[object, str]]] = {}
"""Per session and setting: the value before the first piece of work that set it, and the values of all work that has
set it, in order.
"""


@contextmanager
def settings(session: SparkSession, values: Mapping[str, str], *, optional: bool = False) -> Iterator[None]:
    """Sets some settings, and restores the old values when the last work of this session that set them ends.

    If several pieces of work set one setting, the value that was set last applies.

    A setting that the session refuses is an error; if the settings are `optional`, it is left out.
    """
    with ExitStack() as stack:
        for name, value in values.items():
            try:
                stack.enter_context(_setting(session, name, value))
            except PySparkException:
                if not optional:
                    raise
        yield


@contextmanager
def for_many(session: SparkSession) -> Iterator[None]:
    """Sets back what `SMALL` and `FEW_PARTITIONS` set, for the part of a piece of work that reads many rows."""
    name = "spark.sql.shuffle.partitions"
    with _lock:
        before, _ = _held.get((id(session), name), (session.conf.get(name, None), {}))
    with settings(session, MANY | ({} if before is None else {name: before}), optional=True):
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
