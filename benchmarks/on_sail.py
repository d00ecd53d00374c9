"""Our batches on Sail, in a process of its own: each line of standard input is a range to run, `result` ends it.

Answers one JSON line each: the seconds, or rows and digest of the result.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engines import Ours, digest
from workload import Workload

from fk_pipeline.session import start_session
from fk_pipeline.spec import Settings


def main(folder: str, kind: str, settings: str) -> None:
    """Serves until it is asked for the result, or standard input ends."""
    session = start_session(Settings(), {"FK_SPARK_REMOTE": "sail"})
    ours = Ours(Workload(Path(folder), 0, 0, False), session, kind, settings, name="sail")
    for line in sys.stdin:
        asked = line.strip()
        answer = digest(ours.result()) if asked == "result" else ours.run(asked)
        print(json.dumps(answer), flush=True)
        if asked == "result":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
