"""The reference does what Kafka Streams did, in everything that was recorded."""

from __future__ import annotations

from itertools import product

import pytest

from fk_pipeline.kinds.foreign_key.kafka.reference import ENGINE, KAFKA, Rules
from fk_pipeline.kinds.foreign_key.kafka.table_join import TableJoin
from fk_pipeline.trace.cases import AnyCase, AnyStreamCase, TableCase
from fk_pipeline.trace.reference import trace
from tests.kafka_cases import joins, joins_by_key, joins_of_streams, lagging_joins

RECORDED = ("steps", "hashes", "final")


@pytest.mark.parametrize("case", [*joins(), *lagging_joins()], ids=lambda case: case.name)
def test_messages_results_timestamps_dropped_counts_and_stores_are_kafka_s(case: AnyCase) -> None:
    computed = trace(case)
    for part in RECORDED:
        assert computed[part] == case.expected[part], part


@pytest.mark.parametrize("case", joins_by_key(), ids=lambda case: case.name)
def test_a_join_by_key_emits_what_kafka_emits(case: TableCase) -> None:
    computed = trace(case)
    for part in ("steps", "final"):
        assert computed[part] == case.expected[part], part


@pytest.mark.parametrize("case", joins_of_streams(), ids=lambda case: f"{case.family} {case.name}")
def test_a_join_of_a_stream_emits_what_kafka_emits_and_dies_where_kafka_dies(case: AnyStreamCase) -> None:
    computed = trace(case)
    for part in ("steps", "final", "error"):
        assert computed.get(part) == case.expected.get(part), part


@pytest.mark.parametrize(("keeps_left", "keeps_right"), [(False, False), (True, False), (True, True)])
def test_a_join_by_key_ends_as_the_join_of_its_tables(keeps_left: bool, keeps_right: bool) -> None:
    for case in joins_by_key():
        join = TableJoin(keeps_left, keeps_right)
        for event in case.events:
            key, value = (None if text is None else text.encode() for text in (event.key, event.value))
            join.process(event.side, key, value, event.ts)
        assert join.result_as_table() == join.batch_join(), case.name


def test_the_cases_are_all_there() -> None:
    assert (len(joins()), len(lagging_joins()), len(joins_by_key())) == (217, 26, 32)
    assert len(joins_of_streams()) == 30 + 22
    assert any("error" in case.expected for case in joins_of_streams())
    assert {case.join for case in joins_by_key()} == {"inner", "left", "outer"}
    assert {(case.left_versioned, case.right_versioned) for case in joins_by_key()} == set(
        product((True, False), repeat=2)
    )
    assert any(case.wire for case in joins())
    assert {case.join for case in joins()} == {"inner", "left"}


def test_kafka_s_inner_join_goes_stale_where_messages_lag_and_the_engine_s_rules_do_not() -> None:
    def wrong(rules: Rules) -> list[str]:
        traced = {case.name: trace(case, rules)["final"] for case in lagging_joins()}
        return [name for name, final in traced.items() if not final["result_equals_batch_join"]]

    assert wrong(KAFKA) == ["stale-A-inner", "stale-B-inner", "stale-C-inner"]
    assert wrong(ENGINE) == []
