"""Change events of Debezium as this reader understands them (`docs/reference/debezium.md`)."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fk_pipeline.verify.inputs.landed import Fate, Fields, FilePlace, InputColumns, LandedRecord
from fk_pipeline.verify.inputs.sent import json_of, text_of

_WORD = "__debezium_unavailable_value"
_IN_BASE64 = base64.b64encode(_WORD.encode()).decode()
_AS_UUID = str(uuid.UUID(bytes=hashlib.md5(_WORD.encode(), usedforsecurity=False).digest(), version=3))
_NOT_SENT = frozenset(
    {
        _WORD,
        _IN_BASE64,
        *(f'["{word}"]' for word in (_WORD, _IN_BASE64, _AS_UUID)),
        "[" + ",".join(str(byte) for byte in _WORD.encode()) + "]",
        f'{{"{_WORD}":"{_WORD}"}}',
    }
)
"""The texts that stand for a value that PostgreSQL did not send."""

_LSN = re.compile(r"([0-7][0-9a-fA-F]{7}):([0-9a-fA-F]{8}):([0-9a-fA-F]{4})")
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")


class DebeziumEntries:
    """The records of change events."""

    def __init__(self, columns: InputColumns) -> None:
        self.columns = columns
        self._table = columns.side.table

    def of_line(self, place: FilePlace, line: int, value: dict[str, Any], doubt: bool) -> Iterator[LandedRecord]:
        """Yields the records of a line: two for an update that changes the key."""
        inner = value.get("value")
        places = [part for part in (_payload(inner), inner, _payload(value), value) if isinstance(part, dict)]
        flat = next((part for part in places if _has(part, "__op", "__deleted")), None)
        event = next((part for part in places if _has(part, "op", "status")), None) if flat is None else None
        source, op = _source(flat, event), _operation(flat, event)
        fate, reason = Fate.IGNORED, "another table" if self._is_of_another(source) else ""
        if not reason and flat is None:
            fate, reason = _without_row(value, places, event, op)
        if not reason and op not in ("c", "u", "r", "d", "t"):
            reason = "not a Debezium change event: it has no op" if op is None else "an unknown op"
            fate = Fate.QUARANTINED
        if reason or op is None:
            yield LandedRecord(line, fate, reason, doubt=doubt)
            return
        row = Fields((flat if flat is not None else (event or {}).get("before" if op == "d" else "after")) or {})
        order = _order(source, flat is not None, op)
        if op == "t":
            yield self.columns.truncate(line, row, order, doubt=doubt)
            return
        read = partial(
            self.columns.entry, place, line, row=row, order=order, since=_committed(source), not_sent=_NOT_SENT
        )
        entry, before = read(op=op, key=_key(value.get("key")), doubt=doubt), (event or {}).get("before")
        if op == "u" and isinstance(before, dict) and self.columns.are_in(Fields(before)):
            old = read(op="d", key=Fields(before), doubt=doubt)
            if None not in (old.key, entry.key) and old.key != entry.key:
                yield old
        yield entry

    def _is_of_another(self, source: Mapping[str, Any]) -> bool:
        table = source.get("table")
        if self._table is None or table is None:
            return False
        within = [source.get("schema"), source.get("db")]
        names = [table, *(f"{qualifier}.{table}" for qualifier in within if qualifier is not None)]
        if None not in within:
            names.append(f"{source['db']}.{source['schema']}.{table}")
        return self._table not in names


def _payload(value: Any) -> Any:
    return value.get("payload") if isinstance(value, dict) else None


def _has(value: Mapping[str, Any], *names: str) -> bool:
    return any(value.get(name) is not None for name in names)


def _source(flat: Mapping[str, Any] | None, event: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Returns the fields about the source of a record, by the names that an event has."""
    if flat is not None:
        mark = "__source_"
        return {name.removeprefix(mark): value for name, value in flat.items() if name.startswith(mark)}
    source = (event or {}).get("source")
    return source if isinstance(source, dict) else {}


def _misshapen(value: dict[str, Any], places: list[dict[str, Any]]) -> str:
    """Returns why a line is not an event or a record with one; empty if it is."""
    shaped = [value.get("value"), value.get("payload"), _payload(value.get("value"))]
    shaped += [part.get(name) for part in places for name in ("before", "after", "source")]
    return "" if all(part is None or isinstance(part, dict) for part in shaped) else "not a JSON object"


def _without_row(
    value: dict[str, Any], places: list[dict[str, Any]], event: Mapping[str, Any] | None, op: str | None
) -> tuple[Fate, str]:
    """Returns the fate of a line that is no flattened row and has no event with a row, and why; no reason if it has."""
    if problem := _misshapen(value, places):
        return Fate.QUARANTINED, problem
    if op == "m":
        return Fate.IGNORED, "logical message"
    if event is not None and event.get("status") in ("BEGIN", "END"):
        return Fate.IGNORED, "transaction record"
    if event is None and _has(value, "key", "topic") and value.get("value") is None:
        return Fate.IGNORED, "tombstone line"
    if event is not None and op in ("c", "u", "r") and event.get("after") is None:
        return Fate.QUARANTINED, f"op {op} without a row in after"
    return Fate.IGNORED, ""


def _operation(flat: Mapping[str, Any] | None, event: Mapping[str, Any] | None) -> str | None:
    if flat is None:
        op = (event or {}).get("op")
        return None if op is None else text_of(op).lower()
    deleted = flat.get("__deleted")
    if deleted is not None and text_of(deleted) == "true":
        return "d"
    return "u" if flat.get("__op") is None else text_of(flat["__op"]).lower()


def _key(key: Any) -> Fields | None:
    """Returns the fields of the key of a message, which may be JSON in a text; None if it has none."""
    for _ in range(2):
        if isinstance(key, str):
            try:
                key = json_of(key)
            except (ValueError, RecursionError):
                return None
        if not isinstance(key, dict):
            return None
        if key.get("schema") is None or not isinstance(key.get("payload"), dict):
            break
        key = key["payload"]
    return Fields(key)


def _integer(value: Any) -> int | None:
    if value is None or not _WHOLE.fullmatch(text_of(value)):
        return None
    number = int(text_of(value))
    return number if -(1 << 63) <= number < 1 << 63 else None


def _first(*values: int | None, otherwise: int) -> int:
    return next((value for value in values if value is not None), otherwise)


def _order(source: Mapping[str, Any], is_flat: bool, op: str) -> tuple[int, int]:
    """Returns the place of an event: (commit, position)."""
    pair = _pair(source.get("sequence"))
    file = re.search(r"[0-9]+$", text_of(source["file"])) if source.get("file") is not None else None
    lsn = _LSN.fullmatch(text_of(source["commit_lsn"])) if source.get("commit_lsn") is not None else None
    only_lsn = is_flat and source.get("sequence") is None and source.get("lsn") is not None and op != "r"
    commit = _first(
        pair[0],
        None if file is None else _integer(file[0]),
        _integer(source.get("scn") if source.get("commit_scn") is None else source["commit_scn"]),
        None if lsn is None else (int(lsn[1], 16) << 32) + int(lsn[2], 16),
        otherwise=int(only_lsn),
    )
    position = _first(
        pair[1],
        _integer(source.get("lsn")),
        _integer(source.get("pos")),
        _integer(source.get("scn")),
        None if lsn is None else int(lsn[3], 16),
        otherwise=0,
    )
    return commit, position


def _pair(sequence: Any) -> tuple[int | None, int | None]:
    """Returns the two positions in the text of PostgreSQL's sequence."""
    try:
        positions = json_of(sequence) if isinstance(sequence, str) else sequence
    except (ValueError, RecursionError):
        return None, None
    first, second, *_ = [*(positions if isinstance(positions, list) else []), None, None]
    return _integer(first), _integer(second)


def _committed(source: Mapping[str, Any]) -> int | None:
    """Returns when a change was committed, in microseconds since 1970."""
    micros, nanos, millis = (_integer(source.get(name)) for name in ("ts_us", "ts_ns", "ts_ms"))
    if micros is not None:
        return micros
    if nanos is not None:
        return int(nanos / 1000) if abs(nanos) < 1 << 52 else nanos // 1000
    return None if millis is None else millis * 1000
