"""The sensor of a pipeline with thousands of batches: seconds of a tick. No Spark: a ledger is told of the runs.

`python benchmarks/ticks.py [--batches 5000]`, or `make bench-ticks`. Dagster's storage is SQLite in a folder, as
`fk-pipeline up` has it. Printed are a quiet tick, one that finds a new batch, one that finds a batch between others,
one that finds a file that landed again, and ticks that tell a new Dagster what it lacks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, build_sensor_context

from fk_pipeline.assets.reports import report
from fk_pipeline.definitions import definitions
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

TEXT = """\
name: many
join: left
left: {path: landing/left, format: rows, schema: "id INT, fk STRING", key: id, foreign_key: fk}
right: {path: landing/right, format: rows, schema: "k STRING, name STRING", key: k}
"""


def land(folder: Path, batch: int, number: int = 1) -> None:
    """Writes the files of a batch."""
    for side, row in (("left", {"id": batch, "fk": "a"}), ("right", {"k": "a", "name": str(number)})):
        file = folder / "landing" / side / f"{batch:08d}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(row) + "\n")


def told(pipeline: Pipeline, batches: list[int]) -> None:
    """Tells the ledger that all stages ran for batches."""
    ledger = pipeline.ledger()
    for stage in ledger.kind.stage_names:
        ledger.start(stage, batches, f"{stage} {batches[0]}", {})
        ledger.runs.succeed({batch: {"rows": 1} for batch in batches}, {}, 0.1)


class Sensor:
    """The sensor of the pipeline, with the cursor that Dagster keeps."""

    def __init__(self, file: Path, instance: DagsterInstance) -> None:
        self.defs, self.instance, self.cursor = definitions([file]), instance, None
        self.repository = self.defs.get_repository_def()

    def ticks(self, number: int) -> list[float]:
        """Returns the seconds of some ticks."""
        return [self.tick() for _ in range(number)]

    def tick(self) -> float:
        """Returns the seconds of a tick."""
        sensor, resources = (
            self.repository.get_sensor_def("many_new_batches"),
            self.repository.get_top_level_resources(),
        )
        zone: Any = {"landing_zone": resources["landing_zone"]}
        begun = time.monotonic()
        with build_sensor_context(
            instance=self.instance, repository_def=self.repository, resources=zone, cursor=self.cursor
        ) as context:
            self.cursor = sensor.evaluate_tick(context).cursor
        return time.monotonic() - begun


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=5000)
    number = parser.parse_args().batches
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "many.yaml").write_text(TEXT)
        for batch in range(1, number + 1):
            land(folder, 2 * batch)
        pipeline = Pipeline(load_spec(folder / "many.yaml"))
        pipeline.discover()
        told(pipeline, [int(batch) for batch in pipeline.ledger().batches])
        (folder / "dagster").mkdir()
        with DagsterInstance.local_temp(str(folder / "dagster")) as instance:
            sensor = Sensor(folder / "many.yaml", instance)
            found = {"a tick that tells a new Dagster of the newest batches, the longest of 5": max(sensor.ticks(5))}
            begun = time.monotonic()
            events = report(instance, pipeline.spec, pipeline.ledger()).events
            found[f"`dagster sync`: all others, {events:,} events"] = time.monotonic() - begun
            found["a tick that finds that nothing lacks"] = sensor.tick()
            found["a quiet tick, the longest of 5"] = max(sensor.ticks(5))
            land(folder, 2 * number + 2)
            found["a new batch"] = sensor.tick()
            told(pipeline, [2 * number + 2])
            found["it has run"] = sensor.tick()
            land(folder, number + 1)
            found["a batch between others"] = sensor.tick()
            land(folder, 2, 2)
            found["a batch that landed again"] = sensor.tick()
    for what, seconds in found.items():
        sys.stdout.write(f"{seconds:6.2f} s  {what}\n")


if __name__ == "__main__":
    main()
