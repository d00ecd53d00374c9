"""Whether the keys of a Parquet file are seen to be there once each, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fk_pipeline.cdc import parquet
from fk_pipeline.cdc.parquet import Parquet
from fk_pipeline.spec import load_spec


def once(folder: Path, columns: dict[str, pa.Array], schema: str = "id BIGINT, v STRING", key: str = "id") -> bool:
    file = folder / "pipeline.yaml"
    file.write_text(
        "name: tested\njoin: inner\n"
        f"left: {{path: left, format: parquet, schema: '{schema}', key: {key}, foreign_key: v}}\n"
        "right: {path: right, format: parquet, schema: 'k STRING, name STRING', key: k}\n"
    )
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return Parquet().has_keys_once(str(folder / "rows.parquet"), load_spec(file).left)


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ([1, 2, 5], True),
        ([], True),
        ([7], True),
        ([1, 2, 2], False),
        ([1, 3, 2], False),
        ([1, None, 2], False),
        ([None], False),
        ([1, 2, 3, 4, 4], False),
        ([1, 2, 3, 4, 5], True),
    ],
)
def test_ascending_keys_are_there_once(
    keys: list[Any], wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "KEYS_AT_ONCE", 2)
    assert once(tmp_path, {"ID": pa.array(keys, pa.int64()), "v": pa.array(["x"] * len(keys))}) is wanted


def test_texts_ascend_by_their_bytes(tmp_path: Path) -> None:
    assert once(tmp_path, {"id": pa.array(["Z", "a", "é"])}, "id STRING, v STRING")
    assert not once(tmp_path, {"id": pa.array(["é", "a"])}, "id STRING, v STRING")


def test_keys_that_are_converted_or_several_columns_are_left_to_spark(tmp_path: Path) -> None:
    assert not once(tmp_path, {"id": pa.array(["1", " 1"])})
    assert not once(tmp_path, {"id": pa.array([1, 2])}, "id STRING, v STRING")
    assert not once(tmp_path, {"id": pa.array([1.0, 1.5])})
    assert not once(tmp_path, {"v": pa.array(["x"])})
    assert not once(tmp_path, {"id": pa.array([1, 2]), "n": pa.array([1, 1])}, "id BIGINT, n INT, v STRING", "[id, n]")
