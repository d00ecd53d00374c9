"""What a verification found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class VerifyReport:
    """What `verify` found: counts of result rows and differences, and a sample of the differences.

    `share` is the share of the left keys that was compared.
    """

    rows: int
    missing: int
    stale: int
    unexpected: int
    pending: int
    due: int
    share: float = 1.0
    sample: tuple[dict[str, Any], ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether every difference is explained by work still due."""
        return not (self.missing or self.stale or self.unexpected)

    def counts(self) -> dict[str, int]:
        """The counts, as the command prints them."""
        return {name: getattr(self, name) for name in ("rows", "missing", "stale", "unexpected", "pending", "due")}
