"""A Spark that dies: one error that says over what, and the next call in the same process starts another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fk_pipeline.environment.spark_life import is_gone, leave_connect

PIPELINE = """
name: mortal
join: left
left: {path: landing/left, format: rows, schema: "id INT, fk STRING", key: id, foreign_key: fk}
right: {path: landing/right, format: rows, schema: "k STRING, name STRING", key: k}
"""

PROGRAM = """
import os, sys, signal
import fk_pipeline as fk
from fk_pipeline.errors import SparkEndedError
from fk_pipeline.store import faults
from pyspark import SparkContext

def kill():
    process = SparkContext._gateway.proc
    os.killpg(process.pid, signal.SIGKILL) if os.getpgid(process.pid) == process.pid else process.kill()
    process.wait()

def land(name, text):
    open(os.path.join(sys.argv[1], "landing", name), "w").write(text)

file = os.path.join(sys.argv[1], "p.yaml")
pipeline = fk.load(file)
pipeline.run()
print("first", [tuple(row) for row in pipeline.table("resolved_join").select("id", "name").collect()])

kill()  # between two runs
land("left/1.jsonl", '{"id": 2, "fk": "a"}\\n')
pipeline.run()
print("second", sorted(row[0] for row in pipeline.table("resolved_join").select("id").collect()))

land("left/2.jsonl", '{"id": 3, "fk": "a"}\\n')
with faults.listening(lambda point: kill() if point == "before commit of subscription_store" else None):
    try:
        pipeline.run()
    except SparkEndedError as error:
        print("ended", error.exit_code, str(error).replace(sys.argv[1], "HERE").replace("\\n", "|"))
print("due", {str(stage): list(map(int, batches)) for stage, batches in pipeline.due().items() if batches})
again = fk.load(file)
again.run()
print("third", sorted(row[0] for row in again.table("resolved_join").select("id").collect()))
print("verified", pipeline.verify().ok)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_java_process_that_dies_between_runs_or_in_one_is_started_again(tmp_path: Path) -> None:
    for side, line in (("left", '{"id": 1, "fk": "a"}'), ("right", '{"k": "a", "name": "A"}')):
        (tmp_path / "landing" / side).mkdir(parents=True)
        (tmp_path / "landing" / side / "0.jsonl").write_text(line + "\n")
    (tmp_path / "p.yaml").write_text(PIPELINE)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert told["first"] == "[(1, 'A')]"
    assert told["second"] == "[1, 2]"
    assert told["ended"].startswith(
        "3 pipeline mortal, stage subscription_store, batch 2: Spark ended while the stage ran|  most often its memory "
        "ran out (heap: Spark's own), here over landing/left/2.jsonl (21 bytes). The batches stay due; "
    )
    assert "Fix: fk-pipeline run HERE/p.yaml, which starts Spark anew" in told["ended"]
    assert told["due"] == "{'subscription_store': [2], 'responses': [2], 'resolved_join': [2]}"
    assert told["third"] == "[1, 2, 3]"
    assert told["verified"] == "True"


def test_a_server_of_this_machine_that_does_not_listen_is_gone_and_others_are_not_asked() -> None:
    def session_of(endpoint: str) -> Any:
        client = SimpleNamespace(_builder=SimpleNamespace(endpoint=endpoint))
        return SimpleNamespace(is_stopped=False, client=client)

    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{made.getsockname()[1]}"
        assert is_gone(session_of(place))
        made.listen()
        assert not is_gone(session_of(place))
    assert is_gone(session_of(place))
    assert not is_gone(session_of("spark.example.com:15002"))
    assert not is_gone(SimpleNamespace(is_stopped=False))


def test_a_client_that_another_thread_still_imports_has_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "pyspark.sql.connect.session"  # Great Expectations imports it, too, beside the start of the session
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    leave_connect()
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ
