"""Inputs and stages of a pipeline, and pipelines that read each other's results: boxes and the rows on their arrows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from deltalake.exceptions import DeltaError

from fk_pipeline.contract import StageDef
from fk_pipeline.errors import FkPipelineError
from fk_pipeline.identity import Side
from fk_pipeline.report.batches import numbers_of
from fk_pipeline.result_rows import rows_of
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.places import landing_path
from fk_pipeline.store.ledger import Ledger

if TYPE_CHECKING:
    from fk_pipeline.report.document import PipelineFacts


class Box(TypedDict):
    """An input, a stage or a pipeline.

    Attributes:
        name: its name; that of an input begins with `input `.
        role: `input`, `stage` or `result`; in `Document.lineage` `pipeline`.
        depth: how many arrows lead to it, one after the other.
        rows: rows of its main table, or of its result; of an input the rows of all batches that were read.
        seconds: of the last run; None of an input or a pipeline, or if it never ran.
        due: batches that are due; of a pipeline stage runs.
        reads: the file of the pipeline whose result an input is; None: of none.
        about: what a stage does, where an input lands, how a pipeline stands.
    """

    name: str
    role: str
    depth: int
    rows: int | None
    seconds: float | None
    due: int
    reads: str | None
    about: str


class Arrow(TypedDict):
    """What goes from one box to another.

    Attributes:
        before, after: the names of the boxes; in `Document.lineage` of the pipelines.
        input: in `Document.lineage` the input of `after`, as its box is called; else empty.
        rows: the rows of what is read.
        last: about the last run that made what is read: the first of its numbers that is shown; None: not known.
    """

    before: str
    after: str
    input: str
    rows: int | None
    last: int | None


class Graph(TypedDict):
    """The boxes, those that come first first, and the arrows between them."""

    boxes: list[Box]
    arrows: list[Arrow]


def graph_of(spec: PipelineSpec, ledger: Ledger) -> Graph:
    """Returns the inputs and stages of a pipeline."""
    kind = spec.definition
    boxes = {f"input {side}": _input(spec, ledger, side) for side in spec.sides}
    arrows: list[Arrow] = []
    for stage in kind.stages:
        before = [*(f"input {side}" for side in kind.inputs_of(stage.name)), *stage.upstream]
        depth = 1 + max((boxes[name]["depth"] for name in before), default=-1)
        boxes[stage.name] = _stage(spec, ledger, stage, depth)
        for name in before:
            rows, last = boxes[name]["rows"], None if name not in kind.stage_names else _last(ledger, kind.stage(name))
            arrows.append({"before": name, "after": stage.name, "input": "", "rows": rows, "last": last})
    return {"boxes": [*boxes.values()], "arrows": arrows}


def _stage(spec: PipelineSpec, ledger: Ledger, stage: StageDef, depth: int) -> Box:
    last = ledger.runs.last_of(stage.name)
    return {
        "name": stage.name,
        "role": "result" if stage.name == spec.definition.result_stage else "stage",
        "depth": depth,
        "rows": rows_of(ledger, f"{spec.home}/{stage.name}"),
        "seconds": None if last is None else round(last.seconds, 3),
        "due": len(ledger.due.of(stage.name)),
        "reads": None,
        "about": " ".join(stage.description.replace("**", "").replace("`", "").split()),
    }


def _input(spec: PipelineSpec, ledger: Ledger, side: Side) -> Box:
    declared = spec.definition.input(side)
    rows: int | None
    if declared.log:
        stage = spec.definition.input(declared.shared(spec) or side).stage
        states = (ledger.state(stage, batch) for batch in ledger.batches)
        rows = sum(state.counts.get("rows", 0) for state in states)
    else:
        rows = _rows_where_it_lies(spec, ledger, side)
    read = spec.side(side).pipeline
    place = f"the result of {read}" if read is not None else str(spec.side(side).path)
    return {
        "name": f"input {side}",
        "role": "input",
        "depth": 0,
        "rows": rows,
        "seconds": None,
        "due": 0,
        "reads": None if read is None else str((spec.file.parent / read).resolve()),
        "about": "a clock" if side in spec.clocks else place,
    }


def _rows_where_it_lies(spec: PipelineSpec, ledger: Ledger, side: Side) -> int | None:
    """Returns the rows of a Delta table that stages read where it lies; None: not known."""
    if side in spec.clocks:
        return None
    with suppress(FkPipelineError, DeltaError, OSError):
        return rows_of(ledger, landing_path(spec, side).removeprefix("file://").rstrip("/"))
    return None


def _last(ledger: Ledger, stage: StageDef) -> int | None:
    """Returns the first number that is shown of a stage, of all batches of its last run together."""
    last = ledger.runs.last_of(stage.name)
    if last is None or not stage.counts:
        return None
    first = next(iter(stage.counts))
    successes = (ledger.state(stage.name, batch).last for batch in ledger.batches)
    own = [success for success in successes if success is not None and success.run_id == last.run_id]
    return sum(numbers_of(stage, success.counts).get(first, 0) for success in own)


def lineage(pipelines: Sequence[PipelineFacts]) -> Graph:
    """Returns the pipelines, and which results are inputs of which; they come in the order in which they feed."""
    by_file = {str(Path(facts["file"]).resolve()): facts for facts in pipelines}
    boxes: dict[str, Box] = {}
    arrows: list[Arrow] = []
    for facts in pipelines:
        inputs = facts["graph"]["boxes"]
        read = {box["name"]: by_file[box["reads"]] for box in inputs if box["reads"] in by_file}
        depths = [boxes[before["pipeline"]]["depth"] for before in read.values() if before["pipeline"] in boxes]
        boxes[facts["pipeline"]] = {
            "name": facts["pipeline"],
            "role": "pipeline",
            "depth": 1 + max(depths, default=-1),
            "rows": facts["totals"]["rows"],
            "seconds": None,
            "due": facts["state"]["due"],
            "reads": None,
            "about": facts["state"]["sentence"],
        }
        for name, before in read.items():
            rows = before["totals"]["rows"]
            arrows.append(
                {"before": before["pipeline"], "after": facts["pipeline"], "input": name, "rows": rows, "last": None}
            )
    return {"boxes": [*boxes.values()], "arrows": arrows}
