"""A pipeline whose landing zone and warehouse are in S3, compared with the plain join after every step.

python s3_story.py FOLDER BUCKET    in a process of its own: its Spark session has more JARs than that of the tests
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import fk_pipeline as fk
from fk_pipeline.environment.storage import filesystem
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.store import faults

PIPELINE = """\
name: tested
join: left
warehouse: {bucket}/warehouse
left:
  path: {bucket}/landing/left
  format: rows
  schema: "id INT, fk STRING, v STRING"
  op_column: op
  key: id
  foreign_key: fk
right:
  path: {bucket}/landing/right
  format: rows
  schema: "k STRING, name STRING"
  op_column: op
  key: k
select: [id, v, name]
settings:
  shuffle_partitions: 2
  driver_memory: 1g
  retention_hours: 0
  spark:
    spark.master: local[2]
    spark.driver.extraJavaOptions: -Dlog4j2.configurationFile=file:{logging} -XX:+UseSerialGC -XX:TieredStopAtLevel=1
"""

Row = dict[str, Any]

NAMES = ["a[1]", "a1", "10:15 {x}", "e%20f+g#h", "e f+g#h", "what?*", "ü\\1", "a::b", "s3:a", "'q\"", "[", "}"]
"""Of files, before the number of their batch."""


class Killed(BaseException):
    """The run dies here: no handler of the pipeline catches it."""


class Story:
    """The pipeline, and what has landed."""

    def __init__(self, folder: Path, bucket: str) -> None:
        self.bucket, self.fs = bucket, filesystem(bucket)[0]
        self.landed: dict[str, list[Row]] = {}
        file = folder / "pipeline.yaml"
        file.write_text(PIPELINE.format(bucket=bucket, logging=files("fk_pipeline") / "log4j2.properties"))
        self.pipeline = fk.load(file)

    def land(self, name: str, *rows: Row, besides: str = "", packed: bool = False, cut: int = 0) -> None:
        """Uploads a file, or uploads it anew; what stands besides the rows is none, and what is cut off is of that."""
        data = ("".join(json.dumps(row) + "\n" for row in rows) + besides).encode()
        data = gzip.compress(data, 0) if packed else data
        self.fs.pipe_file(f"{self.bucket}/landing/{name}", data[: len(data) - cut])
        self.landed[name] = list(rows)

    def joined(self) -> dict[int, tuple[str, str | None]]:
        """The plain join of the last writers, in the order of batches and files."""
        sides: dict[str, dict[Any, Row]] = {"left": {}, "right": {}}
        for name in sorted(self.landed, key=lambda name: (name.split("_")[-1], name)):
            side = name.split("/")[0]
            for row in self.landed[name]:
                key = row["id" if side == "left" else "k"]
                if row["op"] == "d":
                    sides[side].pop(key, None)
                else:
                    sides[side][key] = row
        names = {key: row["name"] for key, row in sides["right"].items()}
        return {key: (row["v"], names.get(row["fk"])) for key, row in sides["left"].items()}

    def step(self, what: str, act: Callable[[], object]) -> None:
        """Does something, and compares the result with the plain join."""
        started = time.monotonic()
        act()
        rows = self.pipeline.table("resolved_join").collect()
        found = {row["id"]: (row["v"], row["name"]) for row in rows}
        assert len(rows) == len(found), f"after {what}: two rows for one key"
        assert found == self.joined(), f"after {what}: {found} is not {self.joined()}"
        print(f"{what}: {len(found)} rows as the plain join has them, {time.monotonic() - started:.0f} s", flush=True)

    def dying_run(self, at: str) -> None:
        """A run that dies at a point, and another after it."""

        def die(point: str) -> None:
            if point == at:
                raise Killed

        try:
            with faults.listening(die):
                self.pipeline.run()
        except Killed:
            print(f"died {at}", flush=True)
        else:
            raise AssertionError(f"nothing came by {at}")
        assert self.pipeline.ledger().due.of(Stage.RESOLVED_JOIN)
        self.pipeline.run()

    def verified(self) -> None:
        """Every row is compared by `verify` too, and nothing is pending."""
        report = self.pipeline.verify()
        assert report.ok, report


def main(folder: Path, bucket: str) -> None:
    """The story."""
    story = Story(folder, bucket)
    pipeline, land = story.pipeline, story.land

    def left(key: int, fk: str | None = None, v: str = "", op: str = "u") -> Row:
        return {"op": op, "id": key, "fk": fk, "v": v}

    def right(key: str, name: str = "", op: str = "u") -> Row:
        return {"op": op, "k": key, "name": name}

    land("left/00000001.jsonl", left(1, "a", "one"), left(2, "b", "two"), left(3, "c", "three"), besides="broken\n")
    land("right/00000001.jsonl", right("a", "Ada"))
    land("right/00000002.jsonl", right("b", "Bob"))
    story.step("first run", pipeline.run)
    assert pipeline.table("quarantine").count() == 1

    land("left/00000001.jsonl", left(1, "b", "one anew"), left(2, "b", "two"), left(3, "c", "three"))  # changed
    land("left/late_00000002.jsonl.gz", left(4, "a", "late"), packed=True)  # joins a batch that was done
    land("right/00000003.jsonl", right("a", op="d"), right("c", "Cyd"))
    story.step("changed and late files, a death", lambda: story.dying_run("after commit of verdicts"))
    assert pipeline.table("quarantine").count() == 0

    story.step("verify", story.verified)
    assert not any(pipeline.ledger().due.of(stage) for stage in Stage)
    assert "Bob" in str(pipeline.explain("1"))
    assert 1 in {row["id"] for row in pipeline.changes(1).collect()}

    story.step("rebuild", lambda: pipeline.rebuild("landing"))
    assert not story.fs.exists(f"{bucket}/warehouse/tested/rebuilding")
    before = len(story.fs.find(f"{bucket}/warehouse/tested/resolved_join"))
    story.step("compact", pipeline.compact)
    assert len(story.fs.find(f"{bucket}/warehouse/tested/resolved_join")) < before

    land("left/00000004.jsonl", left(2, op="d"), left(5, "b", "five"))
    land("left/00000005.jsonl.gz", left(6, "c", "six"), besides="{}" + " " * 60 + "\n", packed=True, cut=40)
    story.step("a run after all that", pipeline.run)
    for number, name in enumerate(NAMES):
        land(f"left/{name}_00000006.jsonl", left(100 + number, "b", name))
    story.step("names that are patterns or parts of a URL elsewhere", pipeline.run)
    assert pipeline.table("quarantine").count() == 1
    story.verified()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
