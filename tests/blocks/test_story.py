"""What the stories of all kinds have in common. No Spark."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fk_pipeline.blocks.story import RowVersion, key_of_side, no_impact, values_said
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.story import LeftStory, ResponseStory, SubscriptionStory, Version
from fk_pipeline.kinds.table.story import KeyStory
from fk_pipeline.spec import SideSpec
from fk_pipeline.spec.keys import shown

VERSION = RowVersion(
    batch=1, sequence={"at": 7}, op="u", row={"id": 1, "v": None}, file="landing/1.jsonl", current=True
)
RIGHT = KeyStory({"id": 1}, (VERSION,), {"id": 1, "v": None}, 1, {"id": 1, "v": None})
WRONG = replace(RIGHT, result=None, written_in=None)


@pytest.mark.parametrize(
    ("story", "conclusion"),
    [
        (RIGHT, "The result has it since batch 1, as it should."),
        (replace(RIGHT, result=None, expected=None), "The result does not have it, as it should."),
        (replace(WRONG, due={"table": [2]}), "The result does not have it; work is due that may change it."),
        (WRONG, "The result does not have it, and that is wrong: fk-pipeline verify tells more."),
    ],
)
def test_the_conclusion_says_what_the_result_has_and_whether_that_is_right(story: KeyStory, conclusion: str) -> None:
    assert story.sentences()[0] == conclusion
    assert story.as_expected == conclusion.endswith("as it should.")
    assert story.as_json()["as_expected"] == story.as_expected


def test_the_mark_of_the_version_that_counts_is_explained_where_it_is() -> None:
    older = replace(VERSION, batch=0, row=None, file=None, current=False)
    story = replace(RIGHT, versions=(older, VERSION))
    assert story.events() == [(0, "row", "deleted", ""), (1, "row *", "id=1, v=NULL", "landing/1.jsonl")]
    assert story.note == "* the version that counts"
    assert replace(RIGHT, versions=(older,)).note == replace(RIGHT, versions=()).note == ""


def test_nulls_and_rows_have_one_form() -> None:
    assert values_said(None) == "no row"
    assert (shown({"a": None}), shown({"a": None, "b": 1})) == ("null", "a=null,b=1")


def test_a_right_row_is_said_with_its_side() -> None:
    side = SideSpec.model_validate({"path": "x", "schema": "k STRING", "key": "k"})
    spec: Any = SimpleNamespace(side=lambda _: side)
    assert key_of_side("right.a", spec) == (Side.RIGHT, {"k": "a"})
    assert key_of_side("k=right.a", spec) == (Side.LEFT, {"k": "right.a"})


def test_a_kind_without_a_right_side_refuses_impact() -> None:
    spec: Any = SimpleNamespace(kind="table", file="pipeline.yaml")
    with pytest.raises(UsageError, match="kind: table has no right side"):
        no_impact(None, spec, None, "a", None, 20, None)


def test_the_conclusion_comes_first_then_the_row_and_where_it_landed() -> None:
    assert RIGHT.sentences(lambda origin: f"{origin.file}, line {origin.batch}") == [
        "The result has it since batch 1, as it should.",
        "id=1, v=NULL.",
        "The last version by the source's order, of batch 1 (landing/1.jsonl, line 1), makes the row.",
    ]
    assert RIGHT.sentences()[-1].endswith("of batch 1 (landing/1.jsonl), makes the row.")
    assert replace(RIGHT, versions=()).sentences()[-1].startswith("No batch ever brought it")
    assert (RIGHT.came, RIGHT.protocol) == (RIGHT.events(), [])


LEFT_VERSION = Version(
    batch=3, sequence={"arrival": 3}, op="u", row={"id": 1, "fk": "a"}, file="landing/left/3.jsonl", current=True,
    key={"id": 1}, deleted=False, refers_to={"k": "a"}, hash="00", late=False,
)  # fmt: skip
RIGHT_VERSION = replace(
    LEFT_VERSION, batch=2, row={"k": "a", "name": "A"}, file="landing/right/2.jsonl", key={"k": "a"}, refers_to=None
)
ANSWER = ResponseStory(3, "left", "PROPAGATE", {"k": "a"}, "00", 3, "00", 2, "joined", "written to the result")
JOINED = LeftStory(
    key={"id": 1}, left=(LEFT_VERSION,), right=(RIGHT_VERSION,), responses=(ANSWER,), quarantined=(),
    subscription=SubscriptionStory({"k": "a"}, None, 3, 3, "PROPAGATE"), result={"id": 1, "name": "A"}, written_in=3,
    written_at="2026-05-01T13:00:00Z", expected={"id": 1, "name": "A"}, due={}, folded_to=None,
    conclusion="The row is in the result: the left row of batch 3 refers to right row a of batch 2.",
    sees=RIGHT_VERSION,
)  # fmt: skip


def test_a_row_of_a_join_is_told_in_words_and_the_protocol_apart_from_them() -> None:
    assert JOINED.sentences() == [
        "The row is in the result: the left row of batch 3 refers to right row a of batch 2.",
        "Result: id=1, name=A (since batch 3, written 2026-05-01T13:00:00Z)",
        "The left row is of batch 3: landing/left/3.jsonl.",
        "Right row a is of batch 2: landing/right/2.jsonl.",
    ]
    assert [what for _, what, _, _ in JOINED.came] == ["right row a *", "left row *"]
    assert [what for _, what, _, _ in JOINED.events()] == ["right row a *", "left row *", "response", "verdict"]
    assert JOINED.protocol == ["Subscription: to right row a; asked PROPAGATE in batch 3"]
    emptied = replace(JOINED, sees=replace(RIGHT_VERSION, key=None, row=None, op="t"))
    assert emptied.sentences()[-1] == "The right truncate is of batch 2: landing/right/2.jsonl."
    wrong = replace(JOINED, result={"id": 1, "name": "other"})
    assert "The join computed now: id=1, name=A" in wrong.sentences()


def test_the_json_of_a_join_has_its_right_row_once() -> None:
    told = JOINED.as_json()
    assert "sees" not in told
    assert [version["file"] for version in told["right"]] == ["landing/right/2.jsonl"]
