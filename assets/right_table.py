"""Asset `right_table`."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.stage import stage_asset
from fk_pipeline.identity import Stage
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.stages.layout import Layout

DESCRIPTION = """\
The current row of every right key, tombstones kept, from `right_changelog`. **Last writer wins** by the source's
sequence, ties by batch. A partition is the rows that its batch changed last; the answers to their subscribers are due
there.
"""


def right_table_asset(spec: PipelineSpec, layout: Layout) -> AssetsDefinition:
    """The asset of stage `right_table`."""
    return stage_asset(spec, Stage.RIGHT_TABLE, DESCRIPTION, layout.right_table)
