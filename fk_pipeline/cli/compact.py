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
    for one in done:
        before, after = one.before, one.after
        pairs = ((before.files, after.files), (before.bytes, after.bytes), (before.stored, after.stored))
        rows.append([one.table, *(f"{value:,}" for pair in pairs for value in pair), f"{one.removed:,}"])
    print_table(["table", "files", "after", "bytes", "after", "on disk", "after", "rows removed"], rows)
    print_lines(["", *sentences(done, spec)])


def sentences(done: Sequence[TableUpkeep], spec: PipelineSpec) -> list[str]:
    """Returns sentences that explain the numbers."""
    freed, later = sum(max(0, one.freed) for one in done), sum(one.freed_later for one in done)
    lines = [f"Freed: {freed:,} bytes."]
    hours = f"{spec.settings.retention_hours:g}"
    if later:
        last = max(one.freed_from for one in done)
        lines.append(
            f"{later:,} bytes more are of older versions, which time travel, the change feed and running stages may "
            f"read for {hours} hours (settings.retention_hours): 'fk-pipeline compact {spec.file}' frees the last of "
            f"them from {last:%Y-%m-%d %H:%M} UTC on."
        )
    grown = [one.table for one in done if one.freed < 0]
    if grown:
        lines.append(
            f"Larger on disk than before: {', '.join(grown)}. Packing writes new files, and an entry and a checkpoint "
            "of the log; the old files go when their time is up."
        )
    return lines
