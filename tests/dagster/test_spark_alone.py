"""A warm Spark that was started alone: the command and Python find it, each says so, and its death stops nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sessions import free_port

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.spark]

PIPELINE = """\
name: counted
kind: aggregate
input: {path: landing, format: rows, schema: "id INT, k STRING", key: id}
group_by: [k]
aggregates: ["count(*) AS n"]
settings: {shuffle_partitions: 3}
"""
PROGRAM = """
import os, sys, time
import fk_pipeline as fk
from fk_pipeline.session import start_session

pipeline = fk.load(sys.argv[1])
assert pipeline.verify().ok
spark = pipeline.session
assert "connect" in type(spark).__module__
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
assert start_session() is spark
os.kill(int(sys.argv[2]), 9)
while "connect" in type(pipeline.session).__module__:  # until its port is closed
    time.sleep(0.1)
pipeline.run("1")
assert pipeline.verify().ok
assert "connect" not in type(pipeline.session).__module__
"""


def test_commands_and_programs_use_it_until_it_ends(tmp_path: Path) -> None:
    home, port = tmp_path / "home", free_port()
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.jsonl").write_text('{"id": 1, "k": "a"}\n')
    environment = {k: v for k, v in os.environ.items() if k not in ("FK_SPARK_REMOTE", "FK_PIPELINES", "SPARK_MASTER")}

    def called(*args: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, args)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=500
        )
        assert done.returncode == 0, done.stderr
        return done

    command = ["-m", "fk_pipeline.cli.main"]
    [server] = json.loads(
        called(*command, "spark", "start", "--home", home, "--spark-port", port, "--format", "json").stdout
    )
    try:
        said = f"Spark is the warm one at sc://127.0.0.1:{port}."
        ran = called(*command, "run", file)
        assert ran.stderr.count(said) == ran.stderr.count("Spark ") == 1
        checked = called(*command, "verify", file)
        assert checked.stderr.count(said) == 1
        assert "1 result row: equal to" in checked.stdout
        assert said not in called(*command, "show", file, "aggregated").stderr
        died = called("-c", PROGRAM, file, server["pid"])
        assert died.stderr.count(said) == 1
        assert f"the warm one at sc://127.0.0.1:{port} is not used: it has ended" in died.stderr
    finally:
        called(*command, "spark", "stop", "--home", home)
