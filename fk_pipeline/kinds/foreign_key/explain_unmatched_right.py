"""The story of a right key in an outer join: its versions, the left rows that have it, and whether it stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fk_pipeline.blocks.left_out import DOES_NOT_PASS
from fk_pipeline.blocks.story import JsonRow, PlaceOf, StoryEvent, file_of
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key import tables as k
from fk_pipeline.kinds.foreign_key.evidence import RightEvidence, records_of, versions_of
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.kinds.foreign_key.story import JoinStory, Quarantined, Version, events_of, wrong_conclusion
from fk_pipeline.spec.keys import shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger


@dataclass(frozen=True)
class AloneStory(JoinStory):
    """All stored facts about a right key in an outer join.

    Attributes, besides those of `JoinStory`; the row of the result is that without a left row:
        right_key: the key.
        right: its versions, oldest first, and the truncates of the right source.
        quarantined: lines of the right side that name the key, and records of its row.
        referring: the number of left rows that refer to it, by the subscription store.
        joined: the number of rows of the result that have its row and a left row.
        example: the least left key of these; None if there are none.
        conclusion: the reason why the right row stands alone, or does not.
    """

    right_key: JsonRow
    right: tuple[Version, ...]
    quarantined: tuple[Quarantined, ...]
    referring: int
    joined: int
    example: JsonRow | None
    result: JsonRow | None
    written_in: int | None
    written_at: str | None
    expected: JsonRow | None
    due: dict[str, list[int]]
    conclusion: str

    @property
    def heading(self) -> str:
        """The name of the row that the story is about."""
        return f"Right row {shown(self.right_key)}"

    def events(self) -> list[StoryEvent]:
        """Returns the events in the order of their batches."""
        return events_of((), self.right, self.quarantined)

    def sentences(self, place: PlaceOf = file_of) -> list[str]:
        """Returns the present state in sentences: the conclusion, the row, the version that it is made of."""
        last = next((version for version in reversed(self.right) if version.current), None)
        brought = [] if last is None else last.brought_by("the right row", Side.RIGHT, last.key, place)
        example = f", for example that of left row {shown(self.example)}" if self.example else ""
        return [
            self.conclusion,
            *self.row_sentences(),
            *brought,
            f"Left rows that refer to it: {self.referring:,}; rows of the result with it: {self.joined:,}{example}",
        ]


def explain_unmatched_right(evidence: RightEvidence, spec: ForeignKeySpec, ledger: Ledger) -> AloneStory:
    """Returns the story of a right key.

    Args:
        evidence: the stored rows about it.
        spec: the pipeline, an outer join.
        ledger: its ledger.
    """
    stored, expected, example = evidence.unmatched, evidence.expected(), evidence.example
    result = {output.name: stored[output.name] for output in spec.outputs} if stored else None
    right, due = versions_of(evidence.log, spec, Side.RIGHT), ledger.due.by_stage()
    left_key = None if example is None else {c.name: example[k.pk(c.name)] for c in spec.left.key_columns}
    return AloneStory(
        right_key=evidence.key,
        right=right,
        quarantined=records_of(evidence.quarantined(), spec),
        referring=evidence.referring,
        joined=evidence.joined,
        example=left_key,
        result=result,
        written_in=stored[s.BATCH] if stored else None,
        written_at=stored[s.CHANGED_AT] if stored else None,
        expected=expected,
        due=due,
        conclusion=_conclusion(result, expected, _why(right, left_key, expected), due, spec),
    )


def _why(right: tuple[Version, ...], example: JsonRow | None, expected: JsonRow | None) -> str:
    """Returns one sentence that explains the row by the current version of the right row."""
    if all(version.key is None for version in right):
        return "no batch has brought this right key."
    last = right[-1]
    if last.left_out:
        return f"the right row of batch {last.batch} {DOES_NOT_PASS}, and nothing newer has come."
    if last.deleted:
        what = "truncates the right table" if last.key is None else "deletes the right row"
        return f"batch {last.batch} {what}, and nothing newer has come."
    row = f"the right row of batch {last.batch}"
    if expected is not None:
        return f"no left row has {row}."
    if example is not None:
        return f"left row {shown(example)} has {row}."
    return f"a left row refers to {row}, or an expression of select fails on it."


def _conclusion(
    result: JsonRow | None, expected: JsonRow | None, why: str, due: Mapping[str, object], spec: ForeignKeySpec
) -> str:
    if result == expected:
        return f"The right row {'stands alone' if result is not None else 'does not stand alone'} in the result: {why}"
    if due:
        return f"The result differs from the join, and work is due that may explain it: {why}"
    return wrong_conclusion("the result differs from the join", why, spec)
