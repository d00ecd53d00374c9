"""The story of one key, as data and in words: its versions, and its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from pyspark.sql import functions as F

from fk_pipeline.blocks.changelog import for_story
from fk_pipeline.blocks.keyed_here import in_source_order, json_of, typed_key
from fk_pipeline.blocks.left_out import DOES_NOT_PASS, is_left_out, values_read
from fk_pipeline.conditions import AllTests, AnyTest, NullTest
from fk_pipeline.errors import UsageError
from fk_pipeline.export import json_rows, key_row
from fk_pipeline.kinds.table.kind import TableStage
from fk_pipeline.kinds.table.spec import TableSpec
from fk_pipeline.spec.keys import is_key, parse_key, shown
from fk_pipeline.store import schemas as s
from fk_pipeline.store.ledger import Ledger
from fk_pipeline.store.reader import TableReader
from fk_pipeline.store.rows_here import Relation, Wanted, leaving_errors

_FACTS = (s.BATCH, s.SEQUENCE, s.OP, s.DELETED, s.FILE)


@dataclass(frozen=True)
class KeyVersion:
    """One version of the key, or a truncate, as a batch read it.

    Attributes:
        batch: the batch.
        sequence: its position in the source's order.
        op: the operation of the source; `t` of a truncate.
        row: its columns; None if it deletes the row.
        left_out: whether it has a row, which does not pass `where`.
        file: the landing file, relative to the pipeline file if it is below the folder of that.
    """

    batch: int
    sequence: dict[str, Any]
    op: str
    row: dict[str, Any] | None
    left_out: bool
    file: str | None


@dataclass(frozen=True)
class KeyStory:
    """All stored facts about a key.

    Attributes:
        key: the key.
        versions: its versions and the truncates in the source's order; the last one counts.
        result: its row of the result; None if there is none.
        written_in: the batch of the last change of that row.
        expected: the row that the last version makes; None if it deletes the row, or if there is no version.
        due: the due batches per stage.
    """

    key: dict[str, Any]
    versions: tuple[KeyVersion, ...]
    result: dict[str, Any] | None
    written_in: int | None
    expected: dict[str, Any] | None
    due: dict[str, list[int]] = field(default_factory=dict)

    @property
    def as_expected(self) -> bool:
        """Whether the result has the row that the last version makes."""
        return self.result == self.expected

    @property
    def heading(self) -> str:
        """The name of the row."""
        return f"Row {shown(self.key)}"

    @property
    def note(self) -> str:
        """The meaning of a mark in the events; empty if none is marked."""
        return "* the version that counts" if self.versions else ""

    def events(self) -> list[tuple[int, str, str, str]]:
        """Returns the versions by batch: batch, kind of event, content, landing file."""
        found = []
        for number, one in enumerate(self.versions, start=1):
            mark = " *" if number == len(self.versions) else ""
            what = "truncate" if one.op == "t" else "row"
            values = "deleted" if one.row is None else ", ".join(f"{name}={_text(v)}" for name, v in one.row.items())
            values += f"; {DOES_NOT_PASS}" if one.left_out else ""
            found.append((one.batch, f"{what}{mark}", values, one.file or ""))
        return sorted(found, key=lambda event: event[0])

    def sentences(self) -> list[str]:
        """Returns the present state in sentences, the conclusion last."""
        has = "does not have it" if self.result is None else f"has it since batch {self.written_in}"
        if not self.versions:
            found = ["No batch ever brought it: a line may be in the quarantine, or not have landed."]
        else:
            last = self.versions[-1]
            end = "makes the row" if self.expected else DOES_NOT_PASS if last.left_out else "deletes it"
            found = [f"The last version by the source's order, of batch {last.batch}, {end}."]
        if self.as_expected:
            return [*found, f"The result {has}, as it should."]
        if self.due:
            return [*found, f"The result {has}; work is due that may change it."]
        return [*found, f"The result {has}, and that is wrong: fk-pipeline verify tells more."]

    def as_json(self) -> dict[str, Any]:
        """Returns the story as a JSON object."""
        return {**asdict(self), "as_expected": self.as_expected}


def explain(read: TableReader, spec: TableSpec, ledger: Ledger, said: str) -> KeyStory:
    """Returns the story of a key.

    Raises:
        UsageError: the text is not a key of the input.
    """
    try:
        asked = parse_key(said, spec.input)
        own, first = is_key(asked, spec.input), spec.input.key_columns[0].quoted
        rows = read.read(TableStage.CHANGELOG).where(f"({own}) OR {first} IS NULL")
        ordered = for_story(rows, spec.input).orderBy(s.SEQUENCE, s.BATCH, F.col(first).isNotNull())
        result = read.read(TableStage.TABLE).where(own)
        key = key_row(read.warehouse.session, asked, spec.input)
        return _story(spec, ledger, key, json_rows(ordered), json_rows(result))
    finally:
        read.release()


def explain_here(table: Callable[[str], Relation], spec: TableSpec, ledger: Ledger, said: str) -> KeyStory:
    """Returns what `explain` does, without Spark; `table` opens a stored table.

    Raises:
        LeftToSpark: it is not certain that Spark tells the same.
        UsageError: the text is not a key of the input.
    """
    log, result = table(TableStage.CHANGELOG), table(TableStage.TABLE)
    tests, key = typed_key(parse_key(said, spec.input), spec.input, log.schema)
    own, truncates = AllTests(tuple(tests)), NullTest(spec.input.key_columns[0].name)
    names = [column.name for column in spec.input.columns]
    with leaving_errors():
        rows = json_of(in_source_order(log.read(Wanted([*_FACTS, *names], [AnyTest((own, truncates))])), spec.input))
        stored = json_of(result.read(Wanted([s.BATCH, *names], [own])))
    return _story(spec, ledger, key, rows, stored)


def _story(
    spec: TableSpec,
    ledger: Ledger,
    key: dict[str, Any],
    logged: list[dict[str, Any]],
    stored: list[dict[str, Any]],
) -> KeyStory:
    """Returns the story made of the rows of the changelog, in the source's order, and of the result."""
    names = [column.name for column in spec.input.columns]

    def values(row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: row[name] for name in names}

    versions = tuple(
        KeyVersion(
            batch=row[s.BATCH],
            sequence=row[s.SEQUENCE],
            op=row[s.OP],
            row=values_read(row, spec.input),
            left_out=is_left_out(row),
            file=None if row[s.FILE] is None else spec.relative(row[s.FILE]),
        )
        for row in logged
    )
    return KeyStory(
        key=key,
        versions=versions,
        result=values(stored[0]) if stored else None,
        written_in=stored[0][s.BATCH] if stored else None,
        expected=versions[-1].row if versions and not versions[-1].left_out else None,
        due=ledger.due.by_stage(),
    )


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)


def impact(_: TableReader, spec: TableSpec, *__: Any) -> NoReturn:
    """Refuses: a table has no right side, whose changes concern many rows.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "impact tells how many rows of the result a change of a right row concerns, and a table has no right side",
        where=str(spec.file),
        fix="fk-pipeline explain tells where a row comes from",
    )
