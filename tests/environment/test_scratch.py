"""What Spark spills to disk lies where nobody else may look, and goes with the process, or with the next one."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from fk_pipeline.environment import scratch
from fk_pipeline.environment.process import ProcessIdentity
from fk_pipeline.errors import EnvironmentNotFit
from fk_pipeline.session import session_conf
from fk_pipeline.spec import Settings, load_spec
from fk_pipeline.spec.project import merged

MAKES = "from fk_pipeline.environment.scratch import scratch_folder as f; print(f(), flush=True); input()"
PIPELINE = """\
name: p
join: left
left: {path: l, format: rows, schema: "id INT, fk STRING, iban STRING", key: id, foreign_key: fk, sensitive: iban}
right: {path: r, format: rows, schema: "k STRING", key: k}
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the machine, in which nothing was made yet."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(scratch, "_folders", {})
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_local_session_spills_to_a_private_folder_and_to_none_of_ours_where_another_is_named(temporary: Path) -> None:
    conf = session_conf(environment={})
    folder = Path(conf["spark.local.dir"])
    assert folder.parent == temporary / f"fk-pipeline-{os.getuid()}"
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)
    assert conf["spark.hadoop.hadoop.tmp.dir"] == f"{folder}/hadoop"
    assert session_conf(environment={})["spark.local.dir"] == str(folder)
    assert session_conf(Settings(spark={"spark.local.dir": "/data"}), {})["spark.local.dir"] == "/data"
    assert "spark.local.dir" not in session_conf(environment={"SPARK_LOCAL_DIRS": "/data"})
    assert "spark.local.dir" not in session_conf(environment={"SPARK_MASTER": "spark://host:7077"})


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_that_of_a_living_one_stays(temporary: Path) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", MAKES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folders = [Path(one.stdout.readline().strip()) for one in started if one.stdout is not None]
    try:
        (folders[0] / "blockmgr-1").mkdir()
        (folders[0] / "blockmgr-1" / "shuffle_0").write_text("XY1")
        started[0].send_signal(signal.SIGKILL)
        started[0].wait(20)
        elsewhere = temporary / f"fk-pipeline-{os.getuid()}" / "1-elsewhere"
        elsewhere.mkdir()
        told = json.loads((folders[1] / "owner.json").read_text()) | {"host": "another", "pid": 1}
        (elsewhere / "owner.json").write_text(json.dumps(told))
        mine = scratch.scratch_folder()
        assert [one.exists() for one in (*folders, elsewhere, mine)] == [False, True, True, True]
    finally:
        for one in started:
            one.kill()
            one.communicate()


def test_a_folder_whose_owner_no_whole_file_tells_is_removed_once_it_is_old(temporary: Path) -> None:
    root = scratch.scratch_folder().parent
    owner = json.dumps(ProcessIdentity.of().as_json())
    for length in range(len(owner)):
        (root / f"{length}-old").mkdir()
        (root / f"{length}-old" / "owner.json").write_text(owner[:length])
    (root / ".without").mkdir()
    for folder in root.iterdir():
        os.utime(folder, (0, time.time() - scratch.UNOWNED_SECONDS - 1))
    (root / ".new").mkdir()
    scratch.sweep(root)
    assert {one.name for one in root.iterdir()} == {".new", scratch.scratch_folder().name}


def test_a_folder_that_somebody_else_may_enter_is_closed_and_a_link_in_its_place_is_not_followed(
    temporary: Path,
) -> None:
    root, target = temporary / f"fk-pipeline-{os.getuid()}", temporary / "target"
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    assert scratch.scratch_folder().parent == root
    assert mode(root) == 0o700
    scratch._folders.clear()
    root.rename(temporary / "moved")
    target.mkdir()
    root.symlink_to(target)
    made = scratch.scratch_folder()
    assert made.parent != root
    assert mode(made.parent) == 0o700
    assert list(target.iterdir()) == []


def test_no_room_is_told_with_what_to_set(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "none"))
    with pytest.raises(EnvironmentNotFit, match="there is no room for what Spark spills to disk") as told:
        session_conf(environment={})
    assert "set TMPDIR to a folder that you may write" in str(told.value)


def test_what_is_spilled_is_encrypted_where_a_column_is_sensitive(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    name = "spark.io.encryption.enabled"
    assert merged([load_spec(file)]).spark == {name: "true"}
    file.write_text(PIPELINE + f"settings: {{spark: {{{name}: false}}}}\n")
    assert merged([load_spec(file)]).spark == {name: "false"}
    file.write_text(PIPELINE.replace(", sensitive: iban", ""))
    assert merged([load_spec(file)]).spark == {}


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_that_is_killed_leaves_nothing_that_others_may_read_and_the_next_removes_it(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    for name in ("l", "r", "temporary"):
        (tmp_path / name).mkdir()
    rows = [json.dumps({"id": i, "fk": str(i % 7), "iban": f"SECRET{i}"}) for i in range(200_000)]
    (tmp_path / "l" / "1.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "r" / "1.jsonl").write_text('{"k": "1"}\n')
    (tmp_path / "p.yaml").write_text(PIPELINE)
    command = [sys.executable, "-m", "fk_pipeline.cli.main", "run", str(tmp_path / "p.yaml")]
    environment = os.environ | {"TMPDIR": str(temporary)}
    killed = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 120
    while not [file for file in temporary.rglob("*shuffle*") if file.is_file()] and time.monotonic() < until:
        assert killed.poll() is None
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait(20)
    (root,) = [one for one in temporary.iterdir() if one.name.startswith("fk-pipeline-")]
    assert mode(root) == 0o700
    left = [file for file in root.rglob("*shuffle*") if file.is_file()]
    assert left
    assert not [file for file in root.rglob("*") if file.is_file() and b"SECRET" in file.read_bytes()]
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert not [file for file in left if file.exists()]
    out = tmp_path / "out.jsonl"
    exported = subprocess.run(
        [*command[:3], "export", str(tmp_path / "p.yaml"), "--to", str(out)], env=environment, check=False
    )
    assert exported.returncode == 0
    assert mode(out) == 0o600
    assert len(out.read_text().splitlines()) == 200_000
