"""The law of a join of changing tables: the table of the joined changes is the join of the tables of the changes.

f(join(T1, T2)) = join(f(T1), f(T2)), where f makes a table of a log of changes: per key, the last one. It holds for
every cut of the logs into batches, every order of the batches, and every repetition of a stage. Here by the model; the
machine beside it runs the product.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fk_pipeline.identity import SIDES, Side
from fk_pipeline.kinds.foreign_key.kind import Stage
from tests.any_order.model import JOINS, Content, Join, Model, join_of

BATCHES = 4
LEFT = st.tuples(st.sampled_from("abc"), st.none() | st.tuples(st.sampled_from(["x", "y", None]), st.integers(0, 2)))
RIGHT = st.tuples(st.sampled_from("xy"), st.none() | st.integers(0, 2))


def table(changes: list[tuple[str, Any]]) -> dict[str, Any]:
    """f: the last change of every key that is not a delete."""
    return {key: value for key, value in dict(changes).items() if value is not None}


@pytest.mark.parametrize("join", JOINS)
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_the_table_of_the_joined_changes_is_the_join_of_the_tables(join: Join, data: st.DataObject) -> None:
    logs = {Side.LEFT: data.draw(st.lists(LEFT, max_size=8)), Side.RIGHT: data.draw(st.lists(RIGHT, max_size=6))}
    batches: dict[int, Content] = {n: {side: [] for side in SIDES} for n in range(BATCHES)}
    for side, changes in logs.items():
        for place, (key, value) in enumerate(changes):
            batches[data.draw(st.integers(0, BATCHES - 1))][side].append((key, float(place), value))
    model = Model(join=join)
    for n in data.draw(st.permutations(range(BATCHES))):
        for stage in Stage:
            model.run(stage, n, batches[n])
    for stage, n in data.draw(st.lists(st.tuples(st.sampled_from(Stage), st.sampled_from(range(BATCHES))), max_size=4)):
        model.run(stage, n, batches[n])
    result: dict[Any, Any] = {key: row[2] for key, row in model.result.items()}
    result |= {(None, key): values for key, (_, values) in model.alone.items()}
    assert result == join_of(table(logs[Side.LEFT]), table(logs[Side.RIGHT]), join)
