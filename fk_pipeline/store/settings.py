"""Spark settings for the length of one piece of work. They change how Spark computes, never what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fk_pipeline.store.skipping import LISTED

SMALL_ROWS = 200_000
"""Rows of all tables that a stage reads and writes, up to which `SMALL` is the quicker way (ADR 0005)."""

MANY_ROWS = 200_000
"""Rows of the result that a batch concerns, above which `FEW` partitions are too few."""

SMALL_BYTES = 8_000_000
"""Landing files up to which `SMALL` is the quicker way."""

FEW_BYTES = 1_000_000
"""Compressed landing files up to which `SMALL` is the quicker way, and their rows are brought to the driver:
`materialised.SMALL` of 40 bytes each."""

ROWS_PER_PAGE = 2_000
"""Of the Parquet files that we write; pages are what a look-up of single keys reads. Parquet's own size is 20,000."""

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

ALWAYS = {
    "spark.sql.parquet.pushdown.inFilterThreshold": str(LISTED),
    "spark.sql.variable.substitute": "false",
}
"""Let Parquet skip the pages that have none of the listed keys (Spark's own limit is ten). Take `${...}` in the name of
a column as it is written: Spark would put a variable there, of the environment for example."""

WRITING = {"parquet.page.row.count.limit": str(ROWS_PER_PAGE)}
"""Write small pages."""

HELD_BYTES = 64 * 2**20
"""Of a right table of about a million rows. Up to it Spark may hold that table in memory rather than sort the left one.
Its own limit is ten megabytes."""

SPLIT = {"spark.sql.files.maxPartitionBytes": "32m"}
"""For many rows: tasks small enough for all cores to be busy until the end. Spark's own are of 128 megabytes."""

WHOLE = {"spark.sql.files.maxPartitionBytes": "1g"}
"""For a scan whose condition names many keys: few tasks for every core, as each unpacks all of them (ADR 0020)."""

HOLDING = {"spark.sql.autoBroadcastJoinThreshold": f"{HELD_BYTES}b"}
"""For many rows of the result: hold the right table, and let Spark choose the rest."""

GUARDED = {"spark.sql.subexpressionElimination.enabled": "false"}
"""Evaluate an expression where it stands and nowhere else, as `spec.failing.fails` needs it."""


def suiting(rows: int, few_of_them: bool = False) -> dict[str, str]:
    """What suits a look at tables of so many rows, or at few of their rows."""
    return ALWAYS | (SMALL if rows <= SMALL_ROWS else FEW if few_of_them else {})


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
