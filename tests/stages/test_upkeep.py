"""Upkeep: fewer files, the same rows, and everything goes on as before."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_small_files_are_packed_and_old_ones_removed(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", settings="{retention_hours: 0}")
    for batch in range(4):
        made.land(batch, [(batch, "ab"[batch % 2], f"v{batch}"), (100, "a", f"v{batch}")], [("a", f"A{batch}")])
        made.pipeline.run()
    runner = made.pipeline.runner
    tables = [getattr(runner.layout, one.name) for one in fields(runner.layout)]
    tables = [table for table in tables if runner.warehouse.version(table.name) is not None]
    before = {table.name: sorted(map(str, runner.warehouse.read(table).collect())) for table in tables}
    told: list[str] = []
    done = {one.table: one for one in made.pipeline.compact(told.append)}
    assert {table.name for table in tables} <= set(done)
    assert {"runs", "files", "batches"} <= set(done)
    assert told == list(done)
    for name in ("left_changelog", "responses", "verdicts", "runs"):
        assert done[name].before.files > done[name].after.files == 1, name
        assert done[name].after.stored < done[name].before.stored, name
    after = {table.name: sorted(map(str, runner.warehouse.read(table).collect())) for table in tables}
    assert after == before
    assert not any(made.pipeline.due().values())
    made.land(2, [(2, "b", "again")])
    made.land(5, [(5, "b", "v6")], [("b", "B")])
    made.pipeline.run()
    assert made.pipeline.verify().ok
    assert made.result()[2] == ("again", "B")
