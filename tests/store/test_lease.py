"""One holder at a time: taken over at once from the dead, after a while from the silent, never from the living."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fk_pipeline.environment.process import ProcessIdentity
from fk_pipeline.environment.storage import filesystem
from fk_pipeline.errors import LeaseLostError, LeaseTakenError, StorageError
from fk_pipeline.store import waiting
from fk_pipeline.store.lease import lease
from fk_pipeline.store.object_lease import Content, LeaseObject

HOLD = """
import sys
from fk_pipeline.environment.process import ProcessIdentity
from fk_pipeline.environment.storage import StorageError, filesystem
from fk_pipeline.errors import LeaseLostError
from fk_pipeline.store.lease import lease
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
def holder(home: str, expires_after: float) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease until it is told to look whether it still does."""
    command = [sys.executable, "-c", HOLD, home, str(expires_after)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(params=["local", "s3"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The folder of a pipeline, on a disk and in a bucket."""
    return str(tmp_path) if request.param == "local" else f"{request.getfixturevalue('s3')}/pipeline"


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("look\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_nobody_takes_the_lease_of_a_living_process(home: str) -> None:
    with holder(home, 0.6) as process:
        waiting = lease(home, "stage", wait_seconds=1.5, expires_after=0.6)
        with pytest.raises(LeaseTakenError, match="another run has held stage"), waiting:
            pass
        assert answer(process) == "still held"


def test_whoever_waits_says_for_whom_and_since_when(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(waiting, "EVERY_SECONDS", 0.1)
    heard: list[str] = []
    since = re.escape(datetime.now(UTC).strftime("%F %H:"))
    held, wanted = lease(home, "stage", run_id="4711"), lease(home, "stage", wait_seconds=0.7)
    with held, waiting.hearing(heard.append), pytest.raises(LeaseTakenError) as refused, wanted:
        pass
    who = rf"process {os.getpid()} on {re.escape(socket.gethostname())}, run 4711, since {since}\d\d:\d\d UTC"
    assert len(heard) > 1
    assert re.fullmatch(rf"waiting for {who}, which holds stage; for 1 s at most", heard[0])
    assert re.search(who, refused.value.what)
    with lease(home, "stage"), waiting.hearing(heard.append):
        heard.clear()
    assert heard == []


def test_a_command_that_waits_says_so_on_stderr_at_once(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        'name: p\njoin: left\nleft: {path: l, format: rows, schema: "id INT, fk STRING", key: id, foreign_key: fk}\n'
        'right: {path: r, format: rows, schema: "k STRING", key: k}\n'
    )
    (tmp_path / "l").mkdir()
    (tmp_path / "r").mkdir()
    (tmp_path / "l" / "1.jsonl").write_text('{"id": 1}\n')
    command = [sys.executable, "-m", "fk_pipeline.cli.main", "remove-batch", str(file), "1"]
    with lease(str(tmp_path / "warehouse" / "p"), "discovery"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        said = process.stderr.readline()
    out = process.communicate(timeout=60)[0]
    assert said.startswith(f"waiting for process {os.getpid()} on {socket.gethostname()}, since 2")
    assert said.endswith(" UTC, which holds discovery; for 600 s at most\n")
    assert process.returncode == 0, out


def test_another_stage_is_another_lease(home: str) -> None:
    with lease(home, "one", wait_seconds=0) as check, lease(home, "other", wait_seconds=0):
        check()


def test_the_lease_of_a_killed_process_is_free_soon(home: str) -> None:
    with holder(home, 3600.0) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with lease(home, "stage", wait_seconds=20.0, expires_after=3600.0) as check:
            check()


def test_a_process_that_slept_too_long_has_lost_it_and_finds_out_before_it_commits(home: str) -> None:
    with holder(home, 0.6) as process:
        os.kill(process.pid, signal.SIGSTOP)
        started = time.monotonic()
        with lease(home, "stage", wait_seconds=30.0, expires_after=0.6) as check:
            assert time.monotonic() - started >= 0.6
            os.kill(process.pid, signal.SIGCONT)
            assert answer(process) == "lost"
            check()
        with lease(home, "stage", wait_seconds=0, expires_after=0.6):
            pass  # it was given back


def test_a_lease_whose_file_was_removed_is_lost(home: str) -> None:
    with lease(home, "stage") as check:
        fs, root = filesystem(home)
        fs.rm_file(f"{root}/leases/stage.lease")
        with pytest.raises(LeaseLostError, match="lost its lease on stage"):
            check()


IN_TURNS = """
import sys, time
from fk_pipeline.store.lease import lease
for _ in range(3):
    with lease(sys.argv[1], "stage", expires_after=30.0):
        with open(sys.argv[2], "a") as log:
            log.write("in\\n")
            log.flush()
            time.sleep(0.05)
            log.write("out\\n")
"""


def test_several_processes_hold_it_in_turns(home: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", IN_TURNS, home, str(tmp_path / "log")]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "in\nout\n" * 9


def test_a_put_whose_answer_got_lost_is_told_from_that_of_another(s3: str) -> None:
    file = LeaseObject(f"{s3}/lost.lease")
    mine, theirs = (Content(ProcessIdentity.of().as_json(), token, 0, 60.0) for token in ("mine", "theirs"))
    tag = file.write(mine, None)
    assert tag is not None
    assert file.write(mine, None) == tag  # as a repeated put finds it
    assert file.write(theirs, None) is None
    assert file.read() == (mine, tag)


def test_an_object_with_whatever_content_is_taken_over_when_it_has_not_changed_for_long_enough(s3: str) -> None:
    fs, root = filesystem(s3)
    here = ProcessIdentity.of().as_json()
    said = json.dumps(asdict(Content(here | {"host": "another"}, "theirs", 7, 0.5)))
    again = json.dumps(asdict(Content(here | {"pid": os.getppid(), "started": 1.0}, "theirs", 7, 3600.0)))
    contents = [*(said[:length] for length in range(0, len(said), 20)), said, again, "something else", '{"holder": 1}']
    for number, content in enumerate(contents):
        fs.pipe_file(f"{root}/home/leases/stage-{number}.lease", content.encode())

    def seconds(number: int) -> float:
        started = time.monotonic()
        with lease(f"{s3}/home", f"stage-{number}", wait_seconds=30.0, expires_after=0.5) as check:
            check()
            return time.monotonic() - started

    with ThreadPoolExecutor(len(contents)) as pool:
        took = list(pool.map(seconds, range(len(contents))))
    assert min(took) >= 0.5
    assert max(took) < 20


def test_an_object_with_other_content_is_not_taken_before_and_a_store_that_does_not_answer_is_an_error_of_the_storage(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    fs, root = filesystem(s3)
    fs.pipe_file(f"{root}/home/leases/stage.lease", b"something else")
    with pytest.raises(LeaseTakenError, match="nobody knows which"), lease(f"{s3}/home", "stage", wait_seconds=0.5):
        pass
    with pytest.raises(StorageError, match="NoSuchBucket"), lease("s3a://there-is-none/home", "stage"):
        pass
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match="Could not connect"), lease(f"{s3}/home", "stage"):
        pass
