"""Delta logs followed without Spark: new commits, tables made anew, and what must be left to Delta."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from fk_pipeline.store.logs import UNKNOWN_SIZE, DeltaLogs


def write(path: Path, *values: int, **options: object) -> None:
    write_deltalake(str(path), pa.table({"a": list(values), "b": ["x"] * len(values)}), mode="append", **options)


def test_a_table_is_followed_from_commit_to_commit(tmp_path: Path) -> None:
    logs, path = DeltaLogs(), tmp_path / "t"
    assert (logs.version(str(path)), logs.rows(str(path))) == (None, 0)
    for version in range(3):
        write(path, version, version)
        assert (logs.version(str(path)), logs.rows(str(path))) == (version, 2 * (version + 1))


def test_a_table_that_was_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    logs, path = DeltaLogs(), tmp_path / "t"
    for _ in range(3):
        write(path, 1)
    assert logs.version(str(path)) == 2
    shutil.rmtree(path)
    assert logs.version(str(path)) is None
    for version in range(4):
        write(path, 1, 2)
        assert logs.version(str(path)) == version
    shutil.rmtree(path)
    write(path, 7)
    assert (logs.version(str(path)), logs.rows(str(path))) == (0, 1)


def test_the_files_of_the_current_version(tmp_path: Path) -> None:
    logs, path = DeltaLogs(), tmp_path / "t"
    write(path, 1)
    write(path, 2)
    found = logs.plain_files(str(path), 1, at_most=2)
    assert found is not None
    assert sorted(p.name for p in path.glob("*.parquet")) == sorted(Path(p).name for p in found.paths)
    assert [field["name"] for field in found.schema["fields"]] == ["a", "b"]
    assert logs.plain_files(str(path), 1, at_most=1) is None
    assert logs.plain_files(str(path), 0, at_most=2) is None
    write(path, 3)
    DeltaTable(str(path)).delete("a = 2")
    remaining = logs.plain_files(str(path), 3, at_most=9)
    assert remaining is not None
    assert len(remaining.paths) == 2


@pytest.mark.parametrize("folder", ["a b", "ü", "x'y&z+1"])
def test_the_files_of_a_table_in_any_folder_are_there(tmp_path: Path, folder: str) -> None:
    logs, path = DeltaLogs(), tmp_path / folder / "t"
    path.parent.mkdir()
    write(path, 1)
    found = logs.plain_files(str(path), 0, at_most=9)
    assert found is not None
    assert [Path(file).exists() for file in found.paths] == [True]


def test_a_table_with_partitions_is_left_to_delta(tmp_path: Path) -> None:
    logs, path = DeltaLogs(), tmp_path / "t"
    write(path, 1, partition_by=["b"])
    assert logs.plain_files(str(path), 0, at_most=9) is None


def test_a_file_without_a_count_is_many_rows(tmp_path: Path) -> None:
    logs, path = DeltaLogs(), tmp_path / "t"
    write(path, 1)
    commit = path / "_delta_log" / f"{0:020d}.json"
    commit.write_text("\n".join(line for line in commit.read_text().splitlines()).replace('"stats":', '"unread":'))
    assert logs.rows(str(path)) >= UNKNOWN_SIZE
