"""The evidence of the story of a row of a windowed join: stored rows as JSON, whoever has read them. No Spark."""

from __future__ import annotations

from dataclasses import dataclass

from fk_pipeline.blocks.story import JsonRow
from fk_pipeline.identity import Side
from fk_pipeline.kinds.window.kind import TIME
from fk_pipeline.kinds.window.spans import Spans
from fk_pipeline.kinds.window.spec import WindowSpec
from fk_pipeline.store import schemas as s

STATE_COLUMNS = (s.HASH, TIME, s.OWNER, s.APPLIED_IN)
"""The columns of a row of a table that a story needs; the time is in units."""


@dataclass(frozen=True)
class RowEvidence:
    """The stored rows about a row of one side.

    Attributes:
        spec: the pipeline.
        side: the side.
        key: its key.
        spans: the window.
        versions: the rows of the changelog with the key, in the source's order.
        own: the row as its table has it (`STATE_COLUMNS`); None if the table does not have it.
        matching: the rows of the other table (`STATE_COLUMNS`, and the key) that match it, if it lives.
        paired: those with which the result has a pair, and maybe others.
        written: the rows of the result that have it: the batch, and the key of the other row (`tables.part`).
        greatest: if rows wait, per batch the greatest time, in units, of the living rows of both sides that it owns.
    """

    spec: WindowSpec
    side: Side
    key: JsonRow
    spans: Spans
    versions: list[JsonRow]
    own: JsonRow | None
    matching: list[JsonRow]
    paired: list[JsonRow]
    written: list[JsonRow]
    greatest: dict[int, int]


def lives_at(row: JsonRow | None) -> int | None:
    """Returns the time of a row of a table; None if it does not live: it is gone, or had expired when it landed."""
    return None if row is None or row[s.HASH] is None else row[TIME]
