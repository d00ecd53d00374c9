"""A warehouse on a disk that is full, read-only, or cannot put a file into its place: one error, status 3, no trace."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.cli import main
from fk_pipeline.environment.doctor import check_writable
from fk_pipeline.environment.refusals import refusal
from fk_pipeline.errors import StorageError
from fk_pipeline.store.ledger import entries


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[int, list[str]]:
    """The status of the command, in this process, and the lines of its errors."""
    monkeypatch.setattr(sys, "argv", ["fk-pipeline", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        main.app_main()
    return int(str(ended.value.code or 0)), capsys.readouterr().err.strip().splitlines()


@pytest.mark.parametrize(
    ("number", "what", "fix"),
    [
        (errno.ENOSPC, "the disk is full: No space left on device", "free space there"),
        (errno.EDQUOT, "the disk is full: Disk quota exceeded", "free space there"),
        (errno.EROFS, "the file system is read-only: Read-only file system", "mount it so that it can be written"),
        (errno.EACCES, "this user lacks a permission: Permission denied", "grant it"),
        (
            errno.EOPNOTSUPP,
            "the file system cannot put a file into its place in one step: ",
            "move the warehouse to a local disk or to S3",
        ),
    ],
)
def test_what_the_system_says_is_one_error(
    number: int, what: str, fix: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system is asked nothing: it refuses the folder of the leases, then what delta-rs writes."""
    plain = Path.mkdir

    def refusing(self: Path, *args: Any, **how: Any) -> None:
        if self.name == "leases":
            raise OSError(number, os.strerror(number), str(self))
        plain(self, *args, **how)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", refusing)
        status, [first, _, last] = command(monkeypatch, capsys, "run", file)
    assert status == 3
    assert first.startswith(f"StorageError: {file.parent}/warehouse/p/leases: {what}")
    assert last.startswith(f"  Fix: {fix}")
    assert last.endswith("; or name another 'warehouse' in the pipeline file")

    def written(table: Any, *_: Any, **__: Any) -> None:
        said = f"Generic LocalFileSystem error: Unable to rename file: {os.strerror(number)} (os error {number})"
        raise OSError(said)  # as delta-rs raises it: without errno and file

    with monkeypatch.context() as patched:
        patched.setattr(entries, "write_deltalake", written)
        status, [first, *_] = command(monkeypatch, capsys, "run", file)
    assert status == 3
    assert first.startswith(f"StorageError: {file.parent}/warehouse/p/")
    assert what in first


def test_an_error_that_is_none_of_a_disk_is_left_alone() -> None:
    assert refusal(OSError(errno.ENOENT, "No such file or directory", "x"), "there") is None
    assert refusal(ValueError("column note: No space left"), "there") is None
    assert refusal(StorageError("no answer from S3"), "there") is None
    from py4j.protocol import Py4JError

    spark = Py4JError("java.io.FileNotFoundException: /landing/a 1.jsonl (Permission denied)\n\tat java.base/...")
    found = refusal(spark, "/warehouse/p")
    assert found is not None
    assert (found.where, found.fix) == ("/landing/a 1.jsonl", "grant it, or run the command as another user")
    full = refusal(Py4JError("java.io.IOException: No space left on device\n\tat"), "/warehouse/p")
    assert full is not None
    assert full.where == "/warehouse/p"
    named = refusal(OSError(errno.EROFS, "Read-only file system", "a", None, "b"), "there", "pipeline p")
    assert named is not None
    assert (named.where, named.exit_code) == ("pipeline p: b", 3)


def test_doctor_tries_what_commits_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_writable(tmp_path / "warehouse").ok
    assert list(tmp_path.iterdir()) == [], "what it tries with is removed"

    def refusing(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "hardlink_to", refusing)
        found = check_writable(tmp_path / "warehouse")
    assert not found.ok
    assert found.actual.startswith(f"{tmp_path}: the file system cannot put a file into its place in one step")
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import json, subprocess, sys
from pathlib import Path
from fk_pipeline.cli import main

file, warehouse = Path(sys.argv[1]), Path(sys.argv[1]).parent / "warehouse"

def told(*args):
    sys.argv = ["fk-pipeline", *map(str, args)]
    print("COMMAND", *args, file=sys.stderr, flush=True)
    try:
        main.app_main()
        status = 0
    except SystemExit as end:
        status = end.code
    print("STATUS", status or 0, file=sys.stderr, flush=True)

def mount(*args):
    subprocess.run(["mount", *args, str(warehouse)], check=True)

def land(batch, rows):
    lines = "".join(json.dumps({"id": i, "fk": "a"}) + "\\n" for i in rows)
    (file.parent / "landing/left" / f"{batch}.jsonl").write_text(lines)

warehouse.mkdir()
mount("-t", "tmpfs", "-o", "size=8m", "t")
told("run", file)
filler = warehouse / "filler"
land(1, range(2, 4000))
with filler.open("wb") as out:
    free = __import__("os").statvfs(warehouse)
    out.write(b"x" * (free.f_bavail * free.f_bsize - 100_000))
told("run", file)
told("status", file)
filler.unlink()
told("run", file)
land(2, [5000])
mount("-o", "remount,ro")
for name in ("run", "status", "plan", "compact", "rebuild"):
    told(name, file)
told("verify", file, "--no-checks")
mount("-o", "remount,rw")
told("run", file)
told("verify", file, "--no-checks")
"""


def _may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=16k t /mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not _may_mount(), reason="this user may not mount a file system of its own")
def test_a_full_and_a_read_only_disk_stop_every_command_that_writes_and_are_mended_by_the_next_run(file: Path) -> None:
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", PROGRAM, str(file)],
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = []
    for part in done.stderr.split("COMMAND ")[1:]:
        name, lines = part.split(" ", 1)[0], part.splitlines()
        status = int(next(line for line in lines if line.startswith("STATUS ")).split()[1])
        errors = [line for line in lines if "Error: " in line]
        found.append((name, status, errors))
    assert [(name, status) for name, status, _ in found] == [
        ("run", 0), ("run", 3), ("status", 0), ("run", 0),
        ("run", 3), ("status", 0), ("plan", 0), ("compact", 3), ("rebuild", 3), ("verify", 0),
        ("run", 0), ("verify", 0),
    ], done.stderr  # fmt: skip
    home = f"{file.parent}/warehouse/p"
    for name, status, errors in found:
        assert len(errors) == (status == 3), (name, errors)
        if status == 3:
            assert errors[0].startswith("StorageError: "), errors
            assert home in errors[0]
    assert "the disk is full: No space left on device" in found[1][2][0]
    assert all("the file system is read-only: Read-only file system" in found[i][2][0] for i in (4, 7, 8))
