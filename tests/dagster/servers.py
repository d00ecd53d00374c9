"""Dagster and Spark as `fk-pipeline up` starts them, over a copy of the demo, for tests that take minutes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from fk_pipeline.demo import files
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.spec import load_spec
from tests.dagster.graphql import Dagster
from tests.sessions import free_port

PIPELINE = "flight_planes"
JOB, CHECKS, SENSOR = f"{PIPELINE}_all_stages", f"{PIPELINE}_full_checks", f"{PIPELINE}_new_batches"
RESULT = [PIPELINE]
ASSETS = [RESULT if stage is Stage.RESOLVED_JOIN else [PIPELINE, stage.value] for stage in Stage]
LANDED = [[PIPELINE, side] for side in ("left", "right")]
COMMAND = Path(sys.executable).parent / "fk-pipeline"
SETTINGS = "settings:\n  sensor_seconds: 5\n  retry_seconds: 1\n"


class Served:
    """A Dagster home with its servers, and the demo's pipeline."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.demo = folder / "demo"
        self.file = files.prepare_demo(self.demo)
        text = self.file.read_text()
        assert "\nsettings:" not in text
        self.file.write_text(f"{text.rstrip()}\n{SETTINGS}")
        self.ports = free_port(), free_port()
        self.dagster = Dagster(f"http://127.0.0.1:{self.ports[0]}")
        self.spark = f"sc://127.0.0.1:{self.ports[1]}"

    def command(self, *arguments: str) -> Any:
        """What a command says as JSON."""
        environment = {k: v for k, v in os.environ.items() if k not in ("FK_SPARK_REMOTE", "FK_PIPELINES")}
        done = subprocess.run(
            [COMMAND, *arguments, "--format", "json"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def up(self, *options: str) -> dict[str, int]:
        """Starts what does not run; process ids by server."""
        web, spark = map(str, self.ports)
        ports = "--port", web, "--spark-port", spark
        told = self.command("up", str(self.file), "--home", str(self.home), *ports, *options)
        return {server["name"]: server["pid"] for server in told}

    def down(self) -> list[dict[str, Any]]:
        """Ends them; the runs that went on."""
        return self.command("down", "--home", str(self.home))

    def kill_everything(self) -> None:
        """As a loss of power would: every server and all that they have started, at once and without a word."""
        known = json.loads((self.home / "servers.json").read_text())
        family = [psutil.Process(one["process"]["pid"]) for one in known.values()]
        family += [child for one in family for child in one.children(recursive=True)]
        for one in family:
            one.suspend()
        for one in family:
            one.kill()
        psutil.wait_procs(family, timeout=20)

    def kill_worker(self, run_id: str) -> None:
        """Kills the process in which a run is at work."""
        said = json.loads(self.dagster.run(run_id)["tags"]["fk/worker"])
        os.kill(said["pid"], signal.SIGKILL)

    def land(self, *batches: int) -> None:
        """Batches of the demo arrive."""
        for batch in batches:
            files.land(self.demo, batch)

    def pipeline(self) -> Pipeline:
        """For its ledger: no Spark."""
        return Pipeline(load_spec(self.file))

    def nothing_due(self) -> bool:
        pipeline = self.pipeline()
        pipeline.discover()
        return not any(pipeline.due().values())

    def sql(self, statement: str) -> list[list[Any]]:
        """What a statement returns on the Spark server. Another process asks: this one may have a session at work."""
        code = (
            "import json, sys; from fk_pipeline.session import start_session;"
            "s = start_session(None, {'FK_SPARK_REMOTE': sys.argv[1]});"
            "print(json.dumps([list(row) for row in s.sql(sys.argv[2]).collect()]))"
        )
        asked = [sys.executable, "-c", code, self.spark, statement]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: list[list[Any]] = json.loads(done.stdout)
        return found

    def proved(self) -> dict[str, Any]:
        """What `verify` says; an error if the result is not the join."""
        return self.command("verify", str(self.file), "--no-checks")
