"""What a verification found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class VerifyReport:
    """What `verify` found.

    Attributes:
        rows: rows of the result.
        missing: rows that should be there and are not.
        stale: rows with other values than they should have.
        unexpected: rows that should not be there.
        pending: differences that work still due explains; not counted above.
        due: stage runs that are due.
        share: the share of the left keys that was compared.
        left_rows: current rows of the left table that were joined; those of the share.
        right_rows: current rows of the right table that were joined.
        left_out: left rows that the join does not have because an expression of `select` fails on them.
        unmatched: left rows that the join has without their right row because an expression fails on the two.
        quarantined_lines: lines of both sides that are in the quarantine, and so in neither table.
        sample: some of the rows that differ, by key: `key`, `difference` (missing, stale, unexpected), `expected` and
            `found`: values as `show` has them, of a stale row only those that differ.
    """

    rows: int
    missing: int
    stale: int
    unexpected: int
    pending: int
    due: int
    share: float = 1.0
    left_rows: int = 0
    right_rows: int = 0
    left_out: int = 0
    unmatched: int = 0
    quarantined_lines: int = 0
    sample: tuple[dict[str, Any], ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether every difference is explained by work still due."""
        return not (self.missing or self.stale or self.unexpected)

    def counts(self) -> dict[str, int]:
        """What was compared, and how it differs."""
        return {name: getattr(self, name) for name in ("rows", "missing", "stale", "unexpected", "pending", "due")}

    def looked_at(self) -> dict[str, int]:
        """What was joined, and what of it the join leaves out."""
        names = ("left_rows", "right_rows", "left_out", "unmatched", "quarantined_lines")
        return {name: getattr(self, name) for name in names}
