"""The short mode: a few schedules of the machine, always the same ones. `make fuzz` is the long mode."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession

from tests.any_order.histories import RIGHT
from tests.any_order.machine import AnyOrder
from tests.any_order.subjects import SEMI, SUBJECTS, registered

pytestmark = pytest.mark.spark


def run_schedules(machine: type[AnyOrder], schedules: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=schedules,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            print_blob=False,
            phases=[p for p in settings().phases if p.name not in ("shrink", "explain")],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens_on_the_way_the_result_is_the_join(spark: SparkSession) -> None:
    """One schedule, chosen so that few runs have everything that hurts; those of `make fuzz` are drawn."""

    class Short(AnyOrder):
        session = spark
        joins = ("outer",)
        anew = 0.0
        totals = AnyOrder.totals.__class__()

    one = Short()
    try:
        one.begin(join=0, way=0, sequenced=True, faulty=True, seed=2)
        one.a_run_dies(after=14, killed=False)
        one.a_field_is_declared_or_not_any_more(side=RIGHT, after=2)
        one.is_withdrawn(number=1)
        one.some_due_work_runs(seed=4, hasty=0.2)
        one.a_run_dies(after=20, killed=True)
    finally:
        one.teardown()
    wanted = ("schedules", "rewrites", "batches withdrawn", "columns added", "failed stages", "crashes")
    assert {what for what in wanted if not Short.totals[what]} == set()


@pytest.mark.slow  # a batch of it that is written anew: test_every_kind.py
def test_another_kind_passes_the_same(spark: SparkSession) -> None:
    """The semi join of `tests/kinds/semi_join`: a folder and a line in the registry, and nothing else.

    One schedule: all runs, a batch is written anew, and the run of it dies after a commit.
    """

    class Semi(AnyOrder):
        session = spark
        subject = SEMI
        worlds = 20
        anew = 0.0
        totals = AnyOrder.totals.__class__()

    with registered():
        one = Semi()
        try:
            one.begin(join=0, way=0, sequenced=True, faulty=True, seed=50)
            one.all_that_is_due_runs()
            one.a_run_dies(after=10, killed=True)
        finally:
            one.teardown()
    wanted = ("schedules", "rewrites", "crashes", "result rows compared")
    assert {what for what in wanted if not Semi.totals[what]} == set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(SUBJECTS))
def test_no_legal_state_on_the_way_turns_a_check_red(kind: str, spark: SparkSession) -> None:
    class Checked(AnyOrder):
        session = spark
        subject = SUBJECTS[kind]
        worlds = 20
        checks = 0.5
        totals = AnyOrder.totals.__class__()

    with registered():
        run_schedules(Checked, schedules=9, steps=7)
    assert Checked.totals["states checked"] >= 20
    assert Checked.totals["rows pending in checks"] > 0
