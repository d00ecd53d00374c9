"""How the result of an aggregate and of a windowed join is kept up to date, as `plan` tells it. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from fk_pipeline.blocks.refresh.block_tree import blocks
from fk_pipeline.spec import load_spec
from tests.kinds.aggregate import grouped
from tests.kinds.window import near

AGGREGATE = {
    "time": "BIGINT",
    "contents": grouped.TABLE,
    "group_by": "[user]",
    "window": "",
    "aggregates": "[count(*) AS n, sum(v) AS total]",
    "options": "",
    "settings": "{}",
}
WINDOW = {"options": "", "time": "BIGINT", "right": "right", "select": near.SELECT, "settings": "{}"}


def lines(folder: Path, text: str) -> tuple[str, ...]:
    (folder / "pipeline.yaml").write_text(text)
    return blocks(load_spec(folder / "pipeline.yaml")).lines


@pytest.mark.parametrize(
    ("parts", "how"),
    [
        ({}, "by arithmetic, in groups of user: what changed rows gave is taken off"),
        ({"window": "window: {time: at, size: 5 minutes}"}, "by arithmetic, in groups of window_start, user: "),
        (
            {"window": "window: {time: CAST(note AS TIMESTAMP), size: 5 minutes, every: 1 minute}", "group_by": "[]"},
            "by arithmetic, in groups of window_start: ",
        ),
        ({"aggregates": "[sum(bround(v)) AS round]"}, "by group if a sum turns out to be of DOUBLE or FLOAT"),
        ({"aggregates": "[sum(v / 2) AS half]"}, "because of a sum of DOUBLE or FLOAT"),
        ({"aggregates": "[min(v) AS low]", "group_by": "'upper(user) AS u'"}, "by group of u: "),
        ({"aggregates": "[min(v) AS low, sum(v) AS s]"}, "from all its rows, because of MIN(_rows.v)"),
        ({"options": "having: n > 1"}, "because of the condition n > 1, which chooses among groups"),
        ({"settings": "{strategy: full}"}, "whole: all rows are computed with every change"),
    ],
)
def test_an_aggregate_is_kept_by_arithmetic_or_by_group(tmp_path: Path, parts: dict[str, str], how: str) -> None:
    first, *others = lines(tmp_path, grouped.FILE.format(**AGGREGATE | parts))
    assert first.startswith("aggregated: ")
    assert how in first
    assert others[0] == "  table as _rows: the anchor: each joined row has exactly one row of it"
    made = ["  _made: rows that explode(...) makes of each joined row"] if "every" in parts.get("window", "") else []
    assert others[1:] == made


@pytest.mark.parametrize(
    ("join", "options", "how"),
    [
        ("inner", "", "of left the rows that a change is joined to are joined again, and no others"),
        ("left", "", "of each of 2 parts {}, and of left those that the clock passes, and no others"),
        ("left", "unmatched: at_once", "of each of 2 parts {}, and no others"),
        ("outer", "", "of each of 3 parts {}, and of left and right those that the clock passes, and no others"),
    ],
)
def test_a_windowed_join_is_kept_by_row_of_each_part(tmp_path: Path, join: str, options: str, how: str) -> None:
    first, *others = lines(tmp_path, near.FILE.format(**WINDOW | {"join": join, "options": options}))
    assert first == f"resolved_join: by row: {how.format('the rows that a change is joined to are joined again')}"
    near_rows = "right._fk_on_0 = left._fk_on_0 and near numbers in _fk_bucket; a change of it is traced to left"
    assert others[1] == f"  right_table as right: joined on {near_rows}"
    alone = {"inner": 0, "left": 1, "outer": 2}[join]
    assert sum(": no row of it matches on " in line for line in others) == alone
