"""Asset `left_changelog`."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.stage import stage_asset
from fk_pipeline.identity import Stage
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.stages.layout import Layout

DESCRIPTION = """\
The left table's change stream, batch by batch: the last valid event per key, with the whole row, its 128-bit hash
and the source's own sequence. Late events are kept; the subscription store decides who wins. Lines that cannot be read
go to `quarantine` with file, line, reason and raw text.
"""


def left_changelog_asset(spec: PipelineSpec, layout: Layout) -> AssetsDefinition:
    """The asset of stage `left_changelog`."""
    return stage_asset(spec, Stage.LEFT_CHANGELOG, DESCRIPTION, layout.left_changelog)
