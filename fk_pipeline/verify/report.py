"""The report of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fk_pipeline.words import counted


@dataclass(frozen=True)
class VerifyReport:
    """The numbers and sample rows that `verify` returns.

    Attributes:
        rows: number of rows of the result.
        missing: number of rows that the result should have and does not.
        stale: number of rows whose values differ from the expected ones.
        unexpected: number of rows that the result should not have.
        pending: number of differences that work still due explains; they are not counted above.
        due: number of stage runs that are due.
        unproved: number of differences about which the inputs do not tell any more what is right (`history`,
            `retention`); they are not counted above.
        share: the share of the left keys that was compared.
        left_rows: number of current rows of the left table that were joined, within the share.
        right_rows: number of current rows of the right table that were joined.
        left_out: number of left rows that the join leaves out because an expression of `select` fails on them.
        unmatched: number of left rows that are joined without their right row because an expression fails on the two.
        quarantined_lines: number of lines of both sides that are in the quarantine, and therefore in neither table.
        sample: some of the rows that differ, in the order of their keys, each with `key`, `difference` (missing, stale,
            unexpected), `expected` and `found`. The values are formatted as by `show`; a stale row has only the columns
            that differ.
    """

    rows: int
    missing: int
    stale: int
    unexpected: int
    pending: int
    due: int
    unproved: int = 0
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

    def in_words(self, matches: str = "") -> str:
        """Returns what the comparison found in one sentence about rows.

        Args:
            matches: what else is known of the rows of a right result: `19,204 matched, 796 without a match`.

        >>> VerifyReport(2, 0, 0, 0, 0, 0).in_words("1 matched, 1 without a match")
        'all 2 rows of the result are right: 1 matched, 1 without a match'
        >>> VerifyReport(19_999, missing=1, stale=2, unexpected=0, pending=0, due=0).in_words()
        '3 of 20,000 rows are wrong: 1 missing, 2 stale'
        """
        of = "" if self.share == 1 else f" among those of a share of {self.share:g} of the keys"
        counts = {name: getattr(self, name) for name in ("missing", "stale", "unexpected")}
        if wrong := sum(counts.values()):
            what = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
            whole = self.share == 1
            rows = f"{wrong:,} of {counted(self.rows + self.missing, 'row')}" if whole else counted(wrong, "row")
            return f"{rows} {'is' if wrong == 1 else 'are'} wrong{of}: {what}"
        known = f": {matches}" if matches else ""
        if self.pending or self.unproved:
            differ = "differs" if self.pending == 1 else "differ"
            open_ = [f"{self.pending:,} {differ} until what is due has run"] if self.pending else []
            open_ += [f"of {self.unproved:,} it is not known any more what is right"] if self.unproved else []
            return f"none of {counted(self.rows, 'row')} is wrong{of}; {' and '.join(open_)}{known}"
        if self.share < 1:
            return f"no row is wrong{of}; the result has {self.rows:,}{known}"
        if self.rows < 2:
            return f"the only row of the result is right{known}" if self.rows else "the result is right: it has no rows"
        return f"all {self.rows:,} rows of the result are right{known}"

    def counts(self) -> dict[str, int]:
        """Returns the numbers of the comparison by name: `rows`, `missing`, `stale`, `unexpected`, `pending`, `due`."""
        return {name: getattr(self, name) for name in ("rows", "missing", "stale", "unexpected", "pending", "due")}

    def looked_at(self) -> dict[str, int]:
        """Returns the numbers of joined, left-out and unproved rows and of quarantined lines, by attribute name."""
        names = ("left_rows", "right_rows", "left_out", "unmatched", "unproved", "quarantined_lines")
        return {name: getattr(self, name) for name in names}
