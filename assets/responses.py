"""Asset `responses`."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.stage import stage_asset
from fk_pipeline.identity import Stage
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.stages.layout import Layout

DESCRIPTION = """\
The answers that a batch owes: to each subscription that asks for one, and to every subscriber of a right row that
changed. Only keys and both hashes, no payload. **One answer per change**: only a left key never seen before may stay
without one.
"""


def responses_asset(spec: PipelineSpec, layout: Layout) -> AssetsDefinition:
    """The asset of stage `responses`."""
    return stage_asset(spec, Stage.RESPONSES, DESCRIPTION, layout.responses)
