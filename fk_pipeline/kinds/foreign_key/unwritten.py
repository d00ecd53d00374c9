"""Batches whose responses are not written: they concern most rows, and `resolved_join` computes them (ADR 0062)."""

from __future__ import annotations

from collections.abc import Iterable

from fk_pipeline.kinds.foreign_key.kind import Stage
from fk_pipeline.store.ledger import Ledger


def unwritten_batches(ledger: Ledger, batches: Iterable[int]) -> list[int]:
    """Returns those of some batches whose responses are not written, by the last run of their stage that succeeded."""
    return [int(batch) for batch in batches if ledger.state(Stage.RESPONSES, batch).is_unwritten]
