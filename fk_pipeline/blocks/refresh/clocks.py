"""The row of a clock at a version, for Spark and in the driver."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.spec import quote
from fk_pipeline.spec.clock import Clock
from fk_pipeline.spec.inputs import CLOCK

_KINDS = {"at": pa.timestamp("us", tz="UTC"), "day": pa.date32(), CLOCK: pa.bool_()}


def row_of_clock(session: SparkSession, place: str, version: int) -> DataFrame:
    """Returns the row of a clock.

    Args:
        session: the Spark session.
        place: the clock (`Clock.place`).
        version: the step that it is in.
    """
    day = Clock.at(place).day(version).isoformat()
    columns = {"at": f"TIMESTAMP_SECONDS({version})", "day": f"DATE'{day}'", CLOCK: "TRUE"}
    return session.range(1).selectExpr(*(f"{sql} AS {quote(name)}" for name, sql in columns.items()))


def clock_in_process(place: str, version: int, names: Sequence[str]) -> pa.Table:
    """Returns some columns of the row of a clock, in the driver; no row of a version before the first."""
    if version < 0:
        return pa.table({name: pa.array([], _KINDS[name]) for name in names})
    row = {"at": version * 1_000_000, "day": Clock.at(place).day(version), CLOCK: True}
    return pa.table({name: pa.array([row[name]], _KINDS[name]) for name in names})
