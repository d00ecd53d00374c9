"""What the ledger says of the batches of one run of a stage: what was brought, propagated and written for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fk_pipeline.effects import Counts, Messages
from fk_pipeline.identity import APPLIED, INSERTED, BatchId
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.sizes import UNKNOWN


@dataclass
class RunHistory:
    """The past of some batches, as a run of a stage or a check of it asks for it.

    Attributes:
        ledger: the ledger.
        stage: the stage.
        known: the batches.
        first_time: the stage cannot have committed anything for any of them. Asked before the run is recorded.
        never_any: no run of it for any of them can have stored a row, nor a bad record.
        counted: what the run has counted so far.
    """

    ledger: Ledger
    stage: str
    known: Sequence[BatchId]
    first_time: bool = False
    never_any: bool = False
    counted: Counts = field(default_factory=dict)

    @classmethod
    def before(cls, ledger: Ledger, stage: str, known: Sequence[BatchId]) -> RunHistory:
        """The past of the batches before a run is started."""
        first_time, never_any = (
            ledger.runs.never_started(stage, known),
            ledger.runs.never_did(stage, known, "rows", "quarantined"),
        )
        return cls(ledger, stage, known, first_time, never_any)

    def never_did(self, stage: str, *counts: str) -> bool:
        """No run of a stage for any of the batches, finished or not, can have counted any of these."""
        return self.ledger.runs.never_did(stage, self.known, *counts)

    def propagated(self, stage: str) -> int:
        """The rows of the state of a stage that changed on behalf of the batches, at most."""
        states = [self.ledger.state(stage, batch) for batch in self.known]
        if any(state.attempts != state.successes for state in states):
            return UNKNOWN
        return sum(state.totals.get(name, 0) for state in states for name in (INSERTED, APPLIED))

    def rows_read(self, stage: str) -> int:
        """The rows that the batches have in the log of a stage that reads landing files: this run has, or the last."""
        if stage == self.stage and self.counted:
            return sum(counts.get("rows", 0) for counts in self.counted.values())
        return sum(self.ledger.state(stage, batch).counts.get("rows", 0) for batch in self.known)

    def read_nothing(self, stage: str) -> bool:
        """The batches have no row in the log of such a stage, and never had one that a rewrite took away."""
        nothing = not self.rows_read(stage) if stage == self.stage else self.never_did(stage, "rows")
        return nothing and not self.was_rewritten(stage)

    def was_rewritten(self, stage: str) -> bool:
        """The partition of one of the batches in such a log was rewritten."""
        here = {*self.known}
        return any(batch in here for batch in self.ledger.runs.generations(stage))

    def is_finished(self, stage: str) -> bool:
        """The counts of a stage are those of what is stored: its last run for every batch was finished."""
        return stage == self.stage or all(
            self.ledger.state(stage, batch).last_event == "succeeded" for batch in self.known
        )

    def may_be_truncated(self, stage: str) -> bool | None:
        """A batch, whichever, brought a truncate to such a log; None where a run that nobody saw end may have."""
        if any(counts.get("truncates") for counts in self.counted.values()):
            return True
        states = [self.ledger.state(stage, batch) for batch in self.ledger.batches]
        if any(state.totals.get("truncates") for state in states):
            return True
        return False if all(state.attempts == state.successes for state in states) else None

    def messages(self, stage: str) -> Messages:
        """The messages that a stage wrote for the batches, as the ledger knows them now."""
        if not self.is_finished(stage):
            return Messages(UNKNOWN)
        states = [self.ledger.state(stage, batch) for batch in self.known]
        wrote = tuple(dict(state.versions) for state in states if sum(state.counts.values()))
        number = sum(sum(state.counts.values()) for state in states)
        return Messages(number, min((state.started for state in states), default=None), wrote)

    def limit(self, check: str) -> int | None:
        """The largest value of a check that needs no approval; None where it never does."""
        return self.ledger.checks.limits.get(check)

    def approved(self, check: str) -> set[int]:
        """The batches that were approved, for what their landing files say now."""
        return self.ledger.checks.approved(self.stage, check)
