"""The story of one left key: its versions by batch, its messages and responses, and why the result is as it is.

It is read from the current tables: the versions of the left row and of the right rows that it ever referred to, its
subscription, the responses with their verdicts, the records of the quarantine about them, the row of the result, and
the join of both changelogs, computed now. See `docs/reference/command.md`, explain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fk_pipeline.blocks.left_out import DOES_NOT_PASS
from fk_pipeline.blocks.story import JsonRow, Story, key_of_side
from fk_pipeline.identity import EXPIRED, HALF_QUARANTINED, OF_PAIRS, QUARANTINED, Side
from fk_pipeline.kinds.foreign_key import kind as verdicts
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.evidence import LeftEvidence, held, records_of, reference, versions_of
from fk_pipeline.kinds.foreign_key.explain_unmatched_right import explain_unmatched_right
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.story import (
    LeftStory,
    Quarantined,
    ResponseStory,
    SubscriptionStory,
    Version,
    wrong_conclusion,
)
from fk_pipeline.kinds.foreign_key.unwritten import unwritten_batches
from fk_pipeline.kinds.foreign_key.verdicts import decided_batches
from fk_pipeline.spec.keys import parse_key, shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.rows_in_process import Relation

if TYPE_CHECKING:
    from fk_pipeline.store.reader import TableReader

_WHY = {
    None: "not resolved yet",
    verdicts.JOINED: "written to the result",
    verdicts.HALF_JOINED: "written to the result without a right row",
    verdicts.RETRACTED: "taken out of the result",
    verdicts.UNCHANGED: "the result said so already",
    verdicts.STALE_LEFT: "dropped: by then the left row was another version, which has a response of its own",
    verdicts.STALE_RIGHT: "dropped: by then the right row was another version, which has a response of its own",
    EXPIRED: "no right row: which version held at the time of the left row is not told any more (history)",
    verdicts.REWRITTEN: "dropped: the batch of the left row had been read anew, and has a new response",
    QUARANTINED: "no row: an expression of select fails on the two rows",
    HALF_QUARANTINED: "written as without a right row: an expression of select fails on the two rows",
}


def explain(read: TableReader, spec: ForeignKeySpec, ledger: Ledger, text: str) -> Story:
    """Returns the story of a left key; in an outer join also of a right key, which is written as `right.KEY`.

    Args:
        read: reads the tables of the pipeline.
        spec: the pipeline.
        ledger: its ledger.
        text: the key as text, in the form that `parse_key` reads.

    Raises:
        UsageError: the text is not a key of the side.
    """
    from fk_pipeline.kinds.foreign_key.evidence_by_spark import LeftBySpark, RightBySpark

    side, key = _meant(text, spec)
    if side == Side.RIGHT:
        return explain_unmatched_right(RightBySpark(read, spec, key), spec, ledger)
    return _Explained(LeftBySpark(read, spec, key), spec, ledger).story()


def explain_in_process(table: Callable[[str], Relation], spec: ForeignKeySpec, ledger: Ledger, text: str) -> Story:
    """Returns what `explain` does, without Spark; `table` opens a stored table.

    Raises:
        LeftToSpark: it is not certain that Spark finds the same.
        UsageError: the text is not a key of the side.
    """
    from fk_pipeline.kinds.foreign_key.evidence_in_process import LeftHere, RightHere

    side, key = _meant(text, spec)
    if side == Side.RIGHT:
        return explain_unmatched_right(RightHere(table, spec, key), spec, ledger)
    return _Explained(LeftHere(table, spec, key), spec, ledger).story()


def _meant(text: str, spec: ForeignKeySpec) -> tuple[Side, dict[str, str]]:
    """Returns the side and the key columns, as text, that people mean: only an outer join has stories of right keys."""
    return key_of_side(text, spec) if spec.outer else (Side.LEFT, parse_key(text, spec.left))


class _Explained:
    """Tells the story of a left key by the evidence about it."""

    def __init__(self, evidence: LeftEvidence, spec: ForeignKeySpec, ledger: Ledger) -> None:
        self.evidence, self.spec, self.ledger = evidence, spec, ledger

    def story(self) -> LeftStory:
        names = [o.name for o in self.spec.outputs]
        stored = next(iter(self.evidence.of_key(k.RESOLVED_JOIN)), None)
        expected = self.evidence.expected()
        result = {name: stored[name] for name in names} if stored else None
        due = self.ledger.due.by_stage()
        return LeftStory(
            key=self.evidence.key,
            left=self.left,
            right=self.right,
            responses=self.responses,
            quarantined=self.quarantined,
            subscription=self._subscription(),
            result=result,
            written_in=stored[s.BATCH] if stored else None,
            written_at=stored[s.CHANGED_AT] if stored else None,
            expected=expected,
            due=due,
            folded_to=max(self.ledger.folds.on_all_sides, default=None),
            unwritten=unwritten_batches(self.ledger, self.ledger.batches),
            conclusion=self._conclusion(result, expected, bool(due)),
            sees=self._seen_by(next((v for v in self.left if v.current and not v.deleted), None)),
        )

    @cached_property
    def left(self) -> tuple[Version, ...]:
        """The versions of the left row."""
        return versions_of(self.evidence.logs[Side.LEFT], self.spec, Side.LEFT)

    @cached_property
    def right(self) -> tuple[Version, ...]:
        """The versions of the right rows."""
        return versions_of(self.evidence.logs[Side.RIGHT], self.spec, Side.RIGHT)

    def _subscription(self) -> SubscriptionStory | None:
        for row in self.evidence.of_key(k.SUBSCRIPTION_STORE):
            return SubscriptionStory(
                refers_to=reference(row, self.spec),
                before=reference(row, self.spec, k.previous_fk),
                batch=row[s.OWNER],
                propagated_in=row[s.APPLIED_IN],
                instruction=row[k.INSTRUCTION],
                at=row.get(k.AS_OF),
            )
        return None

    @cached_property
    def responses(self) -> tuple[ResponseStory, ...]:
        """The responses, stored or resolved, with their verdicts."""
        before = decided_batches(self.ledger)
        responses, stored = (
            {(row[s.BATCH], row[s.CAUSE]): row for row in self.evidence.of_key(table)}
            for table in (k.RESPONSES, k.VERDICTS)
        )
        self.ledger.refresh()
        decided = {batch for batch, _ in before.items() & decided_batches(self.ledger).items()}
        both = sorted((stored | responses).items())
        return tuple(self._response(row, stored.get(at), at[0] in decided) for at, row in both)

    def _response(self, row: JsonRow, stored: JsonRow | None, decided: bool) -> ResponseStory:
        """Returns one response with its verdict.

        Args:
            row: the response.
            stored: its stored verdict; it is about other versions if the response was computed again and is not
                resolved yet.
            decided: whether the batch is resolved: then a response without a stored verdict was written.
        """
        left, right, refers_to = row[s.LEFT_HASH], row[s.RIGHT_HASH], reference(row, self.spec)
        verdict = None
        if stored is not None and (stored[s.LEFT_HASH], stored[s.RIGHT_HASH]) == (left, right):
            verdict = stored[k.VERDICT]
        elif stored is None and decided:
            verdict = verdicts.HALF_JOINED if right is None else verdicts.JOINED
        return ResponseStory(
            batch=row[s.BATCH],
            cause=row[s.CAUSE],
            instruction=row[k.INSTRUCTION],
            refers_to=refers_to,
            left_hash=left,
            left_batch=_bringing(self.left, left, row[s.BATCH]),
            right_hash=right,
            right_batch=self._right_batch(row),
            verdict=verdict,
            why=_WHY[verdict],
        )

    def _right_batch(self, response: JsonRow) -> int | None:
        """Returns the batch with the right row that a response is about; None as of `_bringing`."""
        refers_to, right = reference(response, self.spec), response[s.RIGHT_HASH]
        if self.spec.as_of is not None and self.spec.selects_end:  # then the hash covers more than the version
            held = self._held(refers_to, response[k.AS_OF])
            return None if right is None or held is None else held.batch
        return _bringing((v for v in self.right if v.key == refers_to), right, response[s.BATCH])

    def _held(self, refers_to: JsonRow | None, at: Any) -> Version | None:
        """Returns the current version of a right key that holds at a time; see `evidence.held`."""
        return held(self.right, refers_to, at, self.spec)

    def _why_as_of(self, left: Version) -> str:
        """Returns the version that a left row sees in a few words, and its neighbours."""
        name, held = shown(left.refers_to), self._held(left.refers_to, left.at)
        times = sorted(v.at for v in self.right if v.current and v.key == left.refers_to)
        later = next((at for at in times if left.at is not None and at > left.at), None)
        until = "" if later is None else f"; the next version holds since {later}"
        row = f"the left row of batch {left.batch} refers to right row {name} at {left.at}"
        if self._is_closed(left):
            reason = f"what held then is not told any more, as versions that ended by {self.horizon} are history"
            return f"{row}{until}: {reason}. A row that was answered before stays as it was."
        if held is None:
            return f"{row}, when no version of it held{until}: {self._without_match}"
        if held.deleted:
            why = f"its version of that time {DOES_NOT_PASS}" if held.left_out else "it was deleted"
            return f"{row}, when {why} since {held.at}, by batch {held.batch}{until}: {self._without_match}"
        return f"{row}, when the version since {held.at} of batch {held.batch} held{until}."

    @cached_property
    def horizon(self) -> str | None:
        """The time by which versions had ended that do not answer any more; None if all answer."""
        return None if self.spec.as_of is None else self.ledger.folds.horizon(verdicts.Stage.RIGHT_TABLE)

    def _may_differ(self, result: JsonRow | None, expected: JsonRow | None) -> bool:
        """Returns whether the row differs only in what is not told any more, because its time is closed."""
        left = next((v for v in self.left if v.current and not v.deleted), None)
        if left is None or not self._is_closed(left):
            return False
        if result is None or expected is None:
            return self.spec.inner
        return all(result[name] == expected[name] for name in result if name not in self.spec.right_outputs)

    def _is_closed(self, left: Version) -> bool:
        """Returns whether the version that a left row would see had ended by the horizon."""
        if self.horizon is None or left.at is None:
            return False
        later = min(
            (v.at for v in self.right if v.current and v.key == left.refers_to and v.at > left.at), default=None
        )
        return later is not None and later <= type(later)(self.horizon)

    @property
    def _without_match(self) -> str:
        if self.spec.inner:
            return "an inner join leaves the left row out."
        return f"{self._keeps} the left row."

    @property
    def _keeps(self) -> str:
        return f"{'an outer' if self.spec.outer else 'a left'} join keeps"

    @cached_property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The records of the quarantine that may concern the key, oldest first."""
        left = next((v for v in self.left if v.current), None)
        return records_of(self.evidence.quarantined(left.refers_to if left else None), self.spec)

    def _conclusion(self, result: JsonRow | None, expected: JsonRow | None, work: bool) -> str:
        why = self._why()
        lines = sum(record.side != OF_PAIRS for record in self.quarantined)
        if lines:
            why += f" {lines} line(s) in the quarantine may concern it."
        if result == expected or self._may_differ(result, expected):
            return f"The row is {'in' if result is not None else 'not in'} the result: {why}"
        if result is None:
            state, though = "is not in the result", ", though the join has it"
        elif expected is None:
            state, though = "is in the result and should not be", ""
        else:
            state, though = "in the result is another one", " than the join has it"
        if work:
            return f"The row {state}{though}, and work is due that may explain it: {why}"
        return wrong_conclusion(f"the row {state}", why, self.spec)

    def _seen_by(self, left: Version | None) -> Version | None:
        """Returns the version of the right row that a left row refers to, maybe a deletion; None if there is none."""
        if left is None or left.refers_to is None:
            return None
        if self.spec.as_of is not None:
            return self._held(left.refers_to, left.at)
        rights = [v for v in self.right if v.key in (None, left.refers_to)]
        return rights[-1] if any(v.key is not None for v in rights) else None

    def _why(self) -> str:
        """Returns one sentence that explains the row by the current versions of the left and right row."""
        left = next((v for v in self.left if v.current), None)
        if left is None:
            return "no batch has brought this key."
        if left.left_out:
            return f"the left row of batch {left.batch} {DOES_NOT_PASS}, and nothing newer has come."
        if left.deleted:
            what = "truncates the left table" if left.key is None else "deletes the left row"
            return f"batch {left.batch} {what}, and nothing newer has come."
        row, name = f"the left row of batch {left.batch}", shown(left.refers_to)
        last = self._seen_by(left)
        right = None if last is None or last.deleted else last
        about = left.hash, right.hash if right else None
        decided = {
            response.verdict for response in self.responses if (response.left_hash, response.right_hash) == about
        }
        keeps = self._keeps
        if decided & {*verdicts.REFUSED}:
            ending = f", so {keeps} the left row without it" if HALF_QUARANTINED in decided else ""
            other = f"right row {name}" if right else "no right row"
            return f"an expression of select fails on {row} and {other}{ending}."
        if self.spec.as_of is not None and left.refers_to is not None:
            return self._why_as_of(left)
        if right is not None:
            return f"{row} refers to right row {name} of batch {right.batch}."
        if left.refers_to is None:
            ending = ", and an inner join leaves it out." if self.spec.inner else f"; {keeps} it."
            return f"{row} refers to no right row{ending}"
        gone = f"which was deleted by batch {last.batch}" if last else "which has never come"
        if last is not None and last.left_out:
            gone = f"whose version of batch {last.batch} {DOES_NOT_PASS}"
        return f"{row} refers to right row {name}, {gone}: {self._without_match}"


def _bringing(versions: Iterable[Version], hash_: str | None, batch: int) -> int | None:
    """Returns the batch with the content that a response of `batch` is about: the newest up to it, else the first."""
    same = [v.batch for v in versions if hash_ is not None and v.hash == hash_]
    return max((number for number in same if number <= batch), default=min(same, default=None))
