"""The ways to keep the join: our batches, a full recompute with Spark and Delta or with DuckDB, and Kafka Streams."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from workload import DUCKDB, Workload

from fk_pipeline.engine.runner import StageRun
from fk_pipeline.expectations.checking import check
from fk_pipeline.identity import BatchRange
from fk_pipeline.kinds.foreign_key.resolved_join import writing
from fk_pipeline.passes import Pass
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec

HERE = Path(__file__).parent
JAVA_FLAGS = ("-Xmx4g", "-XX:+UseSerialGC")


def seconds(work: Callable[[], object]) -> float:
    """How long some work takes."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


class Ours:
    """Our pipeline over the landing files of a workload."""

    def __init__(
        self, workload: Workload, session: SparkSession, kind: str, settings: str = "{}", name: str = "bench"
    ) -> None:
        self.file = workload.folder / f"{name}.yaml"
        self.file.write_text(workload.pipeline_file(name, kind, settings))
        self.workload = workload
        self.pipeline = Pipeline(load_spec(self.file), session)
        self.written = 0
        self.stages: dict[str, float] = {}
        self.stages_checked: dict[str, float] = {}

    def check_all(self) -> float:
        """Checks every stage at full depth; returns the seconds, and leaves those of each stage in `stages_checked`."""
        self.stages_checked = {}
        for stage in self.pipeline.spec.definition.stage_names:
            self._check(stage, None)
        return sum(self.stages_checked.values())

    def _check(self, stage: str, batches: BatchRange | None) -> None:
        """Checks a stage.

        Raises:
            SystemExit: an expectation does not hold.
        """
        done = check(self.pipeline, stage, batches)
        self.stages_checked[stage] = self.stages_checked.get(stage, 0) + done.seconds
        if done.failed or done.not_run:
            raise SystemExit(f"{stage} of batch {batches}: {done.failed or done.not_run}")

    def run(self, batches: str, checked: bool = False) -> float:
        """Runs a pass; returns its seconds, and leaves those of each stage in `stages`, rows changed in `written`.

        Args:
            batches: the range.
            checked: check what every pass of a stage touched before the next, as `run --check` does; the seconds of the
                checks are not among those returned, but in `stages_checked`.
        """
        self.stages, self.stages_checked, self.written = {}, {}, 0

        def progress(work: Pass, done: StageRun | None) -> None:
            if done is not None:
                self.stages[work.stage] = self.stages.get(work.stage, 0) + done.seconds
                if work.stage == self.pipeline.spec.definition.result_stage:
                    changing = self.workload.WRITES or writing(self.pipeline.spec)
                    self.written += sum(found.get(name, 0) for found in done.counts.values() for name in changing)
                if checked:
                    self._check(work.stage, work.batches)

        return seconds(lambda: self.pipeline.run(batches, progress=progress)) - sum(self.stages_checked.values())

    def result(self) -> DataFrame:
        """The result."""
        return self.pipeline.table(self.pipeline.spec.definition.result.name).select(*self.workload.result)


class Recompute:
    """Reads both tables as they are, joins them, writes the result: with Spark and Delta, or with DuckDB."""

    def __init__(self, workload: Workload, session: SparkSession, kind: str, name: str = "recompute") -> None:
        self.session, self.kind, self.workload = session, kind, workload
        self.folder = workload.folder / name
        self.folder.mkdir(exist_ok=True)
        for side, names in zip(workload.SIDES, (workload.LEFT, workload.RIGHT), strict=False):
            plain = self.folder / f"{side}.parquet"
            workload.current(side, plain)
            table = session.read.parquet(str(plain)).select(*names)
            table.write.format("delta").mode("overwrite").save(str(self.folder / side))
            plain.unlink()

    def _delta(self, name: str) -> str:
        return f"delta.`{self.folder}/{name}`"

    def spark(self) -> float:
        """One full recompute with Spark and Delta."""
        sides = {side: self._delta(side) for side in self.workload.SIDES}
        joined = self.session.sql(self.workload.spark_query(**sides, kind=self.kind))
        writer = joined.write.format("delta").mode("overwrite")
        return seconds(lambda: writer.save(str(self.folder / "result")))

    def result(self) -> DataFrame:
        """What Spark computed."""
        return self.session.read.format("delta").load(str(self.folder / "result"))

    def duckdb(self) -> float:
        """One full recompute with DuckDB, on the files of the same tables."""
        with duckdb.connect(config=DUCKDB) as connection:
            files = {side: DeltaTable(self.folder / side).file_uris() for side in self.workload.SIDES}
            sides = {side: f"read_parquet({uris})" for side, uris in files.items()}
            query = self.workload.duckdb_query(**sides, kind=self.kind)
            out = self.folder / "result.parquet"
            return seconds(lambda: connection.execute(f"COPY ({query}) TO '{out}' (FORMAT parquet)"))

    def duckdb_result(self) -> DataFrame:
        """What DuckDB computed."""
        return self.session.read.parquet(str(self.folder / "result.parquet"))


def digest(result: DataFrame) -> tuple[int, int]:
    """Rows, and a sum over them that does not depend on their order: that of `KafkaStreams`, too."""
    texts = ", ".join(f"CAST({name} AS STRING)" for name in result.columns if name != "id")
    line = f"CONCAT(COALESCE(CAST(id AS STRING), ''), '|', CONCAT_WS('|', {texts}))"
    row = result.selectExpr("COUNT(*) AS n", f"COALESCE(SUM(CRC32({line})), 0) AS s").first()
    assert row is not None
    return row["n"], row["s"]


class KafkaStreams:
    """Kafka Streams' own foreign-key join, its tasks driven directly, RocksDB, one thread."""

    def __init__(self, work: Path) -> None:
        self.work = work
        project = HERE / "kafka"
        goals = ["compile", "dependency:build-classpath"]
        path = project / "target" / "classpath"
        subprocess.run(["mvn", "-q", "-f", project / "pom.xml", *goals, f"-Dmdep.outputFile={path}"], check=True)
        self.classpath = f"{project / 'target' / 'classes'}:{path.read_text().strip()}"

    def run(self, kind: str, phases: list[tuple[str, list[Path]]], limit_seconds: int) -> dict[str, dict[str, float]]:
        """Feeds files, phase by phase.

        Returns:
            Per phase `events` and `seconds`; under `result` its `rows` and `digest`. A phase that meets the limit, and
            those after it, are left out; then there is no `result` either.
        """
        plan = [f"{name}={','.join(map(str, files))}" for name, files in phases]
        state = self.work / "kafka-state"
        done = subprocess.run(
            ["java", *JAVA_FLAGS, "-cp", self.classpath, "Feed", kind, str(state), str(limit_seconds), *plan],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return {line["phase"]: line for line in map(json.loads, done.stdout.splitlines())}
