"""The ledger entries about the batches of one run of a stage: rows read, propagated and written for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fk_pipeline.identity import APPLIED, INSERTED, BatchId
from fk_pipeline.stage_input import Counts, Messages
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.sizes import UNKNOWN


@dataclass
class RunHistory:
    """The past of some batches, as a run of a stage or a check of it needs it.

    Attributes:
        ledger: the ledger.
        stage: the stage that runs; empty in a check, in which none does.
        known: the batches.
        first_time: whether the stage cannot have committed anything for any of them; read before the run is recorded.
        never_any: whether no run of it for any of them can have stored a row or a bad record.
        counted: the counts of the run so far.
    """

    ledger: Ledger
    stage: str
    known: Sequence[BatchId]
    first_time: bool = False
    never_any: bool = False
    counted: Counts = field(default_factory=dict)

    @classmethod
    def before(cls, ledger: Ledger, stage: str, known: Sequence[BatchId]) -> RunHistory:
        """Returns the past of the batches before a run is started."""
        first_time, never_any = (
            ledger.runs.never_started(stage, known),
            ledger.runs.never_did(stage, known, "rows", "quarantined"),
        )
        return cls(ledger, stage, known, first_time, never_any)

    def never_did(self, stage: str, *counts: str) -> bool:
        """Returns whether a stage had none of the counts for the batches; false after a run that did not succeed."""
        return self.ledger.runs.never_did(stage, self.known, *counts)

    def propagated(self, stage: str, batch: int | None = None) -> int:
        """Returns an upper bound of the state rows of a stage changed by the batches, or by one of them.

        It is `UNKNOWN` after a failed run.
        """
        states = [self.ledger.state(stage, known) for known in (self.known if batch is None else [batch])]
        if any(state.attempts != state.successes for state in states):
            return UNKNOWN
        return sum(state.totals.get(name, 0) for state in states for name in (INSERTED, APPLIED))

    def seconds(self, stage: str, read: int) -> float | None:
        """Returns the seconds of the last run of a stage; None if it had not read this version of its main table."""
        return self.ledger.runs.seconds_after(stage, read)

    def rows_read(self, stage: str) -> int:
        """Returns the number of rows of the batches in the log of a stage that reads landing files.

        The number is of this run if it is of that stage and has counted, otherwise of the last successful run.
        """
        if stage == self.stage and self.counted:
            return sum(counts.get("rows", 0) for counts in self.counted.values())
        return sum(self.ledger.state(stage, batch).counts.get("rows", 0) for batch in self.known)

    def read_nothing(self, stage: str) -> bool:
        """Returns whether the batches have no row in the log of such a stage, and none was removed by a rewrite."""
        nothing = not self.rows_read(stage) if stage == self.stage else self.never_did(stage, "rows")
        return nothing and not self.was_rewritten(stage)

    def generations(self, stage: str) -> dict[int, int]:
        """Returns the generation of every batch, of any run, whose partition in the log of a stage was rewritten."""
        return self.ledger.runs.generations(stage)

    def was_rewritten(self, stage: str) -> bool:
        """Returns whether the partition of one of the batches in such a log was ever rewritten."""
        known = {*self.known}
        return any(batch in known for batch in self.generations(stage))

    def is_finished(self, stage: str) -> bool:
        """Returns whether the counts of a stage match the stored rows: its last run for every batch succeeded."""
        return stage == self.stage or all(
            self.ledger.state(stage, batch).last_event == "succeeded" for batch in self.known
        )

    def may_be_truncated(self, stage: str) -> bool | None:
        """Returns whether any batch has a truncate in this log; None if another unfinished run may have written one.

        The run itself is not finished, but has counted its truncates if it is of that stage.
        """
        if any(counts.get("truncates") for counts in self.counted.values()):
            return True
        states = {batch: self.ledger.state(stage, batch) for batch in self.ledger.batches}
        if any(state.totals.get("truncates") for state in states.values()):
            return True
        own = {*self.known} if stage == self.stage and self.counted else set()
        finished = all(state.attempts == state.successes + (batch in own) for batch, state in states.items())
        return False if finished else None

    def last_truncate(self, stage: str) -> int | None:
        """Returns the greatest batch that has, or ever had, a truncate in this log; None if none is known."""
        batches = (batch for batch in self.ledger.batches if self.ledger.state(stage, batch).totals.get("truncates"))
        return max(map(int, batches), default=None)

    def truncated(self, stage: str) -> list[int]:
        """Returns the batches that have, or ever had, a truncate in this log, or whose last run is not finished."""
        states = {int(batch): self.ledger.state(stage, batch) for batch in self.known}
        own = self.counted if stage == self.stage else {}  # the run itself has counted, and is not finished
        return [
            batch
            for batch, state in states.items()
            if state.totals.get("truncates")
            or (own[batch].get("truncates") if batch in own else state.attempts != state.successes)
        ]

    def messages(self, stage: str) -> Messages:
        """Returns the messages that a stage wrote for the batches, by the current ledger."""
        states = [self.ledger.state(stage, batch) for batch in self.known]
        unwritten = tuple(int(b) for b, state in zip(self.known, states, strict=True) if state.is_unwritten)
        if not self.is_finished(stage):
            return Messages(UNKNOWN, unwritten=unwritten)
        wrote = tuple(dict(state.versions) for state in states if sum(state.counts.values()))
        number = sum(sum(state.counts.values()) for state in states)
        since = min((state.started for state in states), default=None)
        return Messages(number, since, wrote, unwritten)

    def horizon(self, stage: str) -> str | None:
        """Returns how far back an input goes, given by its stage (`history`, `retention`); None: everything is kept."""
        return self.ledger.folds.horizon(stage)

    def unchanged_since(self, stages: Sequence[str], entry: int) -> bool:
        """Returns whether no run of some stages was started since an entry of the ledger, or under way then."""
        self.ledger.refresh()
        return self.ledger.runs.unchanged_since(stages, entry)

    def never_rewritten(self, stage: str) -> bool:
        """Returns whether no partition of the log of a stage was ever rewritten, by the ledger as it is now."""
        self.ledger.refresh()
        return not self.ledger.runs.generations(stage)

    def has_every_row(self, stage: str) -> bool:
        """Returns whether every run of a stage that reads landing files succeeded, for any batch, without truncates."""
        states = [self.ledger.state(stage, batch) for batch in self.ledger.batches]
        return not any(state.attempts != state.successes or state.totals.get("truncates") for state in states)

    def limit(self, check: str) -> int | None:
        """Returns the largest value of a check that needs no approval; None if the check never needs one."""
        return self.ledger.checks.limits.get(check)

    def approved(self, check: str) -> set[int]:
        """Returns the batches with an approval of a check that holds for their current landing files."""
        return self.ledger.checks.approved(self.stage, check)
