"""Change events as a reader of its own sees them: Python's `json`, which shares no code with Spark's parser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class Number(str):
    """A number as it was written."""

    __slots__ = ()


def value_of(text: str) -> Any:
    """A JSON text, its numbers as they were written.

    Raises:
        ValueError: the text is not one JSON value.
    """
    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=Number, strict=False)


def text_of(value: Any) -> str:
    """JSON without white space, numbers as they were written."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{text_of(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value)


def row_of(format_: str, line: str, key: str, removed: bool) -> Mapping[str, Any]:
    """The row that an event writes, or what it says of the row that it removes.

    Args:
        format_: rows, debezium or maxwell.
        line: the event.
        key: the only key column.
        removed: the event, or that part of it which is meant, removes a row.
    """
    event = value_of(line)
    if format_ == "debezium":
        return _debezium(event, key)
    if format_ == "maxwell":
        has_old_key = removed and event["type"] == "update"
        return {**event["data"], **({key: event["old"][key]} if has_old_key else {})}
    return dict(event)


def _debezium(event: dict[str, Any], key: str) -> Mapping[str, Any]:
    sent = _payload(event["value"] if isinstance(event.get("value"), dict) else event)
    is_flat = sent.get("__op") is not None or sent.get("__deleted") is not None
    row = sent if is_flat else sent["before" if sent["op"] == "d" else "after"] or {}
    of_message = _payload(event["key"] if isinstance(event.get("key"), dict) else {})
    return row if of_message.get(key) is None else {**row, key: of_message[key]}


def _payload(value: dict[str, Any]) -> dict[str, Any]:
    return value["payload"] if isinstance(value.get("payload"), dict) else value
