"""`FkResult`: the result of a pipeline for assets downstream, now and after a batch."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from dagster import Definitions, asset, materialize

from fk_pipeline.errors import StateError
from fk_pipeline.resources import FkResult
from fk_pipeline.resources import result as module
from tests.conftest import left_to_spark


def rows(table: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.spark
def test_an_asset_reads_the_result_now_and_after_a_batch(rows_pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rows_pipeline("left")
    made.land(0, [(1, "a", "v"), (2, "b", "v")], [("a", "A")])
    made.pipeline.run()
    made.land(1, [(2, "a", "w")], [])
    made.pipeline.run()
    made.land(2, [(3, "a", "x")], [])
    made.pipeline.discover()
    now, before = [(1, "v", "A"), (2, "w", "A")], [(1, "v", "A"), (2, "v", None)]
    result = FkResult(pipeline=str(made.file)).use(made.pipeline.session)
    with pytest.raises(StateError, match="no result after batch 2: it has not run"):
        result.arrow(2)
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(from_arrow=rows))
    with monkeypatch.context() as patch:
        patch.setattr(FkResult, "spark", left_to_spark)
        assert [rows(result.arrow(batch)) for batch in (None, 1, 0, "b00000000")] == [now, now, before, before]
        assert sorted(result.pandas()["id"]) == [1, 2]
        assert result.polars(0) == before
    assert sorted(tuple(row) for row in result.spark(0).collect()) == before
    assert sorted(tuple(row) for row in result.spark().collect()) == now
    with monkeypatch.context() as patch:
        patch.setattr(module, "_local_relation", left_to_spark)
        assert rows(result.arrow(0)) == before

    @asset
    def copied(shop: FkResult) -> list[Any]:
        return rows(shop.arrow())

    Definitions.validate_loadable(Definitions([copied], resources={"shop": FkResult(pipeline=str(made.file))}))
    done = materialize([copied], resources={"shop": FkResult(pipeline=str(made.file))})
    assert done.output_for_node("copied") == now
