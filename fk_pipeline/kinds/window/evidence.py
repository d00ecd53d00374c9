"""The evidence of the story of a row: its version in the state, its partners, what the result has. No Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class OwnRow:
    """The row as the state has it.

    Attributes:
        lives: whether it has a hash; without one it is gone, or had expired when it landed.
        at: its time in units; None if it has none.
        owner: the batch of its version.
    """

    lives: bool
    at: int | None
    owner: int | None


@dataclass(frozen=True)
class Near:
    """A row of the other side that is near enough now, or with which the result has a pair.

    Attributes:
        key: its key, as JSON.
        at: its time in units; None if it does not live.
        batch: the batch that brought the later of both rows; None if they are no pair now.
        written_in: the batch that last wrote the pair; None if the result does not have it.
        told: whether its table knows it: it has it, and it had not expired when it landed.
    """

    key: dict[str, Any]
    at: int | None
    batch: int | None
    written_in: int | None
    told: bool


class RowEvidence(Protocol):
    """The stored rows about a row of one side.

    Attributes:
        key: its key, as JSON.
        own: the row as the state has it; None if the state does not have it.
        versions: the rows of the changelog with the key, as JSON, in the source's order.
        alone_in: the batch that last wrote the row alone; None if the result does not have it so.
        in_result: whether the result has it, alone or in pairs.
        near: the rows of the other side, by time and key; those without a time first.
    """

    key: dict[str, Any]
    own: OwnRow | None
    versions: list[dict[str, Any]]
    alone_in: int | None
    in_result: bool
    near: list[Near]

    def greatest(self) -> dict[int, int]:
        """Returns per batch the greatest time, in units, of the living rows of both sides that it owns."""
        ...
