"""The story of one left key, as data: its versions, what it met and was answered, and why it stands as it does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

JsonRow = dict[str, Any]


@dataclass(frozen=True)
class Version:
    """One version of a row, as a batch brought it.

    Attributes:
        batch: the batch.
        key: of the row; None for a truncate.
        sequence: the source's order.
        op: what the source did.
        deleted: it is a tombstone.
        row: its columns; None for a tombstone.
        refers_to: of a left row, the right key; None where it has none.
        hash: hexadecimal; None for a tombstone.
        file: the landing file, relative to the pipeline file where it lies below its folder.
        current: it is the version that counts.
        late: an older batch had brought a newer one.
    """

    batch: int
    key: JsonRow | None
    sequence: JsonRow
    op: str
    deleted: bool
    row: JsonRow | None
    refers_to: JsonRow | None
    hash: str | None
    file: str | None
    current: bool
    late: bool


@dataclass(frozen=True)
class SubscriptionStory:
    """What the subscription store has of the key.

    Attributes:
        refers_to: the right key; None where it has none.
        before: the right key before the last announced change.
        batch: the batch that brought the current version of the left row; None if none is left.
        propagated_in: the batch whose processing last changed the content; the response is due there.
        instruction: what was asked for then; None for nothing.
    """

    refers_to: JsonRow | None
    before: JsonRow | None
    batch: int | None
    propagated_in: int
    instruction: str | None


@dataclass(frozen=True)
class ResponseStory:
    """One response to the key, and what became of it.

    Attributes:
        batch: the batch that it was due to.
        cause: `left`, the subscription asked; `right`, the right row changed.
        instruction: what was asked for; None for cause `right`.
        refers_to: the right key; None where the left row has none.
        left_hash: of the left row that it is about; None: deleted.
        left_batch: the batch that brought that row; None if there is none, or the changelog has it no more.
        right_hash: of the right row that it is about; None: there is none.
        right_batch: the batch that brought that row; None likewise.
        verdict: None while it is not resolved.
        why: the verdict in a few words.
    """

    batch: int
    cause: str
    instruction: str | None
    refers_to: JsonRow | None
    left_hash: str | None
    left_batch: int | None
    right_hash: str | None
    right_batch: int | None
    verdict: str | None
    why: str


@dataclass(frozen=True)
class Quarantined:
    """A record of the quarantine: of origin `join` a pair of rows of the key, else a line that names its values.

    `file` and `line` are None for a pair.
    """

    batch: int
    side: str
    file: str | None
    line: int | None
    reason: str


@dataclass(frozen=True)
class Story:
    """Everything that is known of a left key.

    Attributes:
        key: the key.
        left: its versions, oldest first, and the truncates of the left source.
        right: those of the right rows that it ever referred to, and the truncates of the right source.
        responses: what it was answered, by batch.
        quarantined: lines of the left side that name the key, lines of the right side that name the right key that it
            refers to, and pairs of its row.
        subscription: what the subscription store has of it; None if no version was ever applied.
        result: its row of the result; None if there is none.
        written_in: the batch of the last change of that row.
        written_at: when it was written.
        expected: the row of the join computed now.
        due: per stage the batches that are due.
        folded_to: the newest folded batch: of the folded ones only the last version per key is kept, and no response;
            None where none is folded.
        conclusion: why the row is there, or is not.
    """

    key: JsonRow
    left: tuple[Version, ...]
    right: tuple[Version, ...]
    responses: tuple[ResponseStory, ...]
    quarantined: tuple[Quarantined, ...]
    subscription: SubscriptionStory | None
    result: JsonRow | None
    written_in: int | None
    written_at: str | None
    expected: JsonRow | None
    due: dict[str, list[int]]
    folded_to: int | None
    conclusion: str

    @property
    def as_expected(self) -> bool:
        """The result has the row that the join has."""
        return self.result == self.expected

    def as_json(self) -> JsonRow:
        """For machines."""
        return {**asdict(self), "as_expected": self.as_expected}
