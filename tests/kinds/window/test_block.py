"""The block of a windowed join: where matching rows lie, and which rows the clock has passed. No Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fk_pipeline.blocks.select.block import Block, Unit
from fk_pipeline.blocks.select.lineage import reads_of
from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.window.block import Clocks, block_of
from fk_pipeline.kinds.window.spans import LEAST, Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.spec import load_spec
from tests.kinds.window.near import FILE, SELECT

TABLES = {"left": "l", "right": "r", "_left_matches": "l", "_right_matches": "r"}
"""Per alias of a block, a name for its table."""


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., WindowSpec]:
    """Function that returns the pipeline of a file with some parts."""

    def read(**parts: Any) -> WindowSpec:
        known = {"join": "outer", "options": "", "time": "BIGINT", "right": "right", "select": SELECT, "settings": "{}"}
        (tmp_path / "pipeline.yaml").write_text(FILE.format(**known | parts))
        found = load_spec(tmp_path / "pipeline.yaml")
        assert isinstance(found, WindowSpec)
        return found

    return read


@given(before=st.integers(-20, 20), more=st.integers(0, 20), left=st.integers(-90, 90), place=st.floats(0, 1))
def test_matching_rows_lie_in_near_buckets(before: int, more: int, left: int, place: float) -> None:
    spans = Spans("BIGINT", before, more - before, 0)
    right = left - before + round(more * place)
    apart = right // spans.width - left // spans.width
    near = {side: spans.near(side) for side in SIDES}
    assert near[Side.LEFT].first <= apart <= near[Side.LEFT].last
    assert near[Side.RIGHT].first <= -apart <= near[Side.RIGHT].last
    assert near[Side.LEFT].last - near[Side.LEFT].first <= 2


@pytest.mark.parametrize(
    ("join", "anchors"), [("inner", ["left"]), ("left", ["left", "left"]), ("outer", ["left", "left", "right"])]
)
def test_a_join_is_the_union_of_its_pairs_and_the_rows_alone(
    spec: Callable[..., WindowSpec], join: str, anchors: list[str]
) -> None:
    made = block_of(spec(join=join), Spans("BIGINT", 2, 3, 1), Clocks(None, 9))
    assert made.unit is Unit.UNION
    assert [one.anchor.name for one in made.branches] == anchors
    assert ["ANTI JOIN" in one.of(TABLES) for one in made.branches] == [False, *[True] * (len(anchors) - 1)]
    assert [one.moving is None for one in made.branches] == [True, *[False] * (len(anchors) - 1)]


def moved(block: Block) -> list[tuple[str, int | None, int | None]]:
    """Returns, per SELECT of rows alone, its condition, and the times of the rows for which that was another one."""
    found = [one.moving for one in block.branches if one.moving is not None]
    return [(one.holds, one.low, one.high) for one in found]


@pytest.mark.parametrize(("was", "now"), [(20, 30), (30, 20)])
def test_rows_that_the_clock_passed_in_either_direction_are_anchors(
    spec: Callable[..., WindowSpec], was: int, now: int
) -> None:
    block = block_of(spec(), Spans("BIGINT", 2, 3, 1), Clocks(was, now))
    left, right = now - 4, now - 3  # less the rest of the window, and grace
    assert moved(block) == [(f"`left`.`_fk_time` < {left}", 16, 26), (f"`right`.`_fk_time` < {right}", 17, 27)]


def test_nothing_is_closed_while_no_row_lives(spec: Callable[..., WindowSpec]) -> None:
    block = block_of(spec(), Spans("BIGINT", 2, 3, 1), Clocks(LEAST, LEAST))
    assert moved(block) == [("FALSE", None, LEAST)] * 2


def test_a_time_of_a_timestamp_is_a_number_of_microseconds(spec: Callable[..., WindowSpec]) -> None:
    block = block_of(spec(time="TIMESTAMP"), Spans("TIMESTAMP", 2, 3, 1), Clocks(5, 5))
    assert moved(block)[0] == ("`left`.`_fk_time` < TIMESTAMP_MICROS(1)", 1, 1)


def test_the_text_of_select_stays_as_it_was_written(spec: Callable[..., WindowSpec]) -> None:
    text = "CONCAT(right.user, 'O''Brien ', CAST(left.at - 1 AS STRING)) AS said"
    made = block_of(spec(select=f'["{text}"]'), Spans("BIGINT", 2, 3, 1), Clocks(None, 9))
    assert [text.removesuffix(" AS said") in one.of(TABLES) for one in made.branches] == [True] * 3
    assert reads_of(made.branches[0], "said") == {("right_table", "user"), ("left_table", "at")}
    assert reads_of(made.branches[1], "said") == {("left_table", "at")}
