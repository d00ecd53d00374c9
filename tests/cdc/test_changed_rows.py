"""The log of a table tells about how many rows changed between two versions. No Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from fk_pipeline.cdc.changed_rows import MOST_VERSIONS, changed_rows


def written(folder: Path, *commits: list[dict[str, Any]]) -> str:
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for version, actions in enumerate(commits):
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    return str(folder)


def commit(operation: str, **metrics: int) -> dict[str, Any]:
    numbers = {name: str(number) for name, number in metrics.items()}
    return {"commitInfo": {"operation": operation, "operationMetrics": numbers}}


def file(kind: str, path: str, rows: int | None, deleted: int = 0, **more: Any) -> dict[str, Any]:
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    vector = {"deletionVector": {"cardinality": deleted}} if deleted else {}
    return {kind: {"path": path, "dataChange": True, **stats, **vector, **more}}


CDC = {"cdc": {"path": "_change_data/1", "size": 9}}


@pytest.mark.parametrize(
    ("actions", "number"),
    [
        ([commit("MERGE", numTargetRowsInserted=1, numTargetRowsUpdated=20, numTargetRowsDeleted=300), CDC], 321),
        ([commit("UPDATE", numUpdatedRows=7), CDC, file("add", "b", 100)], 7),
        ([commit("DELETE", numDeletedRows=3), CDC], 3),
        ([commit("DELETE", numRemovedFiles=1), file("remove", "a", 40)], 40),  # of whole files it counts no rows
        ([commit("WRITE", numOutputRows=5, numFiles=1), file("add", "a", 5)], 5),
        ([commit("OPTIMIZE"), file("add", "a", 9, dataChange=False), file("remove", "b", 9, dataChange=False)], 0),
        ([commit("SET TBLPROPERTIES"), {"metaData": {}}], 0),
        ([commit("RESTORE"), file("add", "a", 9), file("remove", "b", 4)], 9),
        ([commit("RESTORE"), file("remove", "a", 9, 2), file("add", "a", 9, 5), file("add", "b", 1)], 3),
        ([file("add", "a", None)], None),
        ([commit("RESTORE"), CDC], None),
    ],
)
def test_a_commit_tells_how_many_rows_it_changed(tmp_path: Path, actions: list[Any], number: int | None) -> None:
    assert changed_rows(written(tmp_path, actions), 0, 0) == number


def test_commits_are_added_and_a_lost_one_or_too_many_are_not_known(tmp_path: Path) -> None:
    updates = [[commit("UPDATE", numUpdatedRows=number)] for number in (1, 20, 300)]
    table = written(tmp_path, *updates)
    assert [changed_rows(table, first, 2) for first in range(3)] == [321, 320, 300]
    assert changed_rows(table, 0, 3) is None
    assert changed_rows(table, 0, MOST_VERSIONS) is None


def test_what_delta_rs_wrote_is_counted(tmp_path: Path) -> None:
    rows, table = pa.table({"id": pa.array(range(10), pa.int64())}), str(tmp_path / "table")
    write_deltalake(table, rows)
    DeltaTable(table).update(predicate="id < 4", updates={"id": "id + 100"})
    DeltaTable(table).delete("id = 5")
    write_deltalake(table, rows.slice(0, 3), mode="append")
    assert [changed_rows(table, version, version) for version in range(4)] == [10, 4, 1, 3]
