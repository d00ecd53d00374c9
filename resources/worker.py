"""Where a run is at work, as a tag of the run: so that `fk-pipeline recover` can prove that its process is dead."""

from __future__ import annotations

import json

from dagster import DagsterInstance, DagsterRun

from fk_pipeline.environment.process import ProcessIdentity

TAG = "fk/worker"
"""Run id and identity of the process. A retry inherits its parent's tags; the run id tells whose this one is."""

_MARKED: set[str] = set()
"""The runs of this process that have their tag: the run that Dagster hands out is as it was at the start."""


def mark(instance: DagsterInstance, run: DagsterRun, worker: ProcessIdentity | None = None) -> None:
    """Notes which process is the worker of a run, once; by default this one."""
    if run.run_id not in _MARKED and worker_of(run) is None:
        _MARKED.add(run.run_id)
        said = {"run": run.run_id, **(worker or ProcessIdentity.of()).as_json()}
        instance.add_run_tags(run.run_id, {TAG: json.dumps(said)})


def worker_of(run: DagsterRun) -> ProcessIdentity | None:
    """The process in which a run is at work; None as long as it has not said so."""
    said = json.loads(run.tags.get(TAG, "{}"))
    if said.pop("run", None) != run.run_id:
        return None
    return ProcessIdentity.from_json(said)
