"""Nulls in columns of a table are counted by the footers of its files, without rows in deletion vectors. No Spark."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from fk_pipeline.errors import LeftToSpark
from fk_pipeline.store.logs import UNMARKED, DeltaLogs, StoredFile
from fk_pipeline.store.null_counts import null_counts

LATER = time.monotonic() + 3600


class Marked(DeltaLogs):
    """Logs that say that some rows of each file are in its deletion vector."""

    def files(self, path: str) -> Any:
        return [replace(file, deleted=pa.array([0, 2], pa.int64())) for file in super().files(path)]


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Two files: in `a` rows 0 and 3 of the first are null, in `b` all of the first, which is older than the column."""
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"a": pa.array([None, b"1", b"2", None], pa.binary())}))
    more = pa.table({"a": pa.array([b"3", b"4", b"5"], pa.binary()), "b": pa.array([1, None, None], pa.int64())})
    write_deltalake(path, more, mode="append", schema_mode="merge")
    return path


def test_nulls_are_counted_over_all_files(table: str) -> None:
    assert null_counts(DeltaLogs(), table, ["a", "b"], LATER) == {"a": 2, "b": 6}


def test_rows_in_deletion_vectors_do_not_count(table: str) -> None:
    assert null_counts(Marked(), table, ["a", "b"], LATER) == {"a": 1, "b": 3}


def test_a_file_whose_footer_counts_no_nulls_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, file = str(tmp_path / "t"), tmp_path / "without.parquet"
    rows = pa.table({"a": pa.array([None, b"1"], pa.binary())})
    write_deltalake(path, rows)
    pq.write_table(rows, file, write_statistics=False)
    stored = StoredFile(str(file), 2, file.stat().st_size, UNMARKED, {})
    monkeypatch.setattr(DeltaLogs, "files", lambda *_: [stored])
    assert null_counts(DeltaLogs(), path, ["a"], LATER) == {"a": 1}


def test_it_takes_no_longer_than_it_may(table: str) -> None:
    with pytest.raises(LeftToSpark, match="takes long"):
        null_counts(DeltaLogs(), table, ["a"], time.monotonic() - 1)
