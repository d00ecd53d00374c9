"""Makes the archive of Spark's classes, before many processes of tests need it: `make test` does so first.

A session makes it when it ends; this one runs a batch of a few rows, so that the classes of a run are in it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fk_pipeline.environment.class_archive import archive_of, is_whole
from fk_pipeline.session import shared_conf

LONGEST_SECONDS = 120


def run_few_rows(folder: Path) -> None:
    """Runs the smallest batch of the demo in a session of this process."""
    from fk_pipeline.demo import files
    from fk_pipeline.pipeline import load

    file = files.prepare_demo(folder)
    files.land(folder, files.batches()[-1])
    pipeline = load(file)
    pipeline.run()
    assert pipeline.verify().ok


def main() -> None:
    """Makes the archive if there is none, and waits for it."""
    archive = archive_of(shared_conf().get("spark.driver.extraClassPath", ""))
    if archive is None or is_whole(archive):
        return
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, folder], check=True, stderr=subprocess.DEVNULL)
    until = time.monotonic() + LONGEST_SECONDS
    while not is_whole(archive) and time.monotonic() < until:
        time.sleep(0.2)
    assert is_whole(archive), f"{archive} was not written"


if __name__ == "__main__":
    run_few_rows(Path(sys.argv[1])) if sys.argv[1:] else main()
