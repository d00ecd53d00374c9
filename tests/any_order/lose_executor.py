"""Runs all due work on a small cluster, and kills one of its executors before the commits of two tables.

SPARK_MASTER='local-cluster[2,1,1024]' python lose_executor.py PIPELINE.yaml
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fk_pipeline.pipeline import load
from fk_pipeline.store import faults


def executors(application: str) -> list[int]:
    """Returns the process ids of the executors of an application, in ascending order."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_text()
            except OSError:
                continue
            if "CoarseGrainedExecutorBackend" in command and application in command and "org.apache.spark" in command:
                found.append(int(process.name))
    return sorted(found)


def main(file: str) -> None:
    pipeline = load(file)
    application = pipeline.session.sparkContext.applicationId
    killed = 0

    def kill(point: str) -> None:
        nonlocal killed
        if point in ("before commit of right_table", "before commit of resolved_join"):
            os.kill(executors(application)[0], signal.SIGKILL)
            killed += 1

    with faults.listening(kill):
        pipeline.run()
    print(f"executors killed: {killed}")


if __name__ == "__main__":
    main(sys.argv[1])
