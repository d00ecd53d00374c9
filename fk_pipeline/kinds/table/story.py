"""The story of one key, as data and in words: its versions, and its row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import for_story, in_source_order
from fk_pipeline.blocks.keyed_in_process import json_of, typed_key, versions_in_process
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
from fk_pipeline.conditions import AllTests, AnyTest, NullTest
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.identity import Side
from fk_pipeline.kinds.table.kind import TableStage
from fk_pipeline.kinds.table.spec import TableSpec
from fk_pipeline.spec.keys import is_key, parse_key, shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.rows_in_process import Relation, RowRequest


@dataclass(frozen=True)
class KeyStory(ResultStory):
    """All stored facts about a key.

    Attributes, besides those of `ResultStory`:
        key: the key.
        versions: its versions and the truncates in the source's order; the last one counts, and makes the row.
    """

    key: JsonRow
    versions: tuple[RowVersion, ...]
    result: JsonRow | None
    written_in: int | None
    expected: JsonRow | None
    due: dict[str, list[int]] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The name of the row."""
        return f"Row {shown(self.key)}"

    def events(self) -> list[StoryEvent]:
        """Returns the versions by batch."""
        return by_batch(version.event("truncate" if version.op == "t" else "row") for version in self.versions)

    def sentences(self, place: PlaceOf = file_of) -> list[str]:
        """Returns the present state in sentences: the conclusion, the row, the version that makes it."""
        row = [] if self.result is None else [f"{values_said(self.result)}."]
        if not self.versions:
            why = ["No batch ever brought it: a line may be in the quarantine, or not have landed."]
        else:
            last = self.versions[-1]
            end = "makes the row" if self.expected else DOES_NOT_PASS if last.left_out else "deletes it"
            landed = last.landed(Side.INPUT, None if last.op == "t" else self.key, place)
            why = [f"The last version by the source's order, of batch {last.batch}{landed}, {end}."]
        return [self.concluded(self.has), *row, *why]


def explain(read: TableReader, spec: TableSpec, ledger: Ledger, text: str) -> KeyStory:
    """Returns the story of a key.

    Raises:
        UsageError: the text is not a key of the input.
    """
    parsed = parse_key(text, spec.input)
    key = key_row(read.warehouse.session, parsed, spec.input)
    own, first = is_key(parsed, spec.input), spec.input.key_columns[0].quoted
    rows = read.read(TableStage.CHANGELOG).where(F.expr(own) | F.col(first).isNull())
    logged = json_rows(in_source_order(for_story(rows, spec.input), spec.input))
    stored = read.read(TableStage.TABLE).where(own).select(s.BATCH, *(column.quoted for column in spec.input.columns))
    return _story(spec, ledger, key, logged, json_rows(stored))


def explain_in_process(table: Callable[[str], Relation], spec: TableSpec, ledger: Ledger, text: str) -> KeyStory:
    """Returns what `explain` does, without Spark; `table` opens a stored table.

    Raises:
        LeftToSpark: it is not certain that Spark finds the same.
        UsageError: the text is not a key of the input.
    """
    log, result = table(TableStage.CHANGELOG), table(TableStage.TABLE)
    tests, key = typed_key(parse_key(text, spec.input), spec.input, log.schema)
    own, truncates = AllTests(tuple(tests)), NullTest(spec.input.key_columns[0].name)
    logged = versions_in_process(log, spec.input, [AnyTest((own, truncates))])
    columns = [s.BATCH, *(column.name for column in spec.input.columns)]
    return _story(spec, ledger, key, logged, json_of(result.read(RowRequest(columns, [own]))))


def _story(spec: TableSpec, ledger: Ledger, key: JsonRow, logged: list[JsonRow], stored: list[JsonRow]) -> KeyStory:
    """Returns the story made of the rows of the changelog, in the source's order, and of the result."""
    versions = [RowVersion.of(row, spec, Side.INPUT, current=row is logged[-1]) for row in logged]
    return KeyStory(
        key=key,
        versions=tuple(versions),
        result={column.name: stored[0][column.name] for column in spec.input.columns} if stored else None,
        written_in=stored[0][s.BATCH] if stored else None,
        expected=versions[-1].row if versions and not versions[-1].left_out else None,
        due=ledger.due.by_stage(),
    )
