"""What a record of a landing file says, as this reader understands it; and the declared columns of an input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from fk_pipeline.spec import Column, SideSpec
from fk_pipeline.spec.sql import parse_expression
from fk_pipeline.verify.inputs.conditions import condition_of
from fk_pipeline.verify.inputs.doubts import ANY, Doubtful, MisfitError
from fk_pipeline.verify.inputs.sent import text_of
from fk_pipeline.verify.inputs.typed import Convert, base_of, converter


class Fate(StrEnum):
    """What becomes of a record."""

    WRITTEN = "written"
    DELETED = "deleted"
    TRUNCATED = "truncated"
    IGNORED = "ignored"
    QUARANTINED = "quarantined"


@dataclass(slots=True)
class LandedRecord:
    """A record of a file.

    Attributes:
        line: its line or row, from 1; 0 if it has none.
        fate: what becomes of it.
        reason: why it is ignored or quarantined.
        column: the column that does not fit.
        sent: the value of that column as text.
        op: its operation, as the changelogs have it.
        key: its key; None if it has none, or this reader does not know it.
        values: the columns that are not part of the key, of a written row.
        order: its place in the source's order; None if this reader does not know it.
        doubt: whether the product may also send it to the quarantine.
        maybe_deleted: whether an expression decides about that.
        holes: the columns whose values the source did not send.
        place: its place among the records of its batch.
    """

    line: int
    fate: Fate
    reason: str = ""
    column: str = ""
    sent: str = ""
    op: str = ""
    key: tuple[Any, ...] | None = None
    values: tuple[Any, ...] = ()
    order: tuple[Any, ...] | None = None
    doubt: bool = False
    maybe_deleted: bool = False
    holes: tuple[str, ...] = ()
    place: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class FilePlace:
    """A file of a batch.

    Attributes:
        path: its location, as the storage has it.
        stored_as: its location as the tables have it, unless it was moved since.
        name: its path in the ledger.
        batch: the batch.
        number: its place among the files of the batch.
        texts: per digest of a line, the text as which the line is read.
    """

    path: str
    stored_as: str
    name: str
    batch: int
    number: int
    texts: Mapping[str, str] = field(default_factory=dict)


class FileReader(Protocol):
    """The reader of a format."""

    def entries(self, place: FilePlace) -> Iterator[LandedRecord]:
        """Yields the records of a file, in their order."""
        ...


_DIGITS = {"FLOAT": 6, "DOUBLE": 15, "DATE": 8, "TIMESTAMP": 20, "TIMESTAMP_NTZ": 14, "TIMESTAMP_LTZ": 20}
"""Per type that rounds, the most digits of a text that it keeps in any case."""


class Fields:
    """The fields of a record by name; a name in another case is the same name."""

    __slots__ = ("_lower", "given")

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self._lower: dict[str, Any] | None = None

    def __call__(self, name: str) -> Any:
        """Returns the value of a column; None if the record does not have it."""
        if name in self.given:
            return self.given[name]
        if self._lower is None:
            self._lower = {}
            for key, value in self.given.items():
                self._lower.setdefault(key.lower(), value)
        return self._lower.get(name.lower())


class InputColumns:
    """The declared columns of an input, and what identifies and orders its rows.

    Attributes:
        side: the input.
        keys: the key columns of the source.
        values: the other columns.
        knows_order: whether this reader knows the order of the rows.
        knows_since: whether it knows since when a version holds.
    """

    def __init__(self, side: SideSpec) -> None:
        sent = side.as_sent
        counts_days = side.format == "debezium"
        self.side = side
        self.keys: Sequence[Column] = sent.key_columns
        self.values: Sequence[Column] = sent.value_columns
        self._converts: dict[str, Convert] = {
            c.name: converter(c.type, side.logical_type(c), day_numbers=counts_days) for c in sent.columns
        }
        self._sequence = _plain(sent, side.sequence_by)
        self._deciding = [column for column in sent.columns if column.name in _deciding(side)]
        self._since = None if side.holds_since_commit else _plain(sent, side.valid_from)
        self._gone = None if side.delete_when is None else condition_of(sent, side.delete_when)
        self.knows_order = side.sequence_by is None or self._sequence is not None
        self.knows_since = side.valid_from is None or side.holds_since_commit or self._since is not None

    def entry(
        self,
        place: FilePlace,
        line: int,
        op: str,
        row: Fields,
        order: tuple[Any, ...],
        *,
        key: Fields | None = None,
        since: Any = None,
        not_sent: frozenset[str] = frozenset(),
        doubt: bool = False,
    ) -> LandedRecord:
        """Returns a record that writes or deletes a row.

        Args:
            place: its file.
            line: its line.
            op: its operation.
            row: what it says about the row.
            order: its place in the source's order, unless a column decides.
            key: what it says about the key in another place, which comes first; other columns there do not count.
            since: the time of its commit, if versions hold since then.
            not_sent: texts that stand for a value that was not sent.
            doubt: whether the product may also send it to the quarantine.
        """
        if key is not None:
            key = Fields({column.name: key(column.name) for column in self.keys})
        reading = _Reading(self._converts, row, key, not_sent, doubt)
        reading.doubt |= any(_may_round(column, reading.sent(column.name)) for column in self._deciding)
        deleted = op == "d"
        if not deleted and (bad := reading.all_of(self.keys, self.values)) is not None:
            return self._bad(line, *bad, reading, key=reading.key_of(self.keys))
        keys = reading.key_of(self.keys)
        if self.side.keyed_by_place:
            if deleted:
                return LandedRecord(line, Fate.QUARANTINED, "a delete of an event without a key", doubt=reading.doubt)
            keys = (f"{place.batch}/{place.name}/{line}",)
        elif None in keys:
            name = self.keys[keys.index(None)].name
            return self._bad(line, f"key column {name} is null", name, reading)
        gone = deleted or (self.side.delete_when is not None and self._is_gone(reading))
        record = LandedRecord(
            line, Fate.DELETED if gone is True else Fate.WRITTEN, op="d" if gone is True else op, order=order
        )
        record.maybe_deleted = gone is ANY
        return self._placed(record, keys, since, reading)

    def are_in(self, row: Fields) -> bool:
        """Returns whether a row has the key."""
        return bool(self.keys) and all(row(column.name) is not None for column in self.keys)

    def _is_gone(self, reading: _Reading) -> Any:
        """Returns whether `delete_when` is true; `ANY` if this reader does not know it."""
        return ANY if self._gone is None else self._gone(reading.leniently)

    def _placed(self, record: LandedRecord, keys: tuple[Any, ...], since: Any, reading: _Reading) -> LandedRecord:
        """Returns a record with its order, its key and its values; a bad one if the order or the time is null."""
        if self.side.sequence_by is not None:
            record.order = None
            if self._sequence is not None:
                value = reading.leniently(self._sequence)
                if value is None:
                    return self._bad(record.line, "sequence_by is null", self._sequence.name, reading, key=keys)
                record.order = self._order(value, record)
        if self.side.valid_from is not None and self.knows_since:
            valid_from = since if self._since is None else reading.leniently(self._since)
            if valid_from is None:
                return self._bad(record.line, "valid_from is null", "", reading)
            keys = (*keys, valid_from)
        record.key = None if any(value is ANY for value in keys) else tuple(map(comparable, keys))
        if record.fate is Fate.WRITTEN:
            record.values = tuple(reading.value(column) for column in self.values)
            record.holes = tuple(reading.holes)
        record.doubt = reading.doubt
        return record

    def truncate(self, line: int, row: Fields, order: tuple[Any, ...], *, doubt: bool = False) -> LandedRecord:
        """Returns a record that deletes every row."""
        given: tuple[Any, ...] | None = order
        if self.side.sequence_by is not None:
            reading = _Reading(self._converts, row, None, frozenset(), doubt)
            value = None if self._sequence is None else reading.leniently(self._sequence)
            given = None if value is None else self._order(value)
        return LandedRecord(line, Fate.TRUNCATED, op="t", order=given, doubt=doubt)

    def _order(self, value: Any, record: LandedRecord | None = None) -> tuple[Any, ...] | None:
        """Returns the place that a column gives a record (None: a truncate); in a feed of Delta removed rows first."""
        if value is ANY:
            return None
        if not self.side.feed_of_delta:
            return (value,)
        if record is not None and record.maybe_deleted:
            return None
        return (value, int(record is not None and record.fate is Fate.WRITTEN))

    def _bad(
        self, line: int, reason: str, name: str, reading: _Reading, key: tuple[Any, ...] | None = None
    ) -> LandedRecord:
        sent = reading.sent(name) if name in self._converts else None
        whole = (
            key is not None and not any(value is None or value is ANY for value in key) and self.side.valid_from is None
        )
        return LandedRecord(
            line,
            Fate.QUARANTINED,
            reason,
            name,
            "NULL" if sent is None else text_of(sent)[:80],
            key=tuple(map(comparable, key)) if whole and key else None,
            doubt=reading.doubt,
        )


class _Reading:
    """The values of one record, each converted once."""

    def __init__(
        self,
        converts: Mapping[str, Convert],
        row: Fields,
        key: Fields | None,
        not_sent: frozenset[str],
        doubt: bool,
    ) -> None:
        self._converts, self._row, self._key, self._not_sent, self.doubt = converts, row, key, not_sent, doubt
        self._made: dict[str, Any] = {}
        self.holes: list[str] = []

    def sent(self, name: str) -> Any:
        of_key = None if self._key is None else self._key(name)
        return self._row(name) if of_key is None else of_key

    def value(self, column: Column) -> Any:
        """Returns the value of a column.

        Raises:
            MisfitError: it does not fit its type.
        """
        name = column.name
        if name in self._made:
            return self._made[name]
        sent = self.sent(name)
        if sent is not None and self._not_sent and text_of(sent) in self._not_sent:
            self.holes.append(name)
            sent = None
        converted = Doubtful(ANY) if sent is ANY else None if sent is None else self._converts[name](sent)
        if isinstance(converted, Doubtful):
            converted, self.doubt = converted.value, True
        self._made[name] = converted
        return converted

    def leniently(self, column: Column) -> Any:
        """Returns the value of a column; None if it does not fit its type."""
        try:
            return self.value(column)
        except MisfitError:
            return None

    def key_of(self, columns: Sequence[Column]) -> tuple[Any, ...]:
        return tuple(map(self.leniently, columns))

    def all_of(self, keys: Sequence[Column], values: Sequence[Column]) -> tuple[str, str] | None:
        """Converts every column; returns why the first one does not fit and its name, None if all do."""
        for column in (*keys, *values):
            try:
                self.value(column)
            except MisfitError:
                return f"column {column.name} is not {column.type}", column.name
        return None


def _deciding(side: SideSpec) -> set[str]:
    """Returns the columns that decide which version counts; a value of theirs that would be rounded is refused."""
    names = {column.name for column in side.key_columns}
    for sql in (side.sequence_by, side.valid_from):
        columns = (side.column(path[0]) for path in (parse_expression(sql).reads if sql is not None else ()))
        names |= {column.name for column in columns if column is not None}
    return names


def _may_round(column: Column, sent: Any) -> bool:
    """Returns whether a text may have more digits than a value of its column keeps; then nothing is claimed of it."""
    base = base_of(column.type)
    if not isinstance(sent, str) or base not in _DIGITS:
        return False
    return sum(map(str.isdigit, sent)) > _DIGITS[base]


def _plain(side: SideSpec, sql: str | None) -> Column | None:
    """Returns the column that an expression is; None if it is another, or one without a simple order."""
    if sql is None:
        return None
    expression = parse_expression(sql)
    column = side.column(expression.reads[0][0]) if expression.plain and len(expression.reads[0]) == 1 else None
    return None if column is None or base_of(column.type) in ("ARRAY", "MAP", "STRUCT") else column


def comparable(value: Any) -> Any:
    """Returns a part of a key in a form in which equal keys are equal."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return str(value) if isinstance(value, str) else value
