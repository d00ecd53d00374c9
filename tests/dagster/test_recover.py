"""Runs whose worker is dead are failed; no other run is touched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test

from fk_pipeline.environment.process import Life, ProcessIdentity
from fk_pipeline.errors import UsageError
from fk_pipeline.resources.worker import TAG, mark, worker_of
from fk_pipeline.servers.recover import recover
from fk_pipeline.servers.up import instance_of

HERE = ProcessIdentity.of()
DEAD = replace(HERE, boot="another")
ELSEWHERE = replace(HERE, host="another")


def run_of(
    instance: DagsterInstance,
    worker: ProcessIdentity | None,
    status: DagsterRunStatus = DagsterRunStatus.STARTED,
    said_by: str | None = None,
) -> str:
    run = create_run_for_test(instance, job_name="some_job", status=status)
    if worker is not None:
        said = {"run": said_by or run.run_id, **worker.as_json()}
        instance.add_run_tags(run.run_id, {TAG: json.dumps(said)})
    return run.run_id


def status_of(instance: DagsterInstance, run_id: str) -> DagsterRunStatus:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


def test_a_run_whose_process_is_dead_is_failed_and_others_are_left_alone(instance: DagsterInstance) -> None:
    dead, alive, far, unmarked = (run_of(instance, worker) for worker in (DEAD, HERE, ELSEWHERE, None))
    canceling = run_of(instance, DEAD, DagsterRunStatus.CANCELING)
    waiting = run_of(instance, None, DagsterRunStatus.NOT_STARTED)
    done = run_of(instance, DEAD, DagsterRunStatus.SUCCESS)
    found = {one.run_id: one for one in recover(instance)}
    assert set(found) == {dead, alive, far, unmarked, canceling}
    assert {run_id for run_id, one in found.items() if one.failed} == {dead, canceling}
    assert found[alive].life is Life.ALIVE
    assert found[far].life is found[unmarked].life is Life.UNKNOWN
    assert status_of(instance, dead) is status_of(instance, canceling) is DagsterRunStatus.FAILURE
    assert status_of(instance, alive) is status_of(instance, far) is DagsterRunStatus.STARTED
    assert status_of(instance, waiting) is DagsterRunStatus.NOT_STARTED
    assert status_of(instance, done) is DagsterRunStatus.SUCCESS
    messages = [event.message for event in instance.all_logs(dead)]
    assert any("fk-pipeline recover: process" in message and "is gone" in message for message in messages)
    assert dead not in {one.run_id for one in recover(instance)}, "it is done once"


def test_a_retry_is_not_judged_by_the_process_of_its_parent(instance: DagsterInstance) -> None:
    retry = run_of(instance, DEAD, said_by="the parent")
    (found,) = recover(instance)
    assert (found.run_id, found.life, found.failed) == (retry, Life.UNKNOWN, False)


def test_somebody_who_knows_may_say_that_a_run_is_dead(instance: DagsterInstance) -> None:
    far, alive = run_of(instance, ELSEWHERE), run_of(instance, HERE)
    with pytest.raises(UsageError, match="is at work"):
        recover(instance, [alive])
    with pytest.raises(UsageError, match="is not active"):
        recover(instance, ["no such run"])
    assert [one.failed for one in recover(instance, [far]) if one.run_id == far] == [True]


def test_a_run_says_once_where_it_is_at_work(instance: DagsterInstance) -> None:
    run = create_run_for_test(instance, job_name="some_job", status=DagsterRunStatus.STARTED)
    mark(instance, run)
    marked = instance.get_run_by_id(run.run_id)
    assert marked is not None
    assert worker_of(marked) == HERE


def test_a_folder_that_is_no_dagster_home_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Dagster home"), instance_of(tmp_path):
        pass
