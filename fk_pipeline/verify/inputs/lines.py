"""The lines of JSON files, and what is common to the formats that have them."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fk_pipeline.cdc.unreadable import MARK, Shape, look_into
from fk_pipeline.environment import storage
from fk_pipeline.store.ledger.corrections import digest_of
from fk_pipeline.verify.inputs.landed import Fate, FilePlace, LandedRecord
from fk_pipeline.verify.inputs.sent import json_of

_MARK = "\ufeff"

_WHITE = " \t\r"
_LOOSE_WORD = re.compile(r"[:,\[]\s*(?:[+-]?INF|\+Infinity)\s*[,\]}]")


@contextmanager
def readable(path: str, limit: int, shape: Shape) -> Iterator[tuple[str | None, str]]:
    """Yields a file with the lines of a landing file that can be read, None if there are none, and why the rest cannot.

    Args:
        path: the landing file.
        limit: the largest number of bytes of a line.
        shape: how its lines end.
    """
    with tempfile.TemporaryDirectory() as folder:
        unreadable = look_into(path, folder, limit=limit, shape=shape).unreadable
        if unreadable is None:
            yield path, ""
        else:
            yield unreadable.readable, "" if unreadable.problem is None else unreadable.reason


@contextmanager
def stream_of(path: str) -> Iterator[Any]:
    """Yields the bytes of a file, unpacked if its name says that it is packed."""
    with storage.opened(path, compression="gzip" if path.endswith(".gz") else None) as stream:
        yield stream


class LineEntries:
    """The reader of a format with one JSON value per line.

    Args:
        limit: the largest number of bytes of a line.
        read: function from a file, the number of a line and its object that yields the records of the line.
        null_is_empty: whether a line `null` is an empty line.
    """

    def __init__(
        self,
        limit: int,
        read: Callable[[FilePlace, int, dict[str, Any], bool], Iterator[LandedRecord]],
        *,
        null_is_empty: bool,
    ) -> None:
        self._limit, self._read = limit, read
        self._empty = ("", "null") if null_is_empty else ("",)

    def entries(self, place: FilePlace) -> Iterator[LandedRecord]:
        """Yields the records of a file, in their order."""
        with readable(place.path, self._limit, Shape()) as (path, problem):
            number = 0
            if path is not None:
                with stream_of(path) as stream:
                    for number, raw in enumerate(stream, 1):
                        yield from self._of_line(place, number, raw.removesuffix(b"\n"))
            if problem:
                yield LandedRecord(number + 1, Fate.QUARANTINED, problem)

    def _of_line(self, place: FilePlace, number: int, raw: bytes) -> Iterator[LandedRecord]:
        if raw.startswith(MARK.encode()):
            yield LandedRecord(number, Fate.QUARANTINED, f"longer than {self._limit:,} bytes")
            return
        try:
            line, problem = raw.decode(), ""
        except UnicodeDecodeError:
            line, problem = "bytes in Base64: " + base64.b64encode(raw).decode(), "not UTF-8"
        doubt = line.startswith(_MARK) and number > 1
        line = line.lstrip(_MARK)
        if place.texts and (read_as := place.texts.get(digest_of(line))) is not None:
            line, problem = read_as, ""
        if problem:
            yield LandedRecord(number, Fate.QUARANTINED, problem)
            return
        if line.strip(_WHITE) in self._empty:
            yield LandedRecord(number, Fate.IGNORED, "empty line")
            return
        try:
            value = json_of(line)
        except (ValueError, RecursionError):
            yield LandedRecord(number, Fate.QUARANTINED, "not a JSON object", doubt=_is_loose(line))
            return
        if not isinstance(value, dict):
            yield LandedRecord(number, Fate.QUARANTINED, "not a JSON object")
            return
        records = [*self._read(place, number, value, doubt)]
        if _has_half_a_pair(line, value) and any(record.fate is not Fate.IGNORED for record in records):
            records = [LandedRecord(number, Fate.QUARANTINED, "not UTF-8")]
        yield from records


def _has_half_a_pair(line: str, value: Any) -> bool:
    """Returns whether a text in a line cannot be written as UTF-8: it has half of a surrogate pair."""
    if "\\ud" not in line.lower():
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_loose(line: str) -> bool:
    """Returns whether a line that is no JSON is an object in a looser way of writing."""
    return (
        "'" in line
        or _LOOSE_WORD.search(line) is not None
        or any(ord(character) < 32 and character not in _WHITE for character in line)
    )
