"""The story of one left key, as data and in words: its versions, its responses with their verdicts, a conclusion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from fk_pipeline.blocks.left_out import DOES_NOT_PASS
from fk_pipeline.blocks.story import (
    JsonRow,
    PlaceOf,
    ResultStory,
    RowVersion,
    StoryEvent,
    by_batch,
    file_of,
    values_said,
)
from fk_pipeline.identity import Side
from fk_pipeline.kinds.foreign_key.spec import ForeignKeySpec
from fk_pipeline.spec.keys import shown


@dataclass(frozen=True, kw_only=True)
class Version(RowVersion):
    """One version of a row of either side, or a truncate.

    Attributes, besides those of `RowVersion`:
        key: the key of the row; None for a truncate.
        deleted: whether it is a tombstone, or counts as one, because it does not pass `where`.
        refers_to: for a left row, the right key; None if it has none.
        hash: its hash in hexadecimal; None for a tombstone.
        late: whether an older batch had read a newer version.
        at: with `as_of`, of a left row its time, of a right row the time since which the version holds; else None.
    """

    key: JsonRow | None
    deleted: bool
    refers_to: JsonRow | None
    hash: str | None
    late: bool
    at: Any = None


@dataclass(frozen=True)
class SubscriptionStory:
    """The row of the key in the subscription store.

    Attributes:
        refers_to: the right key; None if it has none.
        before: the right key before the last propagated change.
        batch: the batch that read the current version of the left row; None if no version is left.
        propagated_in: the batch whose processing last changed the content; the response is due there.
        instruction: the instruction of that change; None if no message was sent.
        at: with `as_of`, the time; else None.
    """

    refers_to: JsonRow | None
    before: JsonRow | None
    batch: int | None
    propagated_in: int
    instruction: str | None
    at: Any = None


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


def _with_times(fields: list[tuple[str, Any]]) -> JsonRow:
    """Returns the fields of a part of a story as a JSON object; only stories with `as_of` have times."""
    return {name: value for name, value in fields if name != "at" or value is not None}


class JoinStory(ResultStory):
    """The base of a story: it has the row of the result and that of the join, computed now.

    Attributes, besides those of `ResultStory`:
        written_at: the time at which the row of the result was written.
    """

    written_at: str | None

    def as_json(self) -> JsonRow:
        """Returns the story as a JSON object."""
        story: Any = self
        facts = asdict(story, dict_factory=_with_times)
        facts.pop("sees", None)
        return {**facts, "as_expected": self.as_expected}

    def row_sentences(self) -> list[str]:
        """Returns the row of the result, the row of the join if it is another one, and the due work in sentences."""
        written = f" (since batch {self.written_in}, written {self.written_at})" if self.written_at is not None else ""
        lines = [f"Result: {values_said(self.result)}{written}"]
        if not self.as_expected:
            lines.append(f"The join computed now: {values_said(self.expected)}")
        if self.due:
            work = "; ".join(f"{stage} {', '.join(map(str, batches))}" for stage, batches in self.due.items())
            lines.append(f"Due: {work}")
        return lines


@dataclass(frozen=True)
class LeftStory(JoinStory):
    """All stored facts about a left key.

    Attributes, besides those of `JoinStory`:
        key: the key.
        left: its versions, oldest first, and the truncates of the left source.
        right: the versions of the right rows to which it ever referred, and the truncates of the right source.
        responses: its responses, by batch.
        quarantined: lines of the left side that name the key, lines of the right side that name the right key to which
            it refers, and pairs with its row.
        subscription: its row in the subscription store; None if no version was ever applied.
        folded_to: the newest folded batch; for folded batches only the last version per key is kept, and no response.
            None if none is folded.
        conclusion: the reason why the row is in the result, or is not.
        sees: the version of the right row that the current left row refers to, maybe a deletion; None if there is none.
            It is one of `right`, and not in the JSON.
        unwritten: the batches whose responses were computed with the result, and not written.
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
    sees: Version | None = None
    unwritten: list[int] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """The name of the row that the story is about."""
        return f"Left row {shown(self.key)}"

    def events(self) -> list[StoryEvent]:
        """Returns the events in the order of their batches."""
        return events_of(self.left, self.right, self.quarantined, self.responses)

    @property
    def came(self) -> list[StoryEvent]:
        """The events that landed, without responses and verdicts."""
        return events_of(self.left, self.right, self.quarantined)

    def sentences(self, place: PlaceOf = file_of) -> list[str]:
        """Returns the present state in sentences: the conclusion, the row, the versions that it is made of."""
        lines = [self.conclusion, *self.row_sentences()]
        left = next((version for version in self.left if version.current), None)
        if left is not None:
            name = "the left truncate" if left.key is None else "the left row"
            lines += left.brought_by(name, Side.LEFT, left.key, place)
        if self.sees is not None:
            name = "the right truncate" if self.sees.key is None else f"right row {shown(self.sees.key)}"
            lines += self.sees.brought_by(name, Side.RIGHT, self.sees.key, place)
        if self.folded_to is not None:
            lines.append(
                f"Folded: of old batches, the newest {self.folded_to}, the last version per key is kept, "
                "and no response"
            )
        return lines

    @property
    def protocol(self) -> list[str]:
        """What the subscription store has of the key, and of which batches no response to it is stored."""
        lines = [f"Subscription: {_subscribed(self.subscription)}"]
        if self.unwritten:
            batches = ", ".join(map(str, self.unwritten))
            lines.append(f"Computed with the result, and not written: the responses of batch {batches}")
        return lines


def wrong_conclusion(what: str, why: str, spec: ForeignKeySpec) -> str:
    """Returns the conclusion about a wrong result: what is wrong, what the changelogs say, and the remedy."""
    return (
        f"WRONG: {what}. By the changelogs {why} 'fk-pipeline verify {spec.file}' says how many rows are wrong, "
        f"'fk-pipeline rebuild {spec.file}' makes them anew."
    )


def events_of(
    left: Iterable[Version],
    right: Iterable[Version],
    quarantined: Iterable[Quarantined],
    responses: Iterable[ResponseStory] = (),
) -> list[StoryEvent]:
    """Returns events in the order of their batches."""
    return by_batch(_events(left, right, quarantined, responses))


def _events(
    left: Iterable[Version],
    right: Iterable[Version],
    quarantined: Iterable[Quarantined],
    responses: Iterable[ResponseStory],
) -> Iterator[StoryEvent]:
    yield from _versions(left, is_left=True)
    yield from _versions(right, is_left=False)
    for record in quarantined:
        what = "quarantined pair" if record.file is None else f"quarantined {record.side} line"
        yield record.batch, what, record.reason, "" if record.file is None else f"{record.file}:{record.line}"
    for response in responses:
        cause = f"to {response.instruction}" if response.instruction else "because the right row changed"
        yield response.batch, "response", f"{cause}: {_about(response)}", ""
        yield response.batch, "verdict", f"{response.verdict or 'due'}: {response.why}", ""


def _versions(versions: Iterable[Version], *, is_left: bool) -> Iterator[StoryEvent]:
    """Yields the versions of one side: all values of a key's first version, then only those that have changed."""
    side = "left" if is_left else "right"
    before: dict[str, Version] = {}
    for version in versions:
        if version.key is None:
            before = {}
            yield version.event(f"{side} truncate", f"deletes every {side} row")
            continue
        name = shown(version.key) + (f" since {version.at}" if version.at is not None and not is_left else "")
        what = "left row" if is_left else f"right row {name}"
        yield version.event(what, _version_text(version, before.get(name), is_left=is_left))
        before[name] = version


def _version_text(version: Version, before: Version | None, *, is_left: bool) -> str:
    late = "; late: an older batch had brought a newer version" if version.late else ""
    if version.row is None or version.key is None:
        return f"deleted{late}"
    if version.left_out:
        late = f"; {DOES_NOT_PASS}{late}"
    rest = {name: value for name, value in version.row.items() if name not in version.key}
    refers = f"refers to {shown(version.refers_to) if version.refers_to else 'no right row'}"
    refers += f" at {version.at}" if version.at is not None else ""
    if before is None or before.row is None:
        return "; ".join([values_said(rest), *([refers] if is_left and not version.left_out else [])]) + late
    parts = (
        [values_said(changed)] if (changed := {k: v for k, v in rest.items() if before.row[k] != v}) else ["the same"]
    )
    if is_left and not version.left_out and (version.refers_to, version.at) != (before.refers_to, before.at):
        parts.append(refers)
    if changed and version.hash == before.hash and not version.left_out:
        parts.append("no selected column differs")
    return "; ".join(parts) + late


def _about(response: ResponseStory) -> str:
    """Returns a text for the two versions that a response is about."""
    if response.left_hash is None:
        return "the left row is deleted"
    left = f"left row {_of_batch(response.left_batch)}"
    if response.refers_to is None:
        return f"{left}, which refers to no right row"
    right = f"right row {shown(response.refers_to)}"
    if response.right_hash is None:
        return f"{left}, and there is no {right}"
    return f"{left} and {right} {_of_batch(response.right_batch)}"


def _of_batch(batch: int | None) -> str:
    return "that no changelog has any more" if batch is None else f"of batch {batch}"


def _subscribed(subscription: SubscriptionStory | None) -> str:
    if subscription is None:
        return "none"
    to = f"to right row {shown(subscription.refers_to)}" if subscription.refers_to else "to no right row"
    to += "" if subscription.at is None else f" at {subscription.at}"
    before = (
        f", before to {shown(subscription.before)}" if subscription.before not in (None, subscription.refers_to) else ""
    )
    request = f"asked {subscription.instruction}" if subscription.instruction else "asked nothing"
    return f"{to}{before}; {request} in batch {subscription.propagated_in}"
