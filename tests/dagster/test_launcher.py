"""Runs as copies of a warm process: they end, can be interrupted, and are failed only when their process is dead."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, in_process_executor, job, op, reconstructable
from dagster._core.launcher import LaunchRunContext, WorkerStatus

from fk_pipeline.resources.worker import TAG, worker_of
from fk_pipeline.servers.launcher import WarmRunLauncher
from tests.dagster.graphql import wait

SETTINGS = """
run_launcher:
  module: fk_pipeline.servers.launcher
  class: WarmRunLauncher
  config:
    preload: [dagster._cli.api]
telemetry:
  enabled: false
"""


@op
def _nothing() -> None:
    """Succeeds."""


@job(executor_def=in_process_executor)
def quick() -> None:
    _nothing()


@op
def _wait() -> None:
    time.sleep(60)


@job(executor_def=in_process_executor)
def long() -> None:
    _wait()


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterInstance]:
    home = tmp_path_factory.mktemp("home")
    (home / "dagster.yaml").write_text(SETTINGS)
    with DagsterInstance.from_config(str(home)) as made:
        yield made


def launched(instance: DagsterInstance, definition: Any) -> DagsterRun:
    """A run of a job that was just launched."""
    job_of_file = reconstructable(definition)
    run = instance.create_run_for_job(
        job_of_file.get_definition(), job_code_origin=job_of_file.get_python_origin(), status=DagsterRunStatus.STARTING
    )
    instance.run_launcher.launch_run(LaunchRunContext(run, None))
    return run


def of(instance: DagsterInstance, run: DagsterRun) -> DagsterRun:
    """The run as it is now."""
    now = instance.get_run_by_id(run.run_id)
    assert now is not None
    return now


def status(instance: DagsterInstance, run: DagsterRun) -> DagsterRunStatus:
    return of(instance, run).status


def test_a_run_succeeds_in_a_process_that_its_tag_names(instance: DagsterInstance) -> None:
    assert isinstance(instance.run_launcher, WarmRunLauncher)
    run = launched(instance, quick)
    worker = worker_of(of(instance, run))
    assert worker is not None
    assert worker.pid != os.getpid()
    wait(lambda: status(instance, run) is DagsterRunStatus.SUCCESS, 60)
    assert not instance.run_launcher.terminate(run.run_id)


def test_runs_are_copies_of_one_process(instance: DagsterInstance) -> None:
    runs = [launched(instance, long) for _ in range(2)]
    workers = [worker_of(of(instance, run)) for run in runs]
    parents = {psutil.Process(worker.pid).ppid() for worker in workers if worker}
    assert len(parents) == 1
    assert parents != {os.getpid()}
    for run in runs:
        wait(lambda run=run: status(instance, run) is DagsterRunStatus.STARTED, 60)
        assert instance.run_launcher.terminate(run.run_id)
        wait(lambda run=run: status(instance, run) is DagsterRunStatus.CANCELED, 60)


def test_a_run_has_failed_when_its_process_is_dead_and_not_when_that_cannot_be_seen(instance: DagsterInstance) -> None:
    run = launched(instance, long)
    wait(lambda: status(instance, run) is DagsterRunStatus.STARTED, 60)
    launcher = instance.run_launcher
    assert launcher.check_run_worker_health(of(instance, run)).status is WorkerStatus.RUNNING
    worker = worker_of(of(instance, run))
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    wait(lambda: launcher.check_run_worker_health(of(instance, run)).status is WorkerStatus.FAILED, 20)
    assert not launcher.terminate(run.run_id)
    said = of(instance, run).tags[TAG].replace(worker.host, "elsewhere")
    instance.add_run_tags(run.run_id, {TAG: said})
    health = launcher.check_run_worker_health(of(instance, run))
    assert health.status is WorkerStatus.RUNNING
    assert health.msg is not None
    assert "unknown" in health.msg
    instance.report_run_canceled(of(instance, run))


def test_a_run_that_never_said_where_it_is_is_not_failed(instance: DagsterInstance) -> None:
    run = instance.create_run_for_job(quick)
    assert instance.run_launcher.check_run_worker_health(run).status is WorkerStatus.RUNNING
