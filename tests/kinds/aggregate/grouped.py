"""A small pipeline of kind aggregate, and what its result must be, in plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from fk_pipeline.expectations.violations import violations
from fk_pipeline.identity import BatchRange
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from fk_pipeline.store.sizes import MEASURED, Sizes
from tests.landing import write_lines

FILE = """
name: grouped
kind: aggregate
input:
  path: landing
  format: rows
  schema: "id BIGINT, user STRING, at {time}, v INT, note STRING"
  {contents}
group_by: {group_by}
{window}
aggregates: {aggregates}
{options}
settings: {settings}
"""
TABLE, EVENTS = "key: id\n  op_column: op", "contents: events"
AGGREGATES = "[count(*) AS n, sum(v) AS total, 'max(struct(v, id)).id AS best']"
Content = list[dict[str, Any]]


class Grouped:
    """A pipeline of one input."""

    def __init__(self, folder: Path, session: SparkSession, sizes: Sizes = MEASURED, **parts: str) -> None:
        known = {
            "time": "BIGINT",
            "contents": TABLE,
            "group_by": "[user]",
            "window": "",
            "aggregates": AGGREGATES,
            "options": "",
            "settings": "{}",
        }
        self.folder, self.file, self.session, self.sizes = folder, folder / "pipeline.yaml", session, sizes
        self.parts = known | parts
        self.landed: dict[int, Content] = {}
        self.edit()

    def edit(self, **parts: str) -> None:
        """Writes the file with other parts, and loads it."""
        self.parts |= parts
        self.file.write_text(FILE.format(**self.parts))
        self.pipeline = Pipeline(load_spec(self.file), self.session, sizes=self.sizes)

    def land(self, batch: int, rows: Content) -> None:
        write_lines(self.folder / "landing" / f"{batch}.jsonl", rows)
        self.landed[batch] = rows

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the last writers: by batch, then by place."""
        if "events" in self.parts["contents"]:
            return [row for _, rows in sorted(self.landed.items()) for row in rows]
        last = {row["id"]: row for _, rows in sorted(self.landed.items()) for row in rows}
        return [row for row in last.values() if row["op"] != "d"]

    def result(self) -> list[tuple[Any, ...]]:
        """The rows of the result."""
        table = self.pipeline.table("aggregated")
        return sorted(
            (tuple(row) for row in table.select(*[o.name for o in self.pipeline.spec.outputs]).collect()), key=str
        )

    def red(self) -> set[str]:
        """The failing checks of whole tables and of the last batch."""
        last = BatchRange.of(int(self.pipeline.ledger().batches[-1]))
        return {
            f"{stage}: {name}"
            for stage in self.pipeline.spec.definition.stage_names
            for batches in (None, last)
            for name, finding in violations(self.pipeline, stage, batches).findings.items()
            if finding.value and not name.endswith("share_is_low")
        }


def random_rows(random: Random, number: int) -> Content:
    """Returns rows of few keys, whose groups and times change."""
    return [
        {
            "op": random.choice("uuuud"),
            "id": random.randint(1, 12),
            "user": random.choice(["a", "b", "c", None]),
            "at": random.randint(-20, 40),
            "v": random.randint(0, 5),
            "note": random.choice("xyz"),
        }
        for _ in range(number)
    ]


def groups(rows: Content, size: int | None = None, every: int | None = None) -> Mapping[tuple[Any, ...], Content]:
    """Returns the rows of each user, or of each window of each user: (user, start, end)."""
    found: dict[tuple[Any, ...], Content] = {}
    for row in rows:
        if size is None or every is None:
            found.setdefault((row["user"],), []).append(row)
            continue
        start = row["at"] // every * every
        while start > row["at"] - size:
            found.setdefault((row["user"], start, start + size), []).append(row)
            start -= every
    return found


def expected(rows: Content, size: int | None = None, every: int | None = None) -> list[tuple[Any, ...]]:
    """Returns the rows of the result with `AGGREGATES`."""
    return sorted(
        (
            (*group, len(of), sum(row["v"] for row in of), max((row["v"], row["id"]) for row in of)[1])
            for group, of in groups(rows, size, every).items()
        ),
        key=str,
    )
