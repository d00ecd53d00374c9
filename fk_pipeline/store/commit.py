"""The purpose of a commit to a Delta table, and the checks around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fk_pipeline.identity import BatchRange
from fk_pipeline.store import faults
from fk_pipeline.store.schemas import Table


@dataclass(frozen=True)
class CommitInfo:
    """The purpose of a commit, stored in the Delta history, and the check whether it may be made."""

    pipeline: str
    stage: str
    batches: BatchRange
    run_id: str
    check: Callable[[], None] = lambda: None
    """Called before and after the commit; raises if it must not be made or was made too late: the stage stays due."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the rows of the table (`effects.Upsert.metadata`)."""
    only_at: int | None = None
    """The version that the table must have when it is appended to; None: any."""

    def as_json(self) -> str:
        """Returns the user metadata of the commit."""
        facts = {"pipeline": self.pipeline, "stage": self.stage, "batches": str(self.batches), "run_id": self.run_id}
        if self.only_at is not None:
            facts["only_at"] = str(self.only_at)
        return json.dumps(facts | ({"rows": dict(self.metadata)} if self.metadata else {}))


@contextmanager
def committing(table: Table, info: CommitInfo) -> Iterator[None]:
    """Wraps a commit: checks before and after it that it may be made, and has the points at which tests end a run."""
    info.check()
    with faults.around(f"commit of {table.name}"):
        yield
    info.check()
