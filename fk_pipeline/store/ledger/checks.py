"""What checks have said of the batches, as far as it still counts.

A check that failed counts until a check of the same name passes, looking at least as far; until what mends it was done;
or until somebody waives it. What lies downstream of it and was found with it is its consequence, and counts no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

RUN, REBUILD, SOURCE = "run", "rebuild", "source"
"""What mends a batch that failed: its stage runs again for it; or is rebuilt; or runs again once other data landed."""

LANDING = "landing"
"""The batch was folded: only a rebuild from the landing files brings it as it is now."""

AGREEMENT = "agreement"
"""The stage asked before it committed: it goes on once somebody agrees (waives it), or once other data landed."""

FULL_DEPTH = "full"
"""The depth of a check that looked at whole tables."""


@dataclass(frozen=True)
class FailedCheck:
    """A batch that failed a critical check; `value` is how many rows broke it, in all batches together.

    Without a batch the table failed as a whole: nobody can say at which batch it lies.
    """

    stage: str
    name: str
    batch: int | None
    remedy: str
    depth: str
    value: float
    entry: int
    check_id: str | None = None
    """Of the run that checked several stages."""

    @property
    def place(self) -> tuple[str, str, int | None]:
        """Which check failed where."""
        return self.stage, self.name, self.batch

    @property
    def may_be_waived(self) -> bool:
        """Somebody may go on with the batch as it is."""
        return True

    @property
    def batches(self) -> list[int]:
        """The batch, if it is one."""
        return [] if self.batch is None else [self.batch]

    def __str__(self) -> str:
        whose = "the table" if self.batch is None else f"batch {self.batch}"
        return f"{whose} failed check {self.name} of {self.stage}"


class FoldedBatch(FailedCheck):
    """A batch that was folded, and whose landing files say something else by now: it can no longer be restated."""

    @classmethod
    def of(cls, stage: str, batch: int) -> FoldedBatch:
        """The batch, for the stage that would read it."""
        return cls(stage, "folded", batch, LANDING, "", 0.0, 0)

    @property
    def may_be_waived(self) -> bool:
        """No: what its rows would supersede is not known any more."""
        return False

    def __str__(self) -> str:
        return f"batch {self.batch} was folded, and what landed of it is not what {self.stage} read"


class CheckLog:
    """The rows of the ledger's `checks`, folded."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str, int | None], FailedCheck] = {}
        self._found_with: dict[str, list[FailedCheck]] = {}
        self.waived: set[FailedCheck] = set()

    def fold(self, row: Mapping[str, Any], known: Iterable[int]) -> None:
        """Takes a row into account; `known` are the batches that there are."""
        place = row["stage"], row["name"]
        if row["event"] == "waived":
            for batch in row["batches"] or (None,):
                waived = self._failed.pop((*place, batch), None)
                self.waived |= {waived} if waived is not None else set()
            return
        if row["severity"] != "critical":
            return
        if row["passed"] and row["pending"]:
            return  # what failed before may be among the rows that wait
        whole = row["first"] is None
        for key, failed in list(self._failed.items()):
            seen = whole or (failed.batch is not None and row["first"] <= failed.batch <= row["last"])
            if key[:2] == place and seen and row["depth"] in (FULL_DEPTH, failed.depth):
                del self._failed[key]
        if row["passed"]:
            return
        looked_at = [None] if whole else [b for b in known if row["first"] <= b <= row["last"]]
        for batch in row["batches"] or looked_at:
            failed = self._failed[(*place, batch)] = FailedCheck(
                *place, batch, row["cure"], row["depth"], row["value"], row["entry"], row.get("check_id")
            )
            if failed.check_id is not None:
                self._found_with.setdefault(failed.check_id, []).append(failed)

    def failed(self) -> list[FailedCheck]:
        """Everything that failed and did not pass since: whole tables, then by batch."""
        return sorted(self._failed.values(), key=lambda one: (one.batch is not None, one.batch, one.stage, one.name))

    def found_with(self, one: FailedCheck) -> list[FailedCheck]:
        """What the same run found for the same batch."""
        found = self._found_with.get(one.check_id or "", [])
        return [other for other in found if None in (one.batch, other.batch) or one.batch == other.batch]
