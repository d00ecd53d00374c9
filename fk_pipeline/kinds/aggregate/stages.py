"""The stage of the table of an aggregate; that of its result is a block (`blocks.refresh.stages`)."""

from __future__ import annotations

from fk_pipeline.blocks.state import current_effects
from fk_pipeline.effects import Effect
from fk_pipeline.identity import Side
from fk_pipeline.kinds.aggregate.kind import AT, AggregateStage
from fk_pipeline.kinds.aggregate.windows import windows_of
from fk_pipeline.stage_input import Reader


def table(read: Reader) -> list[Effect]:
    """Returns the effects that apply the batches to the table."""
    windows = windows_of(read.spec, dict(read.about(AggregateStage.TABLE).declared.columns))
    return current_effects(read, Side.INPUT, "" if windows is None else windows.pane(AT))
