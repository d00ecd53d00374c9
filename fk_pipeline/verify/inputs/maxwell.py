"""Rows of Maxwell's daemon as this reader understands them (`docs/reference/maxwell.md`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fk_pipeline.verify.inputs.landed import Fate, Fields, FilePlace, InputColumns, LandedRecord
from fk_pipeline.verify.inputs.sent import text_of

_TYPES = {"insert": "c", "bootstrap-insert": "r", "update": "u", "delete": "d"}
_NO_ROW = re.compile(r"bootstrap-start|bootstrap-complete|(table|database)-.*", re.DOTALL)
_KNOWN = {f"table-{what}" for what in ("create", "alter", "drop", "rename")} | {
    f"database-{what}" for what in ("create", "alter", "drop")
}


class MaxwellEntries:
    """The records of Maxwell's rows: two for an update that changes the key."""

    def __init__(self, columns: InputColumns) -> None:
        self.columns = columns

    def of_line(self, place: FilePlace, line: int, value: dict[str, Any], doubt: bool) -> Iterator[LandedRecord]:
        """Yields the records of a line."""
        given = value.get("type")
        word = None if given is None else text_of(given)
        if word is not None and _NO_ROW.fullmatch(word):
            sure = word.startswith("bootstrap") or word in _KNOWN
            yield LandedRecord(line, Fate.IGNORED, "no row", doubt=doubt or not sure)
            return
        if self._is_of_another(value):
            yield LandedRecord(line, Fate.IGNORED, "another table", doubt=doubt)
            return
        data, old = value.get("data"), value.get("old")
        problem = ""
        if any(image is not None and not isinstance(image, dict) for image in (data, old)):
            problem = "not a JSON object"
        elif word is None:
            problem = "not a row of Maxwell: it has no type"
        elif word.lower() not in _TYPES:
            problem = "an unknown type"
        elif data is None:
            problem = f"type {word} without data"
        if problem or word is None or data is None:
            yield LandedRecord(line, Fate.QUARANTINED, problem, doubt=doubt)
            return
        op = _TYPES[word.lower()]
        order, since = _order(value), _committed(value.get("ts"))
        row = Fields(data)
        entry = self.columns.entry(place, line, op, row, order, since=since, doubt=doubt)
        if op == "u" and old:
            before = self.columns.entry(place, line, "d", row, order, key=Fields(old), since=since, doubt=doubt)
            now = self.columns.entry(place, line, "d", row, order, since=since, doubt=doubt)
            if now.key is not None and before.key != now.key:
                yield before
        yield entry

    def _is_of_another(self, value: dict[str, Any]) -> bool:
        declared, table = self.columns.side.table, value.get("table")
        if declared is None or table is None:
            return False
        return declared not in (text_of(table), f"{value.get('database')}.{text_of(table)}")


def _order(value: dict[str, Any]) -> tuple[int, int, int]:
    """Returns the place of a row: (file, position, offset); an offset without a position is none."""
    position = "" if value.get("position") is None else text_of(value["position"])
    gtid = "" if value.get("gtid") is None else text_of(value["gtid"])
    file = re.search(r"([0-9]+):[0-9]+$", position)
    at = re.fullmatch(r"(?:.*:)?\s*([+-]?[0-9]+)\s*", position, re.DOTALL) or re.search(r"([0-9]+)$", gtid)
    offset = re.fullmatch(r"\s*([+-]?[0-9]+)\s*", text_of(value.get("xoffset") or ""))
    place = _number(at)
    return _number(file) or 0, place or 0, 0 if place is None else _number(offset) or 0


def _number(match: re.Match[str] | None) -> int | None:
    number = None if match is None or len(match[1]) > 20 else int(match[1])
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None


def _committed(seconds: Any) -> int | None:
    match = re.fullmatch(r"\s*([+-]?[0-9]{1,12})\s*", text_of(seconds)) if seconds is not None else None
    return None if match is None else int(match[1]) * 1_000_000
