"""What the stories of all kinds have in common. No Spark."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fk_pipeline.blocks.story import RowVersion, key_of_side, no_impact, values_said
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import Side
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
    assert story.sentences()[-1] == conclusion
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
