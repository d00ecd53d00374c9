"""The failed checks of the batches that are still in force.

A failed check stays in force until a check of the same name passes with at least the same depth, until its remedy was
done, or until a user waives it. A failure downstream that the same check run found is its consequence, and is lifted
with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

RUN, REBUILD, SOURCE = "run", "rebuild", "source"
"""The remedies for a failed batch: its stage runs again for it; is rebuilt; or runs again once other data landed."""

LANDING = "landing"
"""The remedy for a folded batch: only a rebuild from the landing files reads its current files."""

AGREEMENT = "agreement"
"""The remedy of an approval check: the stage commits once a user waives it, or once other data landed."""

FULL_DEPTH = "full"
"""The depth of a check of whole tables."""


@dataclass(frozen=True)
class FailedCheck:
    """A batch that failed a critical check; `value` is the number of rows that broke it, in all batches together.

    Without a batch the table failed as a whole, and the batch that caused it is unknown.
    """

    stage: str
    name: str
    batch: int | None
    remedy: str
    depth: str
    value: float
    entry: int
    check_id: str | None = None
    """The id of the check run, which may cover several stages."""

    @property
    def place(self) -> tuple[str, str, int | None]:
        """Stage, check name and batch."""
        return self.stage, self.name, self.batch

    @property
    def may_be_waived(self) -> bool:
        """Whether a user may waive the check and go on with the batch as it is."""
        return True

    @property
    def batches(self) -> list[int]:
        """The batch in a list; empty without a batch."""
        return [] if self.batch is None else [self.batch]

    def __str__(self) -> str:
        whose = "the table" if self.batch is None else f"batch {self.batch}"
        return f"{whose} failed check {self.name} of {self.stage}"


class FoldedBatch(FailedCheck):
    """A folded batch whose landing files have changed since it was read: it can no longer be restated."""

    @classmethod
    def of(cls, stage: str, batch: int) -> FoldedBatch:
        """Returns the failure of a folded batch, for the stage that would read it."""
        return cls(stage, "folded", batch, LANDING, "", 0.0, 0)

    @property
    def may_be_waived(self) -> bool:
        """Always false: the rows that its rows would supersede are no longer known."""
        return False

    def __str__(self) -> str:
        return f"batch {self.batch} was folded, and what landed of it is not what {self.stage} read"


class CheckLog:
    """Keeps the failed and the waived checks from the rows of the ledger's `checks`."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str, int | None], FailedCheck] = {}
        self._found_with: dict[str, list[FailedCheck]] = {}
        self.waived: set[FailedCheck] = set()

    def fold(self, row: Mapping[str, Any], known: Iterable[int]) -> None:
        """Applies a row; `known` are all known batches."""
        place = row["stage"], row["name"]
        if row["event"] == "waived":
            for batch in row["batches"] or (None,):
                waived = self._failed.pop((*place, batch), None)
                self.waived |= {waived} if waived is not None else set()
            return
        if row["severity"] != "critical":
            return
        if row["passed"] and row["pending"]:
            return  # the rows that failed before may be among the pending ones
        whole, listed = row["first"] is None, row.get("looked_at")

        def looked_at(batch: int | None) -> bool:
            return batch is not None and row["first"] <= batch <= row["last"] and (listed is None or batch in listed)

        for key, failed in list(self._failed.items()):
            seen = whole or looked_at(failed.batch)
            if key[:2] == place and seen and row["depth"] in (FULL_DEPTH, failed.depth):
                del self._failed[key]
        if row["passed"]:
            return
        for batch in row["batches"] or ([None] if whole else filter(looked_at, known)):
            failed = self._failed[(*place, batch)] = FailedCheck(
                *place, batch, row["cure"], row["depth"], row["value"], row["entry"], row.get("check_id")
            )
            if failed.check_id is not None:
                self._found_with.setdefault(failed.check_id, []).append(failed)

    def failed(self) -> list[FailedCheck]:
        """Returns every check that failed and has not passed since: whole tables first, then by batch."""
        return sorted(
            self._failed.values(), key=lambda check: (check.batch is not None, check.batch, check.stage, check.name)
        )

    def found_with(self, check: FailedCheck) -> list[FailedCheck]:
        """Returns the failures that the same check run found for the same batch, or where either has no batch."""
        failures = self._found_with.get(check.check_id or "", [])
        return [other for other in failures if None in (check.batch, other.batch) or check.batch == other.batch]
