"""What the stories of every kind say of a row that does not pass `where`. No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fk_pipeline.blocks.left_out import NOT_PASSING, as_read, is_left_out, values_read
from fk_pipeline.blocks.story import RowVersion
from fk_pipeline.identity import Side
from fk_pipeline.kinds.aggregate.story import GroupStory
from fk_pipeline.kinds.foreign_key.evidence import versions_of
from fk_pipeline.kinds.foreign_key.explain_unmatched_right import explain_unmatched_right
from fk_pipeline.kinds.foreign_key.story import events_of
from fk_pipeline.kinds.table.story import KeyStory
from fk_pipeline.kinds.window.story import WindowStory
from fk_pipeline.spec import load_spec
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger


def _logged(batch: int, city: str | None, *, left_out: bool = False) -> dict[str, Any]:
    """Returns a row of the right changelog as JSON, as `with_content` has it for a story."""
    gone = left_out or city is None
    row = {s.BATCH: batch, s.SEQUENCE: {"at": batch}, s.OP: "u", s.DELETED: gone, s.FILE: None}
    row |= {s.HASH: None if gone else f"{batch}", "c": "a", "city": None if gone else city}
    return row | {NOT_PASSING: left_out, as_read("city"): city}


def _joined(folder: Path) -> Any:
    file = folder / "joined.yaml"
    file.write_text(
        "name: joined\njoin: outer\nselect: [id, city]\n"
        "left: {path: l, format: rows, schema: 'id BIGINT, c STRING', key: id, foreign_key: c}\n"
        "right: {path: r, format: rows, schema: 'c STRING, city STRING', key: c, where: city <> 'Rome'}\n"
    )
    return load_spec(file)


def test_the_row_as_it_was_read_is_told_where_it_is_left_out_and_none_where_it_is_deleted(tmp_path: Path) -> None:
    side = _joined(tmp_path).right
    assert values_read(_logged(0, "Rome", left_out=True), side) == {"c": "a", "city": "Rome"}
    assert values_read(_logged(0, "Oslo"), side) == {"c": "a", "city": "Oslo"}
    assert values_read(_logged(0, None), side) is None
    assert not is_left_out({s.DELETED: True})  # an input without `where`


def test_a_right_row_that_comes_and_goes_is_deleted_only_where_it_is(tmp_path: Path) -> None:
    spec = _joined(tmp_path)
    rows = [_logged(0, "Oslo"), _logged(1, "Rome", left_out=True), _logged(2, None), _logged(3, "Rome", left_out=True)]
    versions = versions_of(rows, spec, Side.RIGHT)
    assert [one.deleted for one in versions] == [False, True, True, True]
    said = [event[2] for event in events_of((), versions, ())]
    left_out = "city=Rome; does not pass `where`"
    assert said == ["city=Oslo", left_out, "deleted", left_out]

    evidence: Any = SimpleNamespace(
        key={"c": "a"},
        log=rows,
        referring=0,
        joined=0,
        example=None,
        unmatched=None,
        quarantined=list,
        expected=lambda: None,
    )
    ledger = Ledger(str(tmp_path / "home"), spec.definition)
    told = explain_unmatched_right(evidence, spec, ledger).conclusion
    assert told.endswith("the right row of batch 3 does not pass `where`, and nothing newer has come.")


def test_a_windowed_row_that_is_left_out_is_no_deletion() -> None:
    version = RowVersion(batch=1, sequence={}, op="u", row={"id": 1, "v": 0}, current=True, left_out=True)
    story = WindowStory(Side.LEFT, {"id": 1}, (version,), None, None, None, None, (), None, belongs_unmatched=False)
    assert story.events() == [(1, "row (u) *", "id=1, v=0; does not pass `where`", "")]
    assert story.sentences()[1] == "Its last version, of batch 1, does not pass `where`."
    gone = replace(story, versions=(replace(version, row=None, left_out=False),))
    assert gone.sentences()[1] == "Its last version is a deletion."


def test_a_group_tells_how_many_rows_are_left_out_of_it() -> None:
    story = GroupStory({"k": "a"}, (), 0, (), None, None, None, is_current=True, left_out=1)
    assert story.sentences()[2] == "1 row of it does not pass `where`."
    assert replace(story, left_out=2).sentences()[2] == "2 rows of it do not pass `where`."
    assert "where" not in " ".join(replace(story, left_out=0).sentences())


def test_a_row_of_a_table_that_is_left_out_is_no_deletion() -> None:
    version = RowVersion(batch=2, sequence={}, op="u", row={"id": 1}, current=True, left_out=True)
    story = KeyStory({"id": 1}, (version,), None, None, None)
    assert story.events() == [(2, "row *", "id=1; does not pass `where`", "")]
    assert story.sentences()[1] == "The last version by the source's order, of batch 2, does not pass `where`."
