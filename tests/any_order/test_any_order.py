"""The short mode: a few schedules of the machine, always the same ones. `make fuzz` is the long mode."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession

from tests.any_order.machine import AnyOrder

pytestmark = pytest.mark.spark


def test_whatever_happens_on_the_way_the_result_is_the_join(spark: SparkSession) -> None:
    class Short(AnyOrder):
        session = spark
        totals = AnyOrder.totals.__class__()

    run_state_machine_as_test(
        Short,
        settings=settings(
            max_examples=3,
            stateful_step_count=5,
            deadline=None,
            derandomize=True,
            database=None,
            print_blob=False,
            phases=[p for p in settings().phases if p.name not in ("shrink", "explain")],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert Short.totals["schedules"] >= 3
    assert Short.totals["crashes"] + Short.totals["failed stages"] > 0
