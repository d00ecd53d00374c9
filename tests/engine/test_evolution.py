"""What an edit of a schema is, and which batches say more than was kept of them; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fk_pipeline.contract import Source
from fk_pipeline.engine.evolution import only_adds, reopen_batches, schema_edit, to_read_again
from fk_pipeline.engine.fingerprints import NeededRebuild, fingerprints, needed_rebuild, stale_parts
from fk_pipeline.identity import BatchId, LandedFile, Side
from fk_pipeline.kinds.foreign_key.kind import FOREIGN_KEY, Stage
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger

LEFT: dict[str, Any] = {"path": "l", "format": "rows", "schema": "id INT, v INT", "key": "id", "foreign_key": "v"}
RIGHT: dict[str, Any] = {"path": "r", "format": "rows", "schema": "k INT, n DECIMAL(9,2)", "key": "k"}


def spec(left: dict[str, Any] | None = None, right: dict[str, Any] | None = None, **more: Any) -> PipelineSpec:
    sides = {"left": LEFT | (left or {}), "right": RIGHT | (right or {})}
    return PipelineSpec.model_validate({"name": "p", "join": "left", **sides, **more})


def stale(old: PipelineSpec, new: PipelineSpec) -> dict[str, tuple[str, str]]:
    was, now = fingerprints(old), fingerprints(new)
    return {part: (was[part], now[part]) for part in now if was[part] != now[part]}


@pytest.mark.parametrize(
    ("was", "now", "is_wider"),
    [
        ("INT", "BIGINT", True),
        ("SMALLINT", "INT", True),
        ("INT", "DOUBLE", True),
        ("INT", "DECIMAL(10,0)", True),
        ("INT", "DECIMAL(11,2)", False),
        ("DECIMAL(9,2)", "DECIMAL(12,2)", True),
        ("DECIMAL(9,2)", "DECIMAL(12,3)", False),  # 0.015 was read as 0.02
        ("FLOAT", "DOUBLE", False),  # 0.1 is another number there
        ("BIGINT", "INT", False),
        ("BIGINT", "DOUBLE", False),
        ("INT", "STRING", False),  # 007 was read as 7
        ("STRING", "INT", False),
    ],
)
def test_a_wider_type_holds_what_was_read(was: str, now: str, is_wider: bool) -> None:
    edit = schema_edit(f"a INT, b {was}", f"b {now}, a INT")
    assert (edit.widened, edit.retyped) == ((("b",), ()) if is_wider else ((), ("b",)))
    assert (edit.added, edit.removed) == ((), ())
    changed = stale(spec({"schema": f"id INT, v INT, x {was}"}), spec({"schema": f"id INT, v INT, x {now}"}))
    assert needed_rebuild(FOREIGN_KEY, changed).source is (Source.CHANGELOG if is_wider else Source.LANDING)


MORE = {"schema": "id INT, v INT, w INT, t TIMESTAMP"}


@pytest.mark.parametrize(
    ("old", "new", "adds"),
    [
        ({}, {"left": MORE}, True),
        ({}, {"left": MORE, "right": {"schema": "k INT, n DECIMAL(9,2), m MAP<STRING, INT>"}}, True),
        ({}, {"left": MORE | {"logical_types": {"t": "epoch_millis"}}}, True),
        ({"left": MORE}, {"left": MORE | {"logical_types": {"t": "epoch_millis"}}}, False),
        ({}, {"left": {"schema": "id INT, w INT, v INT"}}, True),
        ({}, {"left": {"schema": "id INT, v INT, n INT"}}, False),  # the right side's n is right_n now
        ({}, {"left": MORE, "schema_changes": "ignore"}, False),
        ({}, {"left": MORE, "schema_changes": "fail"}, False),
        ({}, {"left": MORE, "join": "inner"}, False),
        ({}, {"right": {"schema": "k INT, n DECIMAL(12,2)"}}, False),
        ({"left": MORE}, {}, False),
        ({"select": ["id"]}, {"select": ["id"], "left": MORE}, True),
        ({"select": ["id"]}, {"select": ["w AS x", "id", "right.k"], "left": MORE}, False),
        ({"select": ["id"]}, {"select": ["w AS x", "id", "t"], "left": MORE}, True),
        ({"select": ["id"]}, {"select": ["id", "w + 1 AS x"], "left": MORE}, False),
        ({"select": ["id", "v"]}, {"select": ["id", "w"], "left": MORE}, False),
        ({"left": {"format": "csv", "csv": {"header": False}}}, {"left": MORE}, False),
        ({"left": {"format": "csv"}}, {"left": MORE}, True),
        ({"left": {"format": "dms"}}, {"left": MORE}, False),
        ({"left": {"format": "dms", "csv": {"header": True}}}, {"left": MORE}, True),
        ({}, {"left": {"schema": "id INT, v INT, t TIMESTAMP_NTZ"}}, False),
    ],
)
def test_only_an_edit_that_adds_columns_is_taken_over_in_place(
    old: dict[str, Any], new: dict[str, Any], adds: bool
) -> None:
    for side in ("left", "right"):
        new = new | {side: {k: v for k, v in old.get(side, {}).items() if k in ("format", "csv")} | new.get(side, {})}
    before, after = spec(**old), spec(**new)
    changed = stale(before, after)
    assert changed
    assert only_adds(after, changed) is adds


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Six batches of the left side; the last one has not been read."""
    made = Ledger(str(tmp_path / "p"), FOREIGN_KEY)
    files = [LandedFile(f"{n}.jsonl", Side.LEFT, BatchId(n), 1, "", str(n)) for n in range(6)]
    made.files.record([("discovered", file) for file in files])
    return made


def ran(ledger: Ledger, batch: int, **counts: int) -> None:
    ledger.start(Stage.LEFT_CHANGELOG, [batch], "r", {})
    ledger.runs.succeed({batch: counts}, {}, 1.0)


def test_the_batches_that_may_have_a_column_are_read_again(ledger: Ledger, tmp_path: Path) -> None:
    def again(ledger: Ledger, added: str, now: str = "id INT, v INT") -> list[int]:
        return [
            *to_read_again(spec(), ledger, {"left.schema": ("id INT, v INT", now + added)}).get(
                Stage.LEFT_CHANGELOG, {}
            )
        ]

    ran(ledger, 0, events=1)
    assert again(ledger, ", w INT") == [0]  # nobody looked
    ledger.fields.record(Side.LEFT, [])
    ran(ledger, 1, events=1)
    ran(ledger, 2, events=1, **{"rows not compared with the schema": 1})
    assert again(ledger, ", w INT") == [0, 2]
    ledger.fields.record(Side.LEFT, ["w", "x"])
    ran(ledger, 3, events=1)
    ledger.fields.record(Side.LEFT, ["y"])
    ran(ledger, 4, events=1, quarantined=1)
    for known in (ledger, Ledger(str(tmp_path / "p"), FOREIGN_KEY)):
        assert again(known, ", w INT") == [0, 2, 3, 4]
        assert again(known, ", Y INT") == [0, 2, 4]
        assert again(known, ", z INT, x INT") == [0, 2, 3, 4]
        assert again(known, "", "id INT, v BIGINT") == [4]
        assert again(known, "", "v INT") == [4]
        assert again(known, ", __op STRING") == [0, 1, 2, 3, 4]
    ledger.start(Stage.LEFT_CHANGELOG, [5], "killed", {})
    assert again(ledger, ", q INT") == [0, 2, 5]
    ran(ledger, 5, events=1)
    ledger.fields.record(Side.LEFT, ["z"], always=True)
    assert again(ledger, ", z INT") == [0, 1, 2, 3, 4, 5]
    ran(ledger, 2, events=1)
    assert again(ledger, ", q INT") == [0]


def test_fields_without_names_are_in_the_order_of_the_schema() -> None:
    by_place = {"format": "csv", "csv": {"header": False}, "schema": "id INT, v INT, w INT"}
    changed = stale(spec(by_place), spec(by_place | {"schema": "id INT, w INT, v INT"}))
    assert needed_rebuild(FOREIGN_KEY, changed).source is Source.LANDING
    named = {"format": "csv", "schema": "id INT, v INT, w INT"}
    changed = stale(spec(named), spec(named | {"schema": "id INT, w INT, v INT"}))
    assert needed_rebuild(FOREIGN_KEY, changed).source is Source.CHANGELOG


def test_a_batch_that_is_due_anyway_is_read_again_as_other_rows(ledger: Ledger) -> None:
    """A run of it that failed does not hide that its partition will have other rows with the same files."""
    ran(ledger, 0, events=1)
    ledger.start(Stage.LEFT_CHANGELOG, [0], "fails", {})
    ledger.runs.fail(1.0, "why")
    changed = {"left.schema": ("id INT, v INT", "id INT, v INT, w INT")}
    for _ in range(2):
        reopen_batches(spec(), ledger, changed, "r")
    assert len([row for row in ledger.entries.rows("runs") if row["event"] == "reopened"]) == 1
    assert ledger.start(Stage.LEFT_CHANGELOG, [0], "again", {}) == {0: 1}


def test_a_ledger_that_names_no_kind_is_of_the_first_one(ledger: Ledger) -> None:
    parts = fingerprints(spec())
    ledger.record_fingerprints({part: value for part, value in parts.items() if part != "kind"})
    assert stale_parts(spec(), ledger) == {}
    ledger.record_fingerprints({"kind": "another"})
    changed = stale_parts(spec(), ledger)
    assert changed == {"kind": ("another", "foreign_key")}
    assert needed_rebuild(FOREIGN_KEY, changed) == NeededRebuild(Source.LANDING, FOREIGN_KEY.stage_names)
