"""Dagster's daemon, with a second process that has imported the modules of runs; takes the arguments of the daemon."""

from __future__ import annotations

import logging
import os
import sys

from dagster._daemon.cli import main  # what the program `dagster-daemon` runs: there is no public function

from fk_pipeline.servers.launcher import preload

if __name__ == "__main__":
    preload()
    code: object = 1
    try:
        main()
    except SystemExit as end:
        code = end.code
    except Exception:
        logging.getLogger("dagster").exception("the daemon failed")
    finally:  # skips the exit handler of multiprocessing, which waits for the runs
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
