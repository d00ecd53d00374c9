"""The Spark stages against Kafka's joins of two streams: the same rows after every event, or the reason why not."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.trace.cases import AnyWindowCase
from fk_pipeline.trace.windows import DROPPED, LATER, NOT_CORRECTED, TOO_EARLY, trace
from tests.kafka_cases import joins_of_two_streams

pytestmark = pytest.mark.spark


def counted(step: dict[str, Any]) -> Counter[str]:
    return Counter(json.dumps([row["key"], row["value"]], sort_keys=True) for row in step["emits"])


def reasons(cases: list[AnyWindowCase], session: SparkSession) -> set[str]:
    """Compares every step with what was recorded of Kafka; returns the reasons of differences."""
    found: set[str] = set()
    for name, computed in trace(cases, session).items():
        [case] = [one for one in cases if one.name == name]
        for number, (ours, kafka) in enumerate(zip(computed["steps"], case.expected["steps"], strict=True)):
            differs = ours.get("differs", [])
            assert (counted(ours) == counted(kafka)) is not bool(differs), f"{name}, event {number}"
            found |= {*differs}
    return found


def named(*names: str) -> list[AnyWindowCase]:
    return [case for case in joins_of_two_streams() if case.name in names]


@pytest.mark.slow
def test_every_step_is_that_of_kafka_or_says_why_it_is_not(spark: SparkSession) -> None:
    cases = named("release-before-match-outer", "eager-grace-period-left")
    assert len(cases) == 2
    assert reasons(cases, spark) == {DROPPED, NOT_CORRECTED, TOO_EARLY}


@pytest.mark.slow  # a run per event
def test_recorded_cases_with_late_records_and_self_joins(spark: SparkSession) -> None:
    cases = named("random-05-outer", "before-only-outer", "after-negative-outer", "null-key-inner-optimized")
    assert len(cases) == 4
    assert reasons(cases, spark) == {DROPPED, LATER, NOT_CORRECTED, TOO_EARLY}
