"""The reference joins two streams as Kafka Streams did, in everything that was recorded."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fk_pipeline.kinds.window.kafka.window_join import SelfJoin, SingleStoreSelfJoin, Window, WindowJoin
from fk_pipeline.kinds.window.kafka.window_store import SEGMENT_MS, WindowStore
from fk_pipeline.trace.cases import AnyWindowCase, SelfJoinCase, WindowCase, parse_case
from fk_pipeline.trace.reference import trace
from tests.kafka_cases import joins_of_two_streams


@pytest.mark.parametrize("case", joins_of_two_streams(), ids=lambda case: f"{case.family} {case.name}")
def test_every_pair_every_time_and_every_dropped_record_is_kafka_s(case: AnyWindowCase) -> None:
    computed = trace(case)
    for part in ("steps", "stores"):
        assert computed.get(part) == case.expected.get(part), part


def test_the_cases_are_all_there() -> None:
    cases = joins_of_two_streams()
    assert [sum(isinstance(case, of) for case in cases) for of in (WindowCase, SelfJoinCase)] == [50, 44]
    assert {case.join for case in cases} == {"inner", "left", "outer"}
    assert any(case.eager for case in cases)
    assert any(case.after_ms < 0 for case in cases)
    assert {case.optimized for case in cases if isinstance(case, SelfJoinCase)} == {True, False}
    assert any(step["dropped"] for case in cases for step in case.expected["steps"])


def test_one_store_gives_the_pairs_of_two_if_the_window_has_the_record_itself_and_none_is_late() -> None:
    window, events = Window(3, 2, 0), [(b"ab"[i % 2 : i % 2 + 1], str(i).encode(), i) for i in range(20)]
    two, one = SelfJoin(WindowJoin((), window)), SingleStoreSelfJoin(window)
    for key, value, at in events:
        assert two.process("left", key, value, at) == one.process("left", key, value, at)


def test_a_record_whose_segment_is_forgotten_is_dropped() -> None:
    join = WindowJoin(("left",), Window(10, 10, 0))
    late, now = 5, 2 * SEGMENT_MS + 25
    assert join.process("left", b"k", b"now", now).dropped == 0
    assert join.process("left", b"k", b"late", late).dropped == 1
    store = WindowStore(10)
    assert [store.put(b"k", b"v", at) for at in (now, SEGMENT_MS * 2 + 1, SEGMENT_MS - 1)] == [True, True, False]
    assert store.fetch(b"k", 0, now) == [(now, b"v")]  # the older one is there, but too old to be found


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"before_ms": -5, "after_ms": 4}, "the window ends before it begins"),
        ({"grace_ms": -1}, "greater than or equal to 0"),
        ({"family": "self-join", "events": [{"side": "right", "key": "k", "value": "v", "ts": 1}]}, "one stream"),
        ({"optimized": True}, "Extra inputs are not permitted"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(changes: dict[str, Any], told: str) -> None:
    case = {"family": "stream-stream", "name": "n", "join": "left", "before_ms": 1, "after_ms": 1, "events": []}
    with pytest.raises(ValidationError, match=told):
        parse_case(case | changes)
