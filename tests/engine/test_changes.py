"""What a batch changed in the result: by commit, by batch of a range, of a table written anew, and when it is gone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from fk_pipeline.arrow_text import json_lines
from fk_pipeline.errors import LeftToSpark, StateError
from fk_pipeline.export import json_rows
from fk_pipeline.store.rows_in_process import RowRequest

pytestmark = pytest.mark.spark

Change = tuple[str, int, str | None, str | None]


def changes_of(
    made: Any, batch: int | None = None, *, since: datetime | None = None, here: bool = True
) -> list[Change]:
    """(kind, id, v, name) by commit and key; `here`: they are the same, read without Spark."""
    frame = made.pipeline.changes(batch, since).orderBy("_commit_version", "id")
    rows = frame.collect()
    if here:
        found = made.pipeline.changes_in_process(batch, since)
        wanted = RowRequest(found.schema.names, order=[("_commit_version", False), ("id", False)])
        assert list(map(repr, map(json.loads, json_lines(found.read(wanted), hexadecimal=True)))) == list(
            map(repr, json_rows(frame))
        )
    return [(row["_change_type"], row["id"], row["v"], row["name"]) for row in rows]


@pytest.mark.slow
def test_a_batch_has_the_changes_that_its_run_made(rows_pipeline: Any) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, "b", "v"), (3, "a", "v")], [("a", "A")])
    with pytest.raises(StateError, match="nothing was ever run"):
        changes_of(made, 0)
    made.pipeline.run()
    made.land(1, [(2, "a", "w"), (4, "b", "v"), (3,)])
    made.land(2, [], [("b", "B")])
    made.pipeline.run("1")
    made.pipeline.run("2")
    first = changes_of(made, 0, here=False)  # of the commit that made the table
    assert first == [("insert", 1, "v", "A"), ("insert", 2, "v", None), ("insert", 3, "v", "A")]
    assert changes_of(made, 1) == [("update", 2, "w", "A"), ("delete", 3, "v", "A"), ("insert", 4, "v", None)]
    assert changes_of(made, 2) == [("update", 4, "v", "B")]
    made.pipeline.run("1")
    assert len(changes_of(made, 1)) == 3, "a run that changes nothing adds nothing"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["incremental", pytest.param("full", marks=pytest.mark.slow)])
def test_a_range_tells_its_batches_apart(begun: Any, strategy: str) -> None:
    made = begun("inner", settings=f"{{strategy: {strategy}}}")
    made.land(1, [(1,), (14, "a", "v")])
    made.land(2, [(2,), (3, "b", "w")])
    before = datetime.now(UTC)
    made.pipeline.run("1..2")
    assert changes_of(made, since=before, here=strategy == "incremental") == [
        ("delete", 1, "v", "B"), ("delete", 2, "v", "A"), ("update", 3, "w", "B"), ("insert", 14, "v", "A")
    ]  # fmt: skip
    assert changes_of(made, since=datetime.now(UTC)) == []
    assert changes_of(made, 1, here=False) == [("delete", 1, "v", "B"), ("insert", 14, "v", "A")]
    assert changes_of(made, 2, here=False) == [("delete", 2, "v", "A"), ("update", 3, "w", "B")]
    with pytest.raises(LeftToSpark, match="several batches removed rows"):
        made.pipeline.changes_in_process(1)


@pytest.mark.slow
def test_whoever_applies_the_changes_in_order_has_the_result(rows_pipeline: Any) -> None:
    made = rows_pipeline("inner")
    made.land(0, [(key, "ab"[key % 2], "v") for key in range(8)], [("a", "A")])
    made.land(1, [(0,), (1, "a", "w"), (9, "b", "v")], [("b", "B")])
    made.land(2, [(0, "b", "x")], [("a",)])
    for batches in ("1", "0..2", "2", "0", "1"):
        made.pipeline.run(batches)
    by_batch = [row for batch in range(3) for row in made.pipeline.changes(batch).collect()]
    for rows in (by_batch, made.pipeline.changes(since="2020-01-01").collect()):
        held: dict[int, tuple[Any, Any]] = {}
        for row in sorted(rows, key=lambda row: row["_commit_version"]):
            if row["_change_type"] == "delete":
                del held[row["id"]]
            else:
                held[row["id"]] = row["v"], row["name"]
        assert held == made.result()


@pytest.mark.slow
def test_changes_that_were_removed_are_an_error_that_says_so(rows_pipeline: Any) -> None:
    made = rows_pipeline("left", settings="{retention_hours: 0}")
    made.land(0, [(1, "a", "v"), (2, "b", "v")], [("a", "A")])
    made.pipeline.run()
    made.land(1, [(2, "a", "w")], [("a", "A1")])
    made.pipeline.run()
    assert len(changes_of(made, 1)) == 2
    made.pipeline.compact()
    with pytest.raises(StateError, match="changes of batch 1 are not kept any more"):
        changes_of(made, 1)
    with pytest.raises(StateError, match="changes since 2020-01-01T00:00:00 UTC are not kept any more"):
        made.pipeline.changes(since="2020-01-01")
