"""The reference does what Kafka Streams did, in everything that was recorded."""

from __future__ import annotations

import pytest

from fk_pipeline.protocol.reference import ENGINE, KAFKA, Rules
from fk_pipeline.trace.cases import AnyCase
from fk_pipeline.trace.reference import trace
from tests.kafka_cases import joins, lagging_joins

RECORDED = ("steps", "hashes", "final")


@pytest.mark.parametrize("case", [*joins(), *lagging_joins()], ids=lambda case: case.name)
def test_messages_results_timestamps_dropped_counts_and_stores_are_kafka_s(case: AnyCase) -> None:
    computed = trace(case)
    for part in RECORDED:
        assert computed[part] == case.expected[part], part


def test_the_cases_are_all_there() -> None:
    assert (len(joins()), len(lagging_joins())) == (217, 26)
    assert any(case.wire for case in joins())
    assert {case.join for case in joins()} == {"inner", "left"}


def test_kafka_s_inner_join_goes_stale_where_messages_lag_and_the_engine_s_rules_do_not() -> None:
    def wrong(rules: Rules) -> list[str]:
        traced = {case.name: trace(case, rules)["final"] for case in lagging_joins()}
        return [name for name, final in traced.items() if not final["result_equals_batch_join"]]

    assert wrong(KAFKA) == ["stale-A-inner", "stale-B-inner", "stale-C-inner"]
    assert wrong(ENGINE) == []
