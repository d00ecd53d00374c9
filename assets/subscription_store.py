"""Asset `subscription_store`."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.stage import stage_asset
from fk_pipeline.identity import Stage
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.stages.layout import Layout

DESCRIPTION = """\
Which right key every left row subscribes to, and the hash of the left row (KIP-213's subscription send and receive).
**Owner rule**: a batch changes a row only if it brings a newer version, or no longer brings the one it owned. An update
that leaves the hash equal is silent.
"""


def subscription_store_asset(spec: PipelineSpec, layout: Layout) -> AssetsDefinition:
    """The asset of stage `subscription_store`."""
    return stage_asset(spec, Stage.SUBSCRIPTION_STORE, DESCRIPTION, layout.subscription_store)
