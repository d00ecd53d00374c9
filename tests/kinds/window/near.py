"""A small pipeline of two streams of events, for the tests of windowed joins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store.sizes import MEASURED, Sizes
from tests.landing import write_lines

FILE = """
name: near
kind: window
join: {join}
within: {{before: 2 milliseconds, after: 3 milliseconds}}
grace: 1 milliseconds
{options}
left: {{path: left, format: rows, schema: "user STRING, at {time}, v INT", contents: events, on: user, time: at}}
right: {{path: {right}, format: rows, schema: "user STRING, at {time}, v INT", contents: events, on: user, time: at}}
select: {select}
settings: {settings}
"""
SELECT = "[left.user AS user, left.at AS l, right.at AS r, right.user AS right_user]"
PLACE = "on: user, time: at}\nright"


class Near:
    """A pipeline of two streams of events (user, at)."""

    def __init__(self, folder: Path, session: SparkSession, sizes: Sizes = MEASURED, **parts: str) -> None:
        known = {"join": "outer", "options": "", "time": "BIGINT", "right": "right", "select": SELECT, "settings": "{}"}
        self.folder, self.file = folder, folder / "pipeline.yaml"
        self.file.write_text(FILE.format(**known | parts))
        self.pipeline = Pipeline(load_spec(self.file), session, sizes=sizes)

    @classmethod
    def again(cls, other: Near) -> Near:
        """Returns the pipeline of a file that was edited."""
        found = cls.__new__(cls)
        found.folder, found.file = other.folder, other.file
        found.pipeline = Pipeline(load_spec(other.file), other.pipeline.session)
        return found

    def land(self, batch: int, left: Sequence[Any] = (), right: Sequence[Any] = ()) -> None:
        for side, rows in (("left", left), ("right", right)):
            write_lines(self.folder / side / f"{batch}.jsonl", ({"user": user, "at": at, "v": 1} for user, at in rows))

    def result(self) -> list[tuple[Any, Any, Any]]:
        """The rows of the result: user, time of the left row, time of the right row."""
        rows = self.pipeline.table("resolved_join").collect()
        return sorted(((row.user or row.right_user, row.l, row.r) for row in rows), key=str)

    def red(self) -> set[str]:
        """The failing checks of whole tables and of the last batch."""
        last = BatchRange.of(int(self.pipeline.ledger().batches[-1]))
        stages = self.pipeline.spec.definition.stage_names
        return {
            f"{stage}: {name}"
            for stage in stages
            for batches in (None, last)
            for name, finding in violations(self.pipeline, stage, batches).findings.items()
            if finding.value and not name.endswith("share_is_low")
        }
