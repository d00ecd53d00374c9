"""Starts the processes of Dagster's runs as copies of one process that has imported everything.

A new process for a run imports Dagster, Spark's client and Great Expectations again: ten seconds, longer than a small
batch takes. Here the daemon keeps a process that has imported them and does nothing else (`forkserver` of Python's
multiprocessing), and each run starts as a copy of it. Each run reads the pipeline files again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from typing import Any, Self

from dagster import Array, DagsterInstance, DagsterRun, Field, serialize_value

# A run launcher is a class of `dagster.yaml`: Dagster exports neither its base classes nor what it is called with.
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, RunLauncher, WorkerStatus
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClass, ConfigurableClassData

from fk_pipeline.environment.process import Life, ProcessIdentity
from fk_pipeline.resources.worker import mark, worker_of

PRELOADED = (
    "dagster._cli.api", "great_expectations", "pyspark.sql.connect.session",
    "fk_pipeline.assets.jobs", "fk_pipeline.assets.sensors", "fk_pipeline.expectations.checks",
)  # fmt: skip
"""The modules that are imported in advance: none reads a pipeline file, and none starts Python threads."""


def preload(modules: Sequence[str] = PRELOADED) -> None:
    """Starts the process that runs are copies of, unless it exists; it imports the modules while the caller goes on."""
    forkserver.set_forkserver_preload(list(modules))
    forkserver.ensure_running()


def _execute(arguments: Sequence[str]) -> None:
    """Executes a run in this process, as `dagster api execute_run` does."""
    from dagster._cli.api import api_cli  # what the program `dagster api` runs, in a process that has it imported

    os.setsid()  # an interrupt at the daemon's terminal must not interrupt the run
    api_cli.main(list(arguments))


class WarmRunLauncher(RunLauncher[DagsterInstance], ConfigurableClass):
    """Starts runs as copies of a process that has imported everything, on the machine of the daemon.

    A tag of the run identifies its process from the start, so that the daemon's run monitoring, and
    `fk-pipeline recover`, can prove that the process is dead.

    Args:
        preload: the modules that the process imports.
    """

    def __init__(self, preload: Sequence[str] = PRELOADED, inst_data: ConfigurableClassData | None = None) -> None:
        self.preload = preload
        self._inst_data = inst_data
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """The configuration from which Dagster created this object."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Returns the schema of the settings in dagster.yaml."""
        return {"preload": Field(Array(str), is_required=False, default_value=list(PRELOADED))}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> Self:
        """Returns the launcher that dagster.yaml describes."""
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
        """Interrupts a run; returns False if it has finished or its process does not run on this machine."""
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
        """True: the daemon's run monitoring may call `check_run_worker_health`."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Returns the health of a run's process: it has failed only if the process is proved to be dead."""
        worker = worker_of(run)
        life = Life.UNKNOWN if worker is None else worker.life()
        status = WorkerStatus.FAILED if life is Life.DEAD else WorkerStatus.RUNNING
        return CheckRunHealthResult(status, f"{worker or 'its worker'} is {life}")
