"""The comparison of what landed with what the changelogs and the quarantine have."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from fk_pipeline.identity import Side
from fk_pipeline.spec import SideSpec
from fk_pipeline.spec.failing import ONCE_FILLED
from fk_pipeline.verify.inputs.buckets import Buckets, slot_of
from fk_pipeline.verify.inputs.differences import InputDifferences
from fk_pipeline.verify.inputs.landed import Fate, FilePlace, FileReader, InputColumns, LandedRecord, comparable
from fk_pipeline.verify.inputs.report import InputsReport
from fk_pipeline.verify.inputs.stored import StoredRow
from fk_pipeline.verify.inputs.typed import same

_READING = (
    *("column ", "key column ", "not a JSON object", "not one JSON object", "not UTF-8", "not a row of ", "a quote "),
    *("no operation in ", "unknown operation", "unknown op", "unknown type", "op ", "type ", "not a Debezium change"),
    *("unreadable from byte ", "longer than ", "a delete of an event"),
)
"""The beginnings of the reasons of records that could not be read. All others are about expressions of the pipeline
file, which this reader does not compute."""


@dataclass
class Group:
    """Batches of an input that are compared together.

    Attributes:
        places: their files.
        size: bytes of these.
        quarantine: per batch, file, line and reason of each record in the quarantine.
        ignored: per batch, the number of ignored records according to the ledger; none where it does not tell.
        share: the share of the keys that is compared.
        keeps: whether the changelog keeps the rows of the batches, however old.
    """

    places: Sequence[FilePlace]
    size: int
    quarantine: Mapping[int, Sequence[tuple[str, int, str]]]
    ignored: Mapping[int, int]
    share: float = 1.0
    keeps: bool = True


@dataclass
class _Batch:
    """What is known of one batch while its files are read."""

    newest: tuple[Any, ...] | None
    """The newest truncate: its order and its place."""
    truncates: int
    is_ordered: bool = True
    unplaced: int = 0
    quarantine: dict[tuple[str, int], str] = field(default_factory=dict)
    without_line: int = 0
    ignored: Counter[bool] = field(default_factory=Counter)
    """Ignored records: those beyond doubt, and others."""

    @classmethod
    def begun(cls, number: int, side: SideSpec) -> _Batch:
        """Returns a batch before its files are read: a snapshot begins with a truncate."""
        return cls(((number,), (-1, 0, 0)), 1) if side.is_snapshot else cls(None, 0)

    def learn(self, records: Sequence[tuple[str, int, str]], places: Sequence[FilePlace]) -> None:
        """Takes in the quarantine of the batch, which has these files; a file that was moved is known by its name."""
        names: dict[str, list[FilePlace]] = {}
        for place in places:
            names.setdefault(place.name.rsplit("/", 1)[-1], []).append(place)
        known = {place.stored_as for place in places}
        for file, line, reason in records:
            alike = names.get(file.rsplit("/", 1)[-1], [])
            now = file if file in known or len(alike) != 1 else alike[0].stored_as
            if line:
                self.quarantine[now, line] = reason
            else:
                self.without_line += 1


class Comparison:
    """The comparison of a group of batches of an input, which adds to a report."""

    def __init__(
        self, columns: InputColumns, reader: FileReader, side: Side, report: InputsReport, group: Group
    ) -> None:
        self._columns, self._reader, self._report, self._group = columns, reader, report, group
        self._batches = {place.batch: _Batch.begun(place.batch, columns.side) for place in group.places}
        for number, records in group.quarantine.items():
            self._batches[number].learn(records, [place for place in group.places if place.batch == number])
        files = {(place.batch, place.number): place.name for place in group.places}
        self._differences = InputDifferences(columns.side, side, report, files)

    def with_rows(self, rows: Iterable[StoredRow]) -> None:
        """Compares the files of the group with the rows that the changelog has of its batches.

        Raises:
            NotReadError: a file cannot be read by this reader; the report has then counts of a part of the group.
        """
        group = self._group
        with Buckets(group.size) as buckets:
            for place in group.places:
                self._read(place, buckets)
                self._report.files += 1
            for row in rows:
                self._report.rows += 1
                if row.key is None:
                    self._truncate(row)
                else:
                    self._keep(row.batch, row.key, row, buckets)
            for key, values in buckets.groups():
                self._of_key(key[0], key[1:], values)
        self._left_over()
        self._report.batches += len(self._batches)

    # ---- what lands

    def _read(self, place: FilePlace, buckets: Buckets) -> None:
        """Reads a file: counts its records, compares them with the quarantine, and keeps those that have a key."""
        batch = self._batches[place.batch]
        for line, entries in _by_line(self._reader.entries(place)):
            has_bad = any(entry.fate is Fate.QUARANTINED for entry in entries)
            reason = batch.quarantine.pop((place.stored_as, line), None)
            if reason is not None and reason.endswith(ONCE_FILLED):  # its row is in the changelog all the same
                reason = None
            for number, entry in enumerate(entries):
                entry.place = (place.number, line, number)
                self._report.lines += number == 0
                is_other = has_bad and entry.fate is not Fate.QUARANTINED  # of an update that changes the key
                if self._is_rejected(place, batch, entry, None if is_other else reason):
                    self._report.quarantined += 1
                    self._report.doubtful += entry.doubt
                    continue
                self._take(batch, place, entry, buckets)

    def _is_rejected(self, place: FilePlace, batch: _Batch, entry: LandedRecord, reason: str | None) -> bool:
        """Returns whether a record is in the quarantine, where this is right."""
        if not entry.line and entry.fate is Fate.QUARANTINED and batch.without_line:
            batch.without_line -= 1
            return True
        if reason is None:
            return False
        if entry.fate is Fate.QUARANTINED or entry.doubt or not reason.startswith(_READING):
            return True
        self._differences.add(
            place.batch,
            "quarantine",
            entry,
            landed=f"a record that is {entry.fate}",
            stored=self._differences.why(reason),
        )
        return True

    def _take(self, batch: _Batch, place: FilePlace, entry: LandedRecord, buckets: Buckets) -> None:
        report = self._report
        if entry.fate is Fate.IGNORED:
            report.ignored += 1
            batch.ignored[entry.doubt] += 1
            return
        if entry.fate is Fate.QUARANTINED:
            if entry.doubt:
                report.doubtful += 1
                batch.unplaced += 1
            elif entry.key is None:
                self._differences.add(
                    place.batch, "quarantine", entry, landed=self._differences.problem(entry), stored="it was read"
                )
                batch.unplaced += 1
            else:
                self._keep(place.batch, entry.key, entry, buckets)
            return
        report.doubtful += entry.doubt
        if entry.fate is Fate.TRUNCATED:
            report.truncated += entry.reason != "snapshot"
            batch.truncates += 1
            at = (sortable(entry.order), entry.place)
            batch.is_ordered &= entry.order is not None
            batch.newest = at if batch.newest is None else max(batch.newest, at)
            return
        report.written += entry.fate is Fate.WRITTEN
        report.deleted += entry.fate is Fate.DELETED
        if entry.key is None:
            batch.unplaced += 1
        else:
            self._keep(place.batch, entry.key, entry, buckets)

    def _keep(self, number: int, key: tuple[Any, ...], value: LandedRecord | StoredRow, buckets: Buckets) -> None:
        """Adds a record or a row of a key, if the key is in the share that is compared."""
        place = (number, *map(comparable, key))
        if self._group.share >= 1 or slot_of(place) < self._group.share * (1 << 32):
            buckets.add(place, value)

    # ---- what is stored

    def _truncate(self, row: StoredRow) -> None:
        batch = self._batches[row.batch]
        if not batch.truncates:
            self._differences.add(row.batch, "unexpected", landed="no record deletes all rows", stored="a truncate")
        elif row.events != batch.truncates and self._columns.knows_order:
            self._differences.add(row.batch, "count", landed=f"{batch.truncates} truncate(s)", stored=f"{row.events}")
        batch.truncates = 0

    def _of_key(self, number: int, key: tuple[Any, ...], values: Sequence[LandedRecord | StoredRow]) -> None:
        """Compares the records of one key and batch with the rows that are stored of it."""
        batch = self._batches[number]
        entries = [value for value in values if isinstance(value, LandedRecord)]
        rows = [value for value in values if isinstance(value, StoredRow)]
        bad = [entry for entry in entries if entry.fate is Fate.QUARANTINED]
        if bad:
            for entry in bad:
                self._is_read(number, key, entry, rows)
            return
        if not entries:
            if batch.unplaced:
                batch.unplaced -= 1
                return
            self._differences.add(
                number, "unexpected", key=key, landed="no record has this key", stored=f"op {rows[0].op}"
            )
            return
        if not self._is_sure(batch, entries):
            self._any_of(number, key, entries, rows)
            return
        newest = max(entries, key=lambda entry: (sortable(entry.order), entry.place))
        at = (sortable(newest.order), newest.place)
        if batch.newest is not None and at < batch.newest:
            if rows:
                self._differences.add(
                    number, "unexpected", newest, key, landed="deleted by a later truncate", stored="a row"
                )
            return
        if not rows:
            self._is_missing(number, newest, key)
            return
        self._row(number, key, newest, rows[0], len(entries))
        for _ in rows[1:]:
            self._differences.add(number, "unexpected", newest, key, landed="one row", stored="a second row of the key")

    def _is_sure(self, batch: _Batch, entries: Sequence[LandedRecord]) -> bool:
        """Returns whether this reader knows which record of a key is the last, and what it does."""
        known = self._columns.knows_since and batch.is_ordered
        return known and all(entry.order is not None and not entry.maybe_deleted for entry in entries)

    def _any_of(
        self, number: int, key: tuple[Any, ...], entries: Sequence[LandedRecord], rows: Sequence[StoredRow]
    ) -> None:
        """Compares with any record of a key: an expression of the pipeline file decides which one it is."""
        if not rows and self._batches[number].newest is None:
            self._is_missing(number, entries[-1], key)
        for row in rows:
            if not any(self._fits(entry, row) for entry in entries):
                self._row(number, key, entries[-1], row, row.events, ordered=False)

    def _is_missing(self, number: int, entry: LandedRecord, key: tuple[Any, ...]) -> None:
        if self._group.keeps:
            self._differences.add(number, "missing", entry, key, landed=f"the row is {entry.fate}", stored="no row")
        else:
            self._report.closed += 1

    def _fits(self, entry: LandedRecord, row: StoredRow) -> bool:
        if row.deleted:
            return entry.maybe_deleted or entry.fate is Fate.DELETED
        return entry.fate is Fate.WRITTEN and all(
            column.name in entry.holes or same(landed, stored)
            for column, landed, stored in zip(self._columns.values, entry.values, row.values, strict=True)
        )

    def _row(
        self,
        number: int,
        key: tuple[Any, ...],
        entry: LandedRecord,
        row: StoredRow,
        events: int,
        *,
        ordered: bool = True,
    ) -> None:
        """Compares the last record of a key with the row that is stored."""
        if row.deleted != (entry.fate is Fate.DELETED) and not entry.maybe_deleted:
            is_now = "deleted" if row.deleted else "written"
            self._differences.add(
                number, "operation", entry, key, landed=f"the row is {entry.fate}", stored=f"it is {is_now}"
            )
            return
        if ordered and row.op != entry.op:
            self._differences.add(number, "operation", entry, key, landed=f"op {entry.op}", stored=f"op {row.op}")
        if ordered and not same([*(entry.order or ())], [*row.order]):
            landed, stored = (self._differences.order(order) for order in (entry.order or (), row.order))
            self._differences.add(number, "order", entry, key, landed=landed, stored=stored)
        if row.events != events:
            self._differences.add(
                number, "count", entry, key, landed=f"{events} record(s) of the key", stored=f"{row.events}"
            )
        if row.deleted or entry.fate is Fate.DELETED:
            return
        for column, *both in zip(self._columns.values, entry.values, row.values, strict=True):
            unsent = [column.name in record.holes for record in (entry, row)]
            if all(unsent) or (not any(unsent) and same(*both)):
                continue
            values = [self._differences.value(column.name, value) for value in both]
            landed, stored = ("not sent" if hole else value for hole, value in zip(unsent, values, strict=True))
            self._differences.add(number, "value", entry, key, column.name, landed, stored)

    def _is_read(self, number: int, key: tuple[Any, ...], entry: LandedRecord, rows: Sequence[StoredRow]) -> None:
        """Reports a record that belongs into the quarantine and is not there."""
        stored = "it was read"
        names = [column.name for column in self._columns.values]
        if rows and entry.column in names and not rows[0].deleted:
            value = rows[0].values[names.index(entry.column)]
            stored = f"it was read as {self._differences.value(entry.column, value)}"
        self._differences.add(number, "quarantine", entry, key, entry.column, self._differences.problem(entry), stored)

    def _left_over(self) -> None:
        """Reports what the tables have and no file does, and numbers that differ."""
        for number, batch in self._batches.items():
            for (file, line), reason in batch.quarantine.items():
                stored = self._differences.why(reason)
                self._differences.add(number, "quarantine", landed="no such line", stored=stored, at=(file, line))
            if batch.without_line:
                text = f"{batch.without_line} record(s) more"
                self._differences.add(number, "quarantine", landed="records that can be read", stored=text)
            if batch.truncates and self._group.keeps:
                self._differences.add(number, "missing", landed="a record deletes all rows", stored="no truncate")
            sure, most = batch.ignored[False], batch.ignored.total()
            ignored = self._group.ignored.get(number)
            if ignored is not None and not sure <= ignored <= most:
                self._differences.add(number, "count", landed=f"{sure} ignored record(s)", stored=f"{ignored}")


def _by_line(entries: Iterable[LandedRecord]) -> Iterator[tuple[int, Sequence[LandedRecord]]]:
    """Yields the records of each line; those of a Delta table, which have no lines, one by one."""
    for line, records in groupby(entries, key=lambda entry: entry.line):
        if line:
            yield line, [*records]
        else:
            yield from ((0, [record]) for record in records)


def sortable(order: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Returns an order that Python compares as Spark does: NaN is the greatest number."""
    return tuple(
        (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value
        for value in order or ()
    )
