"""The story of one left key, as data: its versions, its responses with their verdicts, and a conclusion."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

JsonRow = dict[str, Any]


@dataclass(frozen=True)
class Version:
    """One version of a row, as a batch read it.

    Attributes:
        batch: the batch.
        key: the key of the row; None for a truncate.
        sequence: its position in the source's order.
        op: the operation of the source.
        deleted: whether it is a tombstone.
        row: its columns; None for a tombstone.
        refers_to: for a left row, the right key; None if it has none.
        hash: its hash in hexadecimal; None for a tombstone.
        file: the landing file, relative to the pipeline file if it is below the folder of that.
        current: whether it is the version that counts.
        late: whether an older batch had read a newer version.
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
    """The row of the key in the subscription store.

    Attributes:
        refers_to: the right key; None if it has none.
        before: the right key before the last propagated change.
        batch: the batch that read the current version of the left row; None if no version is left.
        propagated_in: the batch whose processing last changed the content; the response is due there.
        instruction: the instruction of that change; None if no message was sent.
    """

    refers_to: JsonRow | None
    before: JsonRow | None
    batch: int | None
    propagated_in: int
    instruction: str | None


@dataclass(frozen=True)
class ResponseStory:
    """One response to the key, and its verdict.

    Attributes:
        batch: the batch to which it was due.
        cause: `left`, the subscription asked; `right`, the right row changed.
        instruction: the instruction of the subscription; None for cause `right`.
        refers_to: the right key; None if the left row has none.
        left_hash: the hash of the left row that it is about; None: deleted.
        left_batch: the batch that read that row; None if there is none, or the changelog no longer has it.
        right_hash: the hash of the right row that it is about; None: there is none.
        right_batch: the batch that read that row; None as for `left_batch`.
        verdict: the verdict; None while it is not resolved.
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
    """A record of the quarantine: for origin `join` a pair of rows of the key, else a line that names its values.

    `file` and `line` are None for a pair.
    """

    batch: int
    side: str
    file: str | None
    line: int | None
    reason: str


@dataclass(frozen=True)
class Story:
    """All stored facts about a left key.

    Attributes:
        key: the key.
        left: its versions, oldest first, and the truncates of the left source.
        right: the versions of the right rows to which it ever referred, and the truncates of the right source.
        responses: its responses, by batch.
        quarantined: lines of the left side that name the key, lines of the right side that name the right key to which
            it refers, and pairs with its row.
        subscription: its row in the subscription store; None if no version was ever applied.
        result: its row of the result; None if there is none.
        written_in: the batch of the last change of that row.
        written_at: the time at which it was written.
        expected: the row of the join computed now; None if there is none.
        due: the due batches per stage.
        folded_to: the newest folded batch; for folded batches only the last version per key is kept, and no response.
            None if none is folded.
        conclusion: the reason why the row is in the result, or is not.
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
        """Whether the result has the row that the join has."""
        return self.result == self.expected

    def as_json(self) -> JsonRow:
        """Returns the story as a JSON object."""
        return {**asdict(self), "as_expected": self.as_expected}
