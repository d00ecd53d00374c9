"""Runs cases through a pipeline of their own: event i of every case in batch i, one batch after another."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.trace.cases import AnyStreamCase, AnyWindowCase, Case, TableCase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json = dict[str, Any]
Of = TypeVar("Of", bound=Case | TableCase | AnyStreamCase | AnyWindowCase)

BatchStarted = Callable[[str, int, int], None]
"""Is called with join type, batch and number of batches before every batch."""


class CaseRun(ABC, Generic[Of]):
    """One pipeline over cases of one join type.

    Args:
        cases: the cases.
        folder: an empty folder for the landing files and the warehouse.
        session: a Spark session.
        parts: the parts of the pipeline file besides its name and `select`.
        select: columns of the result besides `left_value` and `right_value`.
    """

    def __init__(
        self, cases: Sequence[Of], folder: Path, session: SparkSession, parts: Json, select: Sequence[str] = ()
    ) -> None:
        self.cases, self.folder, self.join = cases, folder, str(parts["join"])
        values = ["left.value AS left_value", "right.value AS right_value"]
        own = {"name": f"trace_{self.join}", "select": [*select, *values], "file": folder / "pipeline.yaml"}
        self.pipeline = Pipeline(PipelineSpec.model_validate(parts | own), session)

    @abstractmethod
    def lines(self, side: Side, batch: int) -> list[str] | None:
        """Returns the lines of a landing file; None if there is none."""

    def each_batch(self, progress: BatchStarted | None) -> Iterator[int]:
        """Lands every event, runs batch after batch, and yields each batch when it has run."""
        batches = max((len(case.events) for case in self.cases), default=0)
        for side in SIDES:
            (self.folder / side).mkdir()
            for batch in range(batches):
                lines = self.lines(side, batch)
                if lines is not None:
                    path = self.folder / side / f"{batch:08d}.jsonl"
                    path.write_text("".join(lines), encoding="utf-8")
        for batch in range(batches):
            if progress is not None:
                progress(self.join, batch, batches)
            self.pipeline.run(str(batch))
            yield batch


def values_of(row: Any) -> Json:
    """Returns the values of both sides of a row of the result."""
    texts = {side: row[f"{side}_value"] for side in ("left", "right")}
    return {side: None if text is None else json.loads(text) for side, text in texts.items()}
