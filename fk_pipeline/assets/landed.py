"""The assets of what landed: external ones, of which the sensor reports what each batch has."""

from __future__ import annotations

from collections.abc import Iterable

from dagster import AllPartitionMapping, AssetDep, AssetKey, AssetSpec, MetadataValue

from fk_pipeline.assets.freshness import freshness_policy
from fk_pipeline.assets.partitions import batch_partitions
from fk_pipeline.identity import Side
from fk_pipeline.resources.names import SourceKeys, group_of, input_key, result_read_by, source_key
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.places import landing_path

_OF_SOURCE = (
    "Landing files, or a table, that pipelines read. Nothing is reported here: each asset downstream has, for its "
    "pipeline, the whole path and what landed, batch by batch."
)


def input_asset(spec: PipelineSpec, side: Side, sources: SourceKeys) -> AssetSpec:
    """Returns the asset of an input of a pipeline: per batch the files that landed, or the versions of a Delta table.

    Upstream is the folder or table that it reads, or the result of another pipeline; of a clock nothing. A discovery
    makes one batch here of any number of versions of that result: the partitions of the two do not correspond.
    """
    result = result_read_by(spec, side)
    if side in spec.clocks:
        deps = []
    elif result is None:
        deps = [AssetDep(source_key(spec, side, sources))]
    else:
        deps = [AssetDep(result, partition_mapping=AllPartitionMapping())]
    return AssetSpec(
        input_key(spec, side),
        deps=deps,
        partitions_def=batch_partitions(spec),
        group_name=group_of(spec),
        owners=spec.owners,
        tags=spec.tags,
        kinds={spec.side(side).format},
        freshness_policy=freshness_policy(spec),
        description=f"What landed of {side}, batch by batch.",
        metadata={"path": MetadataValue.path(landing_path(spec, side)), "format": spec.side(side).format},
    )


def sources_of(specs: Iterable[PipelineSpec], sources: SourceKeys) -> list[AssetSpec]:
    """Returns an asset per folder or table that some pipelines read, and that is no result of a pipeline.

    It says nothing that depends on a pipeline: calls for several pipelines over one folder can be merged.
    """
    keys: dict[AssetKey, None] = {}
    for spec in specs:
        for source in spec.definition.inputs:
            if result_read_by(spec, source.name) is None and source.name not in spec.clocks:
                keys[source_key(spec, source.name, sources)] = None
    return [AssetSpec(key, group_name="sources", description=_OF_SOURCE) for key in keys]
