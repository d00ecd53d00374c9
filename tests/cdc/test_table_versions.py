"""Versions of a Delta table as landing files: which of them a discovery names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from fk_pipeline.cdc.table_versions import are_kept, new_versions

FED = {"delta.enableChangeDataFeed": "true"}


def append(table: str, *ids: int) -> None:
    write_deltalake(table, pa.table({"id": [*ids]}), mode="append", configuration=FED)


def found(table: str, known: list[str], withdrawn: list[str] | None = None, given_up: list[str] | None = None) -> str:
    """The range that a discovery names, given the ends of the paths; empty if there is nothing new."""
    name = str(DeltaTable(table).metadata().id)
    ranges = [[f"{table}@{one}" for one in ends or ()] for ends in (known, withdrawn, given_up)]
    new = new_versions(table, dict.fromkeys(ranges[0], name), *ranges[1:])
    return new[0].removeprefix(f"{table}@") if new else ""


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


def test_a_table_some_of_whose_versions_were_given_up_is_taken_whole_once(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    for number in range(5):
        append(table, number)
    known, lost = ["..0", "2..3", "4..4"], ["1..1"]
    assert found(table, known, given_up=lost) == "..4", "also without a new version"
    append(table, 5)
    assert found(table, known, given_up=lost) == "..5"
    assert found(table, [*known, "5..5"], given_up=lost) == "..5", "also if a discovery came in between"
    assert found(table, [*known, "5..5", "..5"], given_up=lost) == ""
    append(table, 6)
    assert found(table, [*known, "..5"], given_up=lost) == "6..6"
    assert found(table, [*known, "..5", "6..6"], given_up=[*lost, "4..4"]) == ""
    assert found(table, [*known, "..5"], given_up=["6..6"]) == "..6", "a later one"
    assert found(table, known, given_up=["..6"]) == "", "the whole table cannot be read until it has another version"
    assert found(table, [], given_up=["..0"]) == "..6"


def test_versions_that_somebody_withdrew_stay_out_also_after_a_vacuum(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    for number in range(3):
        append(table, number)
    DeltaTable(table).optimize.compact()
    DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    now = DeltaTable(table).version()
    assert not are_kept(f"{table}@1..1")
    assert found(table, ["..0", "1..1", f"2..{now}"], withdrawn=["1..1"]) == ""
    append(table, 3)
    assert found(table, ["..0", "1..1", f"2..{now}"], withdrawn=["1..1"]) == f"{now + 1}..{now + 1}"


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
