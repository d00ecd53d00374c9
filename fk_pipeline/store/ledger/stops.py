"""Checks: which batches a failed check stops until it is remedied, waived or approved. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fk_pipeline.contract import Kind
from fk_pipeline.identity import BatchId
from fk_pipeline.store.ledger.checks import AGREEMENT, REBUILD, SOURCE, CheckLog, FailedCheck
from fk_pipeline.store.ledger.corrections import CorrectionLog
from fk_pipeline.store.ledger.due import Due
from fk_pipeline.store.ledger.entries import Entries
from fk_pipeline.store.ledger.files import FileLog
from fk_pipeline.store.ledger.folds import FoldLog, RebuildLog
from fk_pipeline.store.ledger.runs import RunLog


class Checks:
    """Knows the failed checks that still stop batches, and records the results of checks and the waivers of users.

    Attributes:
        limits: per approval check, the largest value that needs no approval.
        last: per stage and check, the row of its last result.
    """

    def __init__(
        self,
        entries: Entries,
        kind: Kind,
        files: FileLog,
        runs: RunLog,
        due: Due,
        corrections: CorrectionLog,
        rebuilds: RebuildLog,
        folds: FoldLog,
        limits: Mapping[str, int],
    ) -> None:
        """Reads the rows of `checks`."""
        self._entries, self._files, self._runs, self._due = entries, files, runs, due
        self._corrections, self._rebuilds, self._folds, self.limits = corrections, rebuilds, folds, limits
        self._sides = {logged.stage: logged.name for logged in kind.logged}
        self._log = CheckLog()
        self.last: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._fold(entries.rows("checks"))

    def record(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Records results of checks: `stage`, `name`, `severity`, `depth`, `first`, `last`, `passed`, `value`, ..."""
        self._fold(self._entries.append("checks", [{"event": "checked", **row} for row in rows]))

    def waive(self, failed: Iterable[FailedCheck], reason: str) -> None:
        """Records that a user waives failed checks, and the reason."""
        rows = [
            {"event": "waived", "stage": check.stage, "name": check.name, "reason": reason, "batches": check.batches}
            for check in failed
        ]
        self._fold(self._entries.append("checks", rows))

    def failed(self) -> list[FailedCheck]:
        """Returns the failed critical checks that have been neither remedied nor waived since."""
        counting = [
            check for check in self._log.failed() if check.entry > self._mended(check) and self._still_asks(check)
        ]
        places = {check.place for check in counting} | {check.place for check in self._log.waived}

        def lifted(check: FailedCheck) -> bool:
            """Returns whether the same check run found a failure upstream that is resolved by now."""
            upstream = self._due.all_upstream(check.stage)
            return any(o.stage in upstream and o.place not in places for o in self._log.found_with(check))

        return [check for check in counting if not lifted(check)]

    def refusing(self, stage: str, batches: Iterable[int]) -> list[FailedCheck]:
        """Returns the failed checks that stop a stage for some batches: those upstream, and its own pending approvals.

        A failed check without a batch stops all batches, unless its remedy is `source`: then no batch is known to be
        wrong.
        """
        upstream, requested = self._due.all_upstream(stage), set(batches)
        concerned = [
            check
            for check in self.failed()
            if check.stage in upstream or (check.stage == stage and check.remedy == AGREEMENT)
        ]
        concerned += self._folds.restated(stage)
        return [o for o in concerned if o.batch in requested or (o.batch is None and o.remedy != SOURCE and requested)]

    def of_table(self, stage: str) -> list[FailedCheck]:
        """Returns the failed checks of a stage: they stop what reads its whole table, whichever batch they name."""
        return [check for check in self.failed() if check.stage == stage]

    def not_refused(self, stage: str, batches: Sequence[BatchId]) -> tuple[list[BatchId], list[FailedCheck]]:
        """Returns the batches that a stage may run for, and the failed checks that stop the others."""
        refusing = self.refusing(stage, batches)
        left_out = {check.batch for check in refusing}
        return [] if None in left_out else [batch for batch in batches if batch not in left_out], refusing

    def approved(self, stage: str, name: str) -> set[int]:
        """Returns the batches with an approval of a check of a stage that holds for their current landing files."""
        waived = [check for check in self._log.waived if (check.stage, check.name) == (stage, name)]
        return {check.batch for check in waived if check.batch is not None and check.entry > self._listed(check)}

    def _fold(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._log.fold(row, self._files.batches)
            if row["event"] == "checked":
                self.last[row["stage"], row["name"]] = row

    def _still_asks(self, failed: FailedCheck) -> bool:
        """Returns whether an approval check would still ask for approval today; true for every other check."""
        limit = self.limits.get(failed.name)
        return failed.remedy != AGREEMENT or (limit is not None and failed.value > limit)

    def _listed(self, failed: FailedCheck) -> int:
        """Returns the entry of the last change of the files or corrections that the stage reads for the batch."""
        batch, side = failed.batch or 0, self._sides[failed.stage]
        return max(self._files.listed(batch, side), self._corrections.newest(batch, side) or 0)

    def _mended(self, failed: FailedCheck) -> int:
        """Returns the entry of the last remedy: a rebuild of the stage, or its last run for the batch if that suffices.

        The only remedy for a changelog is to read its landing files again. A stage asks for approval again when other
        files have landed.
        """
        if failed.remedy == AGREEMENT:
            ran = self._runs.state(failed.stage, failed.batch or 0).succeeded or 0
            return max(self._listed(failed), ran)
        reads, ran = failed.stage in self._sides and failed.remedy != REBUILD, 0
        if failed.remedy != REBUILD and failed.batch is not None:
            state = self._runs.state(failed.stage, failed.batch)
            ran = 0 if reads and not state.versions else state.succeeded or 0  # an adopted run has no versions
        return max(ran, self._rebuilds.last(failed.stage, ("landing",) if reads else ("landing", "changelog")))
