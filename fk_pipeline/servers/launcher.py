"""Starts the processes of Dagster's runs as copies of one that has everything imported.

A run's process of its own imports Dagster, Spark's client and Great Expectations anew: ten seconds, longer than a small
batch takes. Here the daemon keeps a process that has imported them and does nothing else (`forkserver` of Python's
multiprocessing), and each run begins as a copy of it. What the pipelines are is read anew in each.
"""

from __future__ import annotations

from fk_pipeline.environment.own_packages import require_own_packages

require_own_packages()

import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from typing import Any, Self

from dagster import Array, DagsterInstance, DagsterRun, Field
from dagster._config import UserConfigSchema
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, RunLauncher, WorkerStatus
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClass, ConfigurableClassData, serialize_value

from fk_pipeline.environment.process import Life, ProcessIdentity
from resources.worker import mark, worker_of

PRELOADED = (
    "dagster._cli.api", "great_expectations", "pyspark.sql.connect.session", "assets.jobs", "assets.sensors",
    "expectations.checks",
)  # fmt: skip
"""Nothing that reads a pipeline file, and nothing that starts threads of Python."""


def preload(modules: Sequence[str] = PRELOADED) -> None:
    """Starts the process that runs are copies of, unless it is there; it imports while the caller goes on."""
    forkserver.set_forkserver_preload(list(modules))
    forkserver.ensure_running()


def _execute(arguments: Sequence[str]) -> None:
    """A run, in its own process: what `dagster api execute_run` does."""
    from dagster._cli.api import api_cli

    os.setsid()  # an interrupt at the daemon's terminal is not one of the run
    api_cli.main(list(arguments))


class WarmRunLauncher(RunLauncher[DagsterInstance], ConfigurableClass):
    """Runs as copies of a process that has everything imported, on the machine of the daemon.

    Which process a run is at work in is a tag of the run from its start, so that the daemon's run monitoring, and
    `fk-pipeline recover`, can prove that it is dead.

    Args:
        preload: modules that the process imports.
    """

    def __init__(self, preload: Sequence[str] = PRELOADED, inst_data: ConfigurableClassData | None = None) -> None:
        self.preload = preload
        self._inst_data = inst_data
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """What made this object."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        """The settings in dagster.yaml."""
        return {"preload": Field(Array(str), is_required=False, default_value=list(PRELOADED))}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> Self:
        """The launcher that dagster.yaml describes."""
        return cls(inst_data=inst_data, **config_value)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Starts the process of a run."""
        run = context.dagster_run
        origin = context.job_code_origin
        assert origin is not None, f"run {run.run_id} does not say where its job is defined"
        arguments = ["execute_run", serialize_value(ExecuteRunArgs(origin, run.run_id, self._instance.get_ref()))]
        preload(self.preload)
        process = multiprocessing.get_context("forkserver").Process(target=_execute, args=(arguments,), name=run.run_id)
        process.start()
        mark(self._instance, run, ProcessIdentity.of(process.pid))

    def terminate(self, run_id: str) -> bool:
        """Interrupts a run; False if it is not at work on this machine."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        worker = worker_of(run)
        if worker is None or worker.life() is not Life.ALIVE:
            self._instance.report_engine_event(f"{worker or 'its worker'} is not at work here", run, cls=type(self))
            return False
        os.kill(worker.pid, signal.SIGINT)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        """The daemon's run monitoring asks for it."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """A run has failed only when its process is proved to be dead."""
        worker = worker_of(run)
        life = Life.UNKNOWN if worker is None else worker.life()
        status = WorkerStatus.FAILED if life is Life.DEAD else WorkerStatus.RUNNING
        return CheckRunHealthResult(status, f"{worker or 'its worker'} is {life}")
