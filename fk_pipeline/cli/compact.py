"""The output of `compact`: the tables, the bytes freed, the bytes to free later, and why a table may have grown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fk_pipeline.console import print_lines, print_table

if TYPE_CHECKING:
    from fk_pipeline.spec import PipelineSpec
    from fk_pipeline.upkeep import TableUpkeep


def print_compaction(done: Sequence[TableUpkeep], spec: PipelineSpec) -> None:
    """Prints the tables and the sentences, for people."""
    rows = []
    for upkeep in done:
        before, after = upkeep.before, upkeep.after
        pairs = ((before.files, after.files), (before.bytes, after.bytes), (before.stored, after.stored))
        rows.append([upkeep.table, *(f"{value:,}" for pair in pairs for value in pair), f"{upkeep.removed:,}"])
    print_table(["table", "files", "after", "bytes", "after", "on disk", "after", "rows removed"], rows)
    print_lines(["", *sentences(done, spec)])


def sentences(done: Sequence[TableUpkeep], spec: PipelineSpec) -> list[str]:
    """Returns sentences that explain the numbers."""
    freed, later = sum(max(0, upkeep.freed) for upkeep in done), sum(upkeep.freed_later for upkeep in done)
    lines = [f"Freed: {freed:,} bytes."]
    hours = f"{spec.settings.retention_hours:g}"
    if later:
        last = max(upkeep.freed_from for upkeep in done)
        lines.append(
            f"{later:,} bytes more are of older versions, which time travel, the change feed and running stages may "
            f"read for {hours} hours (settings.retention_hours): 'fk-pipeline compact {spec.file}' frees the last of "
            f"them from {last:%Y-%m-%d %H:%M} UTC on."
        )
    grown = [upkeep.table for upkeep in done if upkeep.freed < 0]
    if grown:
        lines.append(
            f"Larger on disk than before: {', '.join(grown)}. Packing writes new files, and an entry and a checkpoint "
            "of the log; the old files go when their time is up."
        )
    return lines
