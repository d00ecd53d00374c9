"""Conditions of declarative automation that a user gives to the stages: what they request, and what they do not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetSpec,
    AutomationCondition,
    DagsterInstance,
    Definitions,
    evaluate_automation_conditions,
)
from dagster._core.definitions.declarative_automation.automation_condition_tester import (
    EvaluateAutomationConditionsResult,
)

from fk_pipeline.assets.reports import sync
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.resources.names import asset_key
from tests.dagster.world import ZONE, World

pytestmark = [
    pytest.mark.usefixtures("empty_zone"),
    pytest.mark.filterwarnings("ignore:.*map_(resolved_)?asset_specs"),  # a preview of Dagster
    pytest.mark.filterwarnings("ignore:Parameter .include_sources."),
]


class Automation:
    """Dagster's evaluation of a condition that all stages of a pipeline have, tick by tick."""

    def __init__(self, world: World, condition: AutomationCondition[Any]) -> None:
        def with_condition(spec: AssetSpec) -> AssetSpec:
            return spec.replace_attributes(automation_condition=condition) if "spark" in spec.kinds else spec

        self._world = world
        self.defs: Definitions = world.defs.map_asset_specs(func=with_condition)
        self._last: EvaluateAutomationConditionsResult | None = None
        assert self.requested() == {}

    def requested(self) -> dict[str, set[str]]:
        """The partitions that one evaluation requests, by stage."""
        cursor = None if self._last is None else self._last.cursor
        last = evaluate_automation_conditions(self.defs, self._world.instance, cursor=cursor)
        self._last = last
        keys = {str(stage): asset_key(self._world.pipeline.spec, stage) for stage in Stage}
        found = {stage: last.get_requested_partitions(key) for stage, key in keys.items()}
        assert last.total_requested == sum(map(len, found.values()))
        return {stage: {str(one) for one in partitions} for stage, partitions in found.items() if partitions}


@pytest.fixture
def world(tmp_path: Path, instance: DagsterInstance) -> World:
    return World(tmp_path, instance, "{}")


def test_a_condition_of_the_user_requests_every_stage_of_a_new_batch_once(world: World) -> None:
    automation = Automation(world, AutomationCondition.newly_missing().since_last_handled())
    assert automation.defs.get_repository_def().has_job("tested_all_stages"), "the rest stays as it is"
    ZONE.put("left", 1)
    sync(world.instance, world.pipeline, {})
    assert automation.requested() == {str(stage): {"b00000001"} for stage in Stage}
    assert automation.requested() == {}
    ZONE.put("left", 2)
    world.pipeline.discover()
    world.do(1, 2)
    sync(world.instance, world.pipeline, {})
    assert automation.requested() == {}, "somebody has done both"


def test_eager_sees_neither_what_landed_nor_what_landed_again(world: World) -> None:
    """The reason why stages have no condition by themselves; if Dagster mends it, the documentation is to say so."""
    automation = Automation(world, AutomationCondition.eager())
    for content in ("1", "2"):
        ZONE.put("left", 1, content)
        sync(world.instance, world.pipeline, {})
        assert automation.requested() == {}
        world.do(1)
        sync(world.instance, world.pipeline, {})
        assert automation.requested() == {}
