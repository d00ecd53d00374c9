"""Dagster's daemon, with a process beside it that has imported what runs need: its arguments are the daemon's."""

from __future__ import annotations

import logging
import os
import sys

from dagster._daemon.cli import main

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
    finally:  # without multiprocessing's own ending, which waits for the runs
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
