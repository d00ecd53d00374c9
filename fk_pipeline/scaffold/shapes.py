"""One JSON line of a sample: its format, and its table, key, row and types."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from fk_pipeline.errors import UsageError

DEBEZIUM, MAXWELL, ROWS = "debezium", "maxwell", "rows"


@dataclass(frozen=True)
class Line:
    """A line that contains a row.

    Attributes:
        format: the format, as the pipeline file names it.
        shape: the name of such lines in a sentence.
        row: the row, by column.
        table: the table that the line names; None if it names none.
        within: the schema or database of the table; None if the line does not name it.
        is_new: whether the row was read or inserted, so that its key did not exist before.
        key: the names of the key columns; None if the line does not contain them.
        fields: the row's fields as Kafka Connect describes them; None if the line has no schema.
    """

    format: str
    shape: str
    row: dict[str, Any]
    table: str | None = None
    within: str | None = None
    is_new: bool = True
    key: tuple[str, ...] | None = None
    fields: tuple[dict[str, Any], ...] | None = None


def line_of(value: dict[str, Any] | None, where: str) -> Line | None:
    """Returns the row of a line with its facts; None if it contains no row (a delete, a tombstone line, a marker).

    Raises:
        UsageError: no format can read the line.
    """
    if value is None:
        return None
    if _is_record(value):
        key, _ = _unwrapped(_parsed(value.get("key")))
        inner, schema = _unwrapped(_parsed(value["value"]))
        topic = value.get("topic")
        table = topic.rsplit(".", 1)[-1] if isinstance(topic, str) else None
        line = _of_debezium(inner, schema, "exported records", where)
        if inner is not None and not _is_change(inner) and not _is_marker(inner):
            raise _without_operation(where)
        names = tuple(key) if isinstance(key, dict) else None
        return None if line is None else replace(line, table=line.table or table, key=names)
    inner, schema = _unwrapped(value)
    if inner is None or _is_marker(inner):
        return None
    if _is_change(inner):
        return _of_debezium(inner, schema, "change events", where)
    if schema is not None:
        raise _without_operation(where)
    if isinstance(inner.get("type"), str) and "database" in inner and "table" in inner:
        return _of_maxwell(inner)
    return Line(ROWS, "plain rows", inner)


def _without_operation(where: str) -> UsageError:
    return UsageError(
        "a row that does not say what happened to it: neither an envelope with op, nor __op or __deleted",
        where=where,
        fix="flattened rows need transforms.unwrap.add.fields=op,source.sequence; see the page of the format debezium",
    )


def _is_record(value: dict[str, Any]) -> bool:
    """Returns whether a value is an exported record; a row may also have columns called `key` and `value`."""
    inner = _parsed(value.get("value"))
    if "value" not in value or not ("key" in value or "topic" in value):
        return False
    return isinstance(inner, dict) or (inner is None and ("topic" in value or isinstance(value.get("key"), dict)))


def _parsed(value: Any) -> Any:
    """Returns a key or value as JSON: some exports write them as texts."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _unwrapped(value: Any) -> tuple[Any, dict[str, Any] | None]:
    """Returns the payload and the schema of `{"schema", "payload"}`; any other value as it is, and None."""
    if isinstance(value, dict) and set(value) == {"schema", "payload"}:
        return value["payload"], value["schema"]
    return value, None


def _is_marker(value: Any) -> bool:
    if not isinstance(value, dict):
        return True
    if value.get("op") == "m":
        return "message" in value
    if value.get("op") == "t":
        return isinstance(value.get("source"), dict)
    return value.get("status") in ("BEGIN", "END") and bool({"event_count", "data_collections"} & set(value))


def _is_change(value: Any) -> bool:
    """Returns whether a value is an envelope, or a flattened row with its operation."""
    return isinstance(value, dict) and bool(
        ("op" in value and {"before", "after"} & set(value)) or {"__op", "__deleted"} & set(value)
    )


def _of_debezium(value: Any, schema: dict[str, Any] | None, of: str, where: str) -> Line | None:
    """Returns the line of an envelope or a flattened row; None if the value is neither, or has no row."""
    if not isinstance(value, dict):
        return None
    carries = " with their schema" if schema else ""
    if "op" in value and ("after" in value or "before" in value):
        row, source = value.get("after"), _object(value.get("source"))
        if isinstance(row, str):
            raise UsageError("the row is a document in a text, as of MongoDB; no format reads that", where=where)
        if not isinstance(row, dict):
            return None
        return Line(
            DEBEZIUM,
            f"{of}{carries}",
            row,
            _text(source.get("table")),
            _text(source.get("schema") or source.get("db")),
            value["op"] in ("r", "c"),
            fields=_fields(schema, "after"),
        )
    if "__op" not in value and "__deleted" not in value:
        return None
    if str(value.get("__deleted")).lower() == "true" or value.get("__op") == "d":
        return None
    row = {name: item for name, item in value.items() if not name.startswith("__")}
    fields = tuple(field for field in _fields(schema) or () if not str(field.get("field")).startswith("__")) or None
    return Line(
        DEBEZIUM,
        f"{of} of flattened rows{carries}",
        row,
        _text(value.get("__source_table")),
        _text(value.get("__source_schema") or value.get("__source_db")),
        value.get("__op") in ("r", "c"),
        fields=fields,
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _fields(schema: dict[str, Any] | None, within: str | None = None) -> tuple[dict[str, Any], ...] | None:
    """Returns the fields of a row in a schema of Kafka Connect; None without any."""
    if schema is None:
        return None
    fields = schema.get("fields") or []
    if within is not None:
        fields = next((field.get("fields") or [] for field in fields if field.get("field") == within), [])
    return tuple(fields) or None


def _of_maxwell(value: dict[str, Any]) -> Line | None:
    row, operation = value.get("data"), value["type"]
    if operation not in ("insert", "bootstrap-insert", "update") or not isinstance(row, dict):
        return None
    key = value.get("primary_key_columns")
    return Line(
        MAXWELL,
        "rows of Maxwell",
        row,
        _text(value["table"]),
        _text(value["database"]),
        operation != "update",
        tuple(key) if isinstance(key, list) else None,
    )
