"""One holder at a time: taken over at once from the dead, after a while from the silent, never from the living."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fk_pipeline.errors import LeaseLostError, LeaseTakenError
from fk_pipeline.tables.lease import lease

HOLD = """
import sys
from fk_pipeline.errors import LeaseLostError
from fk_pipeline.tables.lease import lease
with lease(sys.argv[1], "stage", expires_after=float(sys.argv[2])) as check:
    print("held", flush=True)
    sys.stdin.readline()
    try:
        check()
        print("still held", flush=True)
    except LeaseLostError:
        print("lost", flush=True)
"""


@contextmanager
def holder(home: Path, expires_after: float) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease until it is told to look whether it still does."""
    command = [sys.executable, "-c", HOLD, str(home), str(expires_after)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("look\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_nobody_takes_the_lease_of_a_living_process(tmp_path: Path) -> None:
    with holder(tmp_path, 1.0) as process:
        waiting = lease(str(tmp_path), "stage", wait_seconds=2.5, expires_after=1.0)
        with pytest.raises(LeaseTakenError, match="another run has held stage"), waiting:
            pass
        assert answer(process) == "still held"


def test_another_stage_is_another_lease(tmp_path: Path) -> None:
    with lease(str(tmp_path), "one", wait_seconds=0) as check, lease(str(tmp_path), "other", wait_seconds=0):
        check()


def test_the_lease_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    with holder(tmp_path, 3600.0) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with lease(str(tmp_path), "stage", wait_seconds=5.0, expires_after=3600.0) as check:
            check()


def test_a_process_that_slept_too_long_has_lost_it_and_finds_out_before_it_commits(tmp_path: Path) -> None:
    with holder(tmp_path, 1.0) as process:
        os.kill(process.pid, signal.SIGSTOP)
        started = time.monotonic()
        with lease(str(tmp_path), "stage", wait_seconds=30.0, expires_after=1.0) as check:
            assert time.monotonic() - started >= 1.0
            os.kill(process.pid, signal.SIGCONT)
            assert answer(process) == "lost"
            check()
        assert not list((tmp_path / "leases").iterdir())


def test_a_lease_whose_file_was_removed_is_lost(tmp_path: Path) -> None:
    with lease(str(tmp_path), "stage") as check:
        (tmp_path / "leases" / "stage.lease").unlink()
        with pytest.raises(LeaseLostError, match="lost its lease on stage"):
            check()
