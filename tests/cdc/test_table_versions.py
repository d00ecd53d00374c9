"""Versions of a Delta table as landing files: which of them a discovery names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from fk_pipeline.cdc.table_versions import are_kept, new_versions

FED = {"delta.enableChangeDataFeed": "true"}


def append(table: str, *ids: int) -> None:
    write_deltalake(table, pa.table({"id": [*ids]}), mode="append", configuration=FED)


def test_changes_whose_files_a_vacuum_removed_are_not_named_but_the_whole_table(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table({"id": [1, 2]}), configuration={"delta.enableChangeDataFeed": "true"})
    whole, _, name = new_versions(table, {}, []) or ("", 0, "")
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "false"})  # a version without files
    write_deltalake(table, pa.table({"id": [3]}), mode="append")
    found = new_versions(table, {whole: name}, [])
    assert found is not None
    assert found[0] == f"{table}@1..2"
    kept = {Path(uri).name for uri in DeltaTable(table, version=0).file_uris()}
    for file in Path(table).glob("*.parquet"):
        if file.name not in kept:
            file.unlink()
    found = new_versions(table, {whole: name}, [])
    assert found is not None
    assert found[0] == f"{table}@..2"


def test_versions_without_a_change_feed_in_between_are_not_kept(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    append(table, 0)
    append(table, 1)
    DeltaTable(table).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    append(table, 2)
    DeltaTable(table).alter.set_table_properties(FED)
    append(table, 3)
    kept = [are_kept(f"{table}@{ends}") for ends in ("..0", "1..1", "1..2", "1..5", "4..5", "..5")]
    assert kept == [True, True, False, False, True, True]
