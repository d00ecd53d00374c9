"""examples/downstream: an asset that follows a join batch by batch."""

from __future__ import annotations

from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, Definitions, materialize

from fk_pipeline.resources import FkSparkResource

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_an_asset_downstream_counts_what_each_batch_changed(
    rows_pipeline: Any, example: Any, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rows_pipeline("inner")
    made.land(0, [(1, "a", "v"), (2, "b", "v"), (3, "a", "v")], [("a", "A"), ("b", "B")])
    made.pipeline.run()
    made.land(1, [(1, "b", "w"), (2,), (4, "a", "w")], [])
    made.pipeline.run()
    monkeypatch.setenv("FK_PIPELINES", str(made.file))
    shown = loaded(example("downstream") / "definitions.py")
    Definitions.validate_loadable(shown.defs)
    key = AssetKey(["tested", "changed_flights"])
    assert shown.defs.get_repository_def().asset_graph.get(key).automation_condition is not None
    with DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("tested_batches", ["b00000000", "b00000001"])
        done = materialize(
            [shown.changed_flights],
            instance=instance,
            resources={"spark": FkSparkResource().use(made.pipeline.session)},
            tags={
                "dagster/asset_partition_range_start": "b00000000",
                "dagster/asset_partition_range_end": "b00000001",
            },
        )
    told = {
        one.partition: {name: value.value for name, value in one.metadata.items() if not name.startswith("dagster/")}
        for one in done.asset_materializations_for_node("tested__changed_flights")
    }
    assert told == {
        "b00000000": {"insert": 3, "update": 0, "delete": 0},
        "b00000001": {"insert": 1, "update": 1, "delete": 1},
    }
