"""The horizon of a pipeline that does not keep everything: as text, and where each kind puts it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from fk_pipeline.blocks.horizon import horizon_at, is_later, sql_of, ticks_of
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.closing import EndedVersions
from fk_pipeline.kinds.window.closing import OldEvents
from fk_pipeline.store import schemas as s

NOW = datetime(2026, 5, 1, tzinfo=UTC)
MAY = 1_777_593_600_000_000
"""Microseconds from 1970 to May 2026."""


@pytest.mark.parametrize(
    ("ticks", "timestamps", "text", "sql"),
    [
        (-3, False, "-3", "-3L"),
        (MAY, True, "2026-05-01T00:00:00.000000Z", "TIMESTAMP'2026-05-01T00:00:00.000000Z'"),
        (-62_135_596_800_000_000, True, "0001-01-01T00:00:00.000000Z", "TIMESTAMP'0001-01-01T00:00:00.000000Z'"),
        (-(2**63), False, f"-{2**63}", f"-{2**63}L"),
    ],
)
def test_a_horizon_is_a_text_and_sql(ticks: int, timestamps: bool, text: str, sql: str) -> None:
    assert horizon_at(ticks, timestamps) == text
    assert sql_of(text) == sql
    assert ticks_of(text) == ticks
    assert is_later(text, None)
    assert not is_later(text, text)


@pytest.mark.parametrize(("ticks", "timestamps"), [(-62_135_596_800_000_001, True), (-(2**63) - 1, False)])
def test_nothing_lies_behind_what_cannot_be_told(ticks: int, timestamps: bool) -> None:
    assert horizon_at(ticks, timestamps) is None


def test_a_horizon_lies_behind_another_by_its_time() -> None:
    assert is_later("10", "9")
    assert not is_later("-10", "-9")
    assert is_later(str(horizon_at(MAY, True)), horizon_at(MAY - 1, True))
    assert sql_of(None) is None


def rows(spark: SparkSession, column: str, *times: str) -> DataFrame:
    """Rows with a time, as SQL, each; one that begins with a tilde has no hash."""
    parts = [f"SELECT {t.lstrip('~')} AS {column}, {'NULL' if t[0] == '~' else repr('h')} AS {s.HASH}" for t in times]
    return spark.sql(" UNION ALL ".join(parts))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("history", "times", "wanted"),
    [
        (30, ["70L", "~90L"], "40"),
        (30, ["~90L"], None),
        ("31 days", ["TIMESTAMP'2026-04-01 00:00:00Z'"], "2026-03-01T00:00:00.000000Z"),
        ("30 days", ["TIMESTAMP'9998-01-01 00:00:00Z'"], "2026-04-01T00:00:00.000000Z"),
        ("999999 days", ["TIMESTAMP'2026-04-01 00:00:00Z'"], None),
        ("30 days", ["TIMESTAMP'-0044-03-15 00:00:00Z'"], None),
        (10, [f"{9 - 2**63}L"], None),
    ],
)
def test_history_begins_so_long_before_the_newest_version_and_not_in_the_future(
    spark: SparkSession, history: Any, times: list[str], wanted: str | None
) -> None:
    spec: Any = SimpleNamespace(history=history)
    closing = EndedVersions(spec)
    assert closing.horizon({Side.RIGHT: rows(spark, s.VALID_FROM, *times)}, NOW) == wanted


@pytest.mark.spark
@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        (["5000L"], ["7000L", "~9000L"], "4000"),
        (["~5000L"], ["~7000L"], None),
        (["TIMESTAMP'2026-04-01 00:00:03Z'"], ["TIMESTAMP'2026-04-01 00:00:02Z'"], "2026-04-01T00:00:00.000000Z"),
        (["TIMESTAMP'9998-01-01 00:00:00Z'"], ["~TIMESTAMP'2026-04-01 00:00:02Z'"], "2026-04-30T23:59:57.000000Z"),
        ([f"{10**15}L"], ["0L"], str(MAY // 1000 - 3000)),
    ],
)
def test_retention_begins_so_long_before_the_newest_event_of_both_sides_and_not_in_the_future(
    spark: SparkSession, left: list[str], right: list[str], wanted: str | None
) -> None:
    spec: Any = SimpleNamespace(
        retention="3 seconds", before=timedelta(0), after=timedelta(seconds=1), grace="0 seconds", single_store=False
    )
    closing = OldEvents(spec)
    states = {Side.LEFT: rows(spark, "_fk_time", *left), Side.RIGHT: rows(spark, "_fk_time", *right)}
    assert closing.horizon(states, NOW) == wanted
