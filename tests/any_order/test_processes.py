"""Real processes, real disks: two runs at a time, a full disk, an executor that is lost. Slow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from tests.any_order.histories import LEFT, RIGHT, SCHEMAS, Content, Histories, Place

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
]

LOSE_EXECUTOR = Path(__file__).parent / "lose_executor.py"


class Landed:
    """A pipeline folder with four batches of random histories, and what its join must be."""

    def __init__(self, folder: Path, warehouse: Path | None = None) -> None:
        self.file = folder / "pipeline.yaml"
        where = f"warehouse: {warehouse}\n" if warehouse else ""
        self.file.write_text(
            f"name: processes\njoin: inner\n{where}"
            f'left: {{path: landing/left, format: rows, schema: "{SCHEMAS[LEFT]}", key: id, op_column: op,\n'
            "    foreign_key: fk, sequence_by: seq}\n"
            f'right: {{path: landing/right, format: rows, schema: "{SCHEMAS[RIGHT]}", key: k, op_column: op,\n'
            "    sequence_by: seq}\nselect: [id, v, fk, name]\n"
        )
        histories = Histories(Random(1), 100, sequenced=True)
        self.landed: dict[Place, Content] = {}
        for batch in range(4):
            for side in (LEFT, RIGHT):
                content = self.landed[batch, side] = histories.content(side, 0.6)
                (folder / "landing" / side).mkdir(parents=True, exist_ok=True)
                (folder / "landing" / side / f"{batch}.jsonl").write_text(content.text(side))
        self.expected = histories.join(self.landed, "inner")

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "fk_pipeline.cli.main", "run", str(self.file), *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def check(self, spark: SparkSession) -> None:
        pipeline = Pipeline(load_spec(self.file), spark)
        rows = pipeline.table("resolved_join").select("id", "v", "fk", "name").collect()
        assert {row[0]: tuple(row[1:]) for row in rows} == self.expected
        report = pipeline.verify()
        assert (report.ok, report.due) == (True, 0)


def test_two_processes_at_the_same_time(tmp_path: Path, spark: SparkSession) -> None:
    landed = Landed(tmp_path)
    running = [landed.start("--batches", order) for order in ("0,1,2,3", "3,2,0..1,2")]
    ends = [(process.communicate()[1], process.returncode) for process in running]
    assert [code for _, code in ends] == [0, 0], ends
    last = landed.start()
    assert last.wait() == 0
    last.communicate()
    landed.check(spark)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, where one may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk(tmp_path: Path, small_disk: Path, spark: SparkSession) -> None:
    landed = Landed(tmp_path, small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 850_000)
    process = landed.start()
    said = process.communicate()[1]
    assert process.returncode == 1, said
    assert "No space left on device" in said
    assert "Traceback" not in said
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    process = landed.start()
    assert process.wait() == 0
    process.communicate()
    landed.check(spark)


def test_an_executor_that_is_lost(tmp_path: Path, spark: SparkSession) -> None:
    landed = Landed(tmp_path)
    done = subprocess.run(
        [sys.executable, LOSE_EXECUTOR, landed.file],
        env=os.environ | {"SPARK_MASTER": "local-cluster[2,1,1024]"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "executors killed: 2" in done.stdout
    landed.check(spark)
