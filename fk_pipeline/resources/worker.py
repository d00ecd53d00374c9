"""The worker process of a run, recorded in a tag of the run: `fk-pipeline recover` can prove that it is dead."""

from __future__ import annotations

import json

from dagster import DagsterInstance, DagsterRun

from fk_pipeline.environment.process import ProcessIdentity

TAG = "fk/worker"
"""The tag with run id and identity of the process. A retry inherits its parent's tags; the run id names the owner."""

_MARKED: set[str] = set()
"""The runs of this process that have their tag: Dagster's object of a run does not show tags that were added later."""


def mark(instance: DagsterInstance, run: DagsterRun, worker: ProcessIdentity | None = None) -> None:
    """Records once which process is the worker of a run; by default this process."""
    if run.run_id not in _MARKED and worker_of(run) is None:
        _MARKED.add(run.run_id)
        record = {"run": run.run_id, **(worker or ProcessIdentity.of()).as_json()}
        instance.add_run_tags(run.run_id, {TAG: json.dumps(record)})


def worker_of(run: DagsterRun) -> ProcessIdentity | None:
    """Returns the worker process of a run; None as long as it is not recorded."""
    record = json.loads(run.tags.get(TAG, "{}"))
    if record.pop("run", None) != run.run_id:
        return None
    return ProcessIdentity.from_json(record)
