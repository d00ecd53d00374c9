"""Runs all due work in a separate process and kills its whole process group, Spark included, around a commit.

python die.py POINT PIPELINE.yaml ...    POINT is the number of the point at which it is killed, counted from 1
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fk_pipeline.pipeline import load
from fk_pipeline.store import faults

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.any_order.subjects import register


def main(wanted: int, *files: str) -> None:
    seen = 0

    def die(point: str) -> None:
        nonlocal seen
        seen += 1
        if seen == wanted:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    register()
    with faults.listening(die):
        for file in files:
            load(file).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
