"""The workflow table of a traced case: per event the emitted rows, and of a foreign-key join the messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fk_pipeline.trace.cases import AnyCase, Arrival, Case, Delivery, Event, LagCase, TableEvent

Json = dict[str, Any]

_MESSAGES = ("sent to the right side", "answered to the left side")


def columns(case: AnyCase) -> tuple[str, ...]:
    """Returns the headings of the table of KIP-213; only a foreign-key join has messages between its sides."""
    return ("event", *(_MESSAGES if isinstance(case, Case | LagCase) else ()), "result", "dropped")


def rows(case: AnyCase, computed: Json) -> list[list[str]]:
    """Returns the rows of the table, one per event or operation."""
    events: Sequence[Any] = case.ops if isinstance(case, LagCase) else case.events
    steps = zip(events, computed["steps"], strict=False)  # Kafka may have died before the last event
    return [
        [
            f"{number}  {_event(event)}",
            *(_messages(step) if isinstance(case, Case | LagCase) else []),
            "\n".join([*(f"{_key(r['key'])} = {_joined(r['value'])}{_at(r)}" for r in step["emits"]), *_differs(step)]),
            str(step.get("dropped") or ""),
        ]
        for number, (event, step) in enumerate(steps, 1)
    ]


def _differs(step: Json) -> list[str]:
    return [f"({reason})" for reason in step.get("differs", ())]


def _messages(step: Json) -> list[str]:
    sent, answered = map(_sent, step["subscriptions"]), map(_answered, step["responses"])
    return ["\n".join(sent), "\n".join(answered)]


def _event(event: Event | TableEvent | Arrival | Delivery) -> str:
    if isinstance(event, Delivery):
        return f"(deliver a {event.from_})"
    return f"{event.side} {_key(event.key)} = {_short(event.value)} @{event.ts}"


def _key(key: str | None) -> str:
    return "null" if key is None else key


def _short(value: Json | str | None) -> str:
    """Returns a value as the values of its fields: `{"fk": "1", "v": "x"}` is `x|1`, as KIP-213 writes it."""
    if value is None:
        return "deleted"
    if isinstance(value, str):
        return value
    rest = [_text(v) for name, v in value.items() if name != "fk"]
    return "|".join([*rest, *([_text(value["fk"])] if "fk" in value else [])])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _sent(message: Json) -> str:
    return f"{message['pk']} to {_key(message['fk'])}: {message['instruction']}{_at(message)}"


def _answered(message: Json) -> str:
    if "verdict" in message:
        return f"{message['key']} ({message['cause']} side): {message['verdict']}"
    right = "nothing" if message["right"] is None else _short(message["right"])
    return f"{message['key']}: {right}{_at(message)}"


def _joined(value: Json | None) -> str:
    if value is None:
        return "deleted"
    left, right = ("-" if value[side] is None else _short(value[side]) for side in ("left", "right"))
    return f"({left}, {right})"


def _at(record: Json) -> str:
    return f" @{record['ts']}" if "ts" in record else ""
