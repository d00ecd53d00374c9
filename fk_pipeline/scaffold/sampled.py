"""The facts about a table in a sample of its rows: its columns, their types, its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fk_pipeline.errors import UsageError
from fk_pipeline.scaffold.column import SampleColumn, text_of
from fk_pipeline.scaffold.deletes import marked_deleted
from fk_pipeline.scaffold.key import Guess, guessed_key
from fk_pipeline.scaffold.names import may_be_bare
from fk_pipeline.scaffold.types import Inferred
from fk_pipeline.spec.formats import PLAIN
from fk_pipeline.spec.sql import SqlTextError, parse_columns, quote

MOST_RECORDS = 50_000


@dataclass(frozen=True)
class Sample:
    """The facts about a side in a sample.

    Attributes:
        path: the file or folder, as the user named it.
        folder: the folder of the files, or the Delta table itself.
        format: the format, as the pipeline file names it.
        shape: the name of its records in a sentence.
        table: the name of the table, from the records, else from the file or its folder.
        columns: the columns, in the order of the source.
        key: the names of the key columns; none if it is not known, and of events.
        key_doubt: the evidence for a guessed key, or what is unclear; empty if the source declares the key.
        records: the number of records that were read.
        types_from: the origin of the types, as part of a sentence.
        options: further options of the side for the pipeline file, as YAML values.
        notes: notes for the user.
        mark: the column that the option `delete_when` reads, as the pipeline file writes it; empty without one.
        are_events: whether the rows seem to have no key at all.
        apart: the columns whose values may identify a row: all there and all different.
        key_from: the origin of a key that is no guess.
        changes: whether the sample has a row that changes another one: an update, or a key that comes again.
    """

    path: Path
    folder: Path
    format: str
    shape: str
    table: str
    columns: tuple[SampleColumn, ...]
    key: tuple[str, ...]
    key_doubt: str
    records: int
    types_from: str
    options: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    mark: str = ""
    are_events: bool = False
    apart: frozenset[str] = frozenset()
    key_from: str = "from the records"
    changes: bool = False

    @property
    def has_key(self) -> bool:
        """Whether its key is known, or it has events and needs none."""
        return bool(self.key) or self.options.get("contents") == "events"

    def column(self, name: str) -> SampleColumn:
        """Returns the column with a name."""
        return next(column for column in self.columns if column.name == name)


def sample_of(
    path: Path,
    folder: Path,
    format_: str,
    shape: str,
    table: str,
    types: dict[str, Inferred],
    rows: Sequence[dict[str, Any]],
    declared_key: tuple[str, ...] | None,
    new: Sequence[dict[str, Any]],
    *,
    records: int,
    types_from: str,
    options: dict[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Sample:
    """Returns the sample, without columns that no table can have.

    Args:
        path: the file or folder, as the user named it.
        folder: the folder of the files, or the Delta table itself.
        format_: the format, as the pipeline file names it.
        shape: the name of its records in a sentence.
        table: the name of the table.
        types: per column, its type.
        rows: the rows that were read.
        declared_key: the key columns as the source names them; None: they are guessed.
        new: the rows whose key did not exist before, if the source marks them; else all rows.
        records: the number of records that were read.
        types_from: the origin of the types, as part of a sentence.
        options: further options of the side for the pipeline file, as YAML values.
        notes: notes for the user.

    Raises:
        UsageError: no column can be stored.
    """
    columns, remarks = _storable(path, types, rows, notes)
    guess = _declared(declared_key, columns) if declared_key else _guessed(table, columns, new)
    side, mark = dict(options or {}), ""
    if format_ in PLAIN and "op_column" not in side:
        condition, mark = _delete_mark(columns, rows, guess.columns)
        side |= {"delete_when": condition} if mark else {}
    return Sample(
        path,
        folder,
        format_,
        shape,
        table,
        tuple(columns.values()),
        guess.columns,
        guess.why,
        records,
        types_from,
        side,
        tuple(remarks),
        mark,
        guess.are_events,
        guess.apart,
        changes=len(new) < len(rows) or _come_again(columns, rows, guess.columns),
    )


def _come_again(columns: Mapping[str, SampleColumn], rows: Sequence[dict[str, Any]], key: Sequence[str]) -> bool:
    """Returns whether two rows have the same values of a key."""
    names = [name for name, column in columns.items() if column.name in key]
    different = {tuple(text_of(row.get(name)) for name in names) for row in rows}
    return bool(names) and len(different) < len(rows)


def _storable(
    path: Path, types: Mapping[str, Inferred], rows: Sequence[dict[str, Any]], notes: Sequence[str]
) -> tuple[dict[str, SampleColumn], list[str]]:
    """Returns the columns that a table can have, by the names of the source, and the notes with those on the others.

    Raises:
        UsageError: there is no such column.
    """
    columns: dict[str, SampleColumn] = {}
    remarks = list(notes)
    for name, inferred in types.items():
        as_written = name if may_be_bare(name) else quote(name)
        ddl = [column.ddl for column in columns.values()]
        try:
            parse_columns(", ".join([*ddl, f"{as_written} {inferred.type}"]))
        except SqlTextError as error:
            remarks.append(f"left out: {error}")
            continue
        present = present_in(rows, name)
        values = frozenset(map(text_of, present)) if "<" not in inferred.type else frozenset()
        columns[name] = SampleColumn(as_written, inferred, values, len(present))
    if not columns:
        raise UsageError(f"{path} has no column that can be stored", why="; ".join(remarks))
    return columns, remarks


def _declared(key: tuple[str, ...], columns: Mapping[str, SampleColumn]) -> Guess:
    """Returns the key that the source declares; none if a part of it is no column, since the rest would lose rows."""
    missing = ", ".join(name for name in key if name not in columns)
    if missing:
        return Guess((), f"the key of the records has {missing}, which is no column here", False, frozenset())
    return Guess(tuple(columns[name].name for name in key), "", False, frozenset())


def _guessed(table: str, columns: Mapping[str, SampleColumn], new: Sequence[dict[str, Any]]) -> Guess:
    rows = [{columns[name].name: value for name, value in row.items() if name in columns} for row in new]
    return guessed_key(table, [*columns.values()], rows)


def _delete_mark(
    columns: Mapping[str, SampleColumn], rows: Sequence[dict[str, Any]], key: Sequence[str]
) -> tuple[str, str]:
    """Returns the SQL condition under which a row is marked as deleted, and its column; empty texts without one."""
    for name, column in columns.items():
        condition = marked_deleted(name, column.name, column.inferred, present_in(rows, name))
        if condition is not None and column.name not in key:
            return condition, column.name
    return "", ""


def as_events(sample: Sample) -> Sample:
    """Returns the sample of a left side as events without a key, if its rows seem to have none.

    Only rows without an operation, of which none is marked as deleted, are events. The place of an event is its
    column `event`, so no other column may have this name.
    """
    changes = not sample.are_events or "op_column" in sample.options or sample.mark
    names = [column.name.strip("`").lower() for column in sample.columns]
    if changes or sample.format not in PLAIN or "event" in names:
        return sample
    return replace(sample, key=(), key_doubt="", options=sample.options | {"contents": "events"})


def present_in(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """Returns the values of a column that are not null; rows without the column are left out."""
    return [value for row in rows if (value := row.get(name)) is not None]
