"""Schedules that pipelines share, and the one switch for sensors and schedules. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    DagsterInstance,
    Definitions,
    RepositoryDefinition,
    RunRequest,
    ScheduleDefinition,
    SensorDefinition,
    build_schedule_context,
    validate_run_config,
)
from dagster._core.definitions.schedule_definition import ScheduleExecutionData

from fk_pipeline.definitions import _pipelines, definitions
from fk_pipeline.errors import StateError
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

NIGHT = datetime(2026, 1, 4, 2, tzinfo=UTC)


@pytest.fixture
def never_run(rows_pipeline: Any) -> list[Path]:
    """The files of two pipelines, `tested` and `another`."""
    first, second = rows_pipeline("left").file, rows_pipeline("inner").file
    second.write_text(second.read_text().replace("name: tested", "name: another", 1))
    return [first, second]


@pytest.fixture
def two(never_run: list[Path]) -> list[Path]:
    """The same, which have run by their ledgers."""
    for file in never_run:
        has_run(file)
    return never_run


def has_run(file: Path, stages: Sequence[Stage] = tuple(Stage)) -> None:
    """Stages run for a batch, as the ledger hears of it."""
    (file.parent / "landing" / "left" / "1.jsonl").write_text('{"op": "u", "id": 1}\n')
    pipeline = Pipeline(load_spec(file))
    [batch] = pipeline.discover().batches
    ledger = pipeline.ledger()
    for stage in stages:
        ledger.start(stage, [batch], f"run of {stage}", {})
        ledger.runs.succeed({batch: {}}, {}, 0.1)


def with_settings(file: Path, settings: str) -> None:
    lines = [line for line in file.read_text().splitlines() if not line.startswith("settings:")]
    file.write_text("\n".join([*lines, f"settings: {settings}", ""]))


def tick(repository: RepositoryDefinition, schedule: str) -> ScheduleExecutionData:
    """A tick of a schedule, evaluated as the daemon has it evaluated."""
    with DagsterInstance.ephemeral() as instance:
        context = build_schedule_context(instance, NIGHT, repository_def=repository)
        return repository.get_schedule_def(schedule).evaluate_tick(context)


def requested(repository: RepositoryDefinition, schedule: str) -> list[RunRequest]:
    """What a tick of a schedule requests."""
    return [*(tick(repository, schedule).run_requests or ())]


def on(repository: RepositoryDefinition) -> set[str]:
    each: list[ScheduleDefinition | SensorDefinition] = [*repository.schedule_defs, *repository.sensor_defs]
    return {one.name for one in each if one.default_status.value == "RUNNING"}


def test_pipelines_share_two_schedules_that_request_a_run_for_each(two: list[Path]) -> None:
    repository = definitions(two).get_repository_def()
    assert {one.name for one in repository.schedule_defs} == {"fk_nightly_full_checks", "fk_weekly_maintenance"}
    assert on(repository) == set()

    checks = requested(repository, "fk_nightly_full_checks")
    assert [one.tags["fk_pipeline/pipeline"] for one in checks] == ["tested", "another"]
    for one in checks:
        name = one.tags["fk_pipeline/pipeline"]
        assert one.asset_check_keys
        assert one.asset_selection == []
        part = repository.get_job("fk_full_checks").get_subset(
            asset_selection=set(), asset_check_selection={*one.asset_check_keys}
        )
        alone = repository.get_job(f"{name}_full_checks")
        assert part.asset_layer.asset_graph.asset_check_keys == alone.asset_layer.asset_graph.asset_check_keys
        assert {key.asset_key.path[0] for key in one.asset_check_keys} == {name}
        assert {node.name for node in part.nodes} == {node.name for node in alone.nodes}

    upkeep = requested(repository, "fk_weekly_maintenance")
    assert [one.run_config["ops"]["fk_compact"]["config"] for one in upkeep] == [
        {"pipeline": "tested"},
        {"pipeline": "another"},
    ]
    assert len({one.run_key for one in (*checks, *upkeep) if one.run_key}) == 2  # per schedule, and per pipeline
    for one in upkeep:
        assert validate_run_config(repository.get_job("fk_maintenance"), one.run_config)


def test_a_pipeline_with_times_of_its_own_keeps_its_own_schedule(two: list[Path]) -> None:
    with_settings(two[1], '{full_checks_cron: "0 5 * * *", automation: on}')
    repository = definitions(two).get_repository_def()
    assert {one.name: one.cron_schedule for one in repository.schedule_defs} == {
        "fk_nightly_full_checks": "0 2 * * *",
        "another_nightly_full_checks": "0 5 * * *",
        "fk_weekly_maintenance": "0 4 * * 0",
    }
    assert [one.tags["fk_pipeline/pipeline"] for one in requested(repository, "fk_nightly_full_checks")] == ["tested"]
    assert on(repository) == {"another_new_batches", "another_nightly_full_checks", "fk_weekly_maintenance"}


def test_what_has_no_result_yet_is_not_checked_at_night(never_run: list[Path]) -> None:
    first, second = never_run
    shared = "fk_nightly_full_checks"
    repository = definitions(never_run).get_repository_def()
    assert requested(repository, shared) == []
    why = "no run of tested, another has succeeded yet: there is nothing to check"
    assert tick(repository, shared).skip_message == why
    has_run(first, tuple(Stage)[:-1])
    assert requested(repository, shared) == [], "its result is still missing"
    has_run(second)
    assert [one.tags["fk_pipeline/pipeline"] for one in requested(repository, shared)] == ["another"]

    for file in never_run:
        with_settings(file, '{full_checks_cron: "0 5 * * *"}')
    repository = definitions(never_run).get_repository_def()
    assert len(requested(repository, "another_nightly_full_checks")) == 1
    why = "no run of tested has succeeded yet: there is nothing to check"
    assert tick(repository, "tested_nightly_full_checks").skip_message == why

    [log] = second.parent.glob("warehouse/another/**/runs/_delta_log/00000000000000000000.json")
    log.write_text("{")
    with pytest.raises(StateError):
        Pipeline(load_spec(second)).ledger()
    assert len(requested(repository, "another_nightly_full_checks")) == 1, "the checks say what is wrong"


@pytest.mark.parametrize(
    ("word", "is_on"), [("on", True), ("off", False), ('"on"', True), ("'off'", False), ("true", True)]
)
def test_automation_is_on_or_off_however_it_is_written(two: list[Path], word: str, is_on: bool) -> None:
    with_settings(two[0], f"{{automation: {word}}}")
    assert on(definitions(two[:1]).get_repository_def()) == (
        {"tested_new_batches", "fk_nightly_full_checks", "fk_weekly_maintenance"} if is_on else set()
    )


def test_calls_that_are_merged_have_schedules_of_different_names(two: list[Path]) -> None:
    merged = Definitions.merge(definitions(two[:1]), definitions(two[1:], resources=False)).get_repository_def()
    assert {one.name for one in merged.schedule_defs} == {
        "fk_nightly_full_checks",
        "fk_weekly_maintenance",
        "another_nightly_full_checks",
        "another_weekly_maintenance",
    }


def test_a_pipeline_that_is_called_as_the_shared_schedules_are_takes_no_name_from_them(two: list[Path]) -> None:
    two[1].write_text(two[1].read_text().replace("name: another", "name: fk", 1))
    repository = definitions(two).get_repository_def()
    assert {one.job_name for one in repository.schedule_defs} == {
        f"{name}_{job}" for name in ("tested", "fk") for job in ("full_checks", "maintenance")
    }


def test_one_variable_has_all_pipelines_of_the_code_location_on(
    two: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fk_pipeline.definitions.named_pipelines", lambda: two)
    monkeypatch.setenv("FK_AUTOMATION", "off")
    assert on(definitions(_pipelines()).get_repository_def()) == set()
    monkeypatch.setenv("FK_AUTOMATION", "on")
    repository = definitions(_pipelines()).get_repository_def()
    assert on(repository) == {
        *(f"{name}_new_batches" for name in ("tested", "another")),
        "fk_nightly_full_checks",
        "fk_weekly_maintenance",
    }
