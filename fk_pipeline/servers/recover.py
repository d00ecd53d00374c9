"""Recovers runs of Dagster whose worker died with the machine: proves the death, then fails the run for a retry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psutil

from fk_pipeline.environment.process import Life, ProcessIdentity
from fk_pipeline.errors import UsageError
from fk_pipeline.resources.worker import worker_of

if TYPE_CHECKING:
    from dagster import DagsterInstance, RunRecord


@dataclass(frozen=True)
class ActiveRun:
    """An active run and the state of its worker.

    Attributes:
        run_id: the id of the run.
        job: the name of its job.
        status: the status of the run in Dagster.
        worker: the process, as people read it.
        life: whether the worker is alive.
        why: the evidence for `life`.
        failed: whether the run was reported as failed.
    """

    run_id: str
    job: str
    status: str
    worker: str
    life: Life
    why: str
    failed: bool = False


def recover(instance: DagsterInstance, dead: Iterable[str] = ()) -> list[ActiveRun]:
    """Fails the runs whose worker is dead; Dagster's daemon starts them again if run retries are on.

    Args:
        instance: the Dagster instance.
        dead: ids of runs whose workers the user knows to be dead, although nothing on this machine can prove it.

    Raises:
        UsageError: one of the runs in `dead` is not active, or its worker is alive.
    """
    runs = [_look(instance, record) for record in _active(instance)]
    declared = set(dead)
    for run_id in declared:
        run = next((run for run in runs if run.run_id == run_id), None)
        if run is None:
            raise UsageError(f"run {run_id} is not active", fix="leave it out: there is nothing to recover")
        if run.life is Life.ALIVE:
            raise UsageError(f"run {run_id} is at work: {run.worker} is alive", fix="terminate it in Dagster")
    return [_fail(instance, run) if run.life is Life.DEAD or run.run_id in declared else run for run in runs]


def end_workers(instance: DagsterInstance) -> None:
    """Kills the worker processes of active runs on this machine: one may have started while its daemon ended."""
    for record in _active(instance):
        worker = worker_of(record.dagster_run)
        if worker is not None and worker.life() is Life.ALIVE:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(worker.pid)
                process.kill()
                psutil.wait_procs([process], timeout=5)


def _active(instance: DagsterInstance) -> Sequence[RunRecord]:
    from dagster import DagsterRunStatus, RunsFilter

    statuses = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
    return instance.get_run_records(RunsFilter(statuses=statuses))


def _look(instance: DagsterInstance, record: RunRecord) -> ActiveRun:
    run = record.dagster_run
    worker = worker_of(run)
    life, why = _of_a_machine(instance, record) if worker is None else _of_a_process(worker)
    return ActiveRun(run.run_id, run.job_name, run.status.value, str(worker or "not known"), life, why)


def _of_a_process(worker: ProcessIdentity) -> tuple[Life, str]:
    life = worker.life()
    sentences = {
        Life.ALIVE: f"{worker} is alive",
        Life.DEAD: f"{worker} is gone",
        Life.UNKNOWN: f"{worker} cannot be seen from here",
    }
    return life, sentences[life]


def _of_a_machine(instance: DagsterInstance, record: RunRecord) -> tuple[Life, str]:
    """Returns the state of a run whose worker is not known: dead if it ran on this machine before the last boot."""
    last = record.update_timestamp.replace(tzinfo=record.update_timestamp.tzinfo or UTC)
    booted = datetime.fromtimestamp(psutil.boot_time(), UTC)
    if "sqlite" in type(instance.run_storage).__name__.lower() and last < booted:
        return Life.DEAD, "it was last heard of before this machine started, and Dagster's storage is a file of it"
    return Life.UNKNOWN, "it has not said where it is at work"


def _fail(instance: DagsterInstance, active: ActiveRun) -> ActiveRun:
    run = instance.get_run_by_id(active.run_id)
    if run is None or run.is_finished:
        return active
    why = active.why if active.life is Life.DEAD else "somebody said that its worker is dead"
    instance.report_run_failed(run, f"fk-pipeline recover: {why}. Its batches stay due.")
    return ActiveRun(active.run_id, active.job, active.status, active.worker, active.life, why, failed=True)


def as_json(run: ActiveRun) -> dict[str, object]:
    """Returns the result as the command prints it."""
    return vars(run) | {"life": run.life.value}
