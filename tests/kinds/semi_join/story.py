"""The words of `explain` and `impact` for the semi join."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fk_pipeline.blocks.story import PlaceOf, Story, StoryEvent, file_of
from fk_pipeline.errors import UsageError
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.spec import PipelineSpec, quote
from fk_pipeline.spec.keys import is_key, parse_key, shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader
from tests.kinds.semi_join.kind import LEFT_ROWS, MATCHED_ROWS, RIGHT_KEYS, reference
from tests.kinds.semi_join.tables import key


@dataclass(frozen=True)
class MatchStory(Story):
    """A left key, its row, whether its right row lives, and whether it is in the result."""

    key: dict[str, Any]
    row: dict[str, Any] | None
    matches: bool
    result: bool
    due: dict[str, list[int]] = field(default_factory=dict)

    @property
    def as_expected(self) -> bool:
        """Whether the result has the row exactly if there is a match."""
        return self.result == self.matches

    @property
    def heading(self) -> str:
        """The name of the row."""
        return f"Left row {shown(self.key)}"

    def events(self) -> list[StoryEvent]:
        """Returns the version that counts."""
        return [] if self.row is None else [(self.row[s.OWNER], "left row", str(self.row), "")]

    def sentences(self, _place: PlaceOf = file_of) -> list[str]:
        """Returns the present state in sentences."""
        what = "lives" if self.matches else "is not there"
        return [self.concluded("has it" if self.result else "does not have it"), f"Its right row {what}."]


def explain(read: TableReader, spec: PipelineSpec, ledger: Ledger, said: str) -> MatchStory:
    """Returns the story of a left key."""
    wanted = parse_key(said, spec.left)
    rows = read.read(LEFT_ROWS).where(is_key(wanted, spec.left)).where(f"{s.HASH} IS NOT NULL")
    found = json_rows(rows.drop(s.SEQUENCE))
    refers = [reference(c.name) for c in spec.right.key_columns]
    living = read.read(RIGHT_KEYS).where(f"{s.HASH} IS NOT NULL")
    living = living.select(*[quote(c.name) for c in spec.right.key_columns]).toDF(*refers)
    result = read.read(MATCHED_ROWS).where(is_key(wanted, spec.left, key))
    return MatchStory(
        key_row(read.warehouse.session, wanted, spec.left),
        next(iter(found), None),
        matches=not rows.join(living, refers, "left_semi").isEmpty(),
        result=not result.isEmpty(),
        due=ledger.due.by_stage(),
    )


@dataclass(frozen=True)
class Impact:
    """The number of left rows that refer to a right key."""

    fan_out: int

    def table(self) -> list[list[str]]:
        """Returns the number as a table."""
        return [["left rows"], [str(self.fan_out)]]

    def sentences(self) -> list[str]:
        """Returns the number as a sentence."""
        return [f"{self.fan_out} rows refer to it."]

    def as_json(self) -> dict[str, Any]:
        """Returns the number as a JSON object."""
        return asdict(self)


def impact(
    read: TableReader,
    spec: PipelineSpec,
    ledger: Ledger,
    right_key: str | None,
    changes: Path | None,
    limit: int,
    since: str | None,
) -> Impact:
    """Returns how many left rows refer to a right key."""
    if right_key is None:
        raise UsageError("impact needs a right key", fix="--right-key KEY")
    wanted = parse_key(right_key, spec.right, "--right-key")
    return Impact(read.read(LEFT_ROWS).where(is_key(wanted, spec.right, reference)).count())
