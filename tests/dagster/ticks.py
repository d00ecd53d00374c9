"""A tick of a sensor as the daemon has it evaluated, with all that Dagster checks; what an event shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterInstance,
    Definitions,
    FloatMetadataValue,
    IntMetadataValue,
    build_sensor_context,
)
from dagster._core.definitions.sensor_definition import SensorExecutionData

from fk_pipeline.assets.shown import FIGURES


def stage_of(key: AssetKey) -> str:
    """The stage of an asset of a foreign-key join, or its input: the asset of the result is called as the pipeline."""
    return key.path[-1] if len(key.path) > 1 else "resolved_join"


def figures(made: AssetMaterialization | AssetObservation) -> dict[str, Any]:
    """What Dagster shows of an event, by name: its metadata, and the rows of its table of figures."""
    shown = {name: value.value for name, value in made.metadata.items()}
    table = shown.pop(FIGURES, None)
    rows = {} if table is None else {row.data["figure"]: row.data["value"] for row in table.records}
    assert not rows.keys() & shown.keys()
    return shown | rows


def plotted(made: AssetMaterialization | AssetObservation) -> dict[str, Any]:
    """The numbers of an event of which Dagster makes plots."""
    numbers = (IntMetadataValue, FloatMetadataValue)
    return {name: value.value for name, value in made.metadata.items() if isinstance(value, numbers)}


def evaluated(
    defs: Definitions, pipeline: str, instance: DagsterInstance, resources: Mapping[str, Any]
) -> SensorExecutionData:
    """Returns the outcome of one tick of the sensor of a pipeline; an outcome that Dagster refuses is an error.

    The daemon would apply requests about partitions afterwards. This sensor changes its partitions itself.
    """
    repository = defs.get_repository_def()
    sensor = repository.get_sensor_def(f"{pipeline}_new_batches")
    with build_sensor_context(instance=instance, repository_def=repository, resources=dict(resources)) as context:
        found = sensor.evaluate_tick(context)
    assert not found.dynamic_partitions_requests
    return found
