"""The names in Dagster of a pipeline's assets, partitions and pool."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from dagster import AssetKey

from fk_pipeline.identity import Side
from fk_pipeline.kinds.registry import kinds
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.places import landing_base

_RESULT = re.compile(rf"(?:.*/)?([a-z][a-z0-9_]*)/({'|'.join(kind.result.name for kind in kinds())})/?")
"""Pattern of the path of a result table of any kind: `<pipeline>/<table>`."""

RANGE_FIRST, RANGE_LAST = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
"""The tags of a run with the ends of its range of partitions."""

SOURCE_PARTS = 3
"""The number of parts of a path that name a source, unless two paths have the same."""

SourceKeys = Mapping[str, AssetKey]
"""Per folder or table that some pipelines read, the key of its asset."""

_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")

DUE_TAG = "fk_pipeline/only-due"
"""The tag of a run that a sensor requests: each stage runs only for those of its batches that are due by then.

Its value is the batches, for people: the page of all runs shows it."""

FILE_TAG = "fk_pipeline/file"
"""The tag of a run that a sensor requests: the text of the pipeline file that it saw (`spec.edited.text_of`)."""


def asset_key(spec: PipelineSpec, stage: str) -> AssetKey:
    """Returns the key of a stage's asset: `<pipeline>/<stage>`; that of the result is called as the pipeline."""
    if stage == spec.definition.result_stage:
        return AssetKey([spec.name])
    return AssetKey([spec.name, str(stage)])


def input_key(spec: PipelineSpec, side: Side) -> AssetKey:
    """Returns the key of the asset that has what landed of an input: `<pipeline>/<input>`."""
    return AssetKey([spec.name, str(side)])


def source_keys(specs: Iterable[PipelineSpec]) -> SourceKeys:
    """Returns the keys of the assets of the folders and tables that pipelines read: two of them have two keys.

    A key has the last parts of the path: `source/shop/landing/orders`, also of a bucket. Of paths that end alike it has
    as many parts as tell each from all others; of those with the same parts, a hash as well.
    """
    sides = (
        (spec, source.name) for spec in specs for source in spec.definition.inputs if source.name not in spec.clocks
    )
    parts = {base: _parts(base) for base in dict.fromkeys(landing_base(spec, side) for spec, side in sides)}
    return {base: _source_key(base, [parts[other] for other in parts if other != base]) for base in parts}


def source_key(spec: PipelineSpec, side: Side, keys: SourceKeys) -> AssetKey:
    """Returns the key of the asset of what an input reads; of a path that is not among the known ones, its own."""
    base = landing_base(spec, side)
    return keys.get(base) or _source_key(base, [])


def _source_key(base: str, others: list[list[str]]) -> AssetKey:
    """Returns the key of a path that is told from some others."""
    parts = _parts(base)
    for number in range(SOURCE_PARTS, max(map(len, [parts, *others])) + 1):
        if all(parts[-number:] != other[-number:] for other in others):
            return AssetKey(["source", *parts[-number:]])
    alike = [hashlib.sha256(base.encode()).hexdigest()[:8]] if parts in others else []
    return AssetKey(["source", *parts, *alike])


def _parts(base: str) -> list[str]:
    return [part for part in _NO_NAME.split(base) if part]


def result_read_by(spec: PipelineSpec, side: Side) -> AssetKey | None:
    """Returns the asset of another pipeline whose result an input reads; None if it reads none.

    It is read as a Delta table: `<warehouse>/<name>/resolved_join`.
    """
    declared = spec.side(side)
    match = _RESULT.fullmatch(declared.path) if declared.format == "delta" else None
    if match is None or match[1] == spec.name:
        return None
    return AssetKey([match[1]])


def group_of(spec: PipelineSpec) -> str:
    """Returns the name of the group of a pipeline's assets."""
    return spec.group or spec.name


def partitions_name(spec: PipelineSpec) -> str:
    """Returns the name of the dynamic partitions that all assets of a pipeline share."""
    return f"{spec.name}_batches"


def batches_job_name(spec: PipelineSpec) -> str:
    """Returns the name of the job that runs all stages of a pipeline."""
    return f"{spec.name}_all_stages"


def chain_job_name(spec: PipelineSpec) -> str:
    """Returns the name of the job that runs a pipeline after those whose results it reads."""
    return f"{spec.name}_after_its_inputs"


def readers_job_name(spec: PipelineSpec) -> str:
    """Returns the name of the job that runs batches of a pipeline, and then those that read its result."""
    return f"{spec.name}_and_its_readers"


def chain_tag(pipeline: str) -> str:
    """Returns the name of a tag of such a job: it runs this pipeline, among others."""
    return f"fk_pipeline/{pipeline}"


def pool_of(spec: PipelineSpec) -> str:
    """Returns the name of the pool that lets a pipeline have one active run at a time."""
    return f"fk_{spec.name}"
