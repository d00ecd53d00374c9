"""The document that a report is: what its parts are, and how they are gathered. The page is made of nothing else.

All of it are values of JSON. Times are texts in ISO 8601, seconds have fractions, and None stands for what is not known
or does not apply. Values of sensitive columns are tokens (`tokens`). Other values are as they are: who shows them
escapes them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

from fk_pipeline import __version__
from fk_pipeline.readable import ReadablePipeline
from fk_pipeline.report.batches import BatchFacts, Series, every_batch, gathered, series_of
from fk_pipeline.report.checks import CheckFacts, check_facts, quarantined
from fk_pipeline.report.lineage import Graph, graph_of, lineage
from fk_pipeline.report.moment import Moment
from fk_pipeline.report.rows import ChangedRows, Taking, changed_rows
from fk_pipeline.report.runs import RunFacts, StageFacts, run_facts, stage_facts
from fk_pipeline.report.state import State, Totals, state_of, totals_of

SHAPE = 1
"""The version of the shape of the document; it grows when a field has another meaning or is gone."""

FULL_BATCHES = 50
"""The newest batches, each told in full; older ones are told in groups."""

GROUPS = 60
"""The most groups of older batches."""

POINTS = 120
"""The most points of a series over time."""


class PipelineFacts(TypedDict):
    """What is told of one pipeline.

    Attributes:
        pipeline, kind, file, warehouse, description: as in the pipeline file; `file` is its path.
        state: how it stands, with a sentence.
        totals: numbers of now.
        graph: its inputs and stages, and the rows on the arrows between them.
        series: what the batches came to, over all of them.
        batches: the newest batches, the newest first.
        older: the batches before these, in groups of equal size; `first` and `last` are the batches of a group.
        stages: each stage with the seconds that it took in all its runs, the slowest first.
        runs: the newest runs of stages, the newest first.
        checks: the last result of each check, red ones first.
        quarantine: the newest records of the quarantine.
        rows: the rows of the result that changed last, each with its story.
        left_out: what is not in the document, and why, in sentences.
    """

    pipeline: str
    kind: str
    file: str
    warehouse: str
    description: str | None
    state: State
    totals: Totals
    graph: Graph
    series: Series
    batches: list[BatchFacts]
    older: list[BatchFacts]
    stages: list[StageFacts]
    runs: list[RunFacts]
    checks: list[CheckFacts]
    quarantine: list[dict[str, Any]]
    rows: ChangedRows
    left_out: list[str]


class Document(TypedDict):
    """A report.

    Attributes:
        version: of this shape.
        made_by: the version of fk-pipeline.
        made_at: when it was made.
        seconds: how long that took.
        pipelines: in the order in which they feed each other.
        lineage: the pipelines, and which result is an input of which, with its rows.
        errors: per pipeline of which nothing could be told, its name, and why.
    """

    version: int
    made_by: str
    made_at: str
    seconds: float
    pipelines: list[PipelineFacts]
    lineage: Graph
    errors: dict[str, str]


@dataclass(frozen=True)
class Effort:
    """How much is read for a report.

    Attributes:
        rows: the most changed rows that are told.
        seconds: how long is read at most, besides the ledger; then the rest is left out. Three quarters are for rows
            and stories.
        looks: whether landing folders are looked at, too.
        predictions_afar: whether those of runs are read where tables are in an object store, a request for each.
    """

    rows: int = 200
    seconds: float = 8.0
    looks: bool = True
    predictions_afar: bool = True


QUICK = Effort(rows=200, seconds=2.0, looks=False, predictions_afar=False)
"""For a report at the end of a run, which must not take long."""


def facts_of(pipeline: ReadablePipeline, effort: Effort) -> PipelineFacts:
    """Returns what is told of a pipeline; needs no Spark.

    Raises:
        StateError: its ledger is damaged, or another pipeline's.
    """
    moment, spec = Moment(pipeline), pipeline.spec
    ledger, left_out = moment.ledger(), list[str]()
    runs = ledger.entries.rows("runs")
    batches = every_batch(spec, ledger, runs)
    until = time.monotonic() + effort.seconds
    predicts = effort.predictions_afar or "://" not in spec.home
    newest = run_facts(spec, runs, until if predicts else 0.0, left_out)
    records = quarantined(moment, until, left_out)
    rows = changed_rows(moment, Taking(effort.rows, until - effort.seconds / 4), left_out)
    return {
        "pipeline": spec.name,
        "kind": spec.kind,
        "file": str(spec.file),
        "warehouse": spec.home,
        "description": spec.description,
        "state": state_of(moment, looks=effort.looks),
        "totals": totals_of(moment, batches, until, left_out),
        "graph": graph_of(spec, ledger),
        "series": series_of(batches, POINTS),
        "batches": batches[: -FULL_BATCHES - 1 : -1],
        "older": gathered(batches[:-FULL_BATCHES], GROUPS)[::-1],
        "stages": stage_facts(spec, runs),
        "runs": newest,
        "checks": check_facts(spec, ledger),
        "quarantine": records,
        "rows": rows,
        "left_out": left_out,
    }


def document_of(pipelines: Sequence[PipelineFacts], begun: float, errors: Mapping[str, str] | None = None) -> Document:
    """Returns the document of some pipelines.

    Args:
        pipelines: what is told of each, in the order in which they feed each other.
        begun: when the work began, as `time.monotonic` says it.
        errors: per pipeline of which nothing could be told, why.
    """
    return {
        "version": SHAPE,
        "made_by": f"fk-pipeline {__version__}",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - begun, 3),
        "pipelines": [*pipelines],
        "lineage": lineage(pipelines),
        "errors": dict(errors or {}),
    }
