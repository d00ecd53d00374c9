"""The Spark stages against Kafka Streams: the same table after every event, the same messages except where designed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.kinds.foreign_key.kafka.instructions import (
    DELETE_KEY_AND_PROPAGATE,
    DELETE_KEY_NO_PROPAGATE,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,
)
from fk_pipeline.trace.cases import Case, Event
from fk_pipeline.trace.stages import trace
from tests.kafka_cases import joins, joins_by_key

pytestmark = pytest.mark.spark

STORE_QUIRKS = ("versioned-expired", "versioned-same-ts-tombstone")
"""Cases in which Kafka's versioned store does not do what last-writer-wins says (`docs/protocol.md`)."""

Messages = list[tuple[str | None, str]]


def tables(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The result as a table after every event."""
    table: dict[str, Any] = {}
    out = []
    for step in steps:
        for row in step["emits"]:
            table = {k: v for k, v in table.items() if k != row["key"]}
            if row["value"] is not None:
                table[row["key"]] = row["value"]
        out.append(table)
    return out


def designed(case: Case, kafka: list[Messages]) -> list[Messages]:
    """Kafka's messages per event with the differences that the documentation lists."""
    seen: dict[str, tuple[int, str]] = {}
    out = []
    for event, messages in zip(case.events, kafka, strict=True):
        out.append(_designed(case, event, messages, seen) if event.side == "left" else messages)
    return out


def _designed(case: Case, event: Event, messages: Messages, seen: dict[str, tuple[int, str]]) -> Messages:
    if event.key is None or (case.left_versioned and event.key in seen and event.ts < seen[event.key][0]):
        return messages  # of no key, or late: nothing on both sides
    before, content = seen.get(event.key), json.dumps(event.value)
    seen[event.key] = event.ts, content
    if before is None:
        return messages
    if before[1] == content:
        return []  # unchanged rows are silent
    foreign_key = event.value["fk"] if event.value else None
    if foreign_key is not None:  # every change asks for an answer
        return [*messages[:-1], (foreign_key, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)]
    left_a_key = messages[0][0] if messages else None
    if event.value is not None and left_a_key is None:
        return [(None, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)]
    return [(left_a_key, DELETE_KEY_AND_PROPAGATE)]  # one message unsubscribes and asks


def compare(cases: list[Case], session: SparkSession) -> int:
    """Asserts that the stages do what was recorded; returns how many events were compared."""
    computed = trace(cases, session)
    for case in cases:
        recorded, steps = case.expected["steps"], computed[case.name]["steps"]
        assert tables(steps) == tables(recorded), case.name
        final = {row["key"]: row["value"] for row in computed[case.name]["final"]["result"]}
        assert final == {row["key"]: row["value"] for row in case.expected["final"]["result"]}, case.name
        kafka = [[(m["fk"], m["instruction"]) for m in step["subscriptions"]] for step in recorded]
        sent = [[(m["fk"], m["instruction"]) for m in step["subscriptions"]] for step in steps]
        assert sent == designed(case, kafka), case.name
    return sum(len(case.events) for case in cases)


@pytest.mark.slow
def test_every_kind_of_left_change(spark: SparkSession) -> None:
    longest = {"inner": 3, "left": 4}  # an event is a batch; the longer ones are among `test_every_case`
    cases = [c for c in joins() if c.name.startswith("transition-") and len(c.events) <= longest[c.join]]
    assert {case.join for case in cases} == {"inner", "left"}
    assert compare(cases, spark) > 60


@pytest.mark.slow
def test_every_case(spark: SparkSession) -> None:
    cases = [case for case in joins() if not case.name.startswith(STORE_QUIRKS)]
    assert compare(cases, spark) > 3000


@pytest.mark.slow
def test_every_inner_and_left_join_by_key(spark: SparkSession) -> None:
    cases = [case for case in joins_by_key() if case.join != "outer"]
    computed = trace(cases, spark)
    for case in cases:
        assert tables(computed[case.name]["steps"]) == tables(case.expected["steps"]), case.name
        final = {row["key"]: row["value"] for row in computed[case.name]["final"]["result"]}
        assert final == {row["key"]: row["value"] for row in case.expected["final"]["result"]}, case.name
    assert len(cases) == 22


def test_the_designed_differences_are_few_and_each_is_met() -> None:
    met = set()
    for case in joins():
        kafka = [[(m["fk"], m["instruction"]) for m in step["subscriptions"]] for step in case.expected["steps"]]
        for theirs, ours in zip(kafka, designed(case, kafka), strict=True):
            if theirs != ours:
                met.add((case.join, *(tuple((fk is None, i) for fk, i in messages) for messages in (theirs, ours))))
    ask, only, forget = (
        PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
        PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,
        DELETE_KEY_AND_PROPAGATE,
    )
    assert met == {
        ("inner", ((False, only),), ((False, ask),)),
        ("inner", ((False, only),), ()),
        ("inner", (), ((True, ask),)),
        ("inner", (), ((True, forget),)),
        ("left", ((False, ask),), ()),
        ("left", ((True, ask),), ()),
        ("left", ((True, ask),), ((True, forget),)),
        ("left", ((False, DELETE_KEY_NO_PROPAGATE), (True, ask)), ((False, forget),)),
    }
