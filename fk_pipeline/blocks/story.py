"""What the stories of all kinds have in common: versions, events, the conclusion. No Spark.

A story is a data class of what `explain` found. For people it is the present state in sentences, then a table of
events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, NoReturn, Self

from fk_pipeline.blocks.left_out import DOES_NOT_PASS, is_left_out, values_read
from fk_pipeline.errors import UsageError
from fk_pipeline.identity import Side
from fk_pipeline.spec import PipelineSpec
from fk_pipeline.spec.keys import parse_key
from fk_pipeline.spec.places import relative
from fk_pipeline.store import schemas as s

JsonRow = dict[str, Any]

StoryEvent = tuple[int, str, str, str]
"""An event of a story: batch, kind of event, content, landing file."""

COUNTING = " *"
"""The end of the kind of an event that is about the version that counts."""


class Origin(NamedTuple):
    """Where a version of a row comes from: its input, its batch, its landing file, and its key; None of a truncate."""

    side: Side
    batch: int
    file: str
    key: JsonRow | None


PlaceOf = Callable[[Origin], str]
"""A function that returns the place of an origin for people: `landing/orders/00000003.jsonl, line 2`."""


def file_of(origin: Origin) -> str:
    """Returns the file of an origin: the `PlaceOf` that opens no file."""
    return origin.file


OF_RIGHT = "right."
"""The beginning of the key of a right row where a left key may stand, too."""


class Story(ABC):
    """The story of one key, as `explain` returns it.

    Attributes:
        due: the due batches per stage.
    """

    due: dict[str, list[int]]

    @property
    @abstractmethod
    def as_expected(self) -> bool:
        """Whether the result has the row that the definition of the kind has."""

    @property
    @abstractmethod
    def heading(self) -> str:
        """The name of the row that the story is about."""

    @abstractmethod
    def events(self) -> list[StoryEvent]:
        """Returns the events, as a rule in the order of their batches."""

    @abstractmethod
    def sentences(self, place: PlaceOf = file_of) -> list[str]:
        """Returns the present state in sentences: the conclusion, then the row, then what it is made of."""

    @property
    def came(self) -> list[StoryEvent]:
        """The events that landed, without what a protocol made of them."""
        return self.events()

    @property
    def protocol(self) -> list[str]:
        """What a protocol knows about the key, in sentences; none if the kind has no protocol."""
        return []

    @property
    def note(self) -> str:
        """The meaning of the mark in the events; empty if none is marked."""
        return "* the version that counts" if any(what.endswith(COUNTING) for _, what, _, _ in self.events()) else ""

    def concluded(self, has: str) -> str:
        """Returns the conclusion, given what the result has: `has it since batch 2`."""
        if self.as_expected:
            return f"The result {has}, as it should."
        if self.due:
            return f"The result {has}; work is due that may change it."
        return f"The result {has}, and that is wrong: fk-pipeline verify tells more."

    def as_json(self) -> JsonRow:
        """Returns the story as a JSON object."""
        story: Any = self
        return {**asdict(story), "as_expected": self.as_expected}


class ResultStory(Story):
    """The story of one row of the result.

    Attributes:
        result: the row of the result; None if there is none.
        written_in: the batch of its last change.
        expected: the row that the result must have; None if none.
    """

    result: JsonRow | None
    written_in: int | None
    expected: JsonRow | None

    @property
    def as_expected(self) -> bool:
        """Whether the result has the row that it must have."""
        return self.result == self.expected

    @property
    def has(self) -> str:
        """What the result has, for `concluded`."""
        return "does not have it" if self.result is None else f"has it since batch {self.written_in}"


@dataclass(frozen=True, kw_only=True)
class RowVersion:
    """One version of a row, or a truncate, as a batch read it.

    Attributes:
        batch: the batch.
        sequence: its position in the source's order.
        op: the operation of the source; `t` of a truncate.
        row: its columns; None if it deletes the row.
        left_out: whether it has a row, which does not pass `where`.
        file: the landing file, relative to the pipeline file if it is below the folder of that.
        current: whether it is the version that counts.
    """

    batch: int
    sequence: JsonRow
    op: str
    row: JsonRow | None
    left_out: bool = False
    file: str | None = None
    current: bool = False

    @classmethod
    def of(cls, row: JsonRow, spec: PipelineSpec, side: Side, *, current: bool, **more: Any) -> Self:
        """Returns the version that a row of a changelog is, given as JSON; `more` is what only this class has."""
        return cls(
            batch=row[s.BATCH],
            sequence=row[s.SEQUENCE],
            op=row[s.OP],
            row=values_read(row, spec.side(side)),
            left_out=is_left_out(row),
            file=None if row[s.FILE] is None else relative(spec, row[s.FILE]),
            current=current,
            **more,
        )

    def landed(self, side: Side, key: JsonRow | None, place: PlaceOf) -> str:
        """Returns where it landed, in parentheses; empty if its file is not known."""
        return "" if self.file is None else f" ({place(Origin(side, self.batch, self.file, key))})"

    def brought_by(self, what: str, side: Side, key: JsonRow | None, place: PlaceOf) -> list[str]:
        """Returns the sentence that says what brought it; `what` names its row. None if its file is not known.

        >>> version = RowVersion(batch=3, sequence={}, op="u", row={}, file="landing/orders/3.jsonl")
        >>> version.brought_by("the left row", Side.LEFT, {}, file_of)
        ['The left row is of batch 3: landing/orders/3.jsonl.']
        """
        return because(what, None if self.file is None else Origin(side, self.batch, self.file, key), place)

    @property
    def in_words(self) -> str:
        """The row in words."""
        if self.row is None:
            return "deleted"
        return values_said(self.row) + (f"; {DOES_NOT_PASS}" if self.left_out else "")

    def event(self, what: str, content: str | None = None) -> StoryEvent:
        """Returns the event that it is, given its kind without a mark; the content is by default the row."""
        return (
            self.batch,
            f"{what}{COUNTING if self.current else ''}",
            self.in_words if content is None else content,
            self.file or "",
        )


def because(what: str, origin: Origin | None, place: PlaceOf) -> list[str]:
    """Returns the sentence that says where a row comes from; none if that is not known."""
    if origin is None or not origin.file:
        return []
    return [f"{what[0].upper()}{what[1:]} is of batch {origin.batch}: {place(origin)}."]


def by_batch(events: Iterable[StoryEvent]) -> list[StoryEvent]:
    """Returns events in the order of their batches; those of one batch keep their order."""
    return sorted(events, key=lambda event: event[0])


def values_said(row: Mapping[str, Any] | None) -> str:
    """Returns the values of a row in words; None: there is no row."""
    if row is None:
        return "no row"
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in row.items())


def key_of_side(text: str, spec: PipelineSpec) -> tuple[Side, dict[str, str]]:
    """Returns the side and the key columns, as text, of a left row, or of a right row, which is written as `right.KEY`.

    Raises:
        UsageError: as of `parse_key`.
    """
    side = Side.RIGHT if text.startswith(OF_RIGHT) else Side.LEFT
    return side, parse_key(text.removeprefix(OF_RIGHT), spec.side(side))


def no_impact(_: Any, spec: PipelineSpec, *__: Any) -> NoReturn:
    """Refuses `impact` of a kind without a right side, with Spark or without.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        f"impact tells how many rows of the result a change of a right row concerns, and kind: {spec.kind} has no "
        "right side",
        where=str(spec.file),
        fix="fk-pipeline explain tells where a row comes from",
    )
