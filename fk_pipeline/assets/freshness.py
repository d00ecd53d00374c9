"""How old the newest batch may be: the freshness policies of a pipeline, and what Dagster evaluates them by.

Dagster compares the time of an asset's newest materialisation with the clock, and takes no notice of observations. What
landed is told by observations, batch by batch; so of an input with a policy the batch that landed last is a
materialisation, too, with the time at which it landed. Whoever tells Dagster of old batches makes no late source fresh.
"""

from __future__ import annotations

from collections.abc import Callable

from dagster import AssetMaterialization, DagsterEvent, DagsterEventType, DagsterInstance, FreshnessPolicy

# Both as `DagsterInstance.report_runless_asset_event` has them, which takes no time of the event.
from dagster._core.events import StepMaterializationData
from dagster._core.instance.utils import RUNLESS_JOB_NAME, RUNLESS_RUN_ID

from fk_pipeline.assets.shown import of_landing
from fk_pipeline.identity import BatchId, Side
from fk_pipeline.resources.names import input_key
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.store.ledger import Ledger


def freshness_policy(spec: PipelineSpec) -> FreshnessPolicy | None:
    """Returns the policy of the result and of what landed; None if the pipeline file has none."""
    if spec.settings.freshness is None:
        return None
    error, warn = spec.settings.freshness.windows
    return FreshnessPolicy.time_window(fail_window=error, warn_window=warn)


def report_newest(
    instance: DagsterInstance, spec: PipelineSpec, ledger: Ledger, tags: Callable[[Side, BatchId], dict[str, str]]
) -> int:
    """Reports, of each input with a policy, when something landed last, unless Dagster knows; returns how many.

    `tags` is a function of input and batch that returns the tags of its data version: those of the observation, for a
    run notes the version of a materialisation where there is one, and would be stale beside another.
    """
    if spec.settings.freshness is None:
        return 0
    number = 0
    for source in spec.definition.inputs:
        newest = ledger.files.newest(source.name)
        if newest is None:
            continue
        key, landed_at = input_key(spec, source.name), newest["recorded_at"].timestamp()
        record = instance.get_latest_materialization_event(key)
        if record is None or record.timestamp < landed_at:
            batch = BatchId(newest["batch"])
            metadata = of_landing(spec, ledger, source.name, batch)
            shown = AssetMaterialization(key, partition=batch.key, metadata=metadata, tags=tags(source.name, batch))
            _report_at(instance, shown, landed_at)
            number += 1
    return number


def _report_at(instance: DagsterInstance, event: AssetMaterialization, timestamp: float) -> None:
    """Reports a materialisation that belongs to no run, as of a time."""
    made = DagsterEvent(
        DagsterEventType.ASSET_MATERIALIZATION.value,
        job_name=RUNLESS_JOB_NAME,
        event_specific_data=StepMaterializationData(event),
    )
    instance.report_dagster_event(made, run_id=RUNLESS_RUN_ID, timestamp=timestamp)
