"""A standalone cluster: two workers on this machine do the stages, with the JARs that are sent to them and no Python.

Slow. Every command is a process of its own, so that its driver starts as a user's does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.environment.jars import DELTA_JARS, bring
from tests.environment.standalone import Cluster, cluster
from tests.sessions import NO_PYTHON, QUICK, connect_server

pytestmark = pytest.mark.slow

LEFT = {
    0: [{"id": i, "fk": "abcd"[i % 4], "v": "v0"} for i in range(200)],
    1: [{"id": i, "fk": "dcba"[i % 4], "v": "v1"} for i in range(0, 200, 3)],
    2: [{"op": "d", "id": i} for i in range(0, 200, 7)] + [{"id": 500, "fk": "late", "v": "v2"}],
    3: [],
}
RIGHT = {
    0: [{"k": k, "name": k.upper()} for k in "abc"],
    1: [{"k": "d", "name": "D"}],
    2: [{"op": "d", "k": "b"}],
    3: [{"k": "late", "name": "L"}, {"k": "a", "name": "A3"}],
}
JARS = {jar.file_name for jar in DELTA_JARS}
REWRITTEN = [{"id": i, "fk": "abcd"[i % 4], "v": "w1"} for i in range(0, 200, 5)]


class Shop:
    """A small pipeline, run by the command."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events = folder, folder / "events"
        self.events.mkdir(parents=True)
        self.file = folder / "shop.yaml"
        self.configure()
        self.left = dict(LEFT)
        for side, batches in (("left", LEFT), ("right", RIGHT)):
            for batch, rows in batches.items():
                self.land(side, batch, rows)

    def configure(self, **spark: str) -> None:
        """Writes the pipeline file, with further settings of Spark."""
        settings = {
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        lines = "".join(f'\n    {name}: "{value}"' for name, value in (settings | spark).items())
        self.file.write_text(
            "name: shop\njoin: left\n"
            'left: {path: left, format: rows, schema: "id INT, fk STRING, v STRING", op_column: op, key: id,\n'
            "    foreign_key: fk}\n"
            'right: {path: right, format: rows, schema: "k STRING, name STRING", op_column: op, key: k}\n'
            f"select: [id, fk, v, name]\nsettings:\n  spark:{lines}\n"
        )

    def land(self, side: str, batch: int, rows: Sequence[dict[str, Any]]) -> None:
        file = self.folder / side / f"{batch}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps({"op": "u"} | row) + "\n" for row in rows))

    def rewrite(self, batch: int) -> None:
        """The left file of a batch has other rows."""
        self.left[batch] = REWRITTEN
        self.land("left", batch, REWRITTEN)

    def join(self) -> dict[int, tuple[str, str, str | None]]:
        """What the result must be."""
        tables: list[dict[Any, dict[str, Any]]] = []
        for key, batches in (("id", self.left), ("k", RIGHT)):
            rows: dict[Any, dict[str, Any]] = {}
            for batch in sorted(batches):
                for row in batches[batch]:
                    rows[row[key]] = row
            tables.append({k: row for k, row in rows.items() if row.get("op") != "d"})
        left, right = tables
        return {i: (row["fk"], row["v"], right.get(row["fk"], {}).get("name")) for i, row in left.items()}

    def command(self, *arguments: str, **environment: str) -> Any:
        """What the command prints as JSON, with a driver that has no Python for executors either."""
        done = subprocess.run(
            [sys.executable, "-m", "fk_pipeline.cli.main", *arguments, "--format", "json"],
            env=os.environ | {"PYSPARK_PYTHON": NO_PYTHON, "JDK_JAVA_OPTIONS": QUICK} | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def agrees(self, **environment: str) -> bool:
        """`verify` finds no row wrong, and nothing is due."""
        told = self.command("verify", str(self.file), "--no-checks", **environment)
        assert told["rows"] == len(self.join())
        assert not any(told[name] for name in set(told) - {"rows", "left_rows", "right_rows"}), told
        return True

    def rows(self, **environment: str) -> dict[int, tuple[str, str, str | None]]:
        """The result, as it is exported."""
        out = self.folder / "result.jsonl"
        self.command("export", str(self.file), "--to", str(out), **environment)
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        return {row["id"]: (row["fk"], row["v"], row["name"]) for row in rows}

    def applications(self) -> dict[str, Counter[str]]:
        """By application, oldest first: how many tasks each of its executors ended well, by the event logs."""
        logs = sorted((log for log in self.events.iterdir() if log.is_file()), key=lambda log: log.stat().st_mtime)
        return {log.name: _tasks(log) for log in logs}


def _tasks(log: Path) -> Counter[str]:
    done: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
            done[event["Task Info"]["Executor ID"]] += 1
    return done


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def both_worked(workers: Cluster, application: str, tasks: Counter[str]) -> bool:
    """Each worker has an executor that ended tasks of the application."""
    per_worker = [sum(tasks[number] for number in numbers) for numbers in workers.executors(application)]
    assert min(per_worker) > 0, (application, per_worker)
    return True


def test_batches_a_rewrite_and_a_rebuild_by_both_workers(workers: Cluster, tmp_path: Path) -> None:
    shop, master = Shop(tmp_path / "shop"), workers.url
    shop.command("run", str(shop.file), "--batches", "0,2..3", SPARK_MASTER=master)
    shop.rewrite(0)
    shop.command("run", str(shop.file), SPARK_MASTER=master)  # batch 1, and batch 0 again
    shop.command("rebuild", str(shop.file), "--from", "landing", SPARK_MASTER=master)
    applications = shop.applications()
    assert len(applications) == 3
    for name, tasks in applications.items():
        assert both_worked(workers, name, tasks)
        assert workers.sent(name) == JARS
    there = os.pathsep.join(map(str, bring()))  # from here on as if the cluster had Delta itself
    shop.configure(**{"spark.driver.extraClassPath": there, "spark.executor.extraClassPath": there})
    assert shop.agrees(SPARK_MASTER=master)
    assert shop.rows(SPARK_MASTER=master) == shop.join()
    for name in shop.applications().keys() - applications:
        assert not workers.sent(name)
    assert {done["id"] for done in workers.state()["completedapps"]} == set(shop.applications())


def test_a_connect_server_with_executors_on_the_cluster(workers: Cluster, tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop")
    environment = {"SPARK_MASTER": workers.url, "FK_PIPELINES": str(shop.file), "JDK_JAVA_OPTIONS": QUICK}
    with connect_server(tmp_path, environment | {"PYSPARK_PYTHON": NO_PYTHON}) as remote:
        shop.command("run", str(shop.file), FK_SPARK_REMOTE=remote)
        shop.rewrite(1)
        shop.command("run", str(shop.file), FK_SPARK_REMOTE=remote)
        assert shop.agrees(FK_SPARK_REMOTE=remote)
        assert shop.rows(FK_SPARK_REMOTE=remote) == shop.join()
    [(name, tasks)] = shop.applications().items()
    assert both_worked(workers, name, tasks)
    assert workers.sent(name) == JARS


def test_there_is_no_python_on_the_executors(workers: Cluster) -> None:
    """So what the tests above do needs none: a Python function fails here."""
    code = (
        "import sys; from pyspark.sql import SparkSession; from pyspark.sql.functions import udf;"
        "session = SparkSession.builder.master(sys.argv[1]).getOrCreate();"
        "session.range(2).select(udf(lambda x: x)('id')).collect()"
    )
    environment = os.environ | {"PYSPARK_PYTHON": NO_PYTHON, "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK}
    asked = [sys.executable, "-c", code, workers.url]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f'Cannot run program "{NO_PYTHON}"' in done.stderr
