"""What cannot be seen of keys that change is told by the counts of batches; no Spark."""

from __future__ import annotations

from typing import Any

import pytest

from fk_pipeline.engine.unseen_keys import unseen_keys
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec


def told(counts: dict[str, int], **right: Any) -> list[tuple[str, str]]:
    side = {"path": "x", "schema": "id INT, v INT", "key": "id"}
    sides = {"left": {**side, "foreign_key": "v"}, "right": {**side, **right}}
    spec = PipelineSpec.model_validate({"name": "p", "join": "left", **sides})
    return [(one.what, one.fix) for one in unseen_keys(spec, Side.RIGHT, counts)]


def test_updates_without_the_old_key_are_told() -> None:
    [(what, fix)] = told({"read": 9, "updates without the old key": 1234}, format="debezium")
    assert what.startswith("1,234 update(s) of right do not have the old key, and right.key (id) is not the key")
    assert "REPLICA IDENTITY FULL" in fix
    assert told({"read": 9, "events": 9}, format="debezium") == []


@pytest.mark.parametrize(("contents", "number"), [("changes", 1), ("events", 0)])
def test_ignored_old_images_are_told_where_a_key_may_change(contents: str, number: int) -> None:
    found = told({"ignored: old image": 2}, format="rows", op_column="op", contents=contents)
    assert [one[0].split(":")[0] for one in found] == ["2 old image(s) of right were ignored"] * number
