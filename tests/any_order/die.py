"""Runs all that is due in a process of its own and kills its whole group, Spark included, at a point around a commit.

python die.py PIPELINE.yaml POINT
"""

from __future__ import annotations

import os
import signal
import sys

from fk_pipeline.pipeline import load
from fk_pipeline.store import faults


def main(file: str, wanted: int) -> None:
    seen = 0

    def die(point: str) -> None:
        nonlocal seen
        seen += 1
        if seen == wanted:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    with faults.listening(die):
        load(file).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
