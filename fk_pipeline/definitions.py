"""Dagster's entry point: `workspace.yaml` loads this module; users call `fk.definitions([...])` in their own project.

`defs` contains the pipelines that FK_PIPELINES names (files, or folders of files, separated like PATH). By default it
contains the pipeline of the demo in the folder `fk-pipeline-demo` of the working directory, where `fk-pipeline demo`
writes it. With FK_AUTOMATION=on, which `fk-pipeline up --sensors` sets, all of them have `automation`.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagster import BetaWarning, ConfigurableResource, Definitions, in_process_executor

from fk_pipeline.assets import assets_of, sources_of
from fk_pipeline.assets.chains import jobs_of_chains
from fk_pipeline.assets.jobs import batches_job, full_checks_job, schedules, upkeep_job
from fk_pipeline.assets.sensors import batches_sensor
from fk_pipeline.contract import loaded
from fk_pipeline.demo.files import demo_spec
from fk_pipeline.expectations.checks import checks_of
from fk_pipeline.pipeline import Pipeline
from fk_pipeline.resources import FkSparkResource, LandingZoneResource
from fk_pipeline.resources.names import source_keys
from fk_pipeline.spec import PipelineSpec, Settings, load_spec
from fk_pipeline.spec.load import with_settings
from fk_pipeline.spec.project import (
    all_automated,
    merged,
    named_pipelines,
    pipeline_files,
    refuse_same_name,
    with_inline,
)

warnings.filterwarnings("ignore", "Parameter .backfill_policy.", BetaWarning)


def definitions(pipelines: Iterable[str | Path | PipelineSpec | Pipeline], *, resources: bool = True) -> Definitions:
    """Returns the assets, checks, jobs, schedules and sensors of pipelines, with the resources that they need.

    All stages of a run share one process and one Spark session, which has the merged settings of all pipelines.

    Args:
        pipelines: the pipelines, or their files; those of inline inputs come with that which reads them.
        resources: whether to define what there is once per code location: the resources `spark` and `landing_zone`, and
            schedules that the pipelines share; if false, the project defines the resources, and each pipeline has
            schedules of its own.

    Raises:
        PipelineFileError: a pipeline file is wrong, or two pipelines have the same name.
        StateError: the result of another pipeline that one of them reads cannot be opened.
    """
    specs = with_inline(map(_spec, pipelines))
    return definitions_with(specs, resources_of(merged(specs)) if resources else {}, shared=resources)


def definitions_with(
    specs: Sequence[PipelineSpec], resources: Mapping[str, ConfigurableResource[Any]], *, shared: bool
) -> Definitions:
    """Returns the definitions of some pipelines, with the given resources.

    Args:
        specs: the pipelines.
        resources: the resources.
        shared: whether the pipelines share schedules: once per code location.

    Raises:
        PipelineFileError: two pipelines have the same name.
    """
    refuse_same_name(specs)
    jobs = {spec.name: batches_job(spec) for spec in specs}
    chains, readers = jobs_of_chains(specs)
    sources = source_keys(specs)
    return Definitions(
        assets=[
            *sources_of(specs, sources),
            *[
                asset
                for spec in specs
                for asset in assets_of(spec, loaded(spec.definition.declared_layout)(spec), sources)
            ],
        ],
        asset_checks=[check for spec in specs for check in checks_of(spec)],
        jobs=[
            *jobs.values(),
            *chains,
            *readers.values(),
            *[full_checks_job(spec) for spec in specs],
            *[upkeep_job(spec) for spec in specs],
        ],
        schedules=schedules(specs, shared=shared),
        sensors=[batches_sensor(spec, readers.get(spec.name, jobs[spec.name]).name, sources) for spec in specs],
        resources=resources,
        executor=in_process_executor,
    )


def resources_of(settings: Settings) -> dict[str, ConfigurableResource[Any]]:
    """Returns the resources `spark`, with some settings, and `landing_zone`."""
    spark = FkSparkResource(
        spark_config=dict(settings.spark),
        driver_memory=settings.driver_memory,
        shuffle_partitions=settings.shuffle_partitions,
    )
    return {"spark": spark, "landing_zone": LandingZoneResource()}


def _spec(pipeline: str | Path | PipelineSpec | Pipeline) -> PipelineSpec:
    if isinstance(pipeline, Pipeline):
        return pipeline.spec
    return pipeline if isinstance(pipeline, PipelineSpec) else load_spec(pipeline)


def _pipelines() -> list[PipelineSpec]:
    named = named_pipelines()
    specs = (
        [load_spec(file) for file in pipeline_files(named)] if named else [demo_spec(Path.cwd() / "fk-pipeline-demo")]
    )
    return [with_settings(spec, automation="on") for spec in specs] if all_automated() else specs


defs = definitions(_pipelines())


class _CallableModule(types.ModuleType):
    """Lets `fk.definitions` be both this module, for Dagster, and the function, for users."""

    def __call__(self, *args: Any, **kwargs: Any) -> Definitions:
        return definitions(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
