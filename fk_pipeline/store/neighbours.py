"""Whether a pipeline was ever run, and which others are in its warehouse: a renamed pipeline still has tables there."""

from __future__ import annotations

from fk_pipeline.environment.storage import filesystem
from fk_pipeline.errors import StateError
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger


def neighbours(spec: PipelineSpec) -> list[str]:
    """Returns the names of the other pipelines in the warehouse: its folders that have a ledger of runs."""
    fs, root = filesystem(spec.location(spec.warehouse))
    if not fs.exists(root):
        return []
    names = sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in fs.ls(root, detail=False))
    return [name for name in names if name != spec.name and fs.exists(f"{root.rstrip('/')}/{name}/runs/_delta_log")]


def never_run(spec: PipelineSpec) -> str:
    """Returns the sentence for a pipeline that never started a stage; it names the other pipelines in the warehouse."""
    others = neighbours(spec)
    suffix = f"; other pipelines here: {', '.join(others)}" if others else ""
    return f"nothing was ever run in {spec.location(spec.warehouse)} as pipeline {spec.name}{suffix}"


def refuse_never_run(spec: PipelineSpec, ledger: Ledger) -> None:
    """Raises if the pipeline has no state to report: an empty report would look like a correct one.

    Raises:
        StateError: no stage of the pipeline was ever started in its warehouse.
    """
    if not ledger.runs.stages:
        raise StateError(
            never_run(spec),
            where=str(spec.file),
            why="there is nothing to look at",
            fix=f"fk-pipeline run {spec.file}; or set 'name' and 'warehouse' to those that it was run with",
        )
