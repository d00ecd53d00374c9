"""Rows as a Delta table that any reader of Delta can read."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from fk_pipeline.errors import UsageError
from fk_pipeline.export_delta import write_table
from fk_pipeline.store.sizes import MEASURED

SMALL = replace(MEASURED, rows_per_file=100, rows_per_group=10)


def numbers(count: int) -> pa.Table:
    """Returns rows in several pieces, as they come from Spark."""
    columns = pa.schema([
        pa.field("k", pa.int64(), nullable=False, metadata={"comment": "the number"}), pa.field("x", pa.float64()),
        pa.field("money", pa.decimal128(10, 2)), pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.string())),
    ])  # fmt: skip
    rows = [
        {"k": k, "x": float("nan") if k == 7 else k / 2, "money": Decimal(k) / 4, "at": k * 1_001, "tags": [f"t{k}"]}
        for k in range(count)
    ]
    return pa.concat_tables([pa.Table.from_pylist(rows[i : i + 30], columns) for i in range(0, max(count, 1), 30)])


def test_the_table_has_the_rows_in_order_and_asks_nothing_of_its_readers(tmp_path: Path) -> None:
    folder, rows = tmp_path / "new" / "numbers.delta", numbers(250)
    assert write_table(rows, folder, "some numbers", SMALL) == 250
    table = DeltaTable(folder)
    assert (table.version(), table.protocol().min_reader_version, table.protocol().min_writer_version) == (0, 1, 2)
    assert (table.metadata().description, table.metadata().configuration) == ("some numbers", {})
    assert table.schema().fields[0].metadata == {"comment": "the number"}
    assert table.to_pyarrow_table().drop_columns("x").to_pylist() == rows.drop_columns("x").to_pylist()
    files = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    assert sorted(zip(files["min.k"].to_pylist(), files["max.k"].to_pylist(), strict=True)) == [
        (0, 99), (100, 199), (200, 249)
    ]  # fmt: skip


def test_values_of_nested_types_and_times_of_any_zone_stay(tmp_path: Path) -> None:
    moment = pa.timestamp("us", "Etc/UTC")
    types = {
        "at": moment, "local": pa.timestamp("us"), "map": pa.map_(pa.string(), moment), "raw": pa.binary(),
        "nested": pa.struct([("many", pa.list_(moment)), ("n", pa.int32())]),
    }  # fmt: skip
    row = {"at": 1, "local": 2, "map": [("a", 3)], "raw": b"x", "nested": {"many": [4, None], "n": 5}}
    rows = pa.Table.from_pylist([row, dict.fromkeys(types)], pa.schema(list(types.items())))
    write_table(rows, tmp_path / "nested.delta")
    assert DeltaTable(tmp_path / "nested.delta").to_pyarrow_table().to_pylist() == rows.to_pylist()


def test_a_reader_that_skips_files_finds_the_rows(tmp_path: Path) -> None:
    folder = tmp_path / "numbers.delta"
    write_table(numbers(250), folder, sizes=SMALL)
    table = DeltaTable(folder)
    last = numbers(250)["at"][-1].as_py()
    for condition in (("k", "=", 249), ("x", ">", 124.0), ("money", ">=", Decimal("62.25")), ("at", ">=", last)):
        assert table.to_pyarrow_table(filters=[condition])["k"].to_pylist() == [249], condition
    files = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    of_first = files.filter(pc.equal(files["min.k"], 0))
    assert of_first["max.x"].to_pylist() == [None], "a file with NaN has no bounds: readers order it in several ways"
    assert of_first["max.money"].to_pylist() == [Decimal("24.75")]


def test_the_next_export_is_a_new_version_with_columns_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "numbers.delta"
    write_table(numbers(250), folder, sizes=SMALL)
    before = DeltaTable(folder)
    later = pa.table({"k": [2], "day": pa.array([0], pa.timestamp("us"))})
    assert write_table(later, folder) == 1
    assert DeltaTable(folder).to_pyarrow_table().equals(later)
    assert before.to_pyarrow_table().num_rows == 250, "who reads the version before goes on"
    assert write_table(later.slice(0, 0), folder, "none") == 0
    assert DeltaTable(folder).to_pyarrow_table().equals(later.slice(0, 0))
    assert DeltaTable(folder).metadata().description == "none"


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "numbers.delta"
    write_table(numbers(3), folder)
    with pytest.raises(UsageError, match=r"column took is duration.*for which Delta has no type"):
        write_table(pa.table({"took": pa.array([1], pa.duration("us"))}), folder)
    assert DeltaTable(folder).version() == 0
    (tmp_path / "file.delta").touch()
    (tmp_path / "notes.delta").mkdir()
    (tmp_path / "notes.delta" / "notes.txt").touch()
    for name in ("file.delta", "notes.delta"):
        with pytest.raises(UsageError, match="is no Delta table"):
            write_table(numbers(3), tmp_path / name)
    properties = {"delta.appendOnly": "true"}
    write_deltalake(tmp_path / "log.delta", pa.table({"k": [1]}), configuration=properties)
    with pytest.raises(UsageError, match="cannot write the table"):
        write_table(numbers(3), tmp_path / "log.delta")


def test_an_export_that_was_killed_leaves_the_folder_to_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "numbers.delta"
    folder.mkdir()
    (folder / "export-0.snappy.parquet").touch()
    assert write_table(numbers(3), folder, private=True) == 3
    assert DeltaTable(folder).to_pyarrow_table().num_rows == 3
    assert folder.stat().st_mode & 0o777 == 0o700
