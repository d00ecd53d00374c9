"""What `compact` says of its numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fk_pipeline.cli.compact import sentences
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.upkeep import Size, TableUpkeep

SIDE = {"path": "x", "format": "rows", "schema": "id INT, k INT", "key": "id"}
SPEC = PipelineSpec.model_validate(
    {"name": "p", "join": "left", "left": SIDE | {"foreign_key": "k"}, "right": SIDE, "file": Path("p.yaml")}
)
WHEN = datetime(2026, 12, 1, 4, 30, tzinfo=UTC)


def test_it_says_what_was_freed_what_will_be_when_and_why_a_table_grew() -> None:
    packed = TableUpkeep("runs", Size(9, 900, 1_000), Size(1, 300, 1_400, 900), WHEN)
    emptied = TableUpkeep("files", Size(9, 900, 9_000), Size(1, 300, 1_000), WHEN)
    freed, later, grown = sentences([packed, emptied], SPEC)
    assert freed == "Freed: 8,000 bytes."
    assert later.startswith(
        "900 bytes more are of older versions, which time travel, the change feed and running stages"
    )
    assert "for 168 hours (settings.retention_hours): 'fk-pipeline compact p.yaml' frees the last of them" in later
    assert later.endswith("from 2026-12-01 04:30 UTC on.")
    assert grown.startswith("Larger on disk than before: runs. Packing writes new files, and an entry and a checkpoint")
    told = packed.as_json()
    assert (told["freed"], told["freed_later"], told["freed_from"]) == (-400, 900, "2026-12-01T04:30:00+00:00")
    assert sentences([emptied], SPEC) == ["Freed: 8,000 bytes."]
