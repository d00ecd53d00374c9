"""Warehouse and landing zone in S3: a local server stands for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from fk_pipeline.cdc.table_versions import are_kept, new_versions
from fk_pipeline.cdc.zone import FsspecLandingZone
from fk_pipeline.environment.jars import DELTA_JARS, fetch, jar_folder, wrong_jars
from fk_pipeline.environment.s3_jars import S3_JARS
from fk_pipeline.environment.storage import delta_options, filesystem, opened
from fk_pipeline.errors import EnvironmentNotFit
from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.store.ledger.entries import Entries
from fk_pipeline.store.logs import DeltaLogs
from tests.store.s3_story import NAMES

STORY = Path(__file__).parent / "s3_story.py"


@pytest.fixture(scope="session")
def jars_folder() -> Path:
    """A folder with the JARs for S3; they are fetched once, outside of this checkout and of its environment."""
    wanted = (*DELTA_JARS, *S3_JARS)
    if not wrong_jars(jars=wanted):
        return jar_folder()
    folder = Path(tempfile.gettempdir()) / "fk-pipeline-test-jars"
    try:
        fetch(target=folder, jars=wanted)
    except EnvironmentNotFit as error:
        pytest.skip(f"the JARs for S3 cannot be had: {error}")
    return folder


@pytest.mark.slow
@pytest.mark.spark
def test_a_pipeline_in_s3_has_the_rows_of_the_plain_join_after_every_step(s3, jars_folder, tmp_path):
    environment = os.environ | {"FK_JARS_DIR": str(jars_folder), "PYTHONPATH": str(Path.cwd())}
    log = tmp_path / "story.log"
    with log.open("w") as out:
        done = subprocess.run(
            [sys.executable, str(STORY), str(tmp_path), s3],
            env=environment, stdout=out, stderr=subprocess.STDOUT, timeout=2400, check=False,
        )  # fmt: skip
    assert done.returncode == 0, log.read_text()[-4000:]
    assert log.read_text().count("as the plain join has them") == 7
    command = [sys.executable, "-m", "fk_pipeline.cli.main", "status", str(tmp_path / "pipeline.yaml")]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert told.count("done") >= 5 * len(Stage)


def test_what_others_put_into_a_bucket_is_seen_at_once(s3):
    fs, root = filesystem(s3)
    assert fs.ls(root) == []
    with opened(f"{s3}/one", "wb") as stream:
        stream.write(b"1")
    assert fs.ls(root) == [f"{root}/one"]
    with opened(f"{s3}/one", "wb") as stream:
        stream.write(b"one")
    with opened(f"{s3}/one") as stream:
        assert stream.read() == b"one"


def test_objects_of_any_name_are_listed_told_apart_and_read(s3):
    fs, zone, found = filesystem(s3)[0], FsspecLandingZone(), {}
    for name in NAMES:
        fs.pipe_file(f"{s3}/landing/{name}.jsonl", name.encode())
    for file in zone.list(f"{s3}/landing"):
        with opened(file.path) as stream:
            found[file.path] = stream.read().decode()
    assert found == {f"{s3}/landing/{name}.jsonl": name for name in NAMES}
    assert zone.exists(f"{s3}/landing")
    assert not zone.exists(f"{s3}/lost")
    assert zone.list(f"{s3}/lost") == []


def test_entries_of_two_processes_are_all_kept_and_seen(s3):
    """Two ledgers of one pipeline, as the command and Dagster have them."""
    mine, theirs = Entries(f"{s3}/p"), Entries(f"{s3}/p")
    assert mine.changed()
    for number in range(3):
        mine.append("fingerprints", [{"part": "mine", "value": str(number)}])
        theirs.append("fingerprints", [{"part": "theirs", "value": str(number)}])
    assert mine.changed()
    assert [(row["part"], row["value"]) for row in mine.rows("fingerprints")] == [
        (who, str(number)) for number in range(3) for who in ("mine", "theirs")
    ]


def test_a_log_is_read_once_and_followed(s3, monkeypatch):
    path, logs = f"{s3}/t", DeltaLogs()
    assert logs.version(path) is None
    options = delta_options(path)
    entries = Entries(s3)
    entries.append("fingerprints", [{"part": "a", "value": "1"}])
    path = f"{s3}/fingerprints"
    assert logs.version(path) == 0
    first = logs.table(path)
    assert logs.table(path) is first
    entries.append("fingerprints", [{"part": "a", "value": "2"}])
    assert logs.version(path) == 1
    assert logs.table(path) is first
    assert DeltaTable(path, storage_options=options).version() == 1


def test_a_table_that_was_removed_and_made_anew_is_noticed(s3):
    logs, entries = DeltaLogs(), Entries(s3)
    path = f"{s3}/fingerprints"
    entries.append("fingerprints", [{"part": "a", "value": "1"}])
    before = logs.table(path)
    assert before is not None
    fs, root = filesystem(path)
    fs.rm(root, recursive=True)
    assert logs.table(path) is None
    Entries(s3).append("fingerprints", [{"part": "a", "value": "2"}])
    after = logs.table(path)
    assert after is not None
    assert after.metadata().id != before.metadata().id


def test_of_two_commits_of_one_version_the_store_refuses_one(s3):
    """What the ledger relies on: delta-rs commits by a put on the condition that there is no such version yet."""
    path = f"{s3}/fingerprints"
    entries = Entries(s3)
    entries.append("fingerprints", [{"part": "a", "value": "1"}])
    one, other = (DeltaTable(path, storage_options=delta_options(path)) for _ in range(2))
    rows = one.to_pyarrow_table()
    write_deltalake(one, rows, mode="overwrite")
    with pytest.raises(CommitFailedError):
        write_deltalake(other, rows, mode="overwrite")
    assert DeltaTable(path, storage_options=delta_options(path)).version() == 1


def test_a_delta_table_in_s3_can_be_a_side(s3):
    path = f"{s3}/fingerprints"
    assert new_versions(path, {}, []) is None
    Entries(s3).append("fingerprints", [{"part": "a", "value": "1"}])
    found = new_versions(path, {}, [])
    assert found is not None
    whole, size, name = found
    assert whole == f"{path}@..0"
    assert size > 0
    assert new_versions(path, {whole: name}, []) is None
    assert are_kept(whole)
    Entries(s3).append("fingerprints", [{"part": "a", "value": "2"}])
    assert new_versions(path, {whole: name}, []) == (f"{path}@..1", size * 2, name)
    fs, root = filesystem(path)
    fs.rm(next(file for file in fs.find(root) if file.endswith(".parquet")))
    assert not are_kept(f"{path}@..1")
