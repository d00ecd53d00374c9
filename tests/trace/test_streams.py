"""The Spark stages against Kafka's joins of streams: the same rows after every event, or the reason why not."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.trace.cases import AnyStreamCase, StreamCase
from fk_pipeline.trace.streams import CORRECTED, DIED, WAITED, trace
from tests.kafka_cases import joins_of_streams

pytestmark = pytest.mark.spark


def emitted(steps: list[dict[str, Any]]) -> list[list[tuple[Any, Any]]]:
    """What each step emits, without timestamps."""
    return [[(one["key"], one["value"]) for one in step["emits"]] for step in steps]


def compare(cases: list[AnyStreamCase], session: SparkSession) -> None:
    computed = trace(cases, session)
    for case in cases:
        assert emitted(computed[case.name]["steps"]) == emitted(case.expected["steps"]), case.name


def plain(length: int) -> list[AnyStreamCase]:
    """The cases of a table without versions that have at most so many events."""
    found = [c for c in joins_of_streams() if not (isinstance(c, StreamCase) and c.right_versioned)]
    names: dict[str, AnyStreamCase] = {}
    for case in found:
        if len(case.events) <= length:
            names[f"{case.family} {case.name}"] = case.model_copy(update={"name": f"{case.family} {case.name}"})
    return [*names.values()]


@pytest.mark.slow  # a minute: a run per event
def test_one_event_per_batch_gives_what_kafka_emits(spark: SparkSession) -> None:
    short = plain(11)
    assert {(case.family, case.join) for case in short} == {
        (family, join) for family in ("stream-table", "stream-global-table") for join in ("inner", "left")
    }
    compare(short, spark)


@pytest.mark.slow
def test_one_event_per_batch_gives_what_kafka_emits_in_every_recorded_case(spark: SparkSession) -> None:
    compare(plain(40), spark)


VERSIONED = {
    "family": "stream-table",
    "name": "late",
    "join": "left",
    "right_versioned": True,
    "events": [
        {"side": "left", "key": "k", "value": "A", "ts": 5},
        {"side": "right", "key": "k", "value": "late", "ts": 4},
        {"side": "left", "key": "k", "value": "B", "ts": 6},
        {"side": "left", "key": None, "value": "C", "ts": 7},
    ],
}


@pytest.mark.slow  # what Kafka does: kinds/foreign_key/kafka
def test_every_difference_from_kafka_s_versioned_table_has_its_reason(spark: SparkSession) -> None:
    cases = [StreamCase.model_validate(case) for case in (VERSIONED, VERSIONED | {"name": "grace", "grace_ms": 2})]
    computed = trace(cases, spark)
    late = computed["late"]["steps"]
    none, found = {"left": "A", "right": None}, {"left": "A", "right": "late"}
    assert emitted(late)[:2] == [[("k", none)], [("k", found)]]
    assert [step.get("differs") for step in late] == [None, [CORRECTED], None, None]
    assert computed["late"]["final"]["result"][0] == {"key": "k", "value": found}
    assert [step.get("differs") for step in computed["grace"]["steps"]] == [[WAITED], [CORRECTED], [WAITED], [DIED]]
