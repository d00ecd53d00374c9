"""Asset `resolved_join`."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.stage import stage_asset
from fk_pipeline.identity import Stage
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.stages.layout import Layout

DESCRIPTION = """\
The join. A response is applied only if **both of its hashes are still current**; whatever made it stale has queued its
own response. Every response gets one verdict: joined, half-joined, retracted, unchanged, stale left, stale right,
rewritten, half-quarantined, quarantined. The table carries batch and time of each row's last change and has the Delta
change data feed on.
"""


def resolved_join_asset(spec: PipelineSpec, layout: Layout) -> AssetsDefinition:
    """The asset of stage `resolved_join`."""
    return stage_asset(spec, Stage.RESOLVED_JOIN, DESCRIPTION, layout.resolved_join)
