"""No lease file that a death can leave needs a person, and none is taken from a living process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, SoftFileLease
from typer.testing import CliRunner

from fk_pipeline.cli.main import app
from fk_pipeline.errors import LeaseLostError, LeaseTakenError
from fk_pipeline.store import abandoned
from fk_pipeline.store import lease as leases
from fk_pipeline.store.abandoned import AbandonedLease
from fk_pipeline.store.lease import lease

LASTS = 0.5
"""Seconds that a lease of these tests lasts; filelock leaves a cut file alone for two seconds."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that wait look more often than they do otherwise."""
    monkeypatch.setattr(leases, "LOOK_SECONDS", 0.1)


@pytest.fixture(params=["exchange", "no exchange"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that exchanges two names in one step, as local ones do, or one that cannot, as NFS and SMB."""
    if request.param == "no exchange":
        places = [sys.modules.get(name) for name in ("filelock._filesystem._exchange", "filelock._soft")]  # by version
        place = next(one for one in places if hasattr(one, "exchange_names"))
        monkeypatch.setattr(place, "exchange_names", lambda *_: False)


@pytest.fixture
def record(tmp_path: Path) -> str:
    """What a lease file of this process says."""
    with lease(str(tmp_path), "record", expires_after=LASTS):
        return file_of(tmp_path, "record").read_text()


def file_of(home: Path, name: str) -> Path:
    return home / "leases" / f"{name}.lease"


def left(home: Path, name: str, content: str, age: float = 0.0) -> Path:
    """A lease file that somebody left so many seconds ago."""
    file = file_of(home, name)
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    os.utime(file, (time.time() - age,) * 2)
    return file


def seconds_until_taken(home: Path, name: str) -> float:
    """How long a run waits for the lease."""
    started = time.monotonic()
    with lease(str(home), name, wait_seconds=30.0, expires_after=LASTS) as check:
        check()
        return time.monotonic() - started


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


@pytest.mark.usefixtures("file_system")
def test_a_file_that_is_cut_anywhere_is_taken_over(tmp_path: Path, record: str) -> None:
    elsewhere = re.sub(r"host=.*", "host=another", record)
    for length in range(len(elsewhere)):
        left(tmp_path, f"cut-{length}", elsewhere[:length])
    with ThreadPoolExecutor(len(elsewhere)) as pool:
        took = list(pool.map(lambda length: seconds_until_taken(tmp_path, f"cut-{length}"), range(len(elsewhere))))
    assert max(took) < 15


def test_an_old_empty_file_and_one_of_a_dead_process_are_taken_over_at_once(tmp_path: Path, record: str) -> None:
    """Also if the number of the process is that of another one now."""
    dead = re.sub(r"pid=\d+", f"pid={ended_process()}", record)
    again = re.sub(r"start=\d+", "start=1", re.sub(r"pid=\d+", f"pid={os.getppid()}", record))
    long = 3600.0
    for name, content in {"empty": "", "dead": dead, "again": again}.items():
        left(tmp_path, name, content.replace(f"duration={LASTS}", f"duration={long}"), age=long + 1)
        started = time.monotonic()
        with lease(str(tmp_path), name, wait_seconds=5.0, expires_after=long) as check:
            check()
        assert time.monotonic() - started < 4


def test_a_command_goes_on_at_once_over_an_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        'name: p\njoin: left\nleft: {path: l, format: rows, schema: "id INT, fk STRING", key: id, foreign_key: fk}\n'
        'right: {path: r, format: rows, schema: "k STRING", key: k}\n'
    )
    for side in ("l", "r"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "1.jsonl").write_text('{"id": 1}\n')
    home = tmp_path / "warehouse" / "p"
    home.mkdir(parents=True)
    left(home, "discovery", "", age=3600)
    started = time.monotonic()
    done = CliRunner().invoke(app, ["remove-batch", str(file), "1"])
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert time.monotonic() - started < 50
    assert not file_of(home, "discovery").exists()


@pytest.mark.usefixtures("file_system")
def test_a_file_of_another_host_of_another_length_or_without_a_start_is_taken_over_when_it_is_silent(
    tmp_path: Path, record: str
) -> None:
    elsewhere = re.sub(r"host=.*", "host=another", record)
    contents = {
        "elsewhere": elsewhere,
        "length": elsewhere.replace(f"duration={LASTS}", f"duration={2 * LASTS}"),
        "alive": re.sub(r"start=\d+\n", "", re.sub(r"pid=\d+", f"pid={os.getppid()}", record)),
        "empty": "",
    }
    for name, content in contents.items():
        left(tmp_path, name, content)
    with ThreadPoolExecutor() as pool:
        took = dict(zip(contents, pool.map(lambda name: seconds_until_taken(tmp_path, name), contents), strict=True))
    assert took.pop("empty") < 15  # its age counts, and it was made a moment before
    assert min(took.values()) >= LASTS
    assert took["length"] >= 2 * LASTS
    assert max(took.values()) < 15


@pytest.mark.usefixtures("file_system")
def test_what_dead_processes_left_beside_a_file_does_not_keep_it(tmp_path: Path, record: str) -> None:
    """filelock moves a file aside while it takes it over; the number of the second process is that of another now."""
    gone = ended_process()
    for aside, pid in {"break": gone, "restore": os.getppid()}.items():
        file = left(tmp_path, aside, re.sub(r"pid=\d+", f"pid={gone}", record))
        file.with_name(f"{file.name}.{aside}.{pid}.{'0' * 32}").write_text("")
    with ThreadPoolExecutor() as pool:
        assert max(pool.map(lambda aside: seconds_until_taken(tmp_path, aside), ("break", "restore"))) < 15


def test_a_new_empty_file_is_left_to_the_process_that_makes_it(tmp_path: Path) -> None:
    file = left(tmp_path, "new", "")
    with pytest.raises(LeaseTakenError) as refused, lease(str(tmp_path), "new", wait_seconds=0.5):
        pass
    assert file.exists()
    assert str(refused.value.fix).endswith(f"if none is at work, remove {file}")


@pytest.mark.usefixtures("file_system")
def test_a_process_that_stopped_while_it_made_its_file_has_lost_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, made, goes_on = SoftFileLease._write_lock_info, threading.Event(), threading.Event()

    def write_late(self: SoftFileLease, fd: int) -> None:
        if not made.is_set():
            made.set()
            assert goes_on.wait(30)
        write(self, fd)

    monkeypatch.setattr(SoftFileLease, "_write_lock_info", write_late)

    def stopped() -> str:
        with lease(str(tmp_path), "stage", expires_after=LASTS) as check:
            try:
                check()
            except LeaseLostError:
                return "lost"
        return "held"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(stopped)
        assert made.wait(30)
        with lease(str(tmp_path), "stage", expires_after=LASTS) as check:
            goes_on.set()
            assert first.result(30) == "lost"
            check()


@pytest.mark.usefixtures("file_system")
def test_of_several_that_wait_for_an_empty_file_one_at_a_time_gets_it(tmp_path: Path) -> None:
    names, inside, most = [f"stage-{i}" for i in range(12)], dict[str, int](), list[int]()
    for name in names:
        left(tmp_path, name, "", age=LASTS + 1)

    def work(name: str) -> None:
        with lease(str(tmp_path), name, expires_after=30 * LASTS) as check:
            inside[name] = inside.get(name, 0) + 1
            most.append(inside[name])
            time.sleep(0.02)
            check()
            inside[name] -= 1

    for name in names:
        os.utime(file_of(tmp_path, name), (0, time.time() - 31 * LASTS))
    with ThreadPoolExecutor(4 * len(names)) as pool:
        list(pool.map(work, names * 4))
    assert most == [1] * 4 * len(names)


def test_one_at_a_time_removes_a_file_and_looks_again_before_it_does(
    tmp_path: Path, record: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = left(tmp_path, "stage", "", age=LASTS + 1)
    held = SoftFileLease(file, lease_duration=LASTS)
    with FileLock(file.with_name("takeover.lock")):
        assert not AbandonedLease(held).remove()

    def after_another(*arguments: Any, **options: Any) -> FileLock:
        file.unlink()
        file.write_text(record)
        return FileLock(*arguments, **options)

    monkeypatch.setattr(abandoned, "FileLock", after_another)
    assert not AbandonedLease(held).remove()
    assert file.read_text() == record


def test_who_removes_a_file_leaves_a_lock_that_others_can_take(tmp_path: Path) -> None:
    old_mask = os.umask(0o077)
    try:
        file = left(tmp_path, "stage", "", age=LASTS + 1)
        assert AbandonedLease(SoftFileLease(file, lease_duration=LASTS)).remove()
    finally:
        os.umask(old_mask)
    lock = file.with_name("takeover.lock")
    assert lock.stat().st_mode & 0o777 == 0o666


@pytest.mark.usefixtures("file_system")
def test_nobody_takes_the_file_of_a_living_process(tmp_path: Path) -> None:
    with lease(str(tmp_path), "stage", expires_after=LASTS) as check:
        with ThreadPoolExecutor(3) as pool:
            for waiting in [pool.submit(taken, tmp_path) for _ in range(3)]:
                assert not waiting.result()
        check()


def taken(home: Path) -> bool:
    try:
        with lease(str(home), "stage", wait_seconds=3 * LASTS, expires_after=LASTS):
            return True
    except LeaseTakenError:
        return False


@pytest.mark.parametrize("note", ["", '{"token": "', "[]", '{"token": "another", "pid": 7, "host": "h"}'])
def test_a_note_about_the_holder_that_is_not_whole_or_of_another_is_not_believed(tmp_path: Path, note: str) -> None:
    with lease(str(tmp_path), "stage", run_id="4711"):
        file_of(tmp_path, "stage").with_suffix(".holder").write_text(note)
        with pytest.raises(LeaseTakenError, match=rf"process {os.getpid()} on ") as refused:
            lease(str(tmp_path), "stage", wait_seconds=0).__enter__()
    assert "4711" not in refused.value.what
