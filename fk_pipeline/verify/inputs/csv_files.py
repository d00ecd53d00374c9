"""CSV files (RFC 4180) as this reader understands them (`docs/reference/rows.md`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fk_pipeline.cdc.unreadable import MARK, Shape
from fk_pipeline.verify.inputs.doubts import ANY, NotReadError
from fk_pipeline.verify.inputs.landed import Fate, Fields, FilePlace, LandedRecord
from fk_pipeline.verify.inputs.lines import readable, stream_of
from fk_pipeline.verify.inputs.rows import RowEntries
from fk_pipeline.verify.inputs.sent import Lines

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class CsvRecord:
    """A record of a CSV file: its fields, None for an empty one without quotes; or why it has none.

    Attributes:
        fields: the fields.
        problem: why it cannot be read.
        doubt: whether RFC 4180 does not say what its fields are.
    """

    fields: Sequence[Any] = ()
    problem: str = ""
    doubt: bool = False


class CsvEntries:
    """The records of CSV files.

    Args:
        rows: the meaning of a row.
        limit: the largest number of bytes of a row.
        header: whether the first row has the names of the columns.
        order: function from a file to the order of its rows.
        lacks: function from a file and its first row that says whether a file without a header lacks the column with
            the operation: its rows are written. None: every file has it.
    """

    def __init__(
        self,
        rows: RowEntries,
        limit: int,
        *,
        header: bool,
        order: Callable[[FilePlace], tuple[Any, ...]],
        lacks: Callable[[FilePlace, Sequence[Any]], bool] | None = None,
    ) -> None:
        self._rows, self._limit, self._header, self._order, self._lacks = rows, limit, header, order, lacks
        self._csv = rows.columns.side.csv

    def entries(self, place: FilePlace) -> Iterator[LandedRecord]:
        """Yields the records of a file, in their order."""
        declared = [column.name for column in self._rows.columns.side.as_sent.columns]
        shape = Shape(self._csv.delimiter, len(declared) + 1, self._header)
        with readable(place.path, self._limit, shape) as (path, problem):
            line = 0
            if path is not None:
                for line, entry in enumerate(self._of_file(place, path, declared), 1):
                    entry.line = line
                    yield entry
            if problem:
                yield LandedRecord(line + 1, Fate.QUARANTINED, problem)

    def _of_file(self, place: FilePlace, path: str, declared: list[str]) -> Iterator[LandedRecord]:
        with stream_of(path) as stream:
            records = records_of(stream, self._csv.delimiter, self._csv.null_text)
            first = next(records, None)
            if first is None:
                return
            if self._header:
                names = ["" if name is None else str(name) for name in first.fields]
            else:
                names = self._without_header(place, first, declared)
            lower = [_name(name).lower() for name in names]
            op = self._rows.op_column
            has_op = op is None or op.lower() in lower or self._lacks is None
            for number, record in enumerate(records if self._header else _chain(first, records), 1):
                yield self._of_record(place, number, record, lower, has_op)

    def _without_header(self, place: FilePlace, first: CsvRecord, declared: list[str]) -> list[str]:
        op = self._rows.op_column
        lacks = self._lacks is not None and self._lacks(place, first.fields)
        if op is None or lacks or op.lower() in map(str.lower, declared):
            return declared
        return [op, *declared]

    def _of_record(
        self, place: FilePlace, number: int, record: CsvRecord, names: list[str], has_op: bool
    ) -> LandedRecord:
        fields = record.fields
        if isinstance(next(iter(fields), None), str) and fields[0].startswith(MARK):
            return LandedRecord(number, Fate.QUARANTINED, f"longer than {self._limit:,} bytes")
        if record.problem:
            return LandedRecord(number, Fate.QUARANTINED, record.problem, doubt=record.doubt)
        if len(fields) != len(names):
            return LandedRecord(number, Fate.QUARANTINED, f"not a row of {len(names)} fields", doubt=record.doubt)
        row: dict[str, Any] = {}
        for name, value in zip(names, fields, strict=True):
            row.setdefault(name, value)
        return self._rows.of(place, number, Fields(row), self._order(place), has_op=has_op, doubt=record.doubt)


def _chain(first: CsvRecord, rest: Iterator[CsvRecord]) -> Iterator[CsvRecord]:
    yield first
    yield from rest


def records_of(stream: Any, delimiter: str, null_text: str = "") -> Iterator[CsvRecord]:
    """Yields the records of a CSV file, without those that are empty lines.

    The last one of a file with an odd number of quotes is bad: a quote is not closed.

    Args:
        stream: its bytes.
        delimiter: stands between two fields.
        null_text: stands for null, as an empty field without quotes does.
    """
    quotes, held = 0, None
    comma = delimiter.encode()
    for raw in _raw_records(stream, comma):
        quotes += raw.count(b'"')
        if held is not None:
            yield held
        held = _record(raw, delimiter, null_text)
    if held is not None:
        yield CsvRecord(held.fields, problem="a quote is not closed") if quotes % 2 else held


def _raw_records(stream: Any, delimiter: bytes) -> Iterator[bytes]:
    """Yields the bytes of the records that are not empty lines, without the ends of their lines.

    Raises:
        NotReadError: the first line ends in CR LF, and another one in LF alone; line breaks within quotes do not count.
    """
    parts: list[bytes] = []
    end, within, is_first = b"", False, True
    for raw_line in stream:
        line = raw_line.removeprefix(_BOM) if is_first else raw_line
        is_first = False
        within = _ends_within(line, delimiter, within)
        parts.append(line)
        if within or not line.endswith(b"\n"):
            continue
        end = end or (b"\r\n" if line.endswith(b"\r\n") else b"\n")
        if not line.endswith(end):
            raise NotReadError("some rows of a file end in CR LF and some in LF alone: which do is not defined")
        if raw := b"".join(parts).removesuffix(b"\n").removesuffix(b"\r"):
            yield raw
        parts = []
    if parts:
        yield b"".join(parts)


def _ends_within(line: bytes, delimiter: bytes, within: bool) -> bool:
    """Returns whether a line ends within quotes; a quote opens a field only where the field begins."""
    if b'"' not in line:
        return within
    at, size = 0, len(line)
    begins = not within
    while at < size:
        if within:
            end = line.find(b'"', at)
            if end < 0:
                return True
            if line[end + 1 : end + 2] == b'"':
                at = end + 2
                continue
            within, begins, at = False, False, end + 1
            continue
        if begins and line[at : at + 1] == b'"':
            within, at = True, at + 1
            continue
        end = line.find(delimiter, at)
        if end < 0:
            return False
        begins, at = True, end + len(delimiter)
    return within


def _record(raw: bytes, delimiter: str, null_text: str) -> CsvRecord:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        as_well_as_possible = raw.decode(errors="replace").encode()
        return CsvRecord(_record(as_well_as_possible, delimiter, null_text).fields, problem="not UTF-8")
    if '"' not in text:
        doubt = "\r" in text or "\n" in text
        return CsvRecord([_plain(field, null_text) for field in text.split(delimiter)], doubt=doubt)
    fields: list[Any] = []
    doubt, at = False, 0
    while True:
        if text[at : at + 1] == '"':
            value, at, sure = _quoted(text, at + 1, delimiter)
            doubt |= not sure
            field = None if value == null_text and null_text else value
            fields.append(ANY if not sure else Lines(field) if field is not None and "\r" in field else field)
        else:
            end = text.find(delimiter, at)
            value = text[at:] if end < 0 else text[at:end]
            doubt |= "\r" in value or "\n" in value
            fields.append(_plain(value, null_text))
            at = len(text) if end < 0 else end
        if at >= len(text):
            return CsvRecord(fields, doubt=doubt)
        at += len(delimiter)


def _plain(field: str, null_text: str) -> Any:
    return None if field in ("", null_text) else field


def _quoted(text: str, at: int, delimiter: str) -> tuple[str, int, bool]:
    """Returns the text of a field in quotes, where it ends, and whether a delimiter or the end follows."""
    parts: list[str] = []
    while True:
        end = text.find('"', at)
        if end < 0:
            return "".join([*parts, text[at:]]), len(text), False
        parts.append(text[at:end])
        if text[end + 1 : end + 2] == '"':
            parts.append('"')
            at = end + 2
            continue
        after = text.find(delimiter, end + 1)
        after = len(text) if after < 0 else after
        return "".join(parts), after, after == end + 1


def _name(written: str) -> str:
    """Returns a name of a header without blanks around it, and without quotes that a blank precedes."""
    name = written.strip()
    return name[1:-1].replace('""', '"') if len(name) > 1 and name[0] == name[-1] == '"' else name
