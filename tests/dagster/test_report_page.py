"""Runs in Dagster renew the page of the report, also after a failure, unless the pipeline file switches it off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, Definitions

from fk_pipeline.assets.shown import of_batch
from fk_pipeline.errors import StateError
from fk_pipeline.identity import BatchId
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource
from fk_pipeline.resources.names import asset_key
from tests.dagster.world import JOB, ZONE, FakeZoneResource, World


class NoSpark(FkSparkResource):
    """Starts no session: what stands for it is never used."""

    def _init_session(self) -> None:
        self._spark_session: Any = object()


def sentence(page: Path) -> str:
    found = re.search('<p class="sentence[^>]*>([^<]*)<', page.read_text())
    assert found is not None
    return found[1]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every stage fail, as its ledger hears of it."""

    def failed(_: Any, __: Any, pipeline: Pipeline, stage: str, batches: Sequence[BatchId]) -> None:
        ledger = pipeline.ledger()
        ledger.start(stage, batches, "failed", {})
        ledger.runs.fail(0.1, "boom")
        raise StateError("boom")

    monkeypatch.setattr("fk_pipeline.assets.stage._run", failed)


@pytest.mark.usefixtures("empty_zone", "fail")
@pytest.mark.parametrize(
    ("settings", "broken", "written"), [("{}", False, True), ("{}", True, False), ("{report: false}", False, False)]
)
def test_the_page_says_that_a_stage_failed(
    tmp_path: Path,
    instance: DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    settings: str,
    *,
    broken: bool,
    written: bool,
) -> None:
    ZONE.put("left", 1)
    ZONE.put("right", 1)
    world = World(tmp_path, instance, settings)
    world.pipeline.discover()
    page = Path(f"{world.pipeline.spec.home}/report.html")
    if broken:
        monkeypatch.setattr("fk_pipeline.assets.shown.renew", lambda _: 1 / 0)
    world.tick()
    resources = {"spark": NoSpark(), "landing_zone": FakeZoneResource()}
    defs = Definitions(assets=world.defs.assets, jobs=world.defs.jobs, resources=resources)
    ended = defs.resolve_job_def(JOB).execute_in_process(
        partition_key=BatchId(1).key,
        asset_selection=[asset_key(world.pipeline.spec, Stage.LEFT_CHANGELOG)],
        instance=instance,
        raise_on_error=False,
    )
    (failure,) = ended.get_step_failure_events()
    assert "boom" in str(failure.step_failure_data.error), "the error of the stage, not of the page"
    assert page.exists() is written
    if written:
        assert sentence(page).startswith("1 stage run failed;")


@pytest.mark.usefixtures("empty_zone")
def test_the_pipeline_file_switches_the_page_off(tmp_path: Path, instance: DagsterInstance) -> None:
    ZONE.put("left", 1)
    for settings, switched in (("{}", True), ("{report: false}", False)):
        world = World(tmp_path, instance, settings, f"p{switched}".lower())
        world.pipeline.discover()
        world.do(1)
        shown = of_batch(world.pipeline.spec, world.pipeline.ledger(), Stage.RESOLVED_JOIN, BatchId(1))
        assert ("report" in shown) is switched
